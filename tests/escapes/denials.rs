//! Refused calls in the report: which, how often, under which rule, and whether they were observed.

use std::process::Command;

use serde_json::{Value, json};
use support::{Done, Ground, runner, tier_includes};

use super::attempts::{attempt, attempt_with, case, program};

const CALLS: &str = include_str!("../bodies/escapes/calls_that_are_refused.c");

/// The denials of kind `syscall`: object, rule, errno, count.
fn denied(done: &Done) -> Vec<Value> {
    let denials = done.report["denials"].as_array().expect("a list");
    denials
        .iter()
        .filter(|denial| denial["kind"] == "syscall")
        .map(|denial| {
            json!([
                denial["object"],
                denial["rule"],
                denial["errno"],
                denial["count"]
            ])
        })
        .collect()
}

fn calls(name: &str, code: &str) -> (String, String) {
    (name.to_owned(), CALLS.replace("FAILS", code))
}

/// Without `unshare(CLONE_NEWCGROUP)`, which the kernel refuses, and without what libraries test for.
#[test]
fn each_refused_call_is_a_denial_with_its_rule_errno_and_count() {
    let ground = Ground::new();
    let (name, text) = calls("denied-calls", "0");
    let done = attempt(&ground, &name, &text);
    let expected = [
        json!(["unshare(0x10000000)", "unshare", "EPERM", 1]),
        json!(["ptrace", "other-processes", "EPERM", 3]),
        json!(["socket(17)", "socket", "EAFNOSUPPORT", 2]),
        json!(["socket(38)", "socket", "EAFNOSUPPORT", 1]),
    ];
    assert_eq!(denied(&done), expected);
    let observed = json!({"state": "observed", "reason": null, "beyond": 0});
    assert_eq!(done.report["observation"]["syscalls"], observed);
    assert_eq!(
        done.report["observation"]["files"]["state"], "not_observed",
        "no list without entries says that nothing was denied"
    );
    assert!(done.text().contains("cgroup EPERM"), "{}", done.text());
    // A program that tried and went on without is nobody's concern.
    assert!(!done.stderr.contains("denied"), "{}", done.stderr);
}

#[test]
fn a_body_that_fails_is_told_which_calls_were_refused() {
    let ground = Ground::new();
    let (name, text) = calls("failing-calls", "3");
    let done = case(&ground, &[], &program(&name, &text), &[]).done();
    done.assert_exited(3);
    for line in [
        "denied syscall ptrace (other-processes, 3 times)",
        "denied syscall socket(17) (socket, 2 times)",
    ] {
        assert!(done.stderr.contains(line), "{}", done.stderr);
    }
}

#[test]
fn a_call_that_only_the_strict_policy_refuses_has_the_flag_as_hint() {
    let ground = Ground::new();
    let text = "int main(void) { try(\"tee\", tee(0, 1, 1, 0)); return 0; }";
    let strict = attempt_with(&ground, &["--syscalls=strict"], "tee", text, &[]);
    assert_eq!(
        denied(&strict),
        [json!(["tee", "strict-splice", "EINVAL", 1])]
    );
    let hint = &strict.report["denials"][0]["hint"];
    assert_eq!(*hint, "--syscalls default allows it");
    let default = attempt_with(&ground, &["--syscalls", "default"], "tee", text, &[]);
    assert_eq!(denied(&default), Vec::<Value>::new());
}

/// C-43: more calls than are answered without delay, by four threads, with the long tier a million; then more
/// kinds than are listed.
#[test]
fn a_flood_of_refused_calls_is_counted() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/a_flood_of_refused_calls.c");
    let calls = if tier_includes("long") {
        250_000
    } else {
        5_000
    };
    let done = attempt_with(&ground, &[], "flood", text, &[&calls.to_string()]);
    let denied = denied(&done);
    assert_eq!(denied.len(), 1_000);
    assert_eq!(
        denied[0],
        json!(["ptrace", "other-processes", "EPERM", 4 * calls])
    );
    assert_eq!(
        done.report["observation"]["syscalls"]["beyond"],
        3_000 - 999
    );
}

/// B-70.
#[test]
fn signals_do_not_keep_a_body_from_its_answers() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/refused_calls_between_signals.c");
    let done = attempt(&ground, "ticks", text);
    let count = denied(&done)[0][3].as_u64();
    assert!(count >= Some(2_000), "{count:?}");
}

/// B-70: there can be one listener: the calls are refused all the same, and the report does not claim to have
/// seen them.
#[test]
fn under_a_listener_of_the_caller_the_filter_refuses_and_the_report_says_that_it_saw_nothing() {
    let ground = Ground::new();
    let (name, text) = calls("denied-calls", "0");
    let body = program(&name, &text);
    let wrapper = include_str!("../bodies/escapes/under_a_listener.c");
    let mut command = Command::new(program("under-a-listener", wrapper));
    command
        .arg(runner())
        .args(["run", "--ro"])
        .arg(&body)
        .arg("--")
        .arg(&body);
    let done = ground.harness(command).done();
    done.assert_exited(0);
    assert_eq!(done.report["denials"], json!([]), "{}", done.stderr);
    let observed = &done.report["observation"]["syscalls"];
    assert_eq!(observed["state"], "not_observed");
    let reason = observed["reason"].as_str().expect("a reason");
    assert!(reason.contains("observes its system calls"), "{reason}");
    let printed = done.text();
    assert!(printed.starts_with("unshare EPERM\ncgroup EPERM\nptrace EPERM\n"));
}
