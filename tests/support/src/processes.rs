//! What the kernel says of a process that the runner started.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::is_root;

/// The line `key` of proc_pid_status(5), without its key.
pub fn status(pid: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches(':').trim().replace('\t', " "))
}

/// The children of the runner under a filter, without init, which is in a namespace of processes.
pub fn confined_children(runner: i32) -> Vec<i32> {
    let namespaces = |pid| status(pid, "NSpid").map(|pids| pids.split(' ').count());
    let listed = fs::read_to_string(format!("/proc/{runner}/task/{runner}/children"));
    let listed = listed.unwrap_or_default();
    let children = listed.split_whitespace().filter_map(|pid| pid.parse().ok());
    let is_confined = |child: &i32| {
        status(*child, "Seccomp").as_deref() == Some("2")
            && namespaces(*child) == namespaces(runner)
    };
    children.filter(is_confined).collect()
}

/// Sends `signal` to a process.
pub fn send(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("sent");
}

/// Whether no process has this pid.
pub fn is_gone(pid: i32) -> bool {
    !fs::exists(format!("/proc/{pid}")).expect("looked")
}

/// The child of `pid` under a filter, as soon as there is one.
pub fn confined_child(pid: i32) -> i32 {
    let until = Instant::now() + Duration::from_secs(120);
    let children = format!("/proc/{pid}/task/{pid}/children");
    loop {
        let listed = fs::read_to_string(&children).unwrap_or_default();
        let mut children = listed.split_whitespace().filter_map(|pid| pid.parse().ok());
        let confined = children.find(|pid| status(*pid, "Seccomp").as_deref() == Some("2"));
        if let Some(pid) = confined {
            return pid;
        }
        assert!(Instant::now() < until, "no confined child: {listed}");
        std::thread::yield_now();
    }
}

/// Asserts that the process has no right beyond those of an ordinary process, as the kernel shows it: it has
/// no capability and no group, gains nothing by a program, is under a filter, has one thread, and is in the
/// namespaces of `runner`, which started it.
///
/// # Panics
/// It has.
#[track_caller]
pub fn assert_without_rights(pid: i32, runner: i32) {
    for (key, expected) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapInh", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("Threads", "1"),
    ] {
        assert_eq!(status(pid, key).as_deref(), Some(expected), "{key}");
    }
    if !is_root() {
        // The namespaces of a process that is not dumpable are hidden from its own user.
        return;
    }
    assert_eq!(status(pid, "Groups").as_deref(), Some(""));
    for name in ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"] {
        let of = |pid| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
        assert_eq!(of(pid), of(runner), "{name}");
    }
}

/// Pids of processes that listen on a socket of this runtime directory: they have its variable, are
/// called as the program, and are the leaders of their sessions.
pub fn supervisors(runtime: &Path) -> Vec<i32> {
    let wanted = format!("RUNNER_OPT_RUNTIME_DIRECTORY={}", runtime.display());
    let pids = fs::read_dir("/proc").expect("proc").filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let is_ours = environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes());
        // Fields of proc_pid_stat(5) after the name: state, parent, group, session.
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let session = status
            .rsplit(") ")
            .next()?
            .split(' ')
            .nth(3)?
            .parse::<i32>();
        (is_ours && session == Ok(pid)).then_some(pid)
    });
    pids.collect()
}
