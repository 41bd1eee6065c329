//! Host resources of a run, and the removal of those that dead runs left.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::run::Run;
use crate::run::error::RunError;
use crate::staging::{
    Journal, TemporaryName, is_directory_name, remove_temporary, remove_temporary_directory,
};
use sandbox::cgroups::{self, Backend, HostCgroups};
use sandbox::host;
use sandbox::records::{Entry, Leftover, RecordsError, RunRecord, RunRecords, default_directory};
use sandbox::resources::{ResourceRequest, Resources};
use spec::host::HostSupport;
use spec::host_policy::HostPolicy;
use spec::path::{RelPath, escape, escape_path};
use spec::report::{WarningReport, with_causes};
use spec::request::{Caller, Request, Subject};
use spec::units::count;
use sys::credentials::AssumedFileIds;
use sys::probe::effective_uid;

/// Inodes for the supervisor's own files in the writable space, besides the bundle's.
const SPACE_INODES_EXTRA: u64 = 16_384;

/// Warning code: a resource could not be removed.
pub(crate) const LEFTOVER_STAYS: &str = "leftover_stays";

pub(in crate::run) struct RunHost {
    host: HostSupport,
    records: RunRecords,
    backend: Backend,
}

impl RunHost {
    /// Inspects the host. `has_child`: the child exists already, so it joins its groups after clone
    /// unless that would lose a limit.
    pub(in crate::run) fn inspect(request: &Request, has_child: bool) -> Result<Self, RunError> {
        let host = host::detect()?;
        let records = open_records(&request.caller)?;
        let named = request.caller.cgroup_parent.as_deref();
        let facts = cgroups::observe(named, request.caller.in_delegated_scope)?;
        let backend = choose_backend(named, &facts)?;
        let backend = if has_child {
            backend.for_running_child()
        } else {
            backend
        };
        Ok(Self {
            host,
            records,
            backend,
        })
    }

    pub(in crate::run) fn collect_leftovers(&self) -> Result<Vec<WarningReport>, RunError> {
        collect_leftovers(&self.records)
    }

    pub(in crate::run) fn backend(&self) -> &'static str {
        self.backend.name()
    }

    pub(in crate::run) fn acquire(
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
            stays: matches!(request.subject, Subject::Sandbox),
        };
        Ok(Resources::acquire(
            self.host,
            &self.records,
            &self.backend,
            &wanted,
        )?)
    }
}

/// Releases all resources and returns a warning for those that could not be released.
pub(in crate::run) fn release(resources: Resources) -> impl Iterator<Item = WarningReport> {
    let failed = resources.release().into_iter();
    failed.map(|error| WarningReport::new("cleanup_failed", with_causes(&error)))
}

fn number(seed: [u8; 10]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = seed;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The back end below the stated group, or below our own.
///
/// # Errors
/// [`RunError::Argument`] if no run can create a group below the stated one: its limits would not
/// apply.
pub(in crate::run) fn choose_backend(
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
                "create the group, chown it to this user, or unset RUNNER_OPT_CGROUP_PARENT and \
                 cgroup_parent"
                    .to_owned(),
            ),
        }),
        _ => Ok(backend),
    }
}

#[must_use]
pub(in crate::run) fn runtime_directory(caller: &Caller) -> PathBuf {
    let directory = caller.runtime_directory.clone();
    directory.unwrap_or_else(|| default_directory(effective_uid(), None))
}

pub(crate) fn open_records(caller: &Caller) -> Result<RunRecords, RunError> {
    Ok(RunRecords::open(&runtime_directory(caller))?)
}

/// Removes resources of killed supervisors, and names directories of `--keep` that they left. Never
/// touches a live run.
pub(crate) fn collect_leftovers(records: &RunRecords) -> Result<Vec<WarningReport>, RunError> {
    let collected = records.collect_leftovers(&mut |leftover: &Leftover| {
        let name = leftover.name.as_bytes();
        if is_directory_name(name) {
            remove_temporary_directory(&leftover.directory, name)?;
            return Ok(());
        }
        let temporary = TemporaryName::parse(RelPath::parse(name)?)?;
        remove_temporary(&leftover.directory, &temporary)?;
        Ok(())
    })?;
    let mut warnings = Vec::new();
    for run in collected {
        for failure in run.failures {
            let message = format!("cannot remove a leftover of run {}: {failure}", run.run_id);
            warnings.push(WarningReport::new(LEFTOVER_STAYS, message));
        }
        for path in run.kept.iter().filter(|path| path.exists()) {
            let message = format!(
                "the copy of --keep of the killed run {} may be incomplete: {}",
                run.run_id,
                escape_path(path)
            );
            warnings.push(WarningReport::new("leftover_kept", message));
        }
        if !run.removed.is_empty() {
            let message = format!(
                "removed {} of the killed run {}",
                count(run.removed.len(), "leftover"),
                run.run_id
            );
            warnings.push(WarningReport::new("leftover_removed", message));
        }
    }
    Ok(warnings)
}

/// Records the temporary names of a sync in the run's record.
#[derive(Debug)]
pub(in crate::run) struct RunJournal<'run> {
    record: &'run mut RunRecord,
    workspace: PathBuf,
}

impl<'run> RunJournal<'run> {
    /// A journal of names in `workspace`, an absolute path.
    #[must_use]
    pub(in crate::run) fn new(record: &'run mut RunRecord, workspace: PathBuf) -> Self {
        Self { record, workspace }
    }

    fn entry(&self, temporary: &TemporaryName) -> Entry {
        let path = temporary.path();
        let directory = path.parent().map_or_else(
            || self.workspace.clone(),
            |parent| self.workspace.join(OsStr::from_bytes(parent.as_bytes())),
        );
        let name = OsStr::from_bytes(path.file_name()).to_owned();
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
            // Harmless: the next start checks the recorded file again.
            Ok(()) | Err(_) => (),
        }
    }
}

impl Run<'_> {
    /// Switches this process to the body's file ids until the guard is dropped.
    pub(in crate::run) fn assume_body_ids(
        &self,
        resources: &Resources,
    ) -> Result<AssumedFileIds, RunError> {
        AssumedFileIds::assume(resources.body_ids())
            .map_err(RunError::host("switch to the body's file ids"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory is the caller's: it is named once, and stays.
    #[test]
    fn a_directory_that_a_killed_run_kept_is_named_by_the_next_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("kept");
        std::fs::create_dir(&kept).expect("made");
        let records = RunRecords::open(&directory.path().join("runtime")).expect("opened");
        let mut record = records.begin("a").expect("begun");
        for path in [&kept, &directory.path().join("not-made")] {
            record.record(&Entry::Kept(path.clone())).expect("recorded");
        }
        drop(record);
        let found = collect_leftovers(&records).expect("listed");
        let codes: Vec<&str> = found.iter().map(|warning| &*warning.code).collect();
        assert_eq!(codes, ["leftover_kept"]);
        let named = escape_path(&kept);
        assert!(
            found[0].message.ends_with(&format!("incomplete: {named}")),
            "{}",
            found[0].message
        );
        assert!(kept.exists());
        assert!(collect_leftovers(&records).expect("listed").is_empty());
    }
}
