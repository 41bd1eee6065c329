//! What the kernel says of a process that the runner started.

use std::fs;
use std::time::{Duration, Instant};

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
