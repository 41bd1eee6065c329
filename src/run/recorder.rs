//! Keeps a run in the history of its user.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
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
    /// Of the history; `None`: no record is wanted.
    directory: Option<PathBuf>,
    /// Also records the output of the body.
    has_output: bool,
    is_required: bool,
    opened: OnceCell<Result<Opened, WarningReport>>,
    /// Lines that are not written yet, each with its line feed.
    pending: RefCell<Vec<u8>>,
}

#[derive(Debug)]
struct Opened {
    history: History,
    /// For the output of the body, if it is wanted.
    output: Option<History>,
}

impl Recorder {
    /// Opens the history if the policy requires a record, else with the first line: that may be while the
    /// supervisor has to wait.
    ///
    /// # Errors
    /// The policy requires a record, which is impossible or unwanted; or it forbids the wanted one.
    pub(crate) fn open(
        policy: AuditPolicy,
        wanted: RecordFlags,
        directory: PathBuf,
    ) -> Result<Self, ErrorReport> {
        check_flags(policy, wanted)?;
        if wanted.no_record || policy == AuditPolicy::Off {
            return Ok(Self::default());
        }
        let is_required = policy == AuditPolicy::Required;
        let opened = match is_required {
            true => {
                let opened = open(&directory, wanted.output);
                OnceCell::from(Ok(
                    opened.map_err(|error| RunError::Unrecorded(error).report())?
                ))
            }
            false => OnceCell::new(),
        };
        Ok(Self {
            directory: Some(directory),
            has_output: wanted.output,
            is_required,
            opened,
            pending: RefCell::default(),
        })
    }

    /// `None`: no record is wanted. The warning says why there is no history.
    fn opened(&self) -> Option<&Result<Opened, WarningReport>> {
        let directory = self.directory.as_ref()?;
        let open = || open(directory, self.has_output).map_err(|error| warning(&error));
        Some(self.opened.get_or_init(open))
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
        self.add(&line);
        // A command starts at once. What others need may take long, and `runner ps` shows the run meanwhile.
        let is_soon = matches!(request.subject, Subject::Command(_)) && request.oci.image.is_none();
        match is_soon && !self.is_required {
            true => Ok(None),
            false => self.write_pending(),
        }
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
            self.add(&line);
        }
        match decisions.is_empty() {
            true => Ok(None),
            false => self.write_pending(),
        }
    }

    /// Whether a record is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.directory.is_some()
    }

    /// Records what a run was granted, at the latest by the next [`Recorder::write_pending`]. Returns why it cannot be
    /// recorded.
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
        self.add(&HistoryLine::Grants(GrantsLine {
            run_id,
            at: text_since_1970(now()),
            granted,
        }));
        match self.is_required {
            true => self.write_pending(),
            false => Ok(None),
        }
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
        self.files(run_id, files, HistoryLine::Staged)
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
        self.files(run_id, files, HistoryLine::Synced)
    }

    fn files<'run, F>(
        &self,
        run_id: &'run str,
        files: &'run [F],
        line: fn(FilesLine<'run, F>) -> HistoryLine<'run>,
    ) -> Result<Option<WarningReport>, RunError> {
        if files.is_empty() {
            return Ok(None);
        }
        self.add(&line(FilesLine {
            run_id,
            at: text_since_1970(now()),
            files,
        }));
        self.write_pending()
    }

    fn add(&self, line: &HistoryLine<'_>) {
        if self.is_wanted() {
            // They may wait while processes are forked.
            keep_from_children(|| {
                let mut pending = self.pending.borrow_mut();
                pending.extend(text(line));
                pending.push(b'\n');
            });
        }
    }

    /// Writes the lines that wait. Returns why they cannot be recorded; not that there is no history, which
    /// [`Recorder::ended`] says.
    ///
    /// # Errors
    /// They must be recorded.
    pub(super) fn write_pending(&self) -> Result<Option<WarningReport>, RunError> {
        let pending = self.pending.take();
        let (Some(Ok(opened)), Some(lines)) = (self.opened(), pending.strip_suffix(b"\n")) else {
            return Ok(None);
        };
        match opened.history.append(lines) {
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
        let recorded = report.recorded_output.take();
        let opened = match self.opened() {
            None => return Ok(()),
            Some(Ok(opened)) => opened,
            Some(Err(warning)) => {
                report.warnings.push(warning.clone());
                return Ok(());
            }
        };
        let stdout = report.stdout.captured.take();
        let stderr = report.stderr.captured.take();
        let output = report.output.take();
        let inputs = std::mem::take(&mut report.inputs);
        let outputs = std::mem::take(&mut report.outputs);
        // Not with what waits, in memory that processes do not inherit: there is little of that.
        let mut lines = Vec::from(&*self.pending.take());
        lines.extend(text(&HistoryLine::Ended(report)));
        let appended = opened.history.append(&lines);
        let appended = appended.and_then(|()| match (&opened.output, &recorded) {
            (Some(history), Some(recorded)) => {
                history.append(&text(&HistoryLine::Output(recorded)))
            }
            _ => Ok(()),
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

fn text(line: &HistoryLine<'_>) -> Vec<u8> {
    // Texts, numbers and lists of them: this cannot fail.
    serde_json::to_vec(line).unwrap_or_default()
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

fn open(directory: &Path, has_output: bool) -> Result<Opened, HistoryError> {
    let output = directory.join(OUTPUT_DIRECTORY);
    Ok(Opened {
        history: open_one(directory)?,
        output: has_output.then(|| open_one(&output)).transpose()?,
    })
}

fn open_one(directory: &Path) -> Result<History, HistoryError> {
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
