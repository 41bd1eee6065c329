//! `runner why --host`: what it says is what happens to a body that connects.

use std::process::Command;

use serde_json::Value;
use support::runner;

use super::runs::{Seen, Setting, allow};

const CONNECTS: &str = include_str!("../bodies/egress/why_connects.py");

/// The verdict and the state of the answer.
fn answer(setting: &Setting, flags: &[&str], host: &str) -> (bool, String) {
    let output = Command::new(runner())
        .args(["why", "--json", "--host", host])
        .args(["--egress-capture", setting.capture.word()])
        .args(flags)
        .output()
        .expect("the runner starts");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let answer = &report["answer"];
    let is_allowed = match answer["verdict"].as_str() {
        Some("allowed") => true,
        Some("denied") => false,
        _ => panic!("{report:#}"),
    };
    let state = answer["state"].as_str().expect("a state");
    (is_allowed, state.to_owned())
}

/// Compares the answers with what a body reaches. `cases` are a host, a port, and the expected state.
fn compare(setting: &Setting, flags: &[&str], cases: &[(&str, u16, &str)]) {
    let asked: Vec<String> = cases
        .iter()
        .map(|(host, port, _)| format!("({host:?}, {port})"))
        .collect();
    let script = format!("asked = [{}]\n{CONNECTS}", asked.join(", "));
    let seen = Seen::of(setting.case(flags, &script).done());
    seen.done.assert_exited(0);
    assert_eq!(seen.said.len(), cases.len(), "{seen:#?}");
    for (said, (host, port, expected)) in seen.said.iter().zip(cases) {
        let host = format!("{host}:{port}");
        let (is_allowed, state) = answer(setting, flags, &host);
        assert_eq!(state, *expected, "{host}");
        let is_reached = *said == format!("{host}: reached");
        assert_eq!(is_reached, is_allowed, "{said}: {state}: {seen:#?}");
    }
}

on_both_captures! {
    fn a_body_reaches_a_host_where_the_answer_says_that_it_may(setting) {
        let [listed, of_port, other] = [180, 181, 182].map(|number| setting.name(number));
        let zone = format!("below-{}.zone.example", setting.unique);
        let address = |number| setting.public(number);
        let below = format!("v4-{}.{zone}", address(183).replace('.', "-"));
        let (with_port, any_below) = (format!("{of_port}:9000"), format!("*.{zone}"));
        let (literal, unlisted) = (address(184), address(185));
        let of_literal = format!("{literal}:8443");
        let flags = allow(&[&listed, &with_port, &any_below, &of_literal, "10.1.2.3"]);
        let uncaptured = match setting.capture {
            super::runs::Capture::Tproxy => "listed",
            super::runs::Capture::AnyIp => "not_captured",
        };
        compare(
            setting,
            &flags,
            &[
                (&listed, 443, "listed"),
                (&listed, 80, "listed"),
                (&listed, 22, uncaptured),
                (&of_port, 9000, "listed"),
                (&of_port, 443, "not_listed"),
                (&below, 443, "listed"),
                (&zone, 443, "not_listed"),
                (&other, 443, "not_listed"),
                (&literal, 8443, "listed"),
                (&literal, 443, "not_listed"),
                (&unlisted, 8443, "not_listed"),
                ("10.1.2.3", 443, "not_public"),
                ("localhost", 5432, "loopback"),
            ],
        );
        let closed = [(&*listed, 443, "closed"), (&literal, 8443, "closed")];
        compare(setting, &[], &closed);
    }
}
