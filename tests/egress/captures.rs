//! How connections reach the relay on hosts that lack a part of the kernel support.

use std::path::PathBuf;

use super::runs::{Capture, Seen, Setting};
use support::Case;
use support::bodies::c_body;
use support::network::{PYTHON, Who};

/// Starts a program under a filter in which `socket(FAMILY, *, PROTOCOL)` fails with an errno, as
/// on a kernel without that part. A protocol of -1 matches all.
fn without_sockets() -> PathBuf {
    let text = include_str!("../bodies/egress/without_sockets.c");
    c_body("without-sockets", text)
}

/// AF_NETLINK, NETLINK_NETFILTER, EPROTONOSUPPORT.
const NO_NETFILTER: [&str; 3] = ["16", "12", "93"];
/// AF_INET6, EAFNOSUPPORT.
const NO_IPV6: [&str; 3] = ["10", "-1", "97"];

const BODY: &str = "
say('allowed', dial('api.openai.com', 443, hello('api.openai.com') + b'who\\n'))
say('denied', dial('8.8.8.8', 443))
say('unknown', resolve('evil.example'))";
const SAID: &str = "allowed: 93.184.216.34 443\ndenied: reset\nunknown: no such name";
const DENIED: &[&str] = &[
    "dns name-not-allowed evil.example x2",
    "tcp ip-literal 8.8.8.8:443 x1",
];

on_both_captures! {
    /// `auto` uses what the host supports, and a forced way is used; the other tests force one.
    fn the_report_says_how_connections_were_captured(setting) {
        let seen = setting.run(&["api.openai.com"], BODY);
        seen.assert_said(SAID);
        seen.assert_denied(DENIED);
        let allowed = seen.done.report["egress"]["allowed"].to_string();
        assert!(allowed.contains("api.openai.com"), "{allowed}");
    }

    /// A host without IPv6.
    fn a_host_without_ipv6_enforces_the_list_for_ipv4(setting) {
        let case = setting.case(&["--allow-net", "api.openai.com"], BODY);
        let case = case.through(without_sockets(), &NO_IPV6);
        let seen = Seen::of(case.done());
        seen.done.assert_exited(0);
        assert_eq!(seen.done.report["egress"]["capture"], setting.capture.word());
        seen.assert_said(SAID);
        seen.assert_denied(DENIED);
    }
}

/// A case with `auto` or without the flag.
fn case_with<'setting>(setting: &'setting Setting, capture: &[&str]) -> Case<'setting> {
    let words: Vec<&str> = ["run", "--allow-net", "api.openai.com"]
        .iter()
        .chain(capture)
        .copied()
        .collect();
    setting.case_of(&words, BODY)
}

/// Uid 0 of a user namespace without other uids counts as an ordinary user.
#[test]
fn a_root_alone_in_its_namespace_enforces_the_list_as_an_ordinary_user() {
    for capture in [Capture::Tproxy, Capture::AnyIp] {
        Setting::with(capture, |setting| {
            let words = [
                "run",
                "--egress-capture",
                setting.capture.word(),
                "--allow-net",
                "api.openai.com",
                "--",
                PYTHON,
                "-c",
                &setting.program(BODY),
            ];
            let runtime = setting.ground.path("runtime");
            let case = setting
                .ground
                .command(&words)
                .env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime.to_string_lossy())
                .inside_as(setting.outside, Who::AloneAsRoot);
            let seen = Seen::of(case.done());
            seen.assert_said(SAID).assert_denied(DENIED);
        });
    }
}

/// Case 43: if the kernel refuses the rules, listeners replace them.
#[test]
fn without_nf_tables_listeners_enforce_the_same_list() {
    Setting::with(Capture::AnyIp, |setting| {
        for capture in [&[][..], &["--egress-capture", "auto"]] {
            let case = case_with(setting, capture).through(without_sockets(), &NO_NETFILTER);
            let seen = Seen::of(case.done());
            seen.done.assert_exited(0);
            assert_eq!(seen.done.report["egress"]["capture"], "anyip");
            seen.assert_said(SAID);
            seen.assert_denied(DENIED);
        }
    });
}

/// Case 43: if the kernel accepts them, `auto` uses rules; elsewhere, forcing them is refused with
/// the reason.
#[test]
fn rules_are_used_if_the_kernel_supports_them_and_forcing_them_elsewhere_is_refused() {
    Setting::with(Capture::Tproxy, |setting| {
        let seen = Seen::of(case_with(setting, &[]).done());
        assert_eq!(seen.done.report["egress"]["capture"], "tproxy");
        seen.assert_said(SAID);
        let forced = case_with(setting, &["--egress-capture", "tproxy"]);
        let done = forced.through(without_sockets(), &NO_NETFILTER).done();
        assert!(["refused", "failed"].contains(&done.outcome()), "{done:#?}");
        assert_eq!(done.text(), "");
        let hint = done.report["error"]["hint"].to_string();
        assert!(
            hint.contains("nf_tables") && hint.contains("--egress-capture auto"),
            "{hint}"
        );
    });
}

/// A connection that no listener receives is denied with a hint.
#[test]
fn without_rules_an_unlisted_port_is_denied_with_a_hint() {
    Setting::with(Capture::AnyIp, |setting| {
        let name = format!("v4-93-184-216-101.{}.zone.example", setting.unique);
        let seen = setting.run(
            &[&name],
            &format!("say('a bare host', dial({name:?}, 9000))"),
        );
        seen.assert_said("a bare host: reset");
        seen.assert_denied(&[&format!("tcp port-not-captured {name}:9000 x1")]);
        let hint = seen.done.report["denials"][0]["hint"].to_string();
        assert!(hint.contains(&format!("{name}:9000")), "{hint}");
    });
}

/// With rules, every port of an allowed host is captured.
#[test]
fn with_rules_a_bare_host_is_reached_at_every_port() {
    Setting::with(Capture::Tproxy, |setting| {
        let name = format!("v4-93-184-216-100.{}.zone.example", setting.unique);
        let script = format!(
            "for port in 22, 853, 5432, 7777, 8443, 9000:
    say(port, dial({name:?}, port))"
        );
        let seen = setting.run(&[&name], &script);
        let ports = [22, 853, 5432, 7777, 8443, 9000];
        let said = ports.map(|port| format!("{port}: 93.184.216.100 {port}\n"));
        seen.assert_said(&said.concat());
        seen.assert_denied(&[]);
    });
}
