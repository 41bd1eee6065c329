//! Processes that gave up their rights.

use std::fs;
use std::io::ErrorKind;

use crate::invariants::eventually;

/// Waits until this process has children, and each of them is confined: no capability, no_new_privs, a filter
/// of system calls, and another root directory.
///
/// # Panics
/// A child keeps its rights.
pub fn await_confined_children() {
    let is_confined = || {
        let children = children();
        !children.is_empty() && children.iter().all(|pid| is_confined(*pid))
    };
    eventually("a child of this process has rights", is_confined);
}

fn children() -> Vec<u32> {
    let own = std::process::id().to_string();
    let pids = fs::read_dir("/proc").expect("a list of processes");
    pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| field(*pid, "PPid").as_deref() == Some(&own))
        .collect()
}

fn is_confined(pid: u32) -> bool {
    let has = |name, expected: &str| field(pid, name).as_deref() == Some(expected);
    let has_other_root = match fs::read_link(format!("/proc/{pid}/root")) {
        Ok(root) => root.as_os_str() != "/",
        // It cannot be inspected by its own user.
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    };
    let capabilities = ["CapEff", "CapPrm", "CapInh", "CapAmb"];
    has("Seccomp", "2")
        && has("NoNewPrivs", "1")
        && capabilities
            .iter()
            .all(|name| has(name, "0000000000000000"))
        && has_other_root
}

/// A field of `/proc/PID/status`.
fn field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.lines();
    lines.find_map(|line| {
        Some(
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .trim()
                .to_owned(),
        )
    })
}
