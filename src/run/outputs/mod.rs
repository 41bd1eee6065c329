//! Takes the outputs of an ended body. Consumes its writable space, returns the output document and the
//! state of each synced file; copies the directories of `--keep`.

pub(super) mod document;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::run::Run;
use crate::run::contract::{IoContract, space};
use crate::run::error::RunError;
use crate::run::host::resources::RunJournal;
use crate::run::inputs::file_roots::FileRoots;
use crate::run::interruptible::WaitLimit;
use crate::run::reporting::{self, WithWarnings};
use crate::staging::{self, FileLimits, OutputFile};
use sandbox::launch::Launched;
use sandbox::records::{Entry, RunRecord};
use sandbox::resources::Resources;
use spec::outcome::Outcome;
use spec::path::escape_path;
use spec::report::{StreamReport, SyncState, SyncedReport, WarningReport};
use spec::units::count;
use sys::file::open_beneath;

/// Directories of the writable space that `--keep` copies.
const KEPT: [&str; 5] = ["bundle", "scratch", "runner", "tmp", "home"];

/// What the body printed, and whether it succeeded.
pub(super) struct BodyOutput<'run> {
    pub(super) stdout: &'run StreamReport,
    pub(super) stderr: &'run StreamReport,
    /// Copy of standard output that was passed through.
    pub(super) document: Option<&'run [u8]>,
    /// Exit code 0.
    pub(super) succeeded: bool,
}

/// The output document, and the result of its validation.
pub(super) struct OutputDocument {
    pub(super) value: Option<serde_json::Value>,
    pub(super) result: Result<(), RunError>,
}

impl Run<'_> {
    /// Reads the output document. Validates it only after exit 0, since only a success has a result.
    pub(super) fn read_output_document(
        &self,
        resources: &Resources,
        launched: &Launched,
        contract: &IoContract,
        printed: &BodyOutput<'_>,
        wait_limit: WaitLimit<'_>,
    ) -> OutputDocument {
        let whole = || reporting::complete_text(printed.stdout);
        let stdout = printed.document.or_else(whole);
        let text = self
            .assume_body_ids(resources)
            .and_then(|_assumed| document::open_text(launched.space.as_fd(), stdout));
        let captured_bytes = printed.document.map_or(0, <[u8]>::len)
            + printed.stdout.captured_bytes().len()
            + printed.stderr.captured_bytes().len();
        let read = text.and_then(|text| match text {
            Some(text) => document::parse_text(text, captured_bytes, wait_limit),
            None => Ok(None),
        });
        match read {
            Err(error) => OutputDocument {
                value: None,
                result: Err(error),
            },
            Ok(value) => OutputDocument {
                result: if printed.succeeded {
                    document::check_output(contract.outputs.as_ref(), value.as_ref(), wait_limit)
                } else {
                    Ok(())
                },
                value,
            },
        }
    }

    /// Copies the declared files to the workspace, unless the run was cancelled or is learned from.
    pub(super) fn sync(
        &self,
        resources: &mut Resources,
        launched: &Launched,
        file_roots: &FileRoots,
        contract: &IoContract,
        run_id: &str,
        outcome: Outcome,
    ) -> Vec<SyncedReport> {
        let Some((path, workspace)) = file_roots.output_root() else {
            return Vec::new();
        };
        let files = &contract.output_files;
        let is_kept = outcome != Outcome::Cancelled && self.learning().is_none();
        if files.is_empty() || !is_kept {
            return files.iter().map(skipped).collect();
        }
        let body_ids = resources.body_ids();
        let opened = self
            .assume_body_ids(resources)
            .and_then(|_assumed| space::open_directory(launched.space.as_fd(), "scratch"))
            .and_then(|staging| Ok((staging, limits_of(launched)?)));
        match opened {
            Err(error) => {
                let failed = |output| SyncedReport {
                    state: SyncState::Failed,
                    error: Some(error.report()),
                    ..skipped(output)
                };
                files.iter().map(failed).collect()
            }
            Ok((staging, limits)) => {
                let mut journal = RunJournal::new(&mut resources.record, path.clone());
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

    /// Records and creates the directory for `--keep`.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of mkdir(2); an error of the record.
    pub(super) fn make_kept_directory(
        &self,
        record: &mut RunRecord,
        run_id: &str,
    ) -> Result<Option<PathBuf>, RunError> {
        if !self.request.bundle.keep {
            return Ok(None);
        }
        let temporary = &self.request.caller.temporary_directory;
        let into = temporary.join(format!("runner-{run_id}"));
        record.record(&Entry::Kept(into.clone()))?;
        let shown = escape_path(&into);
        rustix::fs::mkdir(&into, Mode::RWXU)
            .map_err(RunError::host(format!("make {shown} for --keep")))?;
        Ok(Some(into))
    }
}

/// Limits of the output files. Holes take no space inside, but do in the workspace.
fn limits_of(launched: &Launched) -> Result<FileLimits, RunError> {
    let space = rustix::fs::fstatvfs(&launched.space)
        .map_err(RunError::host("measure the writable space"))?;
    let limits = FileLimits::default();
    Ok(FileLimits {
        total_bytes: limits
            .total_bytes
            .min(space.f_blocks.saturating_mul(space.f_frsize)),
        ..limits
    })
}

/// Copies the body's writable directories into `into`, for `--keep`.
pub(super) fn copy_kept_directories(launched: &Launched, into: &Path) -> WithWarnings<()> {
    let incomplete = |message| WarningReport::new("keep_incomplete", message);
    let mut warnings = Vec::new();
    let (mut left_out, mut first) = (0, None);
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
            Ok(kept) => {
                left_out += kept.left_out;
                first = first.or(kept.first_left_out);
            }
            // A failed copy does not change the outcome of the run.
            Err(error) => warnings.push(incomplete(format!("cannot copy /{name}: {error}"))),
        }
    }
    if let Some(first) = first {
        let message = format!(
            "not copied from the scratch root: {}; the first: {first}",
            count(left_out, "entry")
        );
        warnings.push(incomplete(message));
    }
    WithWarnings::ok((), warnings)
}

/// Warnings for files that the body did not make or that were not copied, besides the run's error.
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
