//! One message, from its delivery to its acknowledgement.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::message::{AckKind, Acker};
use companion::complain;
use companion::run_state::{Code, RunReport, State};
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
const AGAIN_AFTER: Duration = Duration::from_secs(5);
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

/// Why a message is given back.
#[derive(Debug, thiserror::Error)]
enum GivenBack {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the files of the run: {0}")]
    Host(#[from] io::Error),
    #[error("{0}")]
    Fetch(FetchError),
    #[error("it goes on in this worker")]
    GoesOn,
}

/// Tells the server that the message is in work, until it is dropped.
struct Heartbeat(JoinHandle<()>);

impl Heartbeat {
    fn start(acker: Arc<Acker>, period: Duration) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(period);
            loop {
                ticks.tick().await;
                // If the connection is gone, the next one tells it.
                let _lost = acker.ack_with(AckKind::Progress).await;
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
    /// Runs it, keeps its result, and acknowledges it; or gives it back.
    pub(crate) async fn handle(&self, message: Message, turn: Option<Turn<'_>>) {
        let delivery = match Delivery::read(&message) {
            Ok(delivery) => delivery,
            Err(error) => {
                return complain(
                    &format!("warning: a message without a reply: {error}"),
                    None,
                );
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
                let acknowledged = self.insist(async || acker.double_ack().await).await;
                if let Err(error) = acknowledged {
                    complain(
                        &format!("warning: run {}: not acknowledged: {error}", delivery.name),
                        None,
                    );
                }
            }
            Err(error) => {
                self.metrics.settled(Settled::GivenBack);
                complain(
                    &format!("warning: run {} is given back: {error}", delivery.name),
                    None,
                );
                // Otherwise the server gives it to another worker after --ack-wait.
                let _lost = acker.ack_with(AckKind::Nak(Some(AGAIN_AFTER))).await;
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
            self.engine
                .bury("malformed", delivery.content.clone())
                .await?;
            return Ok(Settled::Malformed);
        };
        if self.engine.result(id).await?.is_some() {
            return Ok(Settled::Before);
        }
        let running = self.cancellations.register(id).ok_or(GivenBack::GoesOn)?;
        let result = match &delivery.request {
            Err(message) => {
                let (failed, code) = (State::Failed, Code::InvalidInput);
                self.bury(id, delivery).await?;
                RunResult::without_report(id, failed, code, message.clone())
            }
            Ok(request) => match self.refusal(id, delivery).await? {
                Some(result) => result,
                None => {
                    self.run(id, request, running.cancelled.clone(), turn)
                        .await?
                }
            },
        };
        let result = RunResult {
            worker: self.name.clone(),
            deliveries: delivery.count,
            ..result
        };
        match self
            .insist(async || self.engine.create_result(&result).await)
            .await?
        {
            First::Yes => Ok(Settled::State(result.state)),
            // Another worker was given the message meanwhile.
            First::No => Ok(Settled::Before),
        }
    }

    /// The result of a run that is not started.
    async fn refusal(
        &self,
        id: &RunId,
        delivery: &Delivery,
    ) -> Result<Option<RunResult>, EngineError> {
        if delivery.count > self.max_deliveries {
            self.bury(id, delivery).await?;
            let message = format!(
                "its workers ended {} times before the run did",
                self.max_deliveries
            );
            let result = RunResult::without_report(id, State::Failed, Code::Orphaned, message);
            return Ok(Some(result));
        }
        let is_cancelled = self.engine.is_cancelled(id).await?;
        Ok(is_cancelled.then(|| cancelled_before(id)))
    }

    async fn bury(&self, id: &RunId, delivery: &Delivery) -> Result<(), EngineError> {
        let content = delivery.content.clone();
        self.engine.bury(id.as_str(), content).await
    }

    async fn run(
        &self,
        id: &RunId,
        request: &RunRequest,
        cancelled: watch::Receiver<bool>,
        turn: Option<Turn<'_>>,
    ) -> Result<RunResult, GivenBack> {
        let files = RunFiles::make(self.workspace.make()?)?;
        if let Err(error) = self.fetch(request, &files).await {
            return without_files(id, error);
        }
        let executed = self.executor.execute(&files, request, cancelled, turn);
        match executed.await? {
            Executed::CancelledBefore => Ok(cancelled_before(id)),
            Executed::Ended(report) => {
                self.metrics.ended(report.as_deref());
                let keep = async || self.keep(id, report.as_deref(), &files).await;
                Ok(self.insist(keep).await?)
            }
        }
    }

    async fn fetch(&self, request: &RunRequest, files: &RunFiles) -> Result<(), FetchError> {
        let bundle = files.bundle();
        let most = self.max_file;
        self.bundles
            .fetch(&self.engine, request.bundle, &bundle, most)
            .await?;
        for (number, digest) in request.input_files.values().enumerate() {
            let path = files.input(number);
            self.engine.files.fetch(digest.0, &path, most).await?;
        }
        Ok(())
    }

    /// Puts what the run wrote, and returns its result.
    async fn keep(
        &self,
        id: &RunId,
        report: Option<&RunReport>,
        files: &RunFiles,
    ) -> Result<RunResult, EngineError> {
        let put = async |path: &Path| -> Result<Option<ObjectDigest>, EngineError> {
            match path.metadata().map_or(0, |metadata| metadata.len()) {
                0 => Ok(None),
                _ => Ok(Some(self.engine.files.put(path).await?.0)),
            }
        };
        let mut result = match report {
            None => {
                let message = "`runner exec` ended without a report".to_owned();
                RunResult::without_report(id, State::Failed, Code::HostInterrupted, message)
            }
            Some(report) => {
                let (state, error) = report.state();
                let mut artifacts = Vec::new();
                for output in report
                    .outputs
                    .iter()
                    .filter(|output| output.state == "synced")
                {
                    let path = files.outputs().join(&output.path);
                    let (digest, bytes) = self.engine.files.put(&path).await?;
                    artifacts.push(Artifact {
                        key: output.key.clone(),
                        path: output.path.clone(),
                        digest,
                        bytes,
                    });
                }
                RunResult {
                    id: id.to_string(),
                    state,
                    error,
                    artifacts,
                    ..RunResult::without_report(id, state, Code::DriverError, String::new())
                }
            }
        };
        result.report = put(&files.report()).await?;
        result.stdout = put(&files.stdout()).await?;
        result.stderr = put(&files.stderr()).await?;
        Ok(result)
    }

    /// Tries until it is done, or for --give-up-after.
    async fn insist<Done, Failed: std::fmt::Display>(
        &self,
        attempt: impl AsyncFn() -> Result<Done, Failed>,
    ) -> Result<Done, Failed> {
        let until = Instant::now() + self.give_up_after;
        let mut pause = RETRY_MIN;
        loop {
            match attempt().await {
                Err(_error) if Instant::now() < until => sleep(pause).await,
                done => return done,
            }
            pause = RETRY_MAX.min(pause * 2);
        }
    }
}

fn cancelled_before(id: &RunId) -> RunResult {
    let message = "it was cancelled before it was started".to_owned();
    RunResult::without_report(id, State::Cancelled, Code::Cancelled, message)
}

/// The result of a run of which the sender did not hand in all files.
fn without_files(id: &RunId, error: FetchError) -> Result<RunResult, GivenBack> {
    match error {
        FetchError::Missing(_) | FetchError::TooLarge { .. } | FetchError::Other { .. } => {
            let message = error.to_string();
            Ok(RunResult::without_report(
                id,
                State::Failed,
                Code::InvalidInput,
                message,
            ))
        }
        FetchError::Write { .. } | FetchError::Engine(_) => Err(GivenBack::Fetch(error)),
    }
}
