//! Keeps a run in the history of its user.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use crate::run::error::RunError;
use spec::history::{AuditPolicy, HistoryLine, StartedRun};
use spec::path::escape;
use spec::report::{ErrorReport, Report, WarningReport, with_causes};
use spec::request::{BundleArgument, Request, Subject};
use store::{History, HistoryError};

/// Records runs as the policy says.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    history: Option<History>,
    is_required: bool,
    /// Why there is no history.
    warning: Option<WarningReport>,
}

impl Recorder {
    /// Opens the history. `is_unwanted`: `--no-record`.
    ///
    /// # Errors
    /// The policy requires a record, which is impossible or unwanted.
    pub(crate) fn open(
        policy: AuditPolicy,
        is_unwanted: bool,
        directory: &Path,
    ) -> Result<Self, ErrorReport> {
        let is_required = policy == AuditPolicy::Required;
        if is_required && is_unwanted {
            return Err(ErrorReport {
                code: "record_required".to_owned(),
                message: "--no-record: the configuration says `audit: required`".to_owned(),
                hint: Some("leave --no-record out".to_owned()),
            });
        }
        if is_unwanted || policy == AuditPolicy::Off {
            return Ok(Self::default());
        }
        match open(directory) {
            Ok(history) => Ok(Self {
                history: Some(history),
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
            subject: subject(request),
        });
        match self.append(&line) {
            Ok(()) => Ok(None),
            Err(error) if self.is_required => Err(RunError::Unrecorded(error)),
            Err(error) => Ok(Some(warning(&error))),
        }
    }

    /// Records the end of a run, without the output of the body. The report gets a warning if it cannot
    /// be recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(crate) fn ended(&self, report: &mut Report) -> Result<(), ErrorReport> {
        report.warnings.extend(self.warning.clone());
        let stdout = report.stdout.captured.take();
        let stderr = report.stderr.captured.take();
        let output = report.output.take();
        let appended = self.append(&HistoryLine::Ended(report));
        report.stdout.captured = stdout;
        report.stderr.captured = stderr;
        report.output = output;
        match appended {
            Err(error) if self.is_required => Err(RunError::Unrecorded(error).report()),
            Err(error) => {
                report.warnings.push(warning(&error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn append(&self, line: &HistoryLine<'_>) -> Result<(), HistoryError> {
        let Some(history) = &self.history else {
            return Ok(());
        };
        // Texts, numbers and lists of them: this cannot fail.
        history.append(&serde_json::to_vec(line).unwrap_or_default())
    }
}

fn open(directory: &Path) -> Result<History, HistoryError> {
    let mut random = [0; 10];
    sys::process::random(&mut random)
        .map_err(|errno| HistoryError::Call(sys::file::CallError::new("getrandom", "", errno)))?;
    History::open(directory, now(), random)
}

fn now() -> Duration {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}

fn warning(error: &HistoryError) -> WarningReport {
    WarningReport::new("run_unrecorded", with_causes(error))
}

/// The bundle, or the command.
fn subject(request: &Request) -> Vec<String> {
    match &request.subject {
        Subject::Bundle(BundleArgument::Stdin) => vec!["-".to_owned()],
        Subject::Bundle(BundleArgument::Path(path)) => vec![escape(path.as_os_str().as_bytes())],
        Subject::Command(words) => words.iter().map(|word| escape(word)).collect(),
    }
}
