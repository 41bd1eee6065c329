//! Resources of one run on the host: record, cgroups and uid.

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::cgroups::{Backend, CgroupError, RunCgroup};
use crate::host;
use crate::prepare::BasePlan;
use crate::records::{Entry, RecordsError, RunRecord, RunRecords, UidClaim};
use crate::view;
use spec::host::HostSupport;
use spec::host_policy::UidRange;
use spec::limits::Coverage;
use sys::credentials::HostIds;

/// Resources of one run.
#[derive(Debug)]
pub struct Resources {
    pub host: HostSupport,
    pub group: RunCgroup,
    /// Finished after everything else is released.
    pub record: RunRecord,
    pub base: BasePlan,
    claim: Option<UidClaim>,
}

/// Requested resources.
#[derive(Debug, Clone, Copy)]
pub struct ResourceRequest<'run> {
    /// 1 to 64 of a-z, 0-9 and `-`; unique.
    pub run_id: &'run str,
    /// Random start of the search for a free uid.
    pub seed: u64,
    /// For runs of root.
    pub uids: UidRange,
    /// Size of the writable space until the launch.
    pub space_bytes: u64,
    pub space_inodes: u64,
    pub terminal: bool,
    /// The sandbox stays: its commands may get cgroups of their own.
    pub stays: bool,
}

/// A resource could not be acquired or released.
#[derive(Debug, thiserror::Error)]
pub enum ResourcesError {
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl Resources {
    /// Acquires all resources of a run. On failure nothing is acquired.
    pub fn acquire(
        host: HostSupport,
        records: &RunRecords,
        backend: &Backend,
        request: &ResourceRequest<'_>,
    ) -> Result<Self, ResourcesError> {
        let mut record = records.begin(request.run_id)?;
        let planned = backend.planned_paths(request.run_id);
        let acquired = create_cgroups(backend, &mut record, &planned, request).and_then(|group| {
            let claimed = host::claim_identity(&host, records, request.uids, request.seed)?;
            Ok((group, claimed))
        });
        let (group, (identity, claim)) = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                // Keep the record if a created cgroup remains. If it cannot be finished, a later start
                // removes it; the first error is the cause.
                if planned.iter().all(|path| !Path::new(path).exists()) {
                    drop(record.finish());
                }
                return Err(error);
            }
        };
        let base = BasePlan {
            identity,
            mount_point: records.mount_point().to_path_buf(),
            space_bytes: request.space_bytes,
            space_inodes: request.space_inodes,
            view: view::base(&host),
            own_clocks: host.time_namespace,
            terminal: request.terminal,
            send_proc: group
                .coverage()
                .iter()
                .any(|axis| axis.enforced_by == "poll"),
        };
        Ok(Self {
            host,
            group,
            record,
            base,
            claim,
        })
    }

    /// Ids to assume for accessing the body's files; `None` if they are the caller's.
    #[must_use]
    pub fn body_ids(&self) -> Option<HostIds> {
        self.base.identity.to_assume()
    }

    /// Descriptors whose locks claim the uid and the record. Init keeps them open until it ends.
    #[must_use]
    pub fn claims(&self) -> Vec<BorrowedFd<'_>> {
        let claim = self.claim.iter().map(UidClaim::fd);
        claim.chain([self.record.fd()]).collect()
    }

    /// How each limit is enforced.
    #[must_use]
    pub fn coverage(&self) -> Vec<Coverage> {
        self.group.coverage()
    }

    /// Releases everything. If it returns errors, the record stays for the next start.
    #[must_use]
    pub fn release(self) -> Vec<ResourcesError> {
        let Self {
            group,
            record,
            claim,
            ..
        } = self;
        drop(claim);
        match group.close() {
            Ok(()) => record.finish().err().map(Into::into).into_iter().collect(),
            Err(error) => vec![error.into()],
        }
    }
}

/// Records the planned cgroups and creates those that must exist before the clone.
fn create_cgroups(
    backend: &Backend,
    record: &mut RunRecord,
    planned: &[String],
    request: &ResourceRequest<'_>,
) -> Result<RunCgroup, ResourcesError> {
    let entries: Vec<Entry> = planned.iter().cloned().map(Entry::Cgroup).collect();
    record.record_all(&entries)?;
    let mut group = backend.create(request.run_id)?;
    if request.stays {
        group.prepare_for_leaves()?;
    }
    Ok(group)
}
