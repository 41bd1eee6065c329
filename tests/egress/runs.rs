//! One case: a run with a Python body, the outside network, and one way of capturing connections.

use serde_json::Value;

use support::invariants::eventually;
use support::network::{Outside, PYTHON, network_namespaces};
use support::{Case, Done, Ground, random};

/// The first lines of every body.
pub const PRELUDE: &str = include_str!("prelude.py");

/// How connections reach the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// Rules of nf_tables.
    Tproxy,
    /// Listeners at the ports of the list.
    AnyIp,
}

impl Capture {
    /// The value in the flag and in the report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tproxy => "tproxy",
            Self::AnyIp => "anyip",
        }
    }
}

/// Declares cases that run with both ways of capturing: `name::tproxy` and `name::anyip`.
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

/// The parts of a case.
pub struct Setting {
    pub ground: Ground,
    /// The network outside.
    pub outside: &'static Outside,
    /// How connections are captured.
    pub capture: Capture,
    /// A label that no other case uses.
    pub unique: String,
}

/// The result of a run.
#[derive(Debug)]
pub struct Seen {
    pub done: Done,
    /// The lines that the body printed.
    pub said: Vec<String>,
    /// Network denials, sorted: `tcp ip-literal 8.8.8.8:443 x1`.
    pub denials: Vec<String>,
}

impl Setting {
    /// Runs a case if the outside network is available.
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

    /// A public address that no concurrent case uses: each way of capturing has its own.
    pub fn public(&self, number: u8) -> String {
        match self.capture {
            Capture::Tproxy => format!("93.184.216.{number}"),
            Capture::AnyIp => format!("93.185.216.{number}"),
        }
    }

    /// A name that resolves to [`Setting::public`].
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

    /// The complete script of a body.
    pub fn program(&self, script: &str) -> String {
        format!("{PRELUDE}\nunique = {:?}\n{script}", self.unique)
    }

    /// Runs it to its end and allows these hosts.
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
    /// Reads the result of a run, and checks that its network is gone.
    pub fn of(mut done: Done) -> Self {
        let text = done.text();
        // Printed line by line.
        done.stdout.clear();
        let (namespaces, said): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("# "));
        for namespace in namespaces {
            let namespace = namespace.trim_start_matches("# ");
            eventually("the network of the run stays", || {
                !network_namespaces(&done.ticks).contains(namespace)
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

    /// Asserts the lines that the body printed, without the white space around them.
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

    /// Asserts all network denials, in any order.
    #[track_caller]
    pub fn assert_denied(&self, expected: &[&str]) -> &Self {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(self.denials, expected, "{self:#?}");
        self
    }

    /// Asserts that standard error contains the text, once or more often.
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

/// The network denials of a report as sorted lines.
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
