//! What one run holds on the host: its record, its groups, its uid. Given back in reverse order.

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

/// What one run holds.
#[derive(Debug)]
pub struct Resources {
    /// What the host can do.
    pub host: HostSupport,
    pub group: RunCgroup,
    /// The record; last to go.
    pub record: RunRecord,
    /// The part of the plan that is known before the clone.
    pub base: BasePlan,
    claim: Option<UidClaim>,
}

/// What a run asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'run> {
    /// 1 to 64 of a-z, 0-9 and `-`; no other run has it.
    pub run_id: &'run str,
    /// Where the search for a free uid begins; random.
    pub seed: u64,
    /// For runs of root.
    pub uids: UidRange,
    /// The size of the writable space until the launch.
    pub space_bytes: u64,
    pub space_inodes: u64,
    /// The body gets a terminal.
    pub terminal: bool,
}

/// The host did not give it, or did not take it back.
#[derive(Debug, thiserror::Error)]
pub enum ResourcesError {
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl Resources {
    /// Takes what a run needs.
    ///
    /// # Errors
    /// [`ResourcesError`]; then nothing is held.
    pub fn acquire(
        host: HostSupport,
        records: &RunRecords,
        backend: &Backend,
        wanted: &Wanted<'_>,
    ) -> Result<Self, ResourcesError> {
        let mut record = records.begin(wanted.run_id)?;
        let planned = backend.planned_paths(wanted.run_id);
        let taken = take_groups(backend, &mut record, &planned, wanted.run_id).and_then(|group| {
            let claimed = host::claim_identity(&host, records, wanted.uids, wanted.seed)?;
            Ok((group, claimed))
        });
        let (group, claimed) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // What was made has been removed again; else the record has to stay.
                if planned.iter().all(|path| !Path::new(path).exists()) {
                    record.finish()?;
                }
                return Err(error);
            }
        };
        let base = BasePlan {
            identity: claimed.identity,
            mount_point: records.mount_point().to_path_buf(),
            space_bytes: wanted.space_bytes,
            space_inodes: wanted.space_inodes,
            view: view::base(&host),
            own_clocks: host.time_namespace,
            terminal: wanted.terminal,
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
            claim: claimed.claim,
        })
    }

    /// The ids with which the body's files are touched; `None` where they are ours anyway.
    #[must_use]
    pub fn body_ids(&self) -> Option<HostIds> {
        self.base.identity.to_assume()
    }

    /// What keeps this run's record and its uid taken; for init, which holds them until it ends.
    #[must_use]
    pub fn claims(&self) -> Vec<BorrowedFd<'_>> {
        let claim = self.claim.iter().map(UidClaim::fd);
        claim.chain([self.record.fd()]).collect()
    }

    /// How strongly each limit holds here.
    #[must_use]
    pub fn coverage(&self) -> Vec<Coverage> {
        self.group.coverage()
    }

    /// Gives everything back. Returns what could not be given back; its record then stays for the
    /// next start.
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

/// Writes down which groups the run may come to have, and makes the first.
fn take_groups(
    backend: &Backend,
    record: &mut RunRecord,
    planned: &[String],
    run_id: &str,
) -> Result<RunCgroup, ResourcesError> {
    let entries: Vec<Entry> = planned.iter().cloned().map(Entry::Cgroup).collect();
    record.record_all(&entries)?;
    Ok(backend.create(run_id)?)
}
