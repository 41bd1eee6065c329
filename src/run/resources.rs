//! What a run of the program takes on the host, and what dead runs left there.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::run::Run;
use crate::run::error::RunError;
use crate::staging::{Journal, TemporaryName, remove_temporary};
use sandbox::cgroups::{self, Backend, HostCgroups};
use sandbox::host;
use sandbox::records::{Entry, Leftover, RecordsError, RunRecord, RunRecords, default_directory};
use sandbox::resources::{ResourceRequest, Resources};
use spec::host::HostSupport;
use spec::host_policy::HostPolicy;
use spec::path::{RelPath, escape};
use spec::report::{WarningReport, with_causes};
use spec::request::{Caller, Request};
use sys::credentials::AssumedFileIds;
use sys::probe::effective_uid;

/// Inodes of the writable space while the supervisor fills it, beyond the bundle's own.
const SPACE_INODES_EXTRA: u64 = 16_384;

/// Code of the warning that something could not be removed.
pub(crate) const LEFTOVER_STAYS: &str = "leftover_stays";

/// What of the host a run is made of.
pub(crate) struct RunHost {
    host: HostSupport,
    registry: RunRecords,
    backend: Backend,
}

impl RunHost {
    /// Looks at the host. `has_child`: the child lives already, and joins no group that it would have
    /// to be cloned into, unless the run would lose something by that.
    ///
    /// # Errors
    /// [`RunError::Registry`], [`RunError::Cgroup`], [`RunError::Host`].
    pub(crate) fn look(request: &Request, has_child: bool) -> Result<Self, RunError> {
        let host = host::look()?;
        let registry = open_registry(&request.caller)?;
        let named = request.caller.cgroup_parent.as_deref();
        let facts = cgroups::observe(named, request.caller.in_delegated_scope)?;
        let backend = choose_backend(named, &facts)?;
        let backend = match has_child {
            true => backend.for_living_child(),
            false => backend,
        };
        Ok(Self {
            host,
            registry,
            backend,
        })
    }

    /// Removes what dead runs left. Returns what is to be said of that.
    ///
    /// # Errors
    /// [`RunError::Registry`] where the records cannot be listed.
    pub(crate) fn collect_leftovers(&self) -> Result<Vec<WarningReport>, RunError> {
        collect(&self.registry)
    }

    /// Name of the cgroup back end.
    pub(crate) fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Takes what the run `run_id` needs.
    ///
    /// # Errors
    /// [`RunError::Registry`], [`RunError::Cgroup`].
    pub(crate) fn acquire(
        self,
        request: &Request,
        policy: &HostPolicy,
        run_id: &str,
        seed: [u8; 10],
    ) -> Result<Resources, RunError> {
        let wanted = ResourceRequest {
            run_id,
            seed: number(seed),
            uids: policy.uid_range,
            space_bytes: policy.unpack.unpacked_bytes.saturating_add(64 << 20),
            space_inodes: policy.unpack.entries.saturating_add(SPACE_INODES_EXTRA),
            terminal: request.streams.terminal,
        };
        Ok(Resources::acquire(
            self.host,
            &self.registry,
            &self.backend,
            &wanted,
        )?)
    }
}

/// Gives everything back. Returns a warning for what could not be given back.
pub(crate) fn release(resources: Resources) -> impl Iterator<Item = WarningReport> {
    let failed = resources.release().into_iter();
    failed.map(|error| WarningReport::new("cleanup_failed", with_causes(&error)))
}

fn number(seed: [u8; 10]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = seed;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
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

impl Run<'_> {
    /// Lets this process touch files with the body's ids.
    pub(super) fn assume(&self, resources: &Resources) -> Result<AssumedFileIds, RunError> {
        AssumedFileIds::assume(resources.body_ids())
            .map_err(RunError::host("touch files with the body's ids"))
    }
}
