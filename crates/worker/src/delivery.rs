//! One message, from its delivery to its acknowledgement.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::message::{AckKind, Acker};
use companion::complain;
use companion::run_state::{Code, RunReport};
use spec::outcome::Outcome;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep};

use crate::engine::{EngineError, First};
use crate::execute::{Executed, RunFiles, Turn};
use crate::messages::{Artifact, ObjectDigest, RunId, RunRequest, RunResult};
use crate::metrics::Settled;
use crate::objects::FetchError;
use crate::work::Worker;

/// When a message is given to some worker again that this one cannot handle.
const NAK_DELAY: Duration = Duration::from_secs(5);
/// The code of an error of `runner exec` that is one of the host.
const HOST_FAILED: &str = "host_failed";
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(15);

/// A message for this worker.
#[derive(Debug)]
pub(crate) struct Delivery {
    id: Result<RunId, String>,
    /// The last part of its subject.
    name: String,
    request: Result<RunRequest, String>,
    content: Vec<u8>,
    /// How often it was delivered, this time included.
    count: u64,
}

impl Delivery {
    /// # Errors
    /// It is no message of a stream.
    pub(crate) fn read(message: &Message) -> Result<Self, async_nats::Error> {
        let count = message.info()?.delivered;
        let name = message.subject.rsplit('.').next().unwrap_or_default();
        Ok(Self {
            id: RunId::parse(name),
            name: name.to_owned(),
            request: RunRequest::parse(&message.payload),
            content: message.payload.to_vec(),
            count: u64::try_from(count).unwrap_or_default(),
        })
    }
}

/// Why a message is given back: this worker cannot handle it now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GivenBack {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the files of the run: {0}")]
    Host(#[from] io::Error),
    #[error("{0}")]
    Fetch(FetchError),
    #[error("the host failed: {0}")]
    Failed(String),
    #[error("a signal ended `runner exec`, and nobody has cancelled the run")]
    Signalled,
    #[error("it goes on in this worker")]
    AlreadyRunning,
}

/// Tells the server that the message is in progress, until it is dropped.
struct Heartbeat(JoinHandle<()>);

impl Heartbeat {
    fn start(acker: Arc<Acker>, period: Duration) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(period);
            loop {
                ticks.tick().await;
                // If the connection is gone, the next one reports it.
                let _ignored = acker.ack_with(AckKind::Progress).await;
            }
        }))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Worker {
    /// Runs it, keeps its result and acknowledges it. If it cannot, gives it back and says so.
    pub(crate) async fn handle(
        &self,
        message: Message,
        turn: Option<Turn<'_>>,
    ) -> Result<(), GivenBack> {
        let delivery = match Delivery::read(&message) {
            Ok(delivery) => delivery,
            Err(error) => {
                complain(
                    &format!("warning: a message without a reply: {error}"),
                    None,
                );
                return Ok(());
            }
        };
        let (_message, acker) = message.split();
        let acker = Arc::new(acker);
        // A third: one of them may be lost.
        let heartbeat = Heartbeat::start(Arc::clone(&acker), self.ack_wait / 3);
        let settled = self.settle(&delivery, turn).await;
        drop(heartbeat);
        match settled {
            Ok(settled) => {
                self.metrics.settled(settled);
                // If it is lost, the message is delivered again, and has a result then.
                let acknowledged = acker.double_ack().await;
                if let Err(error) = acknowledged {
                    let name = &delivery.name;
                    complain(
                        &format!("warning: run {name}: not acknowledged: {error}"),
                        None,
                    );
                }
                Ok(())
            }
            Err(error) => {
                self.metrics.settled(Settled::GivenBack);
                let name = &delivery.name;
                complain(&format!("warning: run {name} is given back: {error}"), None);
                // Otherwise the server gives it to another worker after --ack-wait.
                let _ignored = acker.ack_with(AckKind::Nak(Some(NAK_DELAY))).await;
                Err(error)
            }
        }
    }

    /// Brings the run to its one result.
    async fn settle(
        &self,
        delivery: &Delivery,
        turn: Option<Turn<'_>>,
    ) -> Result<Settled, GivenBack> {
        let Ok(id) = &delivery.id else {
            self.publish_dead_letter("malformed", delivery).await?;
            return Ok(Settled::Malformed);
        };
        if self.engine.has_result(id).await? {
            return Ok(Settled::Duplicate);
        }
        let registered = self.cancellations.register(id);
        let running = registered.ok_or(GivenBack::AlreadyRunning)?;
        let result = match (&delivery.request, delivery.count > self.max_deliveries) {
            (Err(message), _) => {
                self.publish_dead_letter(id.as_str(), delivery).await?;
                RunResult::failed(id, Code::InvalidInput, message.clone())
            }
            (Ok(_), true) => {
                self.publish_dead_letter(id.as_str(), delivery).await?;
                let count = self.max_deliveries;
                let message =
                    format!("it was delivered {count} times, and no worker brought it to an end");
                RunResult::failed(id, Code::Orphaned, message)
            }
            (Ok(_), false) if self.engine.is_cancelled(id).await? => RunResult::cancelled(id),
            (Ok(request), false) => {
                let cancelled = running.cancelled.clone();
                self.run(id, request, cancelled, turn).await?
            }
        };
        let result = RunResult {
            worker: self.name.clone(),
            deliveries: delivery.count,
            ..result
        };
        let create = async || self.engine.create_result(&result).await;
        match self.retry(create).await? {
            First::Yes => Ok(Settled::State(result.state)),
            // Another worker was given the message meanwhile.
            First::No => Ok(Settled::Duplicate),
        }
    }

    async fn publish_dead_letter(
        &self,
        name: &str,
        delivery: &Delivery,
    ) -> Result<(), EngineError> {
        let content = delivery.content.clone();
        self.engine.publish_dead_letter(name, content).await
    }

    async fn run(
        &self,
        id: &RunId,
        request: &RunRequest,
        cancelled: watch::Receiver<bool>,
        turn: Option<Turn<'_>>,
    ) -> Result<RunResult, GivenBack> {
        if !self.accepted_bundles.is_empty() && !self.accepted_bundles.contains(&request.bundle) {
            let message = format!(
                "{}: the worker executes only bundles that its --bundle names",
                request.bundle
            );
            return Ok(RunResult::failed(id, Code::InvalidInput, message));
        }
        let files = RunFiles::make(self.workspace.make()?)?;
        if let Err(error) = self.fetch(request, &files).await {
            return match error.is_of_sender() {
                true => Ok(RunResult::failed(id, Code::InvalidInput, error.to_string())),
                false => Err(GivenBack::Fetch(error)),
            };
        }
        let executed = self
            .executor
            .execute(&files, request, cancelled.clone(), turn)
            .await?;
        let is_cancelled = *cancelled.borrow();
        match executed {
            Executed::NotStarted => Ok(RunResult::cancelled(id)),
            // The signal came before `runner exec` could report it.
            Executed::Ended(None) if is_cancelled => Ok(RunResult::cancelled(id)),
            Executed::Ended(None) => Err(GivenBack::Signalled),
            Executed::Ended(Some(report)) => {
                self.metrics.ended(Some(&report));
                check_end(&report, is_cancelled)?;
                let upload = async || self.upload(id, &report, &files).await;
                Ok(self.retry(upload).await?)
            }
        }
    }

    async fn fetch(&self, request: &RunRequest, files: &RunFiles) -> Result<(), FetchError> {
        let max_bytes = self.max_file;
        self.bundles
            .fetch(&self.engine, request.bundle, &files.bundle(), max_bytes)
            .await?;
        for (number, digest) in request.input_files.values().enumerate() {
            let path = files.input(number);
            self.engine.files.fetch(digest.0, &path, max_bytes).await?;
        }
        Ok(())
    }

    /// Puts what the run wrote, and returns its result.
    async fn upload(
        &self,
        id: &RunId,
        report: &RunReport,
        files: &RunFiles,
    ) -> Result<RunResult, EngineError> {
        let put = async |path: &Path| -> Result<Option<ObjectDigest>, EngineError> {
            match path.metadata().map_or(0, |metadata| metadata.len()) {
                0 => Ok(None),
                _ => Ok(Some(self.engine.files.put(path).await?.0)),
            }
        };
        let mut artifacts = Vec::new();
        let outputs = report.outputs.iter();
        for output in outputs.filter(|output| output.state == "synced") {
            let path = files.outputs().join(&output.path);
            let (digest, bytes) = self.engine.files.put(&path).await?;
            artifacts.push(Artifact {
                key: output.key.clone(),
                path: output.path.clone(),
                digest,
                bytes,
            });
        }
        let (state, error) = report.state();
        Ok(RunResult {
            artifacts,
            report: put(&files.report()).await?,
            stdout: put(&files.stdout()).await?,
            stderr: put(&files.stderr()).await?,
            ..RunResult::new(id, state, error)
        })
    }

    /// Repeats a call to the server that fails, for --give-up-after.
    async fn retry<Done>(
        &self,
        attempt: impl AsyncFn() -> Result<Done, EngineError>,
    ) -> Result<Done, EngineError> {
        let until = Instant::now() + self.give_up_after;
        let mut pause = RETRY_MIN;
        loop {
            match attempt().await {
                Err(error) if !error.is_local() && Instant::now() < until => sleep(pause).await,
                done => return done,
            }
            pause = RETRY_MAX.min(pause * 2);
        }
    }
}

/// What is no result of the run, but of this host.
fn check_end(report: &RunReport, is_cancelled: bool) -> Result<(), GivenBack> {
    let (_state, error) = report.state();
    let reason = error.as_ref().and_then(|error| error.reason.as_deref());
    match (report.outcome, error.as_ref()) {
        (Outcome::Cancelled, _) if !is_cancelled => Err(GivenBack::Signalled),
        (Outcome::Failed, Some(error)) if reason == Some(HOST_FAILED) => {
            Err(GivenBack::Failed(error.message.clone()))
        }
        _ => Ok(()),
    }
}
