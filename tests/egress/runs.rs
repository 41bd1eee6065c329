//! One case: a ground, the outside, one way of capturing, and a body in Python.

use serde_json::Value;

use support::invariants::eventually;
use support::network::{Outside, PYTHON, network_namespaces};
use support::objects::now_ticks;
use support::{Case, Done, Ground, random};

/// What every body begins with.
pub const PRELUDE: &str = include_str!("prelude.py");

/// How connections come to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// By rules of nf_tables.
    Tproxy,
    /// By listeners at the ports that the list knows.
    AnyIp,
}

impl Capture {
    /// As the flag and the report have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tproxy => "tproxy",
            Self::AnyIp => "anyip",
        }
    }
}

/// Declares cases that are run with both ways of capturing: `name::tproxy` and `name::anyip`.
macro_rules! on_both_captures {
    ($($(#[$about:meta])* fn $name:ident($setting:ident) $body:block)*) => {
        $($(#[$about])*
        fn $name($setting: &$crate::runs::Setting) $body

        // A function and a module may have the same name.
        mod $name {
            #[test]
            fn tproxy() {
                $crate::runs::Setting::with($crate::runs::Capture::Tproxy, super::$name);
            }
            #[test]
            fn anyip() {
                $crate::runs::Setting::with($crate::runs::Capture::AnyIp, super::$name);
            }
        })*
    };
}

/// What a case stands on.
pub struct Setting {
    /// Its ground.
    pub ground: Ground,
    /// What is beyond.
    pub outside: &'static Outside,
    /// How connections are captured.
    pub capture: Capture,
    /// A label that no other case has.
    pub unique: String,
}

/// What came of a run.
#[derive(Debug)]
pub struct Seen {
    /// Everything.
    pub done: Done,
    /// What the body said, a line each.
    pub said: Vec<String>,
    /// Denials of the network: `tcp ip-literal 8.8.8.8:443 x1`, sorted.
    pub denials: Vec<String>,
}

impl Setting {
    /// Runs a case where there is an outside.
    pub fn with(capture: Capture, case: fn(&Self)) {
        if let Some(outside) = Outside::get() {
            case(&Self {
                ground: Ground::new(),
                outside,
                capture,
                unique: format!("u{}", random()),
            });
        }
    }

    /// `runner run --egress-capture … FLAGS -- python3 -c SCRIPT`, not started. The script finds
    /// `unique` of the setting as a variable.
    pub fn case(&self, flags: &[&str], script: &str) -> Case<'_> {
        let words: Vec<&str> = ["run", "--egress-capture", self.capture.word()]
            .iter()
            .chain(flags)
            .copied()
            .collect();
        self.case_of(&words, script)
    }

    /// A public address that no case has at the same time: both ways of capturing have their own.
    pub fn public(&self, number: u8) -> String {
        match self.capture {
            Capture::Tproxy => format!("93.184.216.{number}"),
            Capture::AnyIp => format!("93.185.216.{number}"),
        }
    }

    /// A name that leads to [`Setting::public`].
    pub fn name(&self, number: u8) -> String {
        let address = self.public(number).replace('.', "-");
        format!("v4-{address}.{}.zone.example", self.unique)
    }

    /// `runner WORDS -- python3 -c SCRIPT`, not started.
    pub fn case_of(&self, words: &[&str], script: &str) -> Case<'_> {
        let program = self.program(script);
        let words: Vec<&str> = words
            .iter()
            .chain(&["--", PYTHON, "-c", &program])
            .copied()
            .collect();
        self.ground.command(&words).inside(self.outside)
    }

    /// The whole text of a body.
    pub fn program(&self, script: &str) -> String {
        format!("{PRELUDE}\nunique = {:?}\n{script}", self.unique)
    }

    /// Runs it to its end, with these hosts allowed.
    pub fn run(&self, allowed: &[&str], script: &str) -> Seen {
        self.run_with(&allow(allowed), script)
    }

    /// Runs it to its end.
    pub fn run_with(&self, flags: &[&str], script: &str) -> Seen {
        let seen = Seen::of(self.case(flags, script).done());
        seen.done.assert_exited(0);
        let capture = &seen.done.report["egress"]["capture"];
        assert_eq!(capture, self.capture.word(), "{seen:#?}");
        seen
    }
}

/// The flags that allow these hosts.
pub fn allow<'host>(hosts: &[&'host str]) -> Vec<&'host str> {
    hosts
        .iter()
        .flat_map(|host| ["--allow-net", host])
        .collect()
}

impl Seen {
    /// Reads what came of a run, whose network must be gone.
    pub fn of(mut done: Done) -> Self {
        let ended_ticks = now_ticks();
        let text = done.text();
        // It is shown line by line.
        done.stdout.clear();
        let (namespaces, said): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("# "));
        for namespace in namespaces {
            let namespace = namespace.trim_start_matches("# ");
            eventually("the network of the run stays", || {
                !network_namespaces(ended_ticks).contains(namespace)
            });
        }
        let said = said.into_iter().map(str::to_owned).collect();
        let denials = denials(&done.report);
        Self {
            done,
            said,
            denials,
        }
    }

    /// Asserts what the body said, line for line; surrounding space of each line does not count.
    #[track_caller]
    pub fn assert_said(&self, expected: &str) -> &Self {
        let expected: Vec<&str> = expected.lines().map(str::trim).collect();
        let expected: Vec<&str> = expected
            .into_iter()
            .filter(|line| !line.is_empty())
            .collect();
        let said: Vec<&str> = self.said.iter().map(|line| line.trim()).collect();
        assert_eq!(said, expected, "{self:#?}");
        self
    }

    /// Asserts all denials of the network, in any order.
    #[track_caller]
    pub fn assert_denied(&self, expected: &[&str]) -> &Self {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(self.denials, expected, "{self:#?}");
        self
    }

    /// Asserts that standard error says so, once or many times.
    #[track_caller]
    pub fn assert_told(&self, whom: &str, why: &str) -> &Self {
        let line = format!("runner: denied egress to {whom} ({why}");
        let told = self.done.stderr.lines().any(|found| {
            let rest = found.strip_prefix(&line);
            rest.is_some_and(|rest| rest == ")" || rest.ends_with(" times)"))
        });
        assert!(told, "{line:?}: {self:#?}");
        self
    }
}

/// The denials of the network that a report holds, one text each, sorted.
pub fn denials(report: &Value) -> Vec<String> {
    let list = report["denials"].as_array().cloned().unwrap_or_default();
    let mut shown: Vec<String> = list
        .iter()
        .filter(|denial| denial["kind"] == "net")
        .map(|denial| {
            assert_eq!(denial["rule"], "network.egress", "{denial}");
            assert!(denial["first_ms"].is_u64(), "{denial}");
            let word = |key: &str| denial[key].as_str().unwrap_or("?").to_owned();
            let whom = denial["host"].as_str().or(denial["ip"].as_str());
            let port = denial["port"].as_u64();
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let whom = whom.unwrap_or("-");
            let whom = if whom.contains(':') && !port.is_empty() {
                format!("[{whom}]")
            } else {
                whom.to_owned()
            };
            format!(
                "{} {} {whom}{port} x{}",
                word("protocol"),
                word("reason"),
                denial["count"]
            )
        })
        .collect();
    shown.sort();
    shown
}
