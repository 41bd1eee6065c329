//! Removes cgroups that a dead run recorded.

use std::time::Instant;

use rustix::io::Errno;

use super::run_cgroup::{REMOVE_PATIENCE, remove_when_empty};
use super::{CgroupError, group_name, leaf};
use spec::path::escape;
use sys::cgroup::Group;

/// Kills the processes in the cgroups of a dead run and removes the cgroups in order. Returns one
/// result for each path; a missing cgroup is no error.
///
/// The caller must hold the lock of the run's record, so that no other run uses them.
///
/// # Errors
/// For each path: [`CgroupError::Foreign`] unless its last component is the name of this run's
/// cgroup; [`CgroupError::Kill`], [`CgroupError::Remove`].
#[must_use]
pub fn remove_leftovers(run_id: &str, paths: &[&str]) -> Vec<Result<(), CgroupError>> {
    // Stop all cgroups before emptying the first: a process is in several of them, so `cgroup.kill`
    // or a fork limit in one also affects the others.
    let opened: Vec<Result<Option<Group>, CgroupError>> = paths
        .iter()
        .map(|path| open(run_id, path).and_then(stop))
        .collect();
    opened
        .into_iter()
        .map(|group| match group? {
            Some(group) => empty_and_remove(&group),
            None => Ok(()),
        })
        .collect()
}

fn open(run_id: &str, path: &str) -> Result<Option<Group>, CgroupError> {
    let is_ours = path.starts_with('/')
        && !path.split('/').any(|segment| segment == "..")
        && path
            .rsplit_once('/')
            .is_some_and(|(_, name)| name == group_name(run_id));
    if !is_ours {
        return Err(CgroupError::Foreign {
            path: escape(path.as_bytes()),
            run_id: run_id.to_owned(),
        });
    }
    match Group::open(path) {
        Ok(group) => Ok(Some(group)),
        Err(error) if error.errno == Errno::NOENT => Ok(None),
        Err(error) => Err(CgroupError::kill(path)(error)),
    }
}

/// Kills what `cgroup.kill` can kill and forbids forks.
fn stop(group: Option<Group>) -> Result<Option<Group>, CgroupError> {
    let Some(group) = group else {
        return Ok(None);
    };
    for result in [group.kill_all(), group.write("pids.max", "0")] {
        match result {
            Err(error) if error.errno != Errno::NOENT => {
                return Err(CgroupError::kill(group.path())(error));
            }
            _ => (),
        }
    }
    Ok(Some(group))
}

fn empty_and_remove(group: &Group) -> Result<(), CgroupError> {
    let path = group.path();
    leaf::kill_all(group)?;
    remove_when_empty(path, Instant::now() + REMOVE_PATIENCE).map_err(|source| {
        CgroupError::Remove {
            groups: vec![path.to_owned()],
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_path_that_is_not_this_run_s_group_is_left_alone() {
        let paths = [
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/memory/runner-other",
            "/sys/fs/cgroup/../x/runner-abc",
            "runner-abc",
            "/sys/fs/cgroup/runner-abc/",
        ];
        for (path, result) in paths.iter().zip(remove_leftovers("abc", &paths)) {
            assert!(matches!(result, Err(CgroupError::Foreign { .. })), "{path}");
        }
    }
}
