//! Keeps a run in the history of its user.

use std::path::Path;
use std::time::Duration;

use crate::run::error::RunError;
use secrets::mask::Masks;
use spec::history::{
    AuditPolicy, FilesLine, Granted, GrantsLine, HistoryLine, SecretDecision, SecretLine,
    StartedRun,
};
use spec::path::{escape, escape_path};
use spec::report::{ErrorReport, Report, StagedReport, SyncedReport, WarningReport, with_causes};
use spec::request::{BundleArgument, Request, Subject};
use spec::utc::text_since_1970;
use store::{History, HistoryError};
use sys::allocator::keep_from_children;

/// Directory of recorded output, below that of the history. Its own files, so that output does not push out
/// the records of other runs.
pub(super) const OUTPUT_DIRECTORY: &str = "output";

/// The flags about the record of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordFlags {
    /// `--no-record`
    pub(crate) no_record: bool,
    /// `--record-output`
    pub(crate) output: bool,
}

/// Records runs as the policy says.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    history: Option<History>,
    /// For the output of the body, if it is wanted.
    output: Option<History>,
    is_required: bool,
    /// Why there is no history.
    warning: Option<WarningReport>,
}

impl Recorder {
    /// Opens the history.
    ///
    /// # Errors
    /// The policy requires a record, which is impossible or unwanted; or it forbids the wanted one.
    pub(crate) fn open(
        policy: AuditPolicy,
        wanted: RecordFlags,
        directory: &Path,
    ) -> Result<Self, ErrorReport> {
        let is_required = policy == AuditPolicy::Required;
        check_flags(policy, wanted)?;
        if wanted.no_record || policy == AuditPolicy::Off {
            return Ok(Self::default());
        }
        let history = open(directory);
        let output = wanted
            .output
            .then(|| open(&directory.join(OUTPUT_DIRECTORY)));
        match history.and_then(|history| Ok((history, output.transpose()?))) {
            Ok((history, output)) => Ok(Self {
                history: Some(history),
                output,
                is_required,
                warning: None,
            }),
            Err(error) if is_required => Err(RunError::Unrecorded(error).report()),
            Err(error) => Ok(Self {
                warning: Some(warning(&error)),
                ..Self::default()
            }),
        }
    }

    /// Records the start of a run. Returns why it cannot be recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(super) fn started(
        &self,
        request: &Request,
        report: &Report,
    ) -> Result<Option<WarningReport>, RunError> {
        let line = HistoryLine::Started(StartedRun {
            run_id: report.run_id.clone(),
            started_at: report.started_at.clone(),
            pid: std::process::id(),
            // The words of a command may contain values of secrets.
            subject: keep_from_children(|| subject(request)),
        });
        self.append_or_warn(&line)
    }

    /// Records what was decided about the secrets of a run, before its body starts. Returns why it cannot be
    /// recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(super) fn secrets(
        &self,
        run_id: &str,
        decisions: &[SecretDecision],
    ) -> Result<Option<WarningReport>, RunError> {
        for decision in decisions {
            let line = HistoryLine::Secret(SecretLine {
                run_id,
                at: text_since_1970(now()),
                decision,
            });
            let warning = self.append_or_warn(&line)?;
            if warning.is_some() {
                return Ok(warning);
            }
        }
        Ok(None)
    }

    /// Whether there is a history.
    pub(super) fn is_open(&self) -> bool {
        self.history.is_some()
    }

    /// Records what a run was granted, before its body starts. Returns why it cannot be recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(super) fn grants(
        &self,
        run_id: &str,
        granted: &Granted,
    ) -> Result<Option<WarningReport>, RunError> {
        if *granted == Granted::default() {
            return Ok(None);
        }
        self.append_or_warn(&HistoryLine::Grants(GrantsLine {
            run_id,
            at: text_since_1970(now()),
            granted,
        }))
    }

    /// Records the files that were staged, before the body starts. Returns why they cannot be recorded.
    ///
    /// # Errors
    /// They must be recorded.
    pub(super) fn staged(
        &self,
        run_id: &str,
        files: &[StagedReport],
    ) -> Result<Option<WarningReport>, RunError> {
        if files.is_empty() {
            return Ok(None);
        }
        self.append_or_warn(&HistoryLine::Staged(FilesLine {
            run_id,
            at: text_since_1970(now()),
            files,
        }))
    }

    /// Records the declared outputs, once they are in the workspace. `files` are masked. Returns why they
    /// cannot be recorded.
    ///
    /// # Errors
    /// They must be recorded.
    pub(super) fn synced(
        &self,
        run_id: &str,
        files: &[SyncedReport],
    ) -> Result<Option<WarningReport>, RunError> {
        if files.is_empty() {
            return Ok(None);
        }
        self.append_or_warn(&HistoryLine::Synced(FilesLine {
            run_id,
            at: text_since_1970(now()),
            files,
        }))
    }

    fn append_or_warn(&self, line: &HistoryLine<'_>) -> Result<Option<WarningReport>, RunError> {
        match append(self.history.as_ref(), line) {
            Ok(()) => Ok(None),
            Err(error) if self.is_required => Err(RunError::Unrecorded(error)),
            Err(error) => Ok(Some(warning(&error))),
        }
    }

    /// Records the end of a run, without what has lines of its own: the files, and the output of the body
    /// if it is wanted.
    /// The report gets a warning if it cannot be recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(crate) fn ended(&self, report: &mut Report) -> Result<(), ErrorReport> {
        report.warnings.extend(self.warning.clone());
        let stdout = report.stdout.captured.take();
        let stderr = report.stderr.captured.take();
        let output = report.output.take();
        let recorded = report.recorded_output.take();
        let inputs = std::mem::take(&mut report.inputs);
        let outputs = std::mem::take(&mut report.outputs);
        let appended = append(self.history.as_ref(), &HistoryLine::Ended(report));
        let appended = appended.and_then(|()| match &recorded {
            Some(recorded) => append(self.output.as_ref(), &HistoryLine::Output(recorded)),
            None => Ok(()),
        });
        report.stdout.captured = stdout;
        report.stderr.captured = stderr;
        report.output = output;
        report.inputs = inputs;
        report.outputs = outputs;
        match appended {
            Err(error) if self.is_required => Err(RunError::Unrecorded(error).report()),
            Err(error) => {
                report.warnings.push(warning(&error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

fn append(history: Option<&History>, line: &HistoryLine<'_>) -> Result<(), HistoryError> {
    let Some(history) = history else {
        return Ok(());
    };
    // Texts, numbers and lists of them: this cannot fail.
    history.append(&serde_json::to_vec(line).unwrap_or_default())
}

/// Refuses flags that contradict each other or the policy.
fn check_flags(policy: AuditPolicy, wanted: RecordFlags) -> Result<(), ErrorReport> {
    let (code, message, hint) = match (policy, wanted) {
        (
            AuditPolicy::Required,
            RecordFlags {
                no_record: true, ..
            },
        ) => (
            "record_required",
            "--no-record: the configuration says `audit: required`",
            "leave --no-record out",
        ),
        (AuditPolicy::Off, RecordFlags { output: true, .. }) => (
            "record_forbidden",
            "--record-output: the configuration says `audit: off`",
            "leave --record-output out, or redirect the output to a file",
        ),
        (
            _,
            RecordFlags {
                no_record: true,
                output: true,
            },
        ) => (
            "usage",
            "--record-output keeps the output with the record of the run, and --no-record keeps none",
            "leave one of them out",
        ),
        _ => return Ok(()),
    };
    Err(ErrorReport::new(code, message).with_hint(hint))
}

fn open(directory: &Path) -> Result<History, HistoryError> {
    let mut random = [0; 10];
    sys::process::random(&mut random)
        .map_err(|errno| HistoryError::Call(sys::file::CallError::new("getrandom", "", errno)))?;
    History::open(directory, now(), random)
}

pub(super) fn now() -> Duration {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}

fn warning(error: &HistoryError) -> WarningReport {
    WarningReport::new("run_unrecorded", with_causes(error))
}

/// The bundle, or the command without the values of `--secret`.
fn subject(request: &Request) -> Vec<String> {
    let mut words: Vec<String> = match &request.subject {
        Subject::Bundle(BundleArgument::Stdin) => vec!["-".to_owned()],
        Subject::Bundle(BundleArgument::Path(path)) => vec![escape_path(path)],
        Subject::Command(words) => words.iter().map(|word| escape(word)).collect(),
        Subject::Sandbox => vec!["sandbox".to_owned()],
    };
    if !request.secrets.is_empty() {
        let mut masks = Masks::default();
        for secret in &request.secrets {
            // A value that is too short has a warning in the report.
            masks.add(secret.value.bytes());
        }
        words.iter_mut().for_each(|word| masks.mask_text(word));
    }
    words
}
