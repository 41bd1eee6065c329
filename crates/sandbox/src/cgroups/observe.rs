//! Collects the facts for [`super::choose`]: two files of /proc, and each possible parent cgroup.

use std::fs::File;
use std::io::{ErrorKind, Read as _};

use rustix::io::Errno;

use sys::cgroup::{Group, may_write};
use sys::file::CallError;

use super::choose::{GroupFacts, HostCgroups, ScopeOwner, groups_to_probe};
use super::{CgroupError, Controller, layout};

/// Larger than mountinfo of usual hosts.
const TEXT_BYTES: usize = 32 << 10;

/// Observes this host for [`super::choose`] and [`super::should_reexec`].
///
/// # Errors
/// [`CgroupError::Observe`] if /proc/self cannot be read, or if a cgroup cannot be inspected because
/// of a temporary shortage, for which the body must not run without cgroups. Missing files and
/// permissions are no errors but facts.
pub fn observe(
    named_parent: Option<&str>,
    in_delegated_scope: bool,
) -> Result<HostCgroups, CgroupError> {
    let own = read_or_empty("/proc/self/cgroup")?;
    let mounts = read_or_empty("/proc/self/mountinfo")?;
    let tree = layout::parse(&own, &mounts)
        .unified
        .map(|unified| unified.mount_point);
    let groups = groups_to_probe(named_parent, &own, &mounts)
        .into_iter()
        .map(|path| {
            let inspected = if is_in(tree.as_deref(), &path) {
                inspect_v2(&path)
            } else {
                inspect_v1(&path)
            };
            let facts = match inspected {
                Ok(facts) => facts,
                Err(error) if is_transient(error.errno) => return Err(CgroupError::Observe(error)),
                Err(error) => GroupFacts {
                    unwritable: Some(if error.call == WRITE_CHECK {
                        format!("{path} is not writable ({})", error.errno)
                    } else {
                        error.to_string()
                    }),
                    ..GroupFacts::default()
                },
            };
            Ok((path, facts))
        })
        .collect::<Result<_, CgroupError>>()?;
    let uid = rustix::process::geteuid();
    Ok(HostCgroups {
        own,
        mounts,
        groups,
        is_root: uid.is_root(),
        managers: managers(uid.as_raw()).map_err(CgroupError::Observe)?,
        in_delegated_scope,
    })
}

fn is_in(tree: Option<&str>, path: &str) -> bool {
    tree.and_then(|tree| path.strip_prefix(tree))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

const WRITE_CHECK: &str = "faccessat2";

fn is_transient(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::INTR | Errno::AGAIN
    )
}

fn check_write(path: &str) -> Result<(), CallError> {
    may_write(path).map_err(|errno| CallError::new(WRITE_CHECK, path, errno))
}

/// Version 1 requires only write access. One call, because this delays the launch.
fn inspect_v1(path: &str) -> Result<GroupFacts, CallError> {
    check_write(path)?;
    Ok(GroupFacts::default())
}

fn inspect_v2(path: &str) -> Result<GroupFacts, CallError> {
    let group = Group::open(path)?;
    check_write(path)?;
    let may_move_processes = match check_write(&format!("{path}/cgroup.procs")) {
        Ok(()) => true,
        Err(error) if is_transient(error.errno) => return Err(error),
        Err(_not_writable) => false,
    };
    let read = |file| group.read(file).map(Option::unwrap_or_default);
    let mut facts = GroupFacts {
        may_move_processes,
        controllers: read("cgroup.controllers")?,
        ..GroupFacts::default()
    };
    let has_controllers = facts
        .controllers
        .split_ascii_whitespace()
        .any(|name| Controller::OF_V2.iter().any(|known| known.name() == name));
    if !has_controllers {
        return Ok(facts);
    }
    let own = rustix::process::getpid().as_raw_nonzero().get();
    facts.enabled = read("cgroup.subtree_control")?;
    facts.top_of_tree = group.read("cgroup.type")?.is_none();
    let processes = group.processes()?;
    facts.other_processes = processes.iter().filter(|pid| **pid != own).count();
    facts.marked_delegated =
        is_marked(&group, "trusted.delegate")? || is_marked(&group, "user.delegate")?;
    Ok(facts)
}

fn is_marked(group: &Group, name: &str) -> Result<bool, CallError> {
    let mut value = [0_u8; 8];
    match rustix::fs::fgetxattr(group.directory(), name, &mut value) {
        Ok(length) => Ok(value.get(..length) == Some(b"1")),
        Err(errno) if is_transient(errno) => Err(CallError::new("fgetxattr", group.path(), errno)),
        Err(_unmarked) => Ok(false),
    }
}

/// The systemd managers that have a socket. That of the user's manager is in the runtime directory.
fn managers(uid: u32) -> Result<Vec<ScopeOwner>, CallError> {
    let mut managers = Vec::new();
    for (owner, socket) in [
        (ScopeOwner::System, "/run/systemd/private".to_owned()),
        (ScopeOwner::User, format!("/run/user/{uid}/systemd/private")),
    ] {
        match rustix::fs::stat(&socket) {
            Ok(_) => managers.push(owner),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => (),
            Err(errno) => return Err(CallError::new("stat", socket, errno)),
        }
    }
    Ok(managers)
}

fn read_or_empty(path: &'static str) -> Result<String, CgroupError> {
    // In one call, because the kernel generates these files for each read.
    let mut bytes = Vec::with_capacity(TEXT_BYTES);
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        // The kernel has no cgroups.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(CgroupError::Observe(CallError::new(
            "read",
            path,
            sys::file::errno_of(&error),
        ))),
    }
}
