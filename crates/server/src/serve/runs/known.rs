//! What is known of a run, from the files in its directory. No process has to live for it.
//!
//! `runner exec` has the file of its standard error open, and with it the lock on this file, until it ends.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::PathBuf;

use companion::run_state::{Code, RunError, RunReport, State, outcome_name};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spec::utc::text_of_milliseconds;

use super::store::milliseconds;
use super::types::{Artifact, Run};
use crate::serve::access::Access;

/// What a client asked for, in `request.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) created_at: String,
    pub(super) is_tcp: bool,
    pub(super) idempotency_key: Option<String>,
    /// The digest of what came with the key. Also `None`: an older version has started the run.
    #[serde(default)]
    pub(super) request_digest: Option<String>,
    pub(super) bundle: String,
    pub(super) template: Option<String>,
}

impl Record {
    /// Whether such a client asked for it.
    pub(super) fn is_of(&self, access: Access) -> bool {
        self.is_tcp == (access != Access::Owner)
    }
}

/// The directory of a run.
#[derive(Debug, Clone)]
pub(super) struct RunDirectory(pub(super) PathBuf);

impl RunDirectory {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn request(&self) -> PathBuf {
        self.file("request.json")
    }

    pub(super) fn inputs(&self) -> PathBuf {
        self.file("inputs.json")
    }

    pub(super) fn events(&self) -> PathBuf {
        self.file("events.jsonl")
    }

    pub(super) fn report(&self) -> PathBuf {
        self.file("report.json")
    }

    pub(super) fn stdout(&self) -> PathBuf {
        self.file("stdout")
    }

    /// Locked as long as `runner exec` lives.
    pub(super) fn stderr(&self) -> PathBuf {
        self.file("stderr")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.file("workspace")
    }

    pub(super) fn artifacts(&self) -> PathBuf {
        self.file("artifacts")
    }

    /// Whether the server or `runner exec` is at work on the run. Ask before reading what they write.
    ///
    /// # Errors
    /// Those of open(2) and flock(2).
    pub(super) fn is_live(&self) -> io::Result<bool> {
        // A shared lock: others ask at the same time.
        let file = match File::open(self.stderr()) {
            // It is being removed.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// `None`: there is no such run.
    pub(super) fn record(&self) -> io::Result<Option<Record>> {
        match std::fs::read(self.request()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    /// The first event, once its line is whole.
    fn first_event(&self) -> io::Result<Option<Value>> {
        let mut line = Vec::new();
        match File::open(self.events()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => BufReader::new(opened?).read_until(b'\n', &mut line)?,
        };
        Ok(serde_json::from_slice(&line).ok())
    }

    pub(super) fn has_begun(&self) -> io::Result<bool> {
        Ok(self.first_event()?.is_some())
    }

    /// Whether its limits are counted in the totals.
    pub(super) fn is_planned(&self) -> io::Result<bool> {
        companion::events::is_planned(&self.events())
    }

    /// The process of `runner exec`.
    pub(super) fn pid(&self) -> io::Result<Option<i32>> {
        let event = self.first_event()?.unwrap_or_default();
        Ok(event["pid"].as_i64().and_then(|pid| pid.try_into().ok()))
    }
}

/// All that is known of a run.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: String,
    pub(super) record: Record,
    pub(super) directory: RunDirectory,
    pub(super) is_live: bool,
    first_event: Option<Value>,
    pub(super) report: Option<RunReport>,
    ended_at: Option<String>,
}

impl Known {
    pub(super) fn read(id: &str, directory: RunDirectory) -> io::Result<Option<Self>> {
        let Some(record) = directory.record()? else {
            return Ok(None);
        };
        let is_live = directory.is_live()?;
        let (report, ended_at) = match File::open(directory.report()) {
            Err(error) if error.kind() == ErrorKind::NotFound => (None, None),
            opened => {
                let file = opened?;
                let ended_at = milliseconds(file.metadata()?.modified()?);
                let report = serde_json::from_reader(BufReader::new(file))?;
                (Some(report), Some(text_of_milliseconds(ended_at)))
            }
        };
        Ok(Some(Self {
            id: id.to_owned(),
            record,
            is_live,
            first_event: directory.first_event()?,
            report,
            ended_at,
            directory,
        }))
    }

    /// Its state, and why it did not succeed.
    pub(super) fn state(&self) -> (State, Option<RunError>) {
        let Some(report) = &self.report else {
            return match (self.is_live, &self.first_event) {
                (true, Some(_)) => (State::Running, None),
                (true, None) => (State::Pending, None),
                (false, begun) => (State::Failed, Some(lost(begun.is_some()))),
            };
        };
        report.state()
    }

    /// For a client.
    pub(super) fn document(self) -> Run {
        let (state, error) = self.state();
        let report = self.report.as_ref();
        let text = |name: &str| {
            let event = self.first_event.as_ref()?;
            event[name].as_str().map(str::to_owned)
        };
        let artifacts = report.iter().flat_map(|report| &report.outputs);
        let artifacts = artifacts.map(|output| Artifact {
            key: output.key.clone(),
            state: output.state.clone(),
            bytes: output.bytes,
            sha256: output.sha256.clone(),
        });
        Run {
            state,
            error,
            started_at: report
                .map(|report| report.started_at.clone())
                .or_else(|| text("at")),
            run_id: report
                .map(|report| report.run_id.clone())
                .or_else(|| text("run_id")),
            outcome: report.map(|report| outcome_name(report.outcome).to_owned()),
            exit_code: report.and_then(RunReport::exit_code),
            artifacts: artifacts.collect(),
            output: self.report.and_then(|report| report.output),
            id: self.id,
            created_at: self.record.created_at,
            ended_at: self.ended_at,
            bundle: self.record.bundle,
            template: self.record.template,
        }
    }
}

/// Why a run without a report ended.
fn lost(has_begun: bool) -> RunError {
    let (code, message) = match has_begun {
        true => (
            Code::HostInterrupted,
            "`runner exec` was killed, or the host restarted, before the run had ended",
        ),
        false => (
            Code::Orphaned,
            "the server ended before `runner exec` began with the run",
        ),
    };
    RunError::new(code, message.to_owned())
}
