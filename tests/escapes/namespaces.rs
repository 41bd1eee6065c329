//! Namespaces: making one, joining one, and changing one's own.

use super::attempts::{assert_all_refused, assert_lines, attempt, attempt_with};
use support::Ground;

const KINDS: &str = r#"
static struct { const char *name; unsigned long bit; } kinds[] = {
    {"time", 0x80}, {"mount", 0x20000}, {"cgroup", 0x2000000}, {"uts", 0x4000000},
    {"ipc", 0x8000000}, {"user", 0x10000000}, {"pid", 0x20000000}, {"net", 0x40000000},
};
static long clone_with(unsigned long flags) {
    long pid = syscall(SYS_clone, flags, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    return pid;
}
"#;
const ALL_EPERM: &str = "time EPERM
    mount EPERM
    cgroup EPERM
    uts EPERM
    ipc EPERM
    user EPERM
    pid EPERM
    net EPERM";

/// B-35 (also with a bit of the upper half, CVE-2019-10063, and beside CLONE_NEWUSER).
#[test]
fn clone_makes_no_namespace_of_any_kind() {
    let ground = Ground::new();
    let text = format!(
        "{KINDS}\n{}",
        r#"
int main(void) {
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone_with(kinds[at].bit | SIGCHLD));
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone_with(0x100000000UL | kinds[at].bit | SIGCHLD));
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone_with(CLONE_NEWUSER | kinds[at].bit | SIGCHLD));
    try("plain", clone_with(SIGCHLD));
    return 0;
}
"#
    );
    let expected = format!("{ALL_EPERM}\n{ALL_EPERM}\n{ALL_EPERM}\nplain ok");
    assert_lines(&attempt(&ground, "clone-namespaces", &text), &expected);
}

/// B-11 (CVE-2022-0185, CVE-2021-22555, CVE-2024-1086), B-35.
#[test]
fn unshare_makes_no_namespace_of_any_kind() {
    let ground = Ground::new();
    let text = format!(
        "{KINDS}\n{}",
        r#"
int main(void) {
    for (int at = 0; at < 8; at++) try(kinds[at].name, syscall(SYS_unshare, kinds[at].bit));
    for (int at = 0; at < 8; at++) try(kinds[at].name, syscall(SYS_unshare, CLONE_NEWUSER | kinds[at].bit));
    return 0;
}
"#
    );
    let expected = format!("{ALL_EPERM}\n{ALL_EPERM}");
    assert_lines(&attempt(&ground, "unshare", &text), &expected);
}

/// B-11, B-34: its flags lie behind a pointer, so the call is not there at all.
#[test]
fn clone3_is_not_there_and_threads_still_work() {
    let ground = Ground::new();
    let text = format!(
        "#include <pthread.h>\n{KINDS}\n{}",
        r#"
struct arguments { uint64_t flags, pidfd, child, parent, exit_signal, stack, size, tls, set, set_size, cgroup; };
static long clone3_with(unsigned long flags) {
    struct arguments arguments = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) _exit(0);
    return pid;
}
static void *work(void *unused) { return unused; }
int main(void) {
    try("plain", clone3_with(0));
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone3_with(kinds[at].bit));
    try("no arguments", syscall(SYS_clone3, NULL, 0));
    pthread_t thread;
    printf("thread %d\n", pthread_create(&thread, NULL, work, NULL));
    printf("joined %d\n", pthread_join(thread, NULL));
    return 0;
}
"#
    );
    let kinds = ALL_EPERM.replace("EPERM", "ENOSYS");
    let expected = format!("plain ENOSYS\n{kinds}\nno arguments ENOSYS\nthread 0\njoined 0");
    assert_lines(&attempt(&ground, "clone3", &text), &expected);
}

/// B-12.
#[test]
fn no_namespace_can_be_joined() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    const char *names[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts", NULL};
    for (const char **name = names; *name; name++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", *name);
        int fd = open(path, O_RDONLY);
        if (fd < 0) { printf("%s absent\n", *name); continue; }
        try("own", setns(fd, 0));
        snprintf(path, sizeof path, "/proc/1/ns/%s", *name);
        try("init", open(path, O_RDONLY));
    }
    int pidfd = syscall(SYS_pidfd_open, getpid(), 0);
    try("pidfd", setns(pidfd, CLONE_NEWNET | CLONE_NEWNS));
    pidfd = syscall(SYS_pidfd_open, 1, 0);
    try("pidfd of init", setns(pidfd, CLONE_NEWUSER));
    return 0;
}
"#;
    let done = attempt(&ground, "setns", text);
    assert_all_refused(&done, 16, &["EPERM", "EACCES"]);
    let own = done
        .text()
        .lines()
        .filter(|line| *line == "own EPERM")
        .count();
    assert!(7 <= own, "{}", done.text());
}

/// B-13 (CVE-2014-8989, CVE-2018-18955).
#[test]
fn the_id_maps_cannot_be_changed_and_no_other_id_assumed() {
    let ground = Ground::new();
    let text = r#"
static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    long result = write(fd, text, strlen(text));
    close(fd);
    return result;
}
int main(void) {
    try("uid_map", put("/proc/self/uid_map", "0 0 4294967295\n"));
    try("gid_map", put("/proc/self/gid_map", "0 0 4294967295\n"));
    try("allow", put("/proc/self/setgroups", "allow"));
    try("init", put("/proc/1/uid_map", "0 0 1\n"));
    gid_t none[] = {0};
    try("setgroups", setgroups(1, none));
    try("setuid", setuid(0));
    try("setresuid", setresuid(0, 0, 0));
    try("setgid", setgid(0));
    try("nobody", setuid(65534));
    try("fsuid", syscall(SYS_setfsuid, 0) == 1000 && syscall(SYS_setfsuid, -1) == 1000 ? -1 : 0);
    printf("ids %d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
    return 0;
}
"#;
    let text = format!("#include <grp.h>\n{text}");
    let done = attempt_with(&ground, &[], "id-maps", &text, &[]);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    let id = super::ID;
    let ids = format!("ids {id} {id} {id} {id}");
    assert_eq!(lines.pop(), Some(ids.as_str()), "{text}");
    assert_eq!(lines.len(), 10, "{text}");
    // Whoever is 0 already may become it.
    let of_own = ["setuid ok", "setresuid ok", "setgid ok", "fsuid ok"];
    for line in lines {
        let answer = line.rsplit(' ').next().expect("a word");
        let refused = ["EPERM", "EACCES", "EINVAL"].contains(&answer) || line == "fsuid 0";
        assert!(refused || (id == 0 && of_own.contains(&line)), "{text}");
    }
}
