//! Calls that may fail silently, and why that is harmless.

use rustix::io::Errno;

use crate::tracer::{Point, Role};

const SUPERVISOR: &[Role] = &[Role::Supervisor];
const INIT: &[Role] = &[Role::Init];
const ALL: &[Role] = &[Role::Supervisor, Role::Init, Role::Body];

/// Process, call, the start of its detail (or a part of it, after a comma; empty: it has none), reason.
const HARMLESS: &[(&[Role], &str, &str, &str)] = &[
    (
        ALL,
        "fcntl",
        "0x1",
        "F_GETFD before a close: programs that are built for tests ask whether it is open",
    ),
    (SUPERVISOR, "fstat", "-", "how much to make room for"),
    (SUPERVISOR, "lseek", "-", "how much to make room for"),
    (SUPERVISOR, "statx", "", "how much to make room for"),
    (
        SUPERVISOR,
        "readlink",
        "/proc/self/exe",
        "a program beside which nothing is kept",
    ),
    (
        SUPERVISOR,
        "prlimit64",
        "resource=3",
        "whether the stack can grow: it is taken for one that can",
    ),
    (
        SUPERVISOR,
        "prlimit64",
        "resource=9",
        "whether something limits the stack's growth: it is taken for nothing",
    ),
    (
        SUPERVISOR,
        "sigaltstack",
        "-",
        "the stack of handlers of Rust's main, which are not used",
    ),
    (SUPERVISOR, "getcwd", "-", "no relative path was given"),
    (
        SUPERVISOR,
        "ioctl",
        "0x5413",
        "whether a stream is a terminal: it is taken for none",
    ),
    (
        SUPERVISOR,
        "prctl",
        "option=1096112214",
        "the auxiliary vector has a second way",
    ),
    (
        SUPERVISOR,
        "rt_sigaction",
        "-",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "mmap",
        "-",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "socketpair",
        "-",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "openat",
        "/proc/self/oom_score_adj",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "write",
        ",300",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "madvise",
        "-",
        "the early child is given up, and another one started",
    ),
    (
        INIT,
        "setdomainname",
        "-",
        "the host has no NIS domain, and the body then has none either",
    ),
    (
        SUPERVISOR,
        "clone3",
        "-",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "statfs",
        "/sys/fs/cgroup",
        "of the early child: another one is made when the run is known",
    ),
    (
        SUPERVISOR,
        "sched_getaffinity",
        "-",
        "where the early child runs: only time depends on it",
    ),
    (
        SUPERVISOR,
        "sched_setaffinity",
        "-",
        "where the early child runs: only time depends on it",
    ),
    (
        ALL,
        "sched_getattr",
        "-",
        "how soon it runs when it is woken: only time depends on it",
    ),
    (
        ALL,
        "sched_setattr",
        "-",
        "how soon it runs when it is woken: only time depends on it",
    ),
    (
        SUPERVISOR,
        "openat",
        "/proc/self/uid_map",
        "root of a namespace with one id is then held for root",
    ),
    (SUPERVISOR, "read", "-", "as the opening of the same file"),
    (
        SUPERVISOR,
        "newfstatat",
        "/proc/self/ns/time",
        "the body has the host's boot time then",
    ),
    (
        SUPERVISOR,
        "readlinkat",
        "/proc/self/ns/time",
        "the body has the host's boot time then",
    ),
    (
        SUPERVISOR,
        "faccessat2",
        "/sys/fs/cgroup",
        "a group that limits nothing in this run",
    ),
    (
        SUPERVISOR,
        "open",
        "/sys/fs/cgroup/unified",
        "a hierarchy that limits nothing in this run",
    ),
    (
        SUPERVISOR,
        "openat",
        "cgroup.controllers",
        "a hierarchy that limits nothing in this run",
    ),
    (
        SUPERVISOR,
        "fstatfs",
        "-",
        "a hierarchy that limits nothing in this run",
    ),
    (
        SUPERVISOR,
        "open",
        "/proc/self/fd/",
        "a pipe that cannot be made non-blocking is waited for",
    ),
    (
        SUPERVISOR,
        "accept4",
        "-",
        "the connection is taken at the next turn",
    ),
    (SUPERVISOR, "recvmsg", "-", "the question is asked again"),
    (
        SUPERVISOR,
        "recvfrom",
        "-",
        "the log of refused packets says what was tried, and refuses nothing",
    ),
    (
        SUPERVISOR,
        "getsockopt",
        "-",
        "how much was dropped is not known then",
    ),
    (
        SUPERVISOR,
        "unlinkat",
        "/sys/fs/cgroup",
        "the group is removed a moment later",
    ),
    (
        SUPERVISOR,
        "setfsgid",
        "-",
        "what is made gets its owner by fchown",
    ),
    (SUPERVISOR, "getrandom", "-", "there is a second way"),
    (
        SUPERVISOR,
        "openat",
        "cpuacct.usage",
        "wait4 told how much time was used",
    ),
    (
        SUPERVISOR,
        "openat",
        "pids.current",
        "the group is removed a moment later",
    ),
    (
        SUPERVISOR,
        "write",
        ",{\"forget\":",
        "the next start looks for a name that is gone",
    ),
    (INIT, "recvfrom", "-", "listeners capture what rules do not"),
];

/// Calls that are repeated after a signal, or when there is room.
const MADE_AGAIN: &[&str] = &[
    "accept4",
    "epoll_pwait",
    "epoll_wait",
    "fcntl",
    "flock",
    "fsync",
    "getdents64",
    "getrandom",
    "openat",
    "openat2",
    "ppoll",
    "read",
    "recvfrom",
    "recvmsg",
    "sendmsg",
    "wait4",
    "write",
];

/// Why this fault may be silent.
pub fn why_harmless(point: &Point, errno: Errno) -> Option<&'static str> {
    let again = matches!(errno, Errno::INTR | Errno::AGAIN) && MADE_AGAIN.contains(&point.name());
    let listed = HARMLESS.iter().find(|(roles, call, detail, _)| {
        roles.contains(&point.role)
            && *call == point.name()
            && (!detail.is_empty() && point.detail.starts_with(detail)
                || *detail == point.detail
                || detail.starts_with(',') && point.detail.contains(detail))
    });
    let why = listed.map(|(.., why)| *why);
    why.or(again.then_some("it is made again"))
}
