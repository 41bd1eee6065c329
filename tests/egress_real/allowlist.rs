//! Runs real programs with an allowlist, and checks the reports.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::servers::Servers;
use support::{Done, Ground};

/// The ways to capture connections.
const CAPTURES: [&str; 2] = ["tproxy", "anyip"];
/// A program that has to be killed hangs. Not an assertion about speed.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// An allowlist, and what else a body gets.
pub(crate) struct Allowlist<'servers> {
    pub(crate) servers: &'servers Servers,
    pub(crate) capture: &'static str,
    pub(crate) ground: Ground,
    flags: Vec<String>,
}

/// Runs `test` with an allowlist of `hosts`, once for each way to capture.
pub(crate) fn through(hosts: &[&str], test: impl Fn(Allowlist<'_>)) {
    let Some(servers) = Servers::get() else {
        return;
    };
    for capture in CAPTURES {
        let mut list = Allowlist {
            servers,
            capture,
            ground: Ground::new(),
            flags: Vec::new(),
        };
        list.flag("--egress-capture", capture);
        list.flag("--timeout", &format!("{}s", HANGS_AFTER.as_secs()));
        for host in hosts {
            list.flag("--allow-net", host);
        }
        list.flag("--ro", &servers.authority());
        test(list);
    }
}

impl Allowlist<'_> {
    pub(crate) fn flag(&mut self, name: &str, value: &str) {
        self.flags.extend([name.to_owned(), value.to_owned()]);
    }

    /// Sets a variable of the body to the path of the authority's file.
    pub(crate) fn trust(&mut self, variable: &str) {
        self.flag("-e", &format!("{variable}={}", self.servers.authority()));
    }

    pub(crate) fn run(&self, body: &[&str]) -> Done {
        self.done("run", &[&["--"], body].concat())
    }

    fn done(&self, verb: &str, rest: &[&str]) -> Done {
        let flags = self.flags.iter().map(String::as_str);
        let words: Vec<&str> = [verb]
            .into_iter()
            .chain(flags)
            .chain(rest.iter().copied())
            .collect();
        let case = self.ground.command(&words).inside(self.servers.outside);
        let done = case.done();
        assert_eq!(done.report["egress"]["capture"], self.capture, "{done:#?}");
        assert_eq!(done.outcome(), "exited", "{done:#?}");
        // In every case: no host was reached that is not allowed.
        let asked = self.servers.asked();
        let reached = |line: &&String| line.starts_with("denied.") && !line.ends_with("/control");
        assert_eq!(asked.iter().find(reached), None, "{done:#?}");
        done
    }

    /// Runs a body that reaches `hosts` and tries no other.
    #[track_caller]
    pub(crate) fn reaches(&self, hosts: &[&str], body: &[&str]) -> Done {
        let done = self.run(body);
        assert_reached(&done, hosts);
        done
    }

    /// Runs a bundle that reaches `hosts` and tries no other.
    #[track_caller]
    pub(crate) fn bundle_reaches(&self, hosts: &[&str], bundle: &Path) -> Done {
        let bundle = bundle.to_str().expect("a plain path");
        let done = self.done("exec", &[bundle]);
        assert_reached(&done, hosts);
        done
    }

    /// Runs a bundle that is refused with `error`; returns the hint.
    #[track_caller]
    pub(crate) fn refused(&self, error: &str, bundle: &Path) -> String {
        let flags = self.flags.iter().map(String::as_str);
        let last = bundle.to_str().expect("a plain path");
        let words: Vec<&str> = ["exec"].into_iter().chain(flags).chain([last]).collect();
        let done = self
            .ground
            .command(&words)
            .inside(self.servers.outside)
            .done();
        done.assert_error("refused", error);
        let hint = done.report["error"]["hint"].as_str();
        hint.expect("a hint").to_owned()
    }

    /// Runs a body with exactly the denial `object`, which fails with its own message.
    #[track_caller]
    pub(crate) fn is_denied(&self, object: &str, reason: &str, words: &str, body: &[&str]) -> Done {
        let done = self.run(body);
        assert_ne!(done.code, 0, "{done:#?}");
        let [denial] = denials(&done)[..] else {
            panic!("one denial: {done:#?}");
        };
        for (key, value) in [
            ("kind", "net"),
            ("rule", "network.egress"),
            ("object", object),
            ("reason", reason),
        ] {
            assert_eq!(denial[key], value, "{done:#?}");
        }
        let line = format!("runner: denied egress to {object}");
        assert!(done.stderr.contains(&line), "{done:#?}");
        assert!(done.stderr.contains(words), "{words}: {done:#?}");
        done
    }
}

#[track_caller]
fn assert_reached(done: &Done, hosts: &[&str]) {
    done.assert_exited(0);
    assert_eq!(denials(done), [] as [&Value; 0], "{done:#?}");
    for host in hosts {
        let said = list(&done.report["egress"]["hosts"]);
        let said = said.iter().find(|said| said["host"] == *host);
        let said = said.unwrap_or_else(|| panic!("{host}: {done:#?}"));
        for count in ["connections", "sent_bytes", "received_bytes"] {
            let what = format!("{count} of {host}");
            assert!(said[count].as_u64() > Some(0), "{what}: {done:#?}");
        }
    }
}

fn denials(done: &Done) -> Vec<&Value> {
    let denials = list(&done.report["denials"]).iter();
    denials.filter(|denial| denial["kind"] == "net").collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
