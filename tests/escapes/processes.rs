//! Other processes: the runner, init, other runs and the host's, through proc, ptrace and signals.

use super::attempts::{assert_all_refused, assert_lines, attempt_with, program, shell};
use support::{Ground, is_root};

/// B-24 (CVE-2019-13272, CVE-2016-8659).
#[test]
fn no_other_process_can_be_traced_read_or_robbed() {
    let ground = Ground::new();
    let text = r#"
#include <sys/uio.h>
int main(int count, char **words) {
    int pids[] = {1, atoi(words[1]), getpid()};
    for (int at = 0; at < 3; at++) {
        int pid = pids[at];
        char bytes[8];
        struct iovec here = {bytes, 8}, there = {(void *)0x400000, 8};
        try("attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
        try("seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
        try("readv", process_vm_readv(pid, &here, 1, &there, 1, 0));
        try("writev", process_vm_writev(pid, &here, 1, &there, 1, 0));
        try("kcmp", syscall(SYS_kcmp, pid, getpid(), 0, 0, 0));
        try("getfd", syscall(SYS_pidfd_getfd, 0, 0, 0));
        try("madvise", syscall(SYS_process_madvise, 0, NULL, 0, 4, 0));
        try("migrate", syscall(SYS_migrate_pages, pid, 0, NULL, NULL));
    }
    try("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
    return 0;
}
"#;
    let host_pid = std::process::id().to_string();
    let done = attempt_with(&ground, &[], "trace", text, &[&host_pid]);
    assert_all_refused(&done, 25, &["EPERM"]);
}

/// B-05, B-06, B-25 (CVE-2016-9962): from the body's first instruction on, and many times.
#[test]
fn init_is_closed_from_the_body_s_first_instruction_on() {
    let ground = Ground::new();
    let text = r#"
static const char *names[] = {"mem", "environ", "maps", "fd", "fd/0", "fd/3", "fd/4", "fdinfo", "root", "cwd",
    "exe", "ns/net", "map_files", "syscall", "auxv", "task/1/mem", "clear_refs", NULL};
int main(void) {
    /* only on one's own processes a link is followed or a list read */
    for (int round = 0; round < 300; round++) {
        for (const char **name = names; *name; name++) {
            char path[64], bytes[64];
            snprintf(path, sizeof path, "/proc/1/%s", *name);
            int fd = open(path, O_RDONLY | O_NONBLOCK);
            if (fd < 0 && errno == EISDIR) fd = open(path, O_RDONLY | O_DIRECTORY);
            if (fd < 0) continue;
            struct stat about;
            fstat(fd, &about);
            long got = S_ISDIR(about.st_mode) ? syscall(SYS_getdents64, fd, bytes, 64) : read(fd, bytes, 64);
            if (got > 0) printf("%s readable\n", path);
            close(fd);
        }
        if (round == 0) fork();
    }
    puts("tried");
    return 0;
}
"#;
    let done = attempt_with(&ground, &[], "race-init", text, &[]);
    let text = done.text();
    assert!(text.lines().all(|line| line == "tried"), "{text}");
    assert!(!text.is_empty());
}

/// B-05: the links of the body's own processes lead to its own root, however one climbs from there.
#[test]
fn the_links_of_proc_to_roots_and_directories_stay_inside() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    struct stat root, found;
    stat("/", &root);
    pid_t child = fork();
    if (child == 0) { chdir("/tmp"); for (;;) pause(); }
    const char *ends[] = {"root", "root/..", "root/../../..", "cwd/../../../..", "task/%d/root/..", NULL};
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int seen = 0;
    while ((entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        if (pid == 0 && strcmp(entry->d_name, "self") && strcmp(entry->d_name, "thread-self")) continue;
        for (const char **end = ends; *end; end++) {
            char form[128], path[512];
            snprintf(form, sizeof form, "/proc/%s/%s", entry->d_name, *end);
            snprintf(path, sizeof path, form, pid);
            int fd = open(path, O_PATH | O_DIRECTORY);
            if (fd < 0 || fstat(fd, &found)) continue;
            if (pid == 1) printf("init by %s\n", path);
            if (found.st_dev != root.st_dev || found.st_ino != root.st_ino) printf("outside by %s\n", path);
            seen++;
            close(fd);
        }
    }
    kill(child, SIGKILL);
    printf("enough %d\n", seen >= 9);
    return 0;
}
"#;
    assert_lines(
        &attempt_with(&ground, &[], "links-of-proc", text, &[]),
        "enough 1",
    );
}

/// B-06, F-08.
#[test]
fn no_process_of_the_host_is_in_proc() {
    let ground = Ground::new();
    let text = r#"
int main(int count, char **words) {
    for (int pid = 1; pid <= 70000; pid++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d", pid);
        struct stat about;
        if (stat(path, &about) == 0) printf("%d\n", pid == getpid() ? 0 : pid);
    }
    try("environ", open(words[1], O_RDONLY));
    return 0;
}
"#;
    let environ = format!("/proc/{}/environ", std::process::id());
    let done = attempt_with(&ground, &[], "list-pids", text, &[&environ]);
    assert_lines(&done, "1\n0\nenviron ENOENT");
}

/// B-26.
#[test]
fn signals_reach_the_body_s_own_processes_only() {
    let ground = Ground::new();
    let text = r#"
static int alive(pid_t pid) { int status; return waitpid(pid, &status, WNOHANG) == 0; }
int main(int count, char **words) {
    pid_t host = atoi(words[1]), child = fork();
    if (child == 0) { for (;;) pause(); }
    siginfo_t info = {.si_signo = SIGKILL, .si_code = SI_QUEUE};
    try("kill", kill(host, SIGKILL));
    try("tgkill", syscall(SYS_tgkill, host, host, SIGKILL));
    try("tkill", syscall(SYS_tkill, host, SIGKILL));
    try("queue", syscall(SYS_rt_sigqueueinfo, host, SIGKILL, &info));
    try("pidfd", syscall(SYS_pidfd_open, host, 0));
    try("owner", fcntl(0, F_SETOWN, host));
    try("group", kill(-host, SIGKILL));
    try("priority", setpriority(PRIO_PROCESS, host, 19));
    struct rlimit nothing = {0, 0};
    try("limits", syscall(SYS_prlimit64, host, RLIMIT_CPU, &nothing, NULL));
    try("affinity", syscall(SYS_sched_setaffinity, host, 8, &nothing));
    printf("before %d\n", alive(child));
    /* everything that the body may reach, but itself */
    kill(-1, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    printf("after %d\n", WTERMSIG(status));
    kill(1, SIGKILL);
    kill(1, SIGTERM);
    kill(0, SIGCONT);
    try("init", kill(getppid(), SIGKILL) < 0 ? -1 : 0);
    puts("alive");
    return 0;
}
"#;
    let host_pid = std::process::id().to_string();
    let done = attempt_with(&ground, &[], "signals", text, &[&host_pid]);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.pop(), Some("alive"));
    // Init survives it, whether the kernel says that it was sent or Landlock refuses.
    let init = lines.pop().expect("a line");
    assert!(matches!(init, "init ok" | "init EPERM"), "{init}");
    assert_eq!(
        lines,
        [
            "kill ESRCH",
            "tgkill ESRCH",
            "tkill ESRCH",
            "queue ESRCH",
            "pidfd ESRCH",
            "owner ESRCH",
            "group ESRCH",
            "priority ESRCH",
            "limits ESRCH",
            "affinity ESRCH",
            "before 1",
            "after 9",
        ]
    );
}

/// B-61: init has the body's uid, and a body that ends it looks like a fault of the host.
#[test]
fn the_limits_the_processors_and_the_priority_of_init_are_not_the_body_s() {
    let ground = Ground::new();
    let text = r#"
#include <pthread.h>
int main(void) {
    struct rlimit none = {0, 0};
    cpu_set_t one, own;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    struct sched_param priority = {0};
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t rt; uint64_t t[3]; } attr =
        {.size = 48, .policy = SCHED_IDLE};
    try("cpu", syscall(SYS_prlimit64, 1, RLIMIT_CPU, &none, NULL));
    try("memory", syscall(SYS_prlimit64, 1, RLIMIT_AS, &none, NULL));
    try("files", syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &none, NULL));
    try("affinity", sched_setaffinity(1, sizeof one, &one));
    try("scheduler", sched_setscheduler(1, SCHED_IDLE, &priority));
    try("param", sched_setparam(1, &priority));
    try("attr", syscall(SYS_sched_setattr, 1, &attr, 0));
    try("nice", setpriority(PRIO_PROCESS, 1, 19));
    try("nice-group", setpriority(PRIO_PGRP, 1, 19));
    try("nice-user", setpriority(PRIO_USER, 0, 19));
    try("nice-uid", setpriority(PRIO_USER, getuid(), 19));
    try("io", syscall(SYS_ioprio_set, 1, 1, 3 << 13));
    try("io-group", syscall(SYS_ioprio_set, 2, 1, 3 << 13));
    try("io-user", syscall(SYS_ioprio_set, 3, getuid(), 3 << 13));
    struct rlimit files = {64, 64};
    try("own-files", prlimit(0, RLIMIT_NOFILE, &files, NULL));
    try("pid-files", prlimit(getpid(), RLIMIT_NOFILE, &files, NULL));
    sched_getaffinity(0, sizeof own, &own);
    try("own-affinity", sched_setaffinity(gettid(), sizeof own, &own));
    try("thread-affinity", -pthread_setaffinity_np(pthread_self(), sizeof own, &own));
    try("own-nice", setpriority(PRIO_PROCESS, 0, 19));
    try("own-io", syscall(SYS_ioprio_set, 1, 0, 3 << 13));
    return 0;
}
"#;
    let done = attempt_with(&ground, &[], "limits-of-init", text, &[]);
    assert_lines(
        &done,
        "cpu EPERM
         memory EPERM
         files EPERM
         affinity EPERM
         scheduler EPERM
         param EPERM
         attr EPERM
         nice EPERM
         nice-group EPERM
         nice-user EPERM
         nice-uid EPERM
         io EPERM
         io-group EPERM
         io-user EPERM
         own-files ok
         pid-files ok
         own-affinity ok
         thread-affinity ok
         own-nice ok
         own-io ok",
    );
}

/// B-42: System V objects and message queues are the run's own, and gone with it (invariant I6).
#[test]
fn objects_of_system_v_ipc_are_the_run_s_own() {
    let ground = Ground::new();
    let text = r#"
#include <mqueue.h>
#include <sys/msg.h>
#include <sys/sem.h>
static int listed(const char *path) {
    FILE *file = fopen(path, "r");
    char line[512];
    int lines = -1;
    while (file && fgets(line, sizeof line, file)) lines++;
    return lines;
}
int main(void) {
    printf("before %d %d %d\n", listed("/proc/sysvipc/shm"), listed("/proc/sysvipc/sem"), listed("/proc/sysvipc/msg"));
    try("shm", shmget(0x51, 4096, IPC_CREAT | 0666));
    try("sem", semget(0x51, 1, IPC_CREAT | 0666));
    try("msg", msgget(0x51, IPC_CREAT | 0666));
    try("queue", mq_open("/left-behind", O_CREAT | O_RDWR, 0666, NULL));
    printf("after %d %d %d\n", listed("/proc/sysvipc/shm"), listed("/proc/sysvipc/sem"), listed("/proc/sysvipc/msg"));
    return 0;
}
"#;
    for _run in 0..2 {
        let done = attempt_with(&ground, &[], "ipc", text, &[]);
        let text = done.text();
        // Landlock takes the queue's file system for one in which nothing may be made.
        let text = text.replace("queue EACCES", "queue ok");
        let expected = "before 0 0 0\nshm ok\nsem ok\nmsg ok\nqueue ok\nafter 1 1 1\n";
        assert_eq!(text, expected);
    }
}

/// B-57, B-39, B-43, F-09: two runs of the same caller at the same time.
#[test]
fn a_second_run_sees_nothing_of_the_first() {
    let first = Ground::new();
    let talk = first.path("talk");
    std::fs::create_dir(&talk).expect("made");
    let shared = talk.to_str().expect("a plain path");
    let hold = r#"
int main(int count, char **words) {
    char path[512];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {AF_UNIX, "\0same-name"};
    try("bind", bind(fd, (void *)&name, sizeof(sa_family_t) + 10));
    try("listen", listen(fd, 1));
    try("shm", shmget(0x52, 4096, IPC_CREAT | 0666));
    try("file", open("/dev/shm/first", O_CREAT | O_RDWR, 0666));
    try("temporary", open("/tmp/first", O_CREAT | O_RDWR, 0666));
    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7357)};
    try("port", bind(server, (void *)&at, sizeof at));
    try("serve", listen(server, 1));
    snprintf(path, sizeof path, "%s/started", words[1]);
    close(open(path, O_CREAT | O_WRONLY, 0666));
    snprintf(path, sizeof path, "%s/end", words[1]);
    while (access(path, F_OK)) usleep(20000);
    return 0;
}
"#;
    let look = r#"
int main(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {AF_UNIX, "\0same-name"};
    socklen_t size = sizeof(sa_family_t) + 10;
    try("connect", connect(fd, (void *)&name, size));
    try("bind", bind(fd, (void *)&name, size));
    try("shm", shmget(0x52, 4096, 0));
    try("file", open("/dev/shm/first", O_RDONLY));
    try("temporary", open("/tmp/first", O_RDONLY));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7357)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    try("port", connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at));
    try("same port", bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at));
    char host[64] = "";
    gethostname(host, sizeof host);
    try(host, sethostname("renamed", 7));
    int others = 0;
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    while ((entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        others += pid > 1 && pid != getpid();
    }
    printf("others %d\n", others);
    return 0;
}
"#;
    let holder = program("hold", hold);
    let holding = super::attempts::case(
        &first,
        &["--rw", shared, "-e", "SECRET=of-the-first"],
        &holder,
        &[shared],
    );
    let mut running = holding.start();
    running.until("the first is there", || talk.join("started").exists());
    let second = Ground::new();
    let done = super::attempts::case(&second, &[], &program("look", look), &[]).done();
    std::fs::write(talk.join("end"), "").expect("written");
    running.done().assert_exited(0);
    done.assert_exited(0);
    let text = done.text();
    let (connect, rest) = text.split_once('\n').expect("lines");
    assert!(
        matches!(connect, "connect ECONNREFUSED" | "connect EPERM"),
        "{text}"
    );
    assert_eq!(
        rest,
        "bind ok\nshm ENOENT\nfile ENOENT\ntemporary ENOENT\nport ECONNREFUSED\nsame port ok\n\
         runner EPERM\nothers 0\n"
    );
}

/// B-14: no body is the host's uid 0; as root each has an id of its own out of the range.
#[test]
fn the_body_s_uid_on_the_host_is_never_0() {
    let ground = Ground::new();
    let mut running = ground.command(&["run", "--", "/bin/sleep", "60"]).start();
    let marker = ground.marker().to_owned();
    running.until("the body runs", || {
        !support::invariants::living(&marker).is_empty()
    });
    let uids_of = |pid: i32| -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("readable");
        let ids = status
            .lines()
            .filter_map(|line| line.strip_prefix("Uid:").or(line.strip_prefix("Gid:")));
        ids.flat_map(str::split_whitespace)
            .map(|id| id.parse().expect("a number"))
            .collect()
    };
    let found: Vec<Vec<u32>> = support::invariants::living(&marker)
        .into_iter()
        .map(uids_of)
        .collect();
    running.signal(rustix::process::Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
    assert!(!found.is_empty());
    for ids in found {
        assert_eq!(ids.len(), 8);
        for id in ids {
            if is_root() {
                assert!((0x7000_0000..=0x7000_ffff).contains(&id), "{id}");
            } else {
                let own = rustix::process::geteuid().as_raw();
                let group = rustix::process::getegid().as_raw();
                assert!(id == own || id == group, "{id}");
            }
        }
    }
}

/// B-14: a file made in a directory that the caller lent is the directory owner's, or the caller's.
#[test]
fn a_file_made_in_a_lent_directory_belongs_to_its_owner() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    if is_root() {
        rustix::fs::chown(
            &lent,
            Some(rustix::fs::Uid::from_raw(40_199)),
            Some(rustix::fs::Gid::from_raw(40_199)),
        )
        .expect("given away");
    }
    let path = lent.to_str().expect("a plain path");
    let text = format!("echo made >{path}/file; chmod 755 {path}/file");
    shell(&ground, &["--rw", path], &text);
    let made = std::fs::metadata(lent.join("file")).expect("made");
    let owner = std::fs::metadata(&lent).expect("there");
    assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()));
    assert_eq!(made.permissions().mode() & 0o7777, 0o755);
}
