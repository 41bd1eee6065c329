//! Host support, and the body's ids on the host.

use std::ffi::CString;

use rustix::io::Errno;

use crate::error::SandboxError;
use crate::prepare::Identity;
use crate::records::{RecordsError, RunRecords, UidClaim};
use crate::view::BASE_CANDIDATES;
use spec::host::{HostEntry, HostSupport};
use spec::host_policy::UidRange;
use sys::credentials::HostIds;
use sys::landlock;
use sys::probe;

/// Detects the properties of the host that plans depend on.
///
/// # Errors
/// [`SandboxError::Supervisor`] if a path cannot be inspected.
pub fn detect() -> Result<HostSupport, SandboxError> {
    let mut entries = Vec::with_capacity(BASE_CANDIDATES.len());
    for path in BASE_CANDIDATES {
        let failed = SandboxError::supervisor("inspect", path);
        let name = CString::new(path).map_err(|_nul| failed(Errno::INVAL))?;
        if let Some(entry) = probe::host_entry(&name).map_err(&failed)? {
            entries.push((path, entry));
        }
    }
    let uid = probe::effective_uid();
    Ok(HostSupport {
        privileged: is_privileged(),
        uid,
        gid: probe::effective_gid(),
        landlock_abi: landlock::abi()
            .map_err(SandboxError::supervisor("read", "the version of Landlock"))?,
        time_namespace: matches!(
            probe::host_entry(c"/proc/self/ns/time"),
            Ok(Some(HostEntry::Link(_)))
        ),
        entries,
    })
}

/// Whether the caller is root and can map other ids. Root of a user namespace with a single mapped
/// id cannot, and counts as an ordinary user.
pub fn is_privileged() -> bool {
    probe::effective_uid() == 0 && !has_single_id()
}

fn has_single_id() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/uid_map") else {
        return false;
    };
    let ids: u64 = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum();
    ids == 1
}

/// Chooses the body's ids on the host. For root each run gets its own uid, and the claim excludes
/// other runs from it.
///
/// # Errors
/// [`RecordsError`] if no uid is free.
pub(crate) fn claim_identity(
    host: &HostSupport,
    records: &RunRecords,
    range: UidRange,
    seed: u64,
) -> Result<(Identity, Option<UidClaim>), RecordsError> {
    if !host.privileged {
        let ids = HostIds {
            uid: host.uid,
            gid: host.gid,
        };
        return Ok((Identity::Own(ids), None));
    }
    let count = range.last.saturating_sub(range.first).saturating_add(1);
    let claim = records.claim_uid(range.first, count, seed)?;
    let ids = HostIds {
        uid: claim.uid(),
        gid: claim.uid(),
    };
    Ok((Identity::Claimed(ids), Some(claim)))
}

/// Number of CPUs that this process may run on, at least one.
///
/// `std::thread::available_parallelism` would also read the quota of the cgroup, which takes five
/// files, and return a lower number.
#[must_use]
pub fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}
