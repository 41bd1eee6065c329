//! The strict system call policy: who chooses it, and what a body then meets.

use super::attempts::{assert_lines, attempt_with};
use super::support::Ground;

/// A call of each rule of the strict policy, and calls that remain.
const CALLS: &str = r#"
int main(void) {
    try("shmget", syscall(SYS_shmget, 0, 4096, 0));
    try("mq_open", syscall(SYS_mq_open, "q", O_CREAT | O_RDWR, 0600, NULL));
    unsigned long context = 0;
    try("io_setup", syscall(SYS_io_setup, 1, &context));
    int pair[2], other[2];
    if (pipe(pair) || pipe(other) || write(pair[1], "x", 1) != 1) return 7;
    try("tee", tee(pair[0], other[1], 1, 0));
    struct sched_param none = {0};
    try("batch", sched_setscheduler(0, SCHED_BATCH, &none));
    try("syncfs", syncfs(pair[0]));
    try("get_robust_list", syscall(SYS_get_robust_list, 0, &context, &context));
    try("futex_wake", syscall(454, &context, 1, 1, 2));
    try("pipe", read(pair[0], pair, 1));
    try("fsync", fsync(open("/tmp/file", O_CREAT | O_WRONLY, 0600)));
    try("affinity", sched_getaffinity(0, sizeof context, (cpu_set_t *)&context));
    try("eventfd", syscall(SYS_eventfd2, 0, 0));
    return 0;
}
"#;

#[test]
fn the_strict_policy_refuses_a_body_what_the_default_lets_it_do() {
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
    for reached in ["tee ok", "batch ok", "get_robust_list ok", "io_setup ok"] {
        assert!(text.contains(reached), "{text}");
    }
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
