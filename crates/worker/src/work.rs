//! `runner worker`: as many messages at a time as there are places for runs.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use companion::service::{notify, wait_for_stop, watch_dog};
use companion::workspace::{Workspace, make_private};
use companion::{FAILED, Program, complain};
use futures_util::StreamExt as _;
use sd_notify::NotifyState;
use spec::digest::Digest;
use spec::request::Totals;
use spec::state_directory::state_directory;
use tokio::process::Command;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::bundles::BundleCache;
use crate::cancellations::Cancellations;
use crate::engine::Engine;
use crate::execute::Executor;
use crate::flags::WorkerFlags;
use crate::metrics::{self, Metrics};

/// How long the server keeps a request for a message. After a restart it has forgotten it.
const PULL_TIME: Duration = Duration::from_secs(5);
/// After a failure; doubled after each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What the places share.
#[derive(Debug)]
pub(crate) struct Worker {
    /// For results: the host and this process.
    pub(crate) name: String,
    pub(crate) engine: Engine,
    consumer: PullConsumer,
    pub(crate) executor: Executor,
    pub(crate) workspace: Workspace,
    pub(crate) bundles: BundleCache,
    pub(crate) cancellations: Cancellations,
    pub(crate) metrics: Arc<Metrics>,
    /// Held from the request for a message until there is room for its run.
    turn: Mutex<()>,
    pub(crate) ack_wait: Duration,
    pub(crate) max_deliveries: u64,
    pub(crate) give_up_after: Duration,
    pub(crate) max_file: u64,
    /// Others are not executed; empty: all are.
    pub(crate) accepted_bundles: Vec<Digest>,
}

/// Works until SIGTERM or SIGINT.
pub(crate) async fn work(flags: WorkerFlags) -> Result<ExitCode, Failure> {
    let places = places(&flags);
    let metrics = Arc::new(Metrics::new(places));
    if let Some(address) = flags.metrics {
        metrics::serve(address, Arc::clone(&metrics)).await?;
    }
    let stream = flags.engine.stream.clone();
    let worker = Rc::new(Worker::open(flags, metrics).await?);
    let (stop, stopped) = watch::channel(false);
    let mut running = JoinSet::new();
    for _place in 0..places {
        running.spawn_local(Rc::clone(&worker).place(stopped.clone()));
    }
    spawn_local(Rc::clone(&worker).watch_cancellations());
    complain(
        &format!("{places} places for runs of the stream {stream}"),
        None,
    );
    watch_dog();
    notify(NotifyState::Ready);
    let failed = |message: String| Failure::failed("host_failed", message);
    tokio::select! {
        stop = wait_for_stop() => stop.map_err(failed)?,
        // None ends by itself.
        _lost = running.join_next() => return Err(failed("a place for runs is lost".to_owned())),
    }
    notify(NotifyState::Stopping);
    // Those that have a place receive it.
    stop.send_replace(true);
    tokio::select! {
        _ended = running.join_all() => Ok(ExitCode::SUCCESS),
        again = wait_for_stop() => {
            again.map_err(failed)?;
            // `runner exec` ends with this process, and other workers are given the messages.
            complain("the runs are ended", None);
            Ok(ExitCode::from(FAILED))
        }
    }
}

fn places(flags: &WorkerFlags) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    flags.max_runs.map_or(processors, usize::from)
}

impl Worker {
    async fn open(flags: WorkerFlags, metrics: Arc<Metrics>) -> Result<Self, Failure> {
        let failed = |message| Failure::failed("worker_failed", message);
        let program = Program::beside_this_one()
            .map_err(|error| failed(format!("the program `runner` cannot be executed: {error}")))?;
        let directory = worker_directory().map_err(failed)?;
        let bundles = BundleCache::open(directory.join("bundles"), flags.bundle_cache);
        let workspace = Workspace::open_in(&directory.join("runs"));
        let workspace = workspace.map_err(failed)?;
        check_flags(&program, &workspace, &flags.exec).await?;
        let engine = Engine::make(&flags.engine, flags.keep).await?;
        let consumer = engine.consumer(flags.ack_wait).await?;
        let ack_wait = consumer.cached_info().config.ack_wait;
        if ack_wait != flags.ack_wait {
            let (stated, valid) = (flags.ack_wait.as_secs_f64(), ack_wait.as_secs_f64());
            let message = format!(
                "warning: --ack-wait {stated}s: the first worker has made it {valid}s for all"
            );
            complain(&message, None);
        }
        Ok(Self {
            name: name(),
            consumer,
            engine,
            executor: Executor {
                program,
                totals: Totals {
                    sandboxes: None,
                    memory_bytes: flags.max_memory,
                    cpu_millis: flags.max_cpus,
                },
                flags: flags.exec,
                room: Notify::new(),
            },
            workspace,
            bundles: bundles.map_err(failed)?,
            cancellations: Cancellations::default(),
            metrics,
            turn: Mutex::new(()),
            ack_wait,
            max_deliveries: flags.max_deliveries,
            give_up_after: flags.give_up_after,
            max_file: flags.max_file,
            accepted_bundles: flags.bundle,
        })
    }

    /// Takes messages and runs them, one after the other, until it is stopped.
    async fn place(self: Rc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut pause = PAUSE_MIN;
        while !*stopped.borrow() {
            let turn = match self.executor.has_totals() {
                true => Some(self.turn.lock().await),
                false => None,
            };
            let message = tokio::select! {
                _stopped = stopped.changed() => return,
                message = self.next_message() => message,
            };
            let failed = match message {
                Ok(Some(message)) => {
                    let _running = self.metrics.running();
                    self.handle(message, turn).await.is_err()
                }
                Ok(None) => continue,
                Err(error) => {
                    self.metrics.failed_to_pull();
                    complain(&format!("warning: no message: {error}"), None);
                    true
                }
            };
            if !failed {
                pause = PAUSE_MIN;
                continue;
            }
            // A worker that cannot work must not take messages from those that can.
            tokio::select! {
                _stopped = stopped.changed() => return,
                () = sleep(pause) => (),
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// `None`: there is none now.
    async fn next_message(&self) -> Result<Option<Message>, async_nats::Error> {
        let pull = async {
            let request = self.consumer.fetch().max_messages(1).expires(PULL_TIME);
            let mut messages = request.messages().await?;
            messages.next().await.transpose()
        };
        // A server that is gone does not say so.
        timeout(PULL_TIME * 2, pull).await.unwrap_or(Ok(None))
    }

    async fn watch_cancellations(self: Rc<Self>) {
        loop {
            let watched = self
                .engine
                .watch_cancellations(|id| self.cancellations.cancel(id));
            if let Err(error) = watched.await {
                complain(&format!("warning: {error}"), None);
            }
            sleep(PAUSE_MIN).await;
        }
    }
}

/// Lets `runner plan` read the flags: a mistake in them must not become the result of each run.
async fn check_flags(
    program: &Program,
    workspace: &Workspace,
    flags: &[OsString],
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed("host_failed", error.to_string());
    let directory = workspace.make().map_err(failed)?;
    let bundle = directory.path().join("bundle");
    write_bundle(&bundle, program).map_err(failed)?;
    let mut plan = Command::from(program.command(&Totals::default()));
    plan.arg("plan").arg(&bundle).args(flags);
    let output = plan.output().await.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let (of_usage, of_plan) = (
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
    let mistake = of_usage
        .lines()
        .find_map(|line| line.strip_prefix("runner: "));
    let refusal = || of_plan.lines().find(|line| line.starts_with("would "));
    let line = mistake.or_else(refusal).unwrap_or("`runner plan` failed");
    let message = format!("the flags after `--`: {line}");
    Err(Failure::refused("exec_flags", message).with_hint("`runner help exec` lists the flags"))
}

/// A bundle whose program needs nothing of the host: the head of `runner` is that of a static program.
fn write_bundle(bundle: &Path, program: &Program) -> std::io::Result<()> {
    const HEAD_BYTES: u64 = 4096;
    std::fs::create_dir(bundle)?;
    std::fs::write(
        bundle.join("manifest.yaml"),
        "name: check\nrun: [./check]\n",
    )?;
    let mut check = OpenOptions::new();
    let mut check = check
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(bundle.join("check"))?;
    let mut head = File::open(program.path())?.take(HEAD_BYTES);
    std::io::copy(&mut head, &mut check)?;
    Ok(())
}

fn name() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    format!("{host}:{}", std::process::id())
}

/// In the state directory, private.
fn worker_directory() -> Result<PathBuf, String> {
    let uid = rustix::process::geteuid().as_raw();
    let state = state_directory(uid, |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    });
    std::fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    let directory = state.join("worker");
    make_private(&directory)?;
    Ok(directory)
}
