//! After the body: its output document, its files, and the copy of `--keep`.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::run::Run;
use crate::run::contract::{self, IoContract};
use crate::run::error::RunError;
use crate::run::file_roots::FileRoots;
use crate::run::reporting::{self, WithWarnings};
use crate::run::resources::RunJournal;
use crate::staging::{self, FileLimits, OutputFile};
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::{StreamReport, SyncState, SyncedReport, WarningReport};
use sys::file::open_beneath;

/// Directories of the writable space that `--keep` copies.
const KEPT: [&str; 5] = ["bundle", "scratch", "runner", "tmp", "home"];

/// The body's stdout and exit, for its output document.
pub(super) struct Printed<'run> {
    pub(super) stdout: &'run StreamReport,
    pub(super) stderr: &'run StreamReport,
    /// Copy of standard output, if it was passed through.
    pub(super) document: Option<&'run [u8]>,
    /// Exit code 0.
    pub(super) succeeded: bool,
}

/// The output document, and the error in it.
pub(super) struct TakenOutput {
    pub(super) output: Option<serde_json::Value>,
    pub(super) judged: Result<(), RunError>,
}

impl Run<'_> {
    /// Reads the structured output and validates it after exit 0 only: it is the result of a
    /// success.
    pub(super) fn take_output(
        &self,
        resources: &Resources,
        launched: &Launched,
        contract: &IoContract,
        printed: &Printed<'_>,
        wait_limit: contract::WaitLimit<'_>,
    ) -> TakenOutput {
        let read = self.assume_body_ids(resources).and_then(|_assumed| {
            let kept_bytes = printed.document.map_or(0, <[u8]>::len)
                + printed.stdout.captured_bytes().len()
                + printed.stderr.captured_bytes().len();
            let whole = || reporting::whole_text(printed.stdout);
            let stdout = printed.document.or_else(whole);
            contract::read_output(launched.space.as_fd(), stdout, kept_bytes)
        });
        match read {
            Err(error) => TakenOutput {
                output: None,
                judged: Err(error),
            },
            Ok(output) => TakenOutput {
                judged: if printed.succeeded {
                    contract::check_output(contract.outputs.as_ref(), output.as_ref(), wait_limit)
                } else {
                    Ok(())
                },
                output,
            },
        }
    }

    /// Copies declared files to the workspace, unless the run was cancelled.
    pub(super) fn sync(
        &self,
        resources: &mut Resources,
        launched: &Launched,
        file_roots: &FileRoots,
        contract: &IoContract,
        run_id: &str,
        outcome: Outcome,
    ) -> Vec<SyncedReport> {
        let Some((path, workspace)) = file_roots.of_outputs() else {
            return Vec::new();
        };
        let files = &contract.output_files;
        if files.is_empty() || outcome == Outcome::Cancelled {
            return files.iter().map(skipped).collect();
        }
        let body_ids = resources.body_ids();
        let staging = self
            .assume_body_ids(resources)
            .and_then(|_assumed| contract::open_directory(launched.space.as_fd(), "scratch"));
        match staging {
            Err(error) => {
                let failed = |output| SyncedReport {
                    state: SyncState::Failed,
                    error: Some(error.report()),
                    ..skipped(output)
                };
                files.iter().map(failed).collect()
            }
            Ok(staging) => {
                let mut journal = RunJournal::new(&mut resources.record, path.clone());
                let limits = FileLimits::default();
                staging::sync(
                    workspace,
                    files,
                    staging.as_fd(),
                    body_ids,
                    run_id,
                    &limits,
                    &mut journal,
                )
            }
        }
    }

    /// Creates the directory for `--keep`.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of mkdir(2).
    pub(super) fn make_kept_directory(&self, run_id: &str) -> Result<Option<PathBuf>, RunError> {
        if !self.request.bundle.keep {
            return Ok(None);
        }
        let temporary = &self.request.caller.temporary_directory;
        let into = temporary.join(format!("runner-{run_id}"));
        let shown = escape(into.as_os_str().as_bytes());
        rustix::fs::mkdir(&into, Mode::RWXU)
            .map_err(RunError::host(format!("make {shown} for --keep")))?;
        Ok(Some(into))
    }
}

/// `--keep`: copies the body's writable directories into `into`.
pub(super) fn keep(launched: &Launched, into: &Path) -> WithWarnings<()> {
    let incomplete = |message| WarningReport::new("keep_incomplete", message);
    let mut warnings = Vec::new();
    let mut left_out = 0;
    for name in KEPT {
        // O_PATH: the body may have removed even its owner's rights.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let space = launched.space.as_fd();
        let directory = match open_beneath(space, name.as_bytes(), flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(errno) => {
                let result = Err(RunError::host(format!("open {name} for --keep"))(errno));
                return WithWarnings { warnings, result };
            }
        };
        match staging::keep(directory.as_fd(), &into.join(name), u64::MAX) {
            Ok(kept) => left_out += kept.left_out,
            // A failed copy does not change the outcome of the run.
            Err(error) => warnings.push(incomplete(format!("/{name} was not kept: {error}"))),
        }
    }
    if 0 < left_out {
        let message = format!("{left_out} entries of the scratch root were not kept");
        warnings.push(incomplete(message));
    }
    WithWarnings::ok((), warnings)
}

/// Warnings for files that were not made or not copied, besides the error of the run.
pub(super) fn file_warnings(
    outputs: &[SyncedReport],
    required: &[String],
    succeeded: bool,
) -> Vec<WarningReport> {
    let warning = |output: &SyncedReport| match (output.state, &output.error) {
        (SyncState::Missing, _) => {
            let message = format!("the body did not make /scratch/{}", output.key);
            Some(WarningReport::new("output_missing", message))
        }
        // Otherwise the error reports it.
        (SyncState::Failed, Some(error)) if !succeeded || !required.contains(&output.key) => {
            Some(WarningReport::new("sync_failed", error.message.clone()))
        }
        _ => None,
    };
    outputs.iter().filter_map(warning).collect()
}

fn skipped(output: &OutputFile) -> SyncedReport {
    SyncedReport {
        key: output.key.clone(),
        path: output.path.to_string(),
        state: SyncState::Skipped,
        sha256: None,
        bytes: None,
        error: None,
    }
}
