//! Means with which a process confines itself: they work, and loosen nothing.

use super::attempts::{assert_lines, attempt};
use support::Ground;

/// B-46.
#[test]
fn prctl_and_capset_loosen_nothing() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    try("new privileges", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    try("no seccomp", prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
    try("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    try("bounding", prctl(PR_CAPBSET_DROP, 21, 0, 0, 0));
    try("securebits", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
    try("exe", prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 0, 0, 0));
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    try("capset", syscall(SYS_capset, &header, all));
    all[0].effective = all[0].permitted = all[1].effective = all[1].permitted = 0;
    try("inheritable", syscall(SYS_capset, &header, all));
    printf("still %d %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
    /* its own affairs */
    try("dumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    try("death signal", prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));
    try("reaper", prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "prctl", text),
        "new privileges EINVAL
        no seccomp EINVAL
        ambient EPERM
        bounding EPERM
        securebits EPERM
        exe EPERM
        capset EPERM
        inheritable EPERM
        still 1 2
        dumpable ok
        death signal ok
        reaper ok",
    );
}

/// B-47: the stricter answer of all filters counts.
#[test]
fn a_permissive_filter_of_the_body_s_own_changes_nothing() {
    let ground = Ground::new();
    let text = r#"
static long load(unsigned answer, unsigned flags) {
    struct sock_filter one = BPF_STMT(BPF_RET | BPF_K, answer);
    struct sock_fprog program = {1, &one};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
static void probe(void) {
    try("unshare", unshare(CLONE_NEWUSER));
    try("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    try("clone3", syscall(SYS_clone3, NULL, 0));
    try("socket", socket(AF_PACKET, SOCK_RAW, 0));
}
int main(void) {
    try("allow", load(SECCOMP_RET_ALLOW, 0));
    probe();
    try("all threads", load(SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC));
    try("log", load(SECCOMP_RET_LOG, 0));
    try("trace", load(SECCOMP_RET_TRACE, 0));
    return 0;
}
"#;
    // After TRACE with nobody who traces every call is ENOSYS: the last thing that is printed fails.
    let done = attempt_last_lost(&ground, text);
    let four = "unshare EPERM\nmount EPERM\nclone3 ENOSYS\nsocket EAFNOSUPPORT";
    assert_lines(&done, &format!("allow ok\n{four}\nall threads ok\nlog ok"));
}

/// B-47: whoever answers the questions of the body's own filter is not asked about what the outer one
/// refuses. That he would be asked is seen by a call that the outer one allows.
#[test]
fn a_listener_of_the_body_s_own_filter_permits_nothing() {
    let ground = Ground::new();
    let text = r#"
#include <poll.h>
int main(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {6, rules};
    long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    try("listener", listener < 0 ? -1 : 0);
    /* who is asked would wait for an answer that nobody gives */
    try("unshare", unshare(CLONE_NEWUSER));
    try("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    struct pollfd question = {listener, POLLIN, 0};
    printf("asked %d\n", poll(&question, 1, 0));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_getpriority, PRIO_PROCESS, 0);
        _exit(0);
    }
    int asked = poll(&question, 1, 60000);
    printf("of what is allowed %d %d\n", asked, (question.revents & POLLIN) != 0);
    kill(child, SIGKILL);
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "own-listener", text),
        "listener ok
        unshare EPERM
        mount EPERM
        asked 0
        of what is allowed 1 1",
    );
}

fn attempt_last_lost(ground: &Ground, text: &str) -> support::Done {
    let program = super::attempts::program("own-filter", text);
    let done = super::attempts::case(ground, &[], &program, &[]).done();
    assert!(matches!(done.outcome(), "exited" | "signaled"), "{done:#?}");
    done
}

/// B-48: programs that confine themselves with Landlock work, as deep as the kernel allows.
#[test]
fn a_landlock_ruleset_of_the_body_s_own_only_tightens() {
    let ground = Ground::new();
    let text = r#"
static long restrict_to(uint64_t handled) {
    uint64_t attributes[1] = {handled};
    long fd = syscall(444, attributes, sizeof attributes, 0);
    if (fd < 0) return fd;
    long result = syscall(446, fd, 0);
    int kept = errno;
    close(fd);
    errno = kept;
    return result;
}
int main(void) {
    try("read before", open("/usr/bin/env", O_RDONLY));
    try("write before", open("/tmp/file", O_CREAT | O_RDWR, 0600));
    try("write rights", restrict_to(1 << 1));
    try("read", open("/usr/bin/env", O_RDONLY));
    try("write", open("/tmp/file", O_RDWR));
    try("read rights", restrict_to(1 << 2));
    try("read", open("/usr/bin/env", O_RDONLY));
    long result = 0;
    int layers = 0;
    while (layers < 32 && (result = restrict_to(1 << 2)) == 0) layers++;
    int deep = errno;
    try("too deep", (errno = deep, result));
    try("usr", open("/usr/new", O_CREAT | O_WRONLY, 0600));
    return 0;
}
"#;
    let done = attempt(&ground, "own-landlock", text);
    let text = done.text();
    if text.contains("write rights ENOSYS") || text.contains("write rights EOPNOTSUPP") {
        return support::skip("this kernel has no Landlock");
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..8],
        [
            "read before ok",
            "write before ok",
            "write rights ok",
            "read ok",
            "write EACCES",
            "read rights ok",
            "read EACCES",
            "too deep E2BIG"
        ]
    );
    assert!(
        matches!(lines[8], "usr EROFS" | "usr EACCES"),
        "{}",
        lines[8]
    );
}
