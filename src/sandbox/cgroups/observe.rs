//! The facts for [`super::choose`]: two texts of /proc, and one look at each group in question.

use std::fs::File;
use std::io::{ErrorKind, Read as _};

use rustix::io::Errno;

use crate::kernel::cgroup::{Group, may_write};
use crate::kernel::file::CallError;

use super::choose::{GroupFacts, HostCgroups, ScopeOwner, groups_to_probe};
use super::{CgroupError, Controller, layout};

/// More than the mounts of a usual host take.
const TEXT_BYTES: usize = 32 << 10;

/// Looks at this host as far as [`super::choose`] and [`super::should_reexec`] want it.
///
/// # Errors
/// [`CgroupError::Observe`] where /proc/self cannot be read. What is merely missing is a fact.
pub fn observe(
    parent_named: Option<&str>,
    in_delegated_scope: bool,
) -> Result<HostCgroups, CgroupError> {
    let own = read_or_empty("/proc/self/cgroup")?;
    let mounts = read_or_empty("/proc/self/mountinfo")?;
    let tree = layout::read(&own, &mounts)
        .unified
        .map(|unified| unified.mount_point);
    let groups = groups_to_probe(parent_named, &own, &mounts)
        .into_iter()
        .map(|path| {
            let facts = match is_in(tree.as_deref(), &path) {
                true => look_at_v2(&path),
                false => look_at_v1(&path),
            };
            (path, facts)
        })
        .collect();
    let uid = rustix::process::geteuid();
    Ok(HostCgroups {
        own,
        mounts,
        groups,
        is_root: uid.is_root(),
        managers: managers(uid.as_raw()),
        in_delegated_scope,
    })
}

fn is_in(tree: Option<&str>, path: &str) -> bool {
    tree.and_then(|tree| path.strip_prefix(tree))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Version 1 asks for the right to write and nothing else; one call, for this is before launch.
fn look_at_v1(path: &str) -> GroupFacts {
    match may_write(path) {
        Ok(()) => GroupFacts::default(),
        Err(errno) => unusable(format!("{path} is not ours to write ({errno})")),
    }
}

fn look_at_v2(path: &str) -> GroupFacts {
    let group = match Group::open(path) {
        Ok(group) => group,
        Err(error) => return unusable(error.to_string()),
    };
    if let Err(errno) = may_write(path) {
        return unusable(format!("{path} is not ours to write ({errno})"));
    }
    let mut facts = GroupFacts {
        may_move_processes: may_write(&format!("{path}/cgroup.procs")).is_ok(),
        ..GroupFacts::default()
    };
    let read = |file| group.read(file).map(Option::unwrap_or_default);
    facts.controllers = match read("cgroup.controllers") {
        Ok(controllers) => controllers,
        Err(error) => return unusable(error.to_string()),
    };
    let useful = facts
        .controllers
        .split_ascii_whitespace()
        .any(|name| Controller::OF_V2.iter().any(|known| known.name() == name));
    if !useful {
        return facts;
    }
    match (
        read("cgroup.subtree_control"),
        group.read("cgroup.type"),
        group.processes(),
    ) {
        (Ok(enabled), Ok(kind), Ok(processes)) => {
            let own = rustix::process::getpid().as_raw_nonzero().get();
            facts.enabled = enabled;
            facts.top_of_tree = kind.is_none();
            facts.other_processes = processes.iter().filter(|pid| **pid != own).count();
        }
        (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
            return unusable(error.to_string());
        }
    }
    facts.marked_delegated = ["trusted.delegate", "user.delegate"]
        .into_iter()
        .any(|name| is_marked(&group, name));
    facts
}

fn unusable(why: String) -> GroupFacts {
    GroupFacts {
        unwritable: Some(why),
        ..GroupFacts::default()
    }
}

fn is_marked(group: &Group, name: &str) -> bool {
    let mut value = [0_u8; 8];
    match rustix::fs::fgetxattr(group.directory(), name, &mut value) {
        Ok(length) => value.get(..length) == Some(b"1"),
        Err(_unmarked) => false,
    }
}

/// A manager answers on a socket of its own, the user's in his runtime directory.
fn managers(uid: u32) -> Vec<ScopeOwner> {
    [
        (ScopeOwner::System, "/run/systemd/private".to_owned()),
        (ScopeOwner::User, format!("/run/user/{uid}/systemd/private")),
    ]
    .into_iter()
    .filter(|(_, socket)| std::path::Path::new(socket).exists())
    .map(|(owner, _)| owner)
    .collect()
}

fn read_or_empty(path: &'static str) -> Result<String, CgroupError> {
    // Room for all of it at once: these files are made anew for each read.
    let mut bytes = Vec::with_capacity(TEXT_BYTES);
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        // A kernel without cgroups has no such file.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(CgroupError::Observe(CallError::new(
            "read",
            path,
            Errno::from_io_error(&error).unwrap_or(Errno::IO),
        ))),
    }
}
