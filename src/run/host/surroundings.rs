//! What surrounds this process: the kernel, a filter, a container.

use std::path::Path;

use crate::plan::doctor::{Surroundings, has_masked_proc};
use crate::run::host::user_namespaces::text;
use spec::path::escape;
use spec::request::Caller;
use sys::probe::{self, Call};

/// Reads what surrounds this process. What cannot be read counts as missing.
pub(in crate::run) fn surroundings(caller: &Caller) -> Surroundings {
    let release = rustix::system::uname();
    Surroundings {
        release: escape(release.release().to_bytes()),
        seccomp_filters: text("/proc/self/status").and_then(|status| {
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("Seccomp_filters:"))?;
            count.trim().parse().ok()
        }),
        user_namespace_call: probe::try_call(Call::Unshare).map_err(|errno| errno.to_string()),
        container: container(caller).map(|name| escape(name.as_bytes())),
        has_masked_proc: text("/proc/self/mountinfo").is_some_and(|text| has_masked_proc(&text)),
    }
}

/// Inode of the first pid namespace (PROC_PID_INIT_INO of the kernel).
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;

/// The kind of the container, by what engines leave in it. A virtual machine that was made from the image of a
/// container has the same files, but its processes are in the first pid namespace.
fn container(caller: &Caller) -> Option<String> {
    let namespace = rustix::fs::stat("/proc/self/ns/pid");
    if namespace.is_ok_and(|found| found.st_ino == FIRST_PID_NAMESPACE) {
        return None;
    }
    let variable = |name: &[u8]| {
        let mut variables = caller.environment.iter();
        let (_, value) = variables.find(|(found, _)| found == name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let marked = |path: &str, name: &str| Path::new(path).exists().then(|| name.to_owned());
    variable(b"KUBERNETES_SERVICE_HOST")
        .map(|_address| "kubernetes".to_owned())
        .or_else(|| text("/run/systemd/container"))
        .or_else(|| marked("/run/.containerenv", "podman"))
        .or_else(|| marked("/.dockerenv", "docker"))
        .or_else(|| variable(b"container"))
        .filter(|name| !name.is_empty())
}
