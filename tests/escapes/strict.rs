//! The strict system call policy: who chooses it, and what a body then meets.

use super::attempts::{assert_lines, attempt_with};
use support::Ground;

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
    for reached in ["tee ok", "batch ok", "get_robust_list ok", "io_setup ok"] {
        assert!(text.contains(reached), "{text}");
    }
}

/// Locks on parts of files by every call that makes one, netlink by every type, and what remains.
const UNCHARGED: &str = r#"
int main(void) {
    int file = open("/tmp/file", O_CREAT | O_RDWR, 0600);
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1};
    try("F_SETLK", fcntl(file, F_SETLK, &part));
    try("F_SETLKW", fcntl(file, F_SETLKW, &part));
    try("F_OFD_SETLK", fcntl(file, F_OFD_SETLK, &part));
    try("F_OFD_SETLKW", fcntl(file, F_OFD_SETLKW, &part));
    try("high", syscall(SYS_fcntl, file, 0x100000006, &part));
    try("lockf", lockf(file, F_LOCK, 1));
    try("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    try("datagrams of netlink", socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    try("F_GETLK", fcntl(file, F_GETLK, &part));
    try("F_DUPFD", fcntl(file, F_DUPFD_CLOEXEC, 9));
    try("flock", flock(file, LOCK_EX));
    try("stream", socket(AF_INET, SOCK_STREAM, 0));
    try("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0}));
    return 0;
}
"#;

/// C-39: what no group is charged for and a body may make without number.
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
    // Names are looked up without it.
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
