//! After the body: its output document, its files, and the copy that `--keep` asks for.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Mode, OFlags};

use crate::run::Run;
use crate::run::contract::{self, IoContract};
use crate::run::error::RunError;
use crate::run::places::Places;
use crate::run::reporting;
use crate::run::resources::RunJournal;
use crate::staging::{self, FileLimits, OutputFile};
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::{Report, SyncState, SyncedReport, WarningReport};
use sys::file::open_beneath;

/// Directories of the writable space that `--keep` copies.
const KEPT: [&str; 5] = ["bundle", "scratch", "runner", "tmp", "home"];

impl Run<'_> {
    /// The structured output, judged only after exit 0: it is the return of a success.
    pub(super) fn take_output(
        &self,
        resources: &Resources,
        launched: &Launched,
        contract: &IoContract,
        stdout: Option<&[u8]>,
        patience: contract::Patience<'_>,
        report: &mut Report,
    ) {
        let exited_well =
            report.outcome == Outcome::Exited && report.exit.and_then(|exit| exit.code) == Some(0);
        let read = self.assume(resources).and_then(|_assumed| {
            let kept_bytes = stdout.map_or(0, <[u8]>::len)
                + report.stdout.kept_bytes()
                + report.stderr.kept_bytes();
            let stdout = stdout.or_else(|| reporting::whole_text(&report.stdout));
            contract::read_output(launched.space.as_fd(), stdout, kept_bytes)
        });
        let judged = read.and_then(|output| {
            report.output = output;
            if exited_well {
                contract::check_output(contract.outputs.as_ref(), report.output.as_ref(), patience)
            } else {
                Ok(())
            }
        });
        if let Err(error) = judged {
            if exited_well {
                report.outcome = error.outcome();
                report.error = Some(error.report());
            } else {
                let error = error.report();
                report
                    .warnings
                    .push(WarningReport::new("output_unreadable", error.message));
            }
        }
    }

    pub(super) fn sync(
        &self,
        resources: &mut Resources,
        launched: &Launched,
        places: &Places,
        contract: &IoContract,
        report: &mut Report,
    ) {
        let Some((path, workspace)) = places.of_outputs() else {
            return;
        };
        if contract.output_files.is_empty() {
            return;
        }
        if report.outcome == Outcome::Cancelled {
            report.outputs = contract.output_files.iter().map(skipped).collect();
            return;
        }
        let body_ids = resources.body_ids();
        let staging = self
            .assume(resources)
            .and_then(|_assumed| contract::open_directory(launched.space.as_fd(), "scratch"));
        match staging {
            Err(error) => {
                let failed = |output| SyncedReport {
                    state: SyncState::Failed,
                    error: Some(error.report()),
                    ..skipped(output)
                };
                report.outputs = contract.output_files.iter().map(failed).collect();
            }
            Ok(staging) => {
                let mut journal = RunJournal::new(&mut resources.record, path.clone());
                report.outputs = staging::sync(
                    workspace,
                    &contract.output_files,
                    staging.as_fd(),
                    body_ids,
                    &report.run_id,
                    &FileLimits::default(),
                    &mut journal,
                );
            }
        }
        let exited_well =
            report.outcome == Outcome::Exited && report.exit.and_then(|exit| exit.code) == Some(0);
        let required = &contract.required_outputs;
        for output in &report.outputs {
            let (code, message) = match (output.state, &output.error) {
                (SyncState::Missing, _) => (
                    "output_missing",
                    format!("the body did not make /scratch/{}", output.key),
                ),
                // Else it is said by the error.
                (SyncState::Failed, Some(error))
                    if !exited_well || !required.contains(&output.key) =>
                {
                    ("sync_failed", error.message.clone())
                }
                _ => continue,
            };
            report.warnings.push(WarningReport::new(code, message));
        }
        let judged = contract::check_files(required, &report.outputs);
        if let (true, Err(error)) = (exited_well, judged) {
            report.outcome = error.outcome();
            report.error = Some(error.report());
        }
    }

    /// `--keep`: what the body could write stays, as a copy in a directory of the caller's.
    pub(super) fn keep(&self, launched: &Launched, report: &mut Report) -> Result<(), RunError> {
        if !self.request.bundle.keep {
            return Ok(());
        }
        let into = self
            .request
            .caller
            .temporary_directory
            .join(format!("runner-{}", report.run_id));
        let shown = escape(into.as_os_str().as_bytes());
        rustix::fs::mkdir(&into, Mode::RWXU)
            .map_err(RunError::host(format!("make {shown} for --keep")))?;
        report.kept = Some(shown);
        let mut left_out = 0;
        for name in KEPT {
            // Opened for nothing yet: the body may have taken even its owner's rights away.
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let directory = open_beneath(
                launched.space.as_fd(),
                name.as_bytes(),
                flags,
                Mode::empty(),
            )
            .map_err(RunError::host(format!("open {name} for --keep")))?;
            match staging::keep(directory.as_fd(), &into.join(name), u64::MAX) {
                Ok(kept) => left_out += kept.left_out,
                // What the body left decides nothing about how the run ended.
                Err(error) => {
                    let message = format!("/{name} was not kept: {error}");
                    report
                        .warnings
                        .push(WarningReport::new("keep_incomplete", message));
                }
            }
        }
        if 0 < left_out {
            let message = format!("{left_out} entries of the scratch root were not kept");
            report
                .warnings
                .push(WarningReport::new("keep_incomplete", message));
        }
        Ok(())
    }
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
