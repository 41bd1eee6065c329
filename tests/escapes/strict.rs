//! The strict system call policy: how it is selected, and what it refuses.

use super::attempts::{assert_lines, attempt_with};
use support::Ground;

/// One call of each rule of the strict policy, and calls that remain.
const CALLS: &str = include_str!("../bodies/escapes/strict_calls.c");

#[test]
fn the_strict_policy_refuses_calls_that_the_default_allows() {
    let ground = Ground::new();
    let remains = "pipe ok\nfsync ok\naffinity ok\neventfd ok";
    let done = attempt_with(&ground, &["--syscalls=strict"], "strict-calls", CALLS, &[]);
    assert_lines(
        &done,
        &format!(
            "shmget ENOSYS\nmq_open ENOSYS\nio_setup ENOSYS\ntee EINVAL\nbatch EPERM\n\
             syncfs EPERM\nget_robust_list EPERM\nfutex_wake ENOSYS\n{remains}"
        ),
    );
    let done = attempt_with(&ground, &[], "strict-calls", CALLS, &[]);
    assert_eq!(done.report["syscall_policy"], "default");
    let text = done.text();
    for reached in ["tee ok", "batch ok", "get_robust_list ok"] {
        assert!(text.contains(reached), "{text}");
    }
}

/// Locks on parts of files by every call that takes one, netlink of every type, and calls that remain.
const UNCHARGED: &str = include_str!("../bodies/escapes/strict_uncharged.c");

/// C-39: resources that no cgroup counts and that a body may create without limit.
#[test]
fn a_strict_body_gets_no_netlink_and_no_locks_on_parts_of_files() {
    let ground = Ground::new();
    let flags = ["--syscalls=strict"];
    let done = attempt_with(&ground, &flags, "strict-uncharged", UNCHARGED, &[]);
    assert_lines(
        &done,
        "F_SETLK ENOLCK
        F_SETLKW ENOLCK
        F_OFD_SETLK ENOLCK
        F_OFD_SETLKW ENOLCK
        high ENOLCK
        lockf ENOLCK
        netlink EAFNOSUPPORT
        datagrams of netlink EAFNOSUPPORT
        F_GETLK ok
        F_DUPFD ok
        flock ok
        stream ok
        pair ok",
    );
    // Name resolution works without it.
    let text = "getent hosts localhost >/dev/null && echo found";
    let lines = super::attempts::shell(&ground, &flags, text);
    assert_eq!(lines, ["found"]);
}

#[test]
fn the_stricter_of_flag_variable_and_host_policy_holds_and_the_plan_says_who_decided() {
    let ground = Ground::new();
    let strict = ground.write("strict.yaml", "syscalls: strict\n");
    let loose = ground.write("loose.yaml", "syscalls: default\n");
    let policy = |path: &std::path::Path| format!("--policy={}", path.display());
    let (strict, loose) = (policy(&strict), policy(&loose));
    for (flags, variable, holds, by) in [
        (&[][..], "", "default", "default"),
        (&["--syscalls=strict"], "", "strict", "--syscalls"),
        (
            &["--syscalls", "default"],
            "strict",
            "default",
            "--syscalls",
        ),
        (&[], "strict", "strict", "--syscalls"),
        (&[&strict], "", "strict", "host-policy"),
        (&[&loose, "--syscalls=strict"], "", "strict", "--syscalls"),
    ] {
        for verb in ["run", "plan"] {
            let words = [&[verb], flags, &["--", "chrt", "--batch", "0", "true"]].concat();
            let case = ground.command(&words);
            let case = match variable {
                "" => case,
                value => case.env("RUNNER_OPT_SYSCALLS", value),
            };
            if verb == "plan" {
                let mut case = case;
                let told = case.command.output().expect("runs");
                let told = String::from_utf8_lossy(&told.stdout).into_owned();
                let row = format!("{holds} policy ({by})");
                assert!(told.contains(&row), "{flags:?} {variable}: {told}");
                continue;
            }
            let done = case.done();
            done.assert_exited(i32::from(holds == "strict"));
            assert_eq!(done.report["syscall_policy"], holds, "{flags:?} {variable}");
        }
    }
    let done = ground.run(&[&strict, "--syscalls=default"], &["true"]);
    done.assert_error("refused", "syscalls_forbidden");
    assert!(done.report["syscall_policy"].is_null());
}

#[test]
fn a_manifest_cannot_name_a_system_call_policy() {
    let ground = Ground::new();
    for manifest in [
        "run: x.sh\nsyscalls: default\n",
        "run: x.sh\nrunner: {engine: subprocess, syscalls: default}\n",
        "run: x.sh\nsandbox: {provider: local, syscalls: default}\n",
    ] {
        let bundle = ground.bundle(&[
            ("manifest.yaml", manifest),
            ("x.sh", "#!/bin/sh\nexec chrt --batch 0 true\n"),
        ]);
        let done = ground.exec(&["--syscalls=strict"], &bundle);
        done.assert_error("refused", "unknown_key");
    }
}
