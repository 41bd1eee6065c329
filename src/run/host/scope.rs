//! The systemd scope for a cgroup version 2 that was not delegated.

use std::ffi::OsString;
use std::path::Path;

use sandbox::cgroups::{delegated_scope_argv, observe, should_reexec};
use spec::request::Caller;

/// f_type of a version 2 cgroup file system (statfs(2)).
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// The argument vector that runs `program` again in a delegated scope; `None` if groups can be
/// created already, without a service manager, and on hosts that do not use version 2 only.
#[must_use]
pub(crate) fn command_in_scope(
    caller: &Caller,
    program: &Path,
    arguments: &[OsString],
) -> Option<Vec<OsString>> {
    if caller.in_delegated_scope || caller.cgroup_parent.is_some() {
        return None;
    }
    if !has_version_2_alone() {
        return None;
    }
    let host = observe(None, false).ok()?;
    let owner = should_reexec(None, &host)?;
    Some(delegated_scope_argv(owner, program, arguments))
}

/// Whether this host uses cgroup version 2 only.
pub(in crate::run) fn has_version_2_alone() -> bool {
    let found = rustix::fs::statfs("/sys/fs/cgroup");
    found.is_ok_and(|found| found.f_type == CGROUP2_SUPER_MAGIC)
}
