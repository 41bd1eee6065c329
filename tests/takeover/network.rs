//! Runs in a network of the test's own, whose relay or resolver is taken over.

use std::path::PathBuf;

use super::{Scene, text_of};
use crate::cache::{contents, keep_victim};
use attacker::{Answer, Attack};
use rustix::process::Signal;
use support::invariants::eventually;
use support::network::{Log, Outside, PYTHON};
use support::processes::{confined_children, is_gone};
use support::{Case, Done, Running, random};

const PRELUDE: &str = include_str!("../egress/prelude.py");
/// A service on the loopback of the host.
const PRIVATE: &str = "127.0.0.1:7777";

pub(crate) struct Network {
    pub(crate) scene: Scene,
    pub(crate) outside: &'static Outside,
    /// The files of another bundle in the cache.
    victim: PathBuf,
}

impl Network {
    pub(crate) fn new() -> Option<Self> {
        let scene = Scene::new()?;
        let outside = Outside::get()?;
        let (_bundle, victim) = keep_victim(&scene);
        Some(Self {
            scene,
            outside,
            victim,
        })
    }

    /// As [`exploration`], also of a service on the loopback of the host.
    pub(crate) fn exploration(&self) -> Attack {
        let mut attack = exploration(&self.scene);
        attack.surroundings.address = Some(PRIVATE.parse().expect("an address"));
        attack.surroundings.directories.push(self.victim.clone());
        attack
    }

    /// `runner run FLAGS -- python3 -c SCRIPT` in the network, not started.
    pub(crate) fn case(&self, flags: &[&str], allowed: &[&str], script: &str) -> Case<'_> {
        let script = format!("{PRELUDE}\n{script}");
        let allowed = allowed.iter().flat_map(|host| ["--allow-net", host]);
        let words: Vec<&str> = ["run"]
            .into_iter()
            .chain(flags.iter().copied())
            .chain(allowed)
            .chain(["--", PYTHON, "-c", &script])
            .collect();
        self.scene.command(&words).inside(self.outside)
    }

    /// Runs it to its end. Nothing but the network of the run was affected.
    pub(crate) fn run(&self, case: Case<'_>) -> Seen {
        let before = contents(&self.scene.cache);
        let seen = Seen::of(case.done());
        seen.done.assert_exited(0);
        assert_eq!(contents(&self.scene.cache), before);
        self.assert_untouched(&self.outside.log());
        seen
    }

    /// Starts it, and returns its resolver and relay once the body has printed 200 bytes.
    pub(crate) fn start<'case>(&self, case: Case<'case>) -> (Running<'case>, [i32; 2]) {
        let mut running = case.without("I4").without("I5").without("I8").start();
        running.until_printed(200);
        let processes = confined_children(running.pid());
        let processes = processes.try_into().expect("a resolver and a relay");
        (running, processes)
    }

    /// A run whose supervisor gets `signal` leaves none of its processes.
    pub(crate) fn assert_ends_with(&self, case: Case<'_>, signal: Signal) {
        let (running, processes) = self.start(case);
        running.signal(signal);
        let (done, breaches) = running.finish();
        assert_eq!(done.code, 128 + signal.as_raw(), "{done:#?}");
        assert!(breaches.is_empty(), "{breaches:#?}\n{done:#?}");
        eventually("the processes of the network have ended", || {
            processes.into_iter().all(is_gone)
        });
    }

    fn assert_untouched(&self, log: &Log) {
        self.scene.assert_untouched();
        let mut connections = log.of_kind("connection");
        let private = connections.find(|connection| connection["role"] == "host");
        assert_eq!(private, None);
    }
}

/// Tries everything, and tells the attacker on every channel what succeeded.
pub(crate) fn exploration(scene: &Scene) -> Attack {
    let mut attack = scene.attack(Answer {
        text: (format!("attacker {}: ", random()), Some("\n".to_owned())),
        ..Answer::default()
    });
    attack.surroundings.address = None;
    attack
}

/// What the attacker heard at the name server of the network outside.
pub(crate) fn heard_outside(outside: &Outside, attack: &Attack) -> String {
    let (start, _) = &attack.answer.text;
    let find = |log: &Log| {
        let mut texts = log.of_kind("heard").map(|event| text_of(&event["text"]));
        texts.find_map(|text| Some(text.split_once(start)?.1.to_owned()))
    };
    let log = outside.until("what the attacker reached", |log| find(log).is_some());
    find(&log).expect("seen")
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) done: Done,
    /// Lines of the body.
    pub(crate) said: Vec<String>,
    /// The warnings about the network.
    pub(crate) warnings: Vec<String>,
}

impl Seen {
    pub(crate) fn of(done: Done) -> Self {
        let warnings = done.report["warnings"].as_array().expect("a list").iter();
        let warnings = warnings.filter(|warning| warning["code"] == "network_failed");
        let warnings = warnings
            .map(|warning| text_of(&warning["message"]))
            .collect();
        let text = done.text();
        let said = text.lines().filter(|line| !line.starts_with("# "));
        Self {
            said: said.map(str::to_owned).collect(),
            warnings,
            done,
        }
    }

    /// The run reports this failure of its network, and no other.
    #[track_caller]
    pub(crate) fn assert_warned(&self, part: &str) {
        let is_told = matches!(&self.warnings[..], [one] if one.contains(part));
        assert!(is_told, "{part}: {self:#?}");
    }
}
