//! What one run holds on the host: its record, its groups, its uid. Given back in reverse order.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::plan::limits::Coverage;
use crate::run::error::RunError;
use crate::run::host;
use crate::staging::{Journal, TemporaryName, remove_temporary};
use sandbox::cgroups::{self, AxisCoverage, Backend, HostCgroups, RunCgroup};
use sandbox::prepare::BasePlan;
use sandbox::records::{
    Entry, Leftover, RecordsError, RunRecord, RunRecords, UidClaim, default_directory,
};
use sandbox::view;
use spec::host::HostSupport;
use spec::host_policy::HostPolicy;
use spec::path::{RelPath, escape};
use spec::report::{Report, WarningReport, with_causes};
use spec::request::{Caller, Request};
use sys::credentials::HostIds;
use sys::probe::effective_uid;

/// Inodes of the writable space while the supervisor fills it, beyond the bundle's own.
const SPACE_INODES_EXTRA: u64 = 16_384;

/// Code of the warning that something could not be removed.
pub(crate) const LEFTOVER_STAYS: &str = "leftover_stays";

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

impl Resources {
    /// Removes what dead runs left, then takes what this run needs.
    ///
    /// `has_child`: the child lives already, and joins no group that it would have to be cloned
    /// into, unless the run would lose something by that.
    ///
    /// # Errors
    /// [`RunError::Registry`], [`RunError::Cgroup`], [`RunError::Host`].
    pub(crate) fn acquire(
        request: &Request,
        policy: &HostPolicy,
        seed: [u8; 10],
        has_child: bool,
        report: &mut Report,
    ) -> Result<Self, RunError> {
        let host = host::look()?;
        let registry = open_registry(&request.caller)?;
        let named = request.caller.cgroup_parent.as_deref();
        let facts = cgroups::observe(named, request.caller.in_delegated_scope)?;
        let backend = choose_backend(named, &facts)?;
        for warning in collect(&registry)? {
            report.warnings.push(warning);
        }
        let mut record = registry.begin(&report.run_id)?;
        let mut planned = Vec::new();
        let chosen = match has_child {
            true => backend.for_living_child(),
            false => backend,
        };
        let taken = take_groups(&chosen, &mut record, &mut planned, report).and_then(|group| {
            let claimed = host::claim_identity(&host, &registry, policy.uid_range, number(seed))?;
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
            mount_point: registry.mount_point().to_path_buf(),
            space_bytes: policy.unpack.unpacked_bytes.saturating_add(64 << 20),
            space_inodes: policy.unpack.entries.saturating_add(SPACE_INODES_EXTRA),
            view: view::base(&host),
            own_clocks: host.time_namespace,
            terminal: request.streams.terminal,
            send_proc: coverage(&group)
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
    pub(crate) fn body_ids(&self) -> Option<HostIds> {
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
        coverage(&self.group)
    }

    /// Gives everything back. What cannot be given back is added to the report and hides nothing;
    /// its record then stays for the next start.
    pub fn release(self, report: &mut Report) {
        let Self {
            group,
            record,
            claim,
            ..
        } = self;
        drop(claim);
        let removed = group.close();
        let finished = match &removed {
            Ok(()) => record.finish(),
            Err(_) => Ok(()),
        };
        let problems = [
            removed.err().map(|error| with_causes(&error)),
            finished.err().map(|error| with_causes(&error)),
        ];
        for message in problems.into_iter().flatten() {
            report
                .warnings
                .push(WarningReport::new("cleanup_failed", message));
        }
    }
}

/// The back end beneath the group that was stated, or beneath our own where none was.
///
/// # Errors
/// [`RunError::Argument`] where a group was stated and no run can get one below it: limits that
/// were expected of it would not hold.
pub(super) fn choose_backend(
    named: Option<&str>,
    facts: &HostCgroups,
) -> Result<Backend, RunError> {
    let backend = cgroups::choose(named, facts);
    match (named, &backend) {
        (Some(named), Backend::None { reason }) => Err(RunError::Argument {
            code: "cgroup_parent_unusable",
            what: "cgroup parent",
            object: escape(named.as_bytes()),
            problem: format!("cannot be used: {reason}"),
            hint: Some(
                "make the group, hand it over with chown, or leave out \
                 RUNNER_OPT_CGROUP_PARENT and cgroup_parent"
                    .to_owned(),
            ),
        }),
        _ => Ok(backend),
    }
}

/// Writes down which groups the run may come to have, in `planned` too, and makes the first.
fn take_groups(
    backend: &Backend,
    record: &mut RunRecord,
    planned: &mut Vec<String>,
    report: &mut Report,
) -> Result<RunCgroup, RunError> {
    backend.name().clone_into(&mut report.cgroup_backend);
    let paths = backend.planned_paths(&report.run_id);
    let entries: Vec<Entry> = paths.iter().cloned().map(Entry::Cgroup).collect();
    record.record_all(&entries)?;
    *planned = paths;
    Ok(backend.create(&report.run_id)?)
}

fn number(seed: [u8; 10]) -> u64 {
    u64::from_le_bytes([
        seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7],
    ])
}

fn coverage(group: &RunCgroup) -> Vec<Coverage> {
    of_axes(group.coverage())
}

/// The same in the words of the plan.
pub(super) fn of_axes(axes: Vec<AxisCoverage>) -> Vec<Coverage> {
    axes.into_iter()
        .map(|axis| Coverage {
            axis: axis.axis,
            state: axis.state,
            enforced_by: axis.enforced_by,
            reason: axis.reason,
        })
        .collect()
}

/// Where runs of this caller are recorded.
#[must_use]
pub fn runtime_directory(caller: &Caller) -> PathBuf {
    let directory = caller.runtime_directory.clone();
    directory.unwrap_or_else(|| default_directory(effective_uid(), None))
}

/// The registry of this caller's runs.
///
/// # Errors
/// [`RunError::Registry`].
pub(crate) fn open_registry(caller: &Caller) -> Result<RunRecords, RunError> {
    Ok(RunRecords::open(&runtime_directory(caller))?)
}

/// Removes what killed supervisors left. Never touches a live run.
///
/// # Errors
/// [`RunError::Registry`] where the records cannot be listed.
pub fn collect(registry: &RunRecords) -> Result<Vec<WarningReport>, RunError> {
    let collected = registry.collect_leftovers(&mut |leftover: &Leftover| {
        let Entry::Temporary { directory, name } = &leftover.entry else {
            return Ok(());
        };
        let name = std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str());
        let temporary = TemporaryName::parse(RelPath::parse(name)?)?;
        remove_temporary(directory, &temporary)?;
        Ok(())
    })?;
    let mut warnings = Vec::new();
    for run in collected {
        for failure in run.failures {
            let message = format!(
                "what run {} left could not be removed: {failure}",
                run.run_id
            );
            warnings.push(WarningReport::new(LEFTOVER_STAYS, message));
        }
        if !run.removed.is_empty() {
            let message = format!(
                "removed what the killed run {} had left ({} things)",
                run.run_id,
                run.removed.len()
            );
            warnings.push(WarningReport::new("leftover_removed", message));
        }
    }
    Ok(warnings)
}

/// Writes the temporary names of a sync into the run's record.
#[derive(Debug)]
pub struct RunJournal<'run> {
    record: &'run mut RunRecord,
    workspace: std::path::PathBuf,
}

impl<'run> RunJournal<'run> {
    /// A journal of names in `workspace`, an absolute path.
    #[must_use]
    pub fn new(record: &'run mut RunRecord, workspace: std::path::PathBuf) -> Self {
        Self { record, workspace }
    }

    fn entry(&self, temporary: &TemporaryName) -> Entry {
        use std::os::unix::ffi::OsStrExt as _;
        let path = temporary.path();
        let directory = path.parent().map_or_else(
            || self.workspace.clone(),
            |parent| {
                self.workspace
                    .join(std::ffi::OsStr::from_bytes(parent.as_bytes()))
            },
        );
        let name = std::ffi::OsStr::from_bytes(path.file_name()).to_owned();
        Entry::Temporary { directory, name }
    }
}

impl Journal for RunJournal<'_> {
    fn locks(&mut self) -> Result<OwnedFd, io::Error> {
        let failed = |error: RecordsError| io::Error::other(with_causes(&error));
        self.record.open_locks().map_err(failed)
    }

    fn record(&mut self, temporary: &TemporaryName) -> Result<(), io::Error> {
        let entry = self.entry(temporary);
        let failed = |error: RecordsError| io::Error::other(with_causes(&error));
        self.record.record(&entry).map_err(failed)
    }

    fn forget(&mut self, temporary: &TemporaryName) {
        let entry = self.entry(temporary);
        match self.record.forget(&entry) {
            // A record that still names it makes the next start look once more: no harm.
            Ok(()) | Err(_) => (),
        }
    }
}
