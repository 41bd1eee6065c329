//! Writes limits to the interface files of version 1 and 2.

use rustix::io::Errno;

use sys::cgroup::Group;

use super::CgroupError;

/// Limits memory and forbids swap. `false`: this kernel does not count swap.
pub(super) fn memory_v2(group: &Group, bytes: u64, kills_one: bool) -> Result<bool, CgroupError> {
    set(group, "memory.max", bytes)?;
    // Kill all processes: after the loss of one the state of a body is undefined. Linux 4.19.
    set_if_present(group, "memory.oom.group", u64::from(!kills_one))?;
    set_if_present(group, "memory.swap.max", 0)
}

/// Limits memory, and memory and swap together. `false`: this kernel does not count swap.
pub(super) fn memory_v1(group: &Group, bytes: u64) -> Result<bool, CgroupError> {
    set(group, "memory.limit_in_bytes", bytes)?;
    // Version 1 counts socket buffers only with this limit.
    set_if_present(group, "memory.kmem.tcp.limit_in_bytes", bytes)?;
    // After the memory limit, because it may not be less than that (EINVAL).
    set_if_present(group, "memory.memsw.limit_in_bytes", bytes)
}

pub(super) fn processes(group: &Group, limit: u64) -> Result<(), CgroupError> {
    set(group, "pids.max", limit)
}

pub(super) fn cpu_v2(group: &Group, cpu_millis: u64) -> Result<(), CgroupError> {
    let (quota_us, period_us) = quota(cpu_millis);
    write(group, "cpu.max", format!("{quota_us} {period_us}"))
}

pub(super) fn cpu_v1(group: &Group, parent: &str, cpu_millis: u64) -> Result<(), CgroupError> {
    let (quota_us, period_us) = quota(cpu_millis);
    set(group, "cpu.cfs_period_us", period_us)?;
    match set(group, "cpu.cfs_quota_us", quota_us) {
        // Version 1 refuses a share above that of an ancestor, whose limit applies anyway.
        Err(CgroupError::Limit { source, .. })
            if source.errno == Errno::INVAL && has_tighter_ancestor(parent, cpu_millis) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn has_tighter_ancestor(parent: &str, cpu_millis: u64) -> bool {
    let mut ancestor = Some(parent);
    while let Some(Ok(group)) = ancestor.map(Group::open) {
        let quota_us = group.read_number("cpu.cfs_quota_us");
        let period_us = group.read_number("cpu.cfs_period_us");
        if let (Ok(Some(quota_us)), Ok(Some(period_us))) = (quota_us, period_us)
            && u128::from(quota_us) * 1_000 < u128::from(cpu_millis) * u128::from(period_us)
        {
            return true;
        }
        ancestor = ancestor
            .and_then(|path| path.rsplit_once('/'))
            .map(|(above, _)| above);
    }
    false
}

/// Quota and period in microseconds. The kernel requires a quota of at least 1 ms and a period of
/// at most 1 s.
fn quota(cpu_millis: u64) -> (u64, u64) {
    match cpu_millis {
        0..10 => (cpu_millis.max(1) * 1_000, 1_000_000),
        _ => (cpu_millis.saturating_mul(100), 100_000),
    }
}

fn write(group: &Group, file: &'static str, value: String) -> Result<(), CgroupError> {
    group
        .write(file, &value)
        .map_err(|source| CgroupError::Limit {
            group: group.path().to_owned(),
            file,
            value,
            source,
        })
}

fn set(group: &Group, file: &'static str, value: u64) -> Result<(), CgroupError> {
    write(group, file, value.to_string())
}

/// `false`: this kernel does not have the file.
fn set_if_present(group: &Group, file: &'static str, value: u64) -> Result<bool, CgroupError> {
    match set(group, file, value) {
        Ok(()) => Ok(true),
        Err(CgroupError::Limit { source, .. }) if source.errno == Errno::NOENT => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_share_has_a_longer_period() {
        assert_eq!(quota(1500), (150_000, 100_000));
        assert_eq!(quota(10), (1_000, 100_000));
        assert_eq!(quota(5), (5_000, 1_000_000));
        assert_eq!(quota(0), (1_000, 1_000_000));
    }
}
