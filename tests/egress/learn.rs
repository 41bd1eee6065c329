//! `runner learn`: hosts are closed unless they are to be learned, and a learned policy names hosts and
//! ports.

use super::runs::{Seen, Setting};
use support::network::PYTHON;
use support::text;

const TRIES: &str = include_str!("../bodies/egress/learn_tries.py");

/// Learns from the attempts; returns what the body printed, and the policy.
fn learn(setting: &Setting, flags: &[&str]) -> (Vec<String>, String) {
    let policy = setting.ground.path("policy.yaml");
    let capture = ["--egress-capture", setting.capture.word()];
    let words = [&["learn", "-o", text(&policy)], &capture[..], flags].concat();
    let script = format!(
        "public, literal = {:?}, {:?}\n{TRIES}",
        setting.name(95),
        setting.public(96)
    );
    let seen = Seen::of(setting.case_of(&words, &script).done());
    seen.done.assert_exited(0);
    (
        seen.said,
        std::fs::read_to_string(policy).expect("a policy"),
    )
}

/// The lines of the policy from `allow_net` on.
fn hosts(policy: &str) -> &str {
    let at = policy.find("  allow_net:").expect("the key");
    let end = policy.find("\n\n# Left out").unwrap_or(policy.len());
    &policy[at..end]
}

on_both_captures! {
    /// H-20: closed by default.
    fn hosts_are_closed_while_learning_and_attempts_are_comments(setting) {
        let (said, policy) = learn(setting, &[]);
        assert_eq!(said, ["public: no such name", "private: no such name", "literal: reset"]);
        assert_eq!(hosts(&policy).trim_end(), "  allow_net: []");
        for attempt in [setting.name(95), format!("{}:80", setting.public(96))] {
            assert!(policy.contains(&format!("#   connect {attempt}: ")), "{policy}");
        }
        assert_eq!(setting.outside.log().packets_to(&setting.public(95)), [""; 0]);
    }

    /// H-20.
    fn learned_hosts_have_their_ports_and_are_public(setting) {
        let (said, policy) = learn(setting, &["--learn-net"]);
        assert_eq!(said, ["public: HTTP/1.1 200 OK", "private: reset", "literal: reset"]);
        let expected = format!("  allow_net:\n    # 1 connection\n    - \"{}:80\"", setting.name(95));
        assert_eq!(hosts(&policy).trim_end(), expected);
        assert!(policy.contains(" v4-10-1-2-3."), "{policy}");
        assert_eq!(setting.outside.log().packets_to("10.1.2.3"), [""; 0]);
        // The policy admits that host, and no other one.
        let file = setting.ground.path("policy.yaml");
        let name = setting.name(95);
        let helpers = TRIES.split("# The attempts").next().unwrap_or_default();
        let script = format!("{helpers}\nsay('again', ask({name:?}))\nsay('other', resolve('www.example.com'))");
        let seen = setting.run_with(&["--policy", text(&file)], &script);
        seen.assert_said("again: HTTP/1.1 200 OK\nother: no such name");
    }

    /// H-20: within the host policy.
    fn the_list_of_the_host_policy_bounds_what_is_learned(setting) {
        let bound = setting.ground.write("bound.yaml", "egress: { allow: [other.example] }\n");
        let (said, policy) = learn(setting, &["--learn-net", "--policy", text(&bound)]);
        assert_eq!(said[0], "public: no such name");
        assert_eq!(hosts(&policy).trim_end(), "  allow_net: []");
    }

    /// H-20: the hosts of a bundle.
    fn a_bundle_reaches_under_its_policy_what_it_reached_while_learning(setting) {
        let (used, asked) = (setting.name(118), setting.name(119));
        let helpers = TRIES.split("# The attempts").next().unwrap_or_default();
        let script = setting.program(&format!("{helpers}\nsay('public', ask({used:?}))"));
        let keys = format!("run: [{PYTHON}, main.py]\nnetwork: {{ egress: [{asked}] }}\n");
        let bundle = setting.ground.bundle(&[("manifest.yaml", &keys), ("main.py", &script)]);
        let file = setting.ground.path("policy.yaml");
        let capture = ["--egress-capture", setting.capture.word()];
        let said = |verb: &[&str], code: i32| {
            let words = [verb, &capture, &[text(&bundle)]].concat();
            let done = setting.ground.command(&words).inside(setting.outside).done();
            assert_eq!(done.code, code, "{done:?}");
            let said: Vec<String> = done.text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            said.join("\n")
        };
        assert_eq!(said(&["learn", "-o", text(&file), "--learn-net"], 0), "public: HTTP/1.1 200 OK");
        let policy = std::fs::read_to_string(&file).expect("a policy");
        let expected = format!(
            "  allow_net:\n    # 1 connection\n    - \"{used}:80\"\n    # asked for by the bundle\n    - \"{asked}\""
        );
        assert_eq!(hosts(&policy).trim_end(), expected);
        assert_eq!(said(&["exec", "--policy", text(&file)], 0), "public: HTTP/1.1 200 OK");
        assert_eq!(said(&["exec", "--grant", "egress"], 0), "public: no such name");
        assert_eq!(said(&["exec"], 125), "");
    }
}
