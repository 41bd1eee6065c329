//! What this host is, and who the body will be on it.

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

/// Looks at the host as far as plans depend on it.
///
/// # Errors
/// [`SandboxError::Supervisor`] where a path cannot be looked at.
pub fn look() -> Result<HostSupport, SandboxError> {
    let mut entries = Vec::with_capacity(BASE_CANDIDATES.len());
    for path in BASE_CANDIDATES {
        let failed = SandboxError::supervisor("look at", path);
        let name = CString::new(path).map_err(|_nul| failed(Errno::INVAL))?;
        if let Some(entry) = probe::look(&name).map_err(&failed)? {
            entries.push((path, entry));
        }
    }
    let uid = probe::effective_uid();
    Ok(HostSupport {
        privileged: is_privileged(),
        uid,
        gid: probe::effective_gid(),
        landlock_abi: landlock::abi().map_err(SandboxError::supervisor(
            "ask for",
            "the version of landlock",
        ))?,
        time_namespace: matches!(
            probe::look(c"/proc/self/ns/time"),
            Ok(Some(HostEntry::Link(_)))
        ),
        entries,
    })
}

/// Whether the caller is root, and of more than a user namespace of one id.
pub fn is_privileged() -> bool {
    probe::effective_uid() == 0 && !maps_a_single_id()
}

/// Root of a user namespace with one mapped id is treated as an ordinary user: it cannot map others.
fn maps_a_single_id() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/uid_map") else {
        return false;
    };
    let ids: u64 = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum();
    ids == 1
}

/// The body's ids on the host, and the claim that keeps other runs from taking them.
#[derive(Debug)]
pub struct Claimed {
    /// Who the body is.
    pub identity: Identity,
    /// Held until the run is over, by init too.
    pub claim: Option<UidClaim>,
}

/// Decides who the body is: root's runs get an uid of their own each.
///
/// # Errors
/// [`RecordsError`] where no uid is free.
pub(crate) fn claim_identity(
    host: &HostSupport,
    registry: &RunRecords,
    range: UidRange,
    seed: u64,
) -> Result<Claimed, RecordsError> {
    if !host.privileged {
        let ids = HostIds {
            uid: host.uid,
            gid: host.gid,
        };
        return Ok(Claimed {
            identity: Identity::Own(ids),
            claim: None,
        });
    }
    let count = range.last.saturating_sub(range.first).saturating_add(1);
    let claim = registry.claim_uid(range.first, count, seed)?;
    let ids = HostIds {
        uid: claim.uid(),
        gid: claim.uid(),
    };
    Ok(Claimed {
        identity: Identity::Claimed(ids),
        claim: Some(claim),
    })
}

/// Processors that this process may run on, at least one.
///
/// Not what the standard library says: that also reads the quota of the cgroup, five files, to
/// give a lower number.
#[must_use]
pub fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}
