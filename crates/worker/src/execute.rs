//! `runner exec` for one run, in a directory of its own.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use companion::Program;
use companion::exec::ExecPlan;
use companion::run_state::RunReport;
use rustix::process::{Pid, Signal, kill_process};
use spec::request::Totals;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::{MutexGuard, Notify, watch};
use tokio::time::sleep;

use crate::messages::RunRequest;

/// How often the events of a run are read while other places wait for its turn.
const LOOK: Duration = Duration::from_millis(5);
/// How long a run waits for room before it is tried again, if none of this worker ends.
const ROOM_TIME: Duration = Duration::from_secs(1);
/// The errors of a run for which there is no memory or processor.
const NO_ROOM: [&str; 2] = ["too_much_memory", "too_many_cpus"];

/// Holds up other places of this worker until it is known whether there is room for a run.
pub(crate) type Turn<'worker> = MutexGuard<'worker, ()>;

/// The files of a run. Removed when it is dropped.
#[derive(Debug)]
pub(crate) struct RunFiles(TempDir);

impl RunFiles {
    pub(crate) fn make(directory: TempDir) -> io::Result<Self> {
        let files = Self(directory);
        for made in [files.workspace(), files.outputs()] {
            std::fs::create_dir(made)?;
        }
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn bundle(&self) -> PathBuf {
        self.path("bundle")
    }

    fn inputs(&self) -> PathBuf {
        self.path("inputs.json")
    }

    fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    /// The input file with this number. No key is part of a path.
    pub(crate) fn input(&self, number: usize) -> PathBuf {
        self.workspace().join(number.to_string())
    }

    pub(crate) fn outputs(&self) -> PathBuf {
        self.path("outputs")
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.path("report.json")
    }

    fn events(&self) -> PathBuf {
        self.path("events.jsonl")
    }

    pub(crate) fn stdout(&self) -> PathBuf {
        self.path("stdout")
    }

    pub(crate) fn stderr(&self) -> PathBuf {
        self.path("stderr")
    }

    /// `None`: `runner exec` has not written it.
    pub(crate) fn read_report(&self) -> io::Result<Option<RunReport>> {
        match std::fs::read(self.report()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Executed {
    /// With its report; `None`: without one.
    Ended(Option<Box<RunReport>>),
    /// It was cancelled before.
    NotStarted,
}

/// What all runs of a worker have in common.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) program: Program,
    pub(crate) totals: Totals,
    pub(crate) flags: Vec<OsString>,
    /// Told when a run ends: there may be room.
    pub(crate) room: Notify,
}

impl Executor {
    /// Whether a run may have to wait for others.
    pub(crate) fn has_totals(&self) -> bool {
        self.totals.memory_bytes.is_some() || self.totals.cpu_millis.is_some()
    }

    /// Executes the run once there is room for it. Ends it when it is cancelled.
    ///
    /// # Errors
    /// The host cannot start it, or keep its files.
    pub(crate) async fn execute(
        &self,
        files: &RunFiles,
        request: &RunRequest,
        mut cancelled: watch::Receiver<bool>,
        turn: Option<Turn<'_>>,
    ) -> io::Result<Executed> {
        if let Some(inputs) = &request.inputs {
            std::fs::write(files.inputs(), serde_json::to_vec(inputs)?)?;
        }
        while !*cancelled.borrow() {
            let mut child = self.start(files, request)?;
            if turn.is_some() && !has_room(&mut child, files, &cancelled).await? {
                std::fs::remove_file(files.report())?;
                tokio::select! {
                    () = self.room.notified() => (),
                    () = sleep(ROOM_TIME) => (),
                    _cancelled = cancelled.changed() => (),
                }
                continue;
            }
            drop(turn);
            let ended = tokio::select! {
                ended = child.wait() => ended,
                _cancelled = cancelled.wait_for(|is_cancelled| *is_cancelled) => {
                    end(&child)?;
                    child.wait().await
                }
            };
            ended?;
            self.room.notify_one();
            return Ok(Executed::Ended(files.read_report()?.map(Box::new)));
        }
        Ok(Executed::NotStarted)
    }

    fn start(&self, files: &RunFiles, request: &RunRequest) -> io::Result<Child> {
        let keys = request.input_files.keys().enumerate();
        let plan = ExecPlan {
            bundle: &files.bundle(),
            workspace: &files.workspace(),
            flags: &self.flags,
            inputs_files: keys
                .map(|(number, key)| (key.as_str(), number.to_string()))
                .collect(),
            inputs: request.inputs.is_some().then(|| files.inputs()),
            events: files.events(),
            report: files.report(),
            outputs: files.outputs(),
            arguments: &request.args,
        };
        let mut command = self.program.command(&self.totals);
        // Nobody would keep its result.
        sys::privileges::end_with_parent(&mut command);
        command
            .args(plan.words())
            .stdout(Stdio::from(File::create(files.stdout())?))
            .stderr(Stdio::from(File::create(files.stderr())?))
            .process_group(0);
        Command::from(command).spawn()
    }
}

/// Waits until the limits of the run count in the totals, or until it ends. Returns whether they do not exceed them.
async fn has_room(
    child: &mut Child,
    files: &RunFiles,
    cancelled: &watch::Receiver<bool>,
) -> io::Result<bool> {
    let mut is_ended = false;
    while child.try_wait()?.is_none() {
        if companion::events::is_planned(&files.events())? {
            return Ok(true);
        }
        if *cancelled.borrow() && !is_ended {
            end(child)?;
            is_ended = true;
        }
        sleep(LOOK).await;
    }
    let error = files.read_report()?.and_then(|report| report.state().1);
    let reason = error.and_then(|error| error.reason);
    Ok(!reason.is_some_and(|reason| NO_ROOM.contains(&&*reason)))
}

/// Asks `runner exec` to end the run.
fn end(child: &Child) -> io::Result<()> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    match pid {
        // It has been waited for.
        None => Ok(()),
        Some(pid) => Ok(kill_process(pid, Signal::TERM)?),
    }
}
