//! The stream of runs, and its buckets: all that is kept of them, on the server.
//!
//! | name | what | kept |
//! | --- | --- | --- |
//! | stream `S`, subjects `S.run.ID` | requests that have no result | until they are acknowledged |
//! | stream `S-dead`, subjects `S.dead.ID` | requests that no worker brought to an end | as results |
//! | bucket `S-runs` | results by id; `cancel.ID` asks for the end of a run | `--keep` |
//! | object store `S-files` | input files, output files, reports and logs by digest | `--keep` |
//! | object store `S-bundles` | bundles by digest | until they are removed |

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::kv::{self, CreateErrorKind, Operation};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, Event, ServerAddr};
use companion::{complain, own_file};
use futures_util::StreamExt as _;
use rustix::fs::OFlags;
use spec::path::escape;
use tokio::time::sleep;

use crate::Failure;
use crate::flags::EngineFlags;
use crate::messages::{MESSAGE_BYTES_MAX, RunId, RunResult, StreamName};
use crate::objects::Objects;

const CONSUMER: &str = "workers";
const ADDRESS_HINT: &str = "--nats and NATS_URL name it: nats://HOST:PORT";
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// A watch that ends at once must not keep a processor busy.
const WATCH_AGAIN: Duration = Duration::from_millis(50);

/// A call to the server failed: it does not answer, or refuses.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act}: {source}")]
pub(crate) struct EngineError {
    act: &'static str,
    #[source]
    source: Box<dyn Error + Send + Sync>,
    is_local: bool,
}

impl EngineError {
    pub(crate) fn call<E: Into<Box<dyn Error + Send + Sync>>>(
        act: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self {
            act,
            source: source.into(),
            is_local: false,
        }
    }

    /// What no repetition changes.
    pub(crate) fn local<E: Into<Box<dyn Error + Send + Sync>>>(
        act: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self {
            act,
            source: source.into(),
            is_local: true,
        }
    }

    pub(crate) const fn is_local(&self) -> bool {
        self.is_local
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::failed("nats_failed", error.to_string())
    }
}

/// Whether this was the first of its kind under its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Yes,
    No,
}

/// The stream and the buckets of one name.
#[derive(Debug)]
pub(crate) struct Engine {
    name: StreamName,
    context: Context,
    pub(crate) bundles: Objects,
    pub(crate) files: Objects,
    runs: kv::Store,
}

impl Engine {
    /// The stream that a worker has made.
    pub(crate) async fn open(flags: &EngineFlags) -> Result<Self, Failure> {
        let context = connect(flags).await?;
        let name = &flags.stream;
        if let Err(error) = context.get_stream(name.to_string()).await {
            let message = format!("the server has no stream {name}: {error}");
            let hint = format!("`runner worker --stream {name}` makes it");
            return Err(Failure::refused("no_stream", message).with_hint(hint));
        }
        Ok(Self::of(name, context).await?)
    }

    /// The stream, which is made if it is missing. Results in new buckets are kept for `keep`.
    pub(crate) async fn make(flags: &EngineFlags, keep: Duration) -> Result<Self, Failure> {
        let context = connect(flags).await?;
        let name = &flags.stream;
        for config in streams(name, keep) {
            let made = context.get_or_create_stream(config).await;
            made.map_err(EngineError::call("make the stream"))?;
        }
        Ok(Self::of(name, context).await?)
    }

    async fn of(name: &StreamName, context: Context) -> Result<Self, EngineError> {
        let objects = async |part: &str| {
            let store = context.get_object_store(format!("{name}-{part}")).await;
            let stream = context.get_stream(format!("OBJ_{name}-{part}")).await;
            let stream = stream.map_err(EngineError::call("open the bucket of objects"))?;
            Ok(Objects {
                store: store.map_err(EngineError::call("open the bucket of objects"))?,
                max_age: stream.cached_info().config.max_age,
            })
        };
        let runs = context.get_key_value(format!("{name}-runs")).await;
        Ok(Self {
            name: name.clone(),
            bundles: objects("bundles").await?,
            files: objects("files").await?,
            runs: runs.map_err(EngineError::call("open the bucket of runs"))?,
            context,
        })
    }

    /// From which all workers take messages, made with this time if it is missing. A message that is not acknowledged in
    /// time is given to another worker.
    pub(crate) async fn consumer(&self, ack_wait: Duration) -> Result<PullConsumer, EngineError> {
        let call = EngineError::call::<Box<dyn Error + Send + Sync>>("make the consumer");
        let made = async {
            let stream = self.context.get_stream(self.name.to_string()).await?;
            let config = pull::Config {
                durable_name: Some(CONSUMER.to_owned()),
                ack_policy: AckPolicy::Explicit,
                ack_wait,
                // What is in progress: all places of all workers.
                max_ack_pending: 100_000,
                max_waiting: 100_000,
                ..pull::Config::default()
            };
            Ok(stream.get_or_create_consumer(CONSUMER, config).await?)
        };
        made.await.map_err(call)
    }

    /// Submits a run, unless its id is in the stream.
    pub(crate) async fn publish(&self, id: &RunId, content: Vec<u8>) -> Result<First, EngineError> {
        let call = EngineError::call("submit the run");
        let message = PublishMessage::build()
            .payload(content.into())
            .expected_last_subject_sequence(0);
        let subject = format!("{}.run.{id}", self.name);
        let sent = self
            .context
            .send_publish(subject, message)
            .await
            .map_err(EngineError::call("submit the run"))?;
        match sent.await {
            Ok(_acknowledged) => Ok(First::Yes),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(First::No),
            Err(error) => Err(call(error)),
        }
    }

    /// Keeps a message that has no run, or that no worker brought to an end.
    pub(crate) async fn publish_dead_letter(
        &self,
        id: &str,
        content: Vec<u8>,
    ) -> Result<(), EngineError> {
        let call = EngineError::call::<Box<dyn Error + Send + Sync>>("keep the dead letter");
        let kept = async {
            let subject = format!("{}.dead.{id}", self.name);
            let sent = self.context.publish(subject, content.into()).await?;
            sent.await?;
            Ok(())
        };
        kept.await.map_err(call)
    }

    pub(crate) async fn result(&self, id: &RunId) -> Result<Option<RunResult>, EngineError> {
        let value = self.runs.get(id.as_str()).await;
        let value = value.map_err(EngineError::call("read the result"))?;
        let parsed = value.map(|value| serde_json::from_slice(&value));
        parsed
            .transpose()
            .map_err(EngineError::call("read the result"))
    }

    pub(crate) async fn has_result(&self, id: &RunId) -> Result<bool, EngineError> {
        self.is_there(id.as_str()).await
    }

    async fn is_there(&self, key: &str) -> Result<bool, EngineError> {
        let found = self.runs.entry(key).await;
        let found = found.map_err(EngineError::call("read the state of the run"))?;
        Ok(found.is_some_and(|entry| entry.operation == Operation::Put))
    }

    /// Keeps the result, unless the run has one.
    pub(crate) async fn create_result(&self, result: &RunResult) -> Result<First, EngineError> {
        let call = EngineError::call("keep the result");
        let write = |result: &RunResult| {
            serde_json::to_vec(result).map_err(EngineError::local("write the result"))
        };
        let mut text = write(result)?;
        if text.len() > MESSAGE_BYTES_MAX {
            text = write(&result.without_artifacts())?;
        }
        match self.runs.create(&result.id, text.into()).await {
            Ok(_revision) => Ok(First::Yes),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(First::No),
            Err(error) => Err(call(error)),
        }
    }

    /// Waits until the run has a result.
    pub(crate) async fn wait_for_result(&self, id: &RunId) -> Result<RunResult, EngineError> {
        loop {
            // The watch begins first: nothing is missed between both.
            let mut watch = self
                .runs
                .watch_with_history(id.as_str())
                .await
                .map_err(EngineError::call("wait for the result"))?;
            if let Some(result) = self.result(id).await? {
                return Ok(result);
            }
            // Until there is a value. An error or the end: the server was restarted.
            while let Some(Ok(entry)) = watch.next().await {
                if entry.operation == Operation::Put {
                    break;
                }
            }
            sleep(WATCH_AGAIN).await;
        }
    }

    /// Asks for the end of a run, now and when it is delivered.
    pub(crate) async fn cancel(&self, id: &RunId) -> Result<(), EngineError> {
        let put = self.runs.put(cancel_key(id), "".into()).await;
        put.map(|_revision| ())
            .map_err(EngineError::call("cancel the run"))
    }

    pub(crate) async fn is_cancelled(&self, id: &RunId) -> Result<bool, EngineError> {
        self.is_there(&cancel_key(id)).await
    }

    /// Calls `cancelled` with the id of each run that is to end, those of before first, until the watch breaks.
    pub(crate) async fn watch_cancellations(
        &self,
        cancelled: impl Fn(&str),
    ) -> Result<(), EngineError> {
        let call = EngineError::call("watch for cancelled runs");
        let mut watch = self
            .runs
            .watch_with_history("cancel.*")
            .await
            .map_err(EngineError::call("watch for cancelled runs"))?;
        loop {
            match watch.next().await {
                Some(Ok(entry)) => {
                    if let Some(id) = entry.key.strip_prefix("cancel.") {
                        cancelled(id);
                    }
                }
                Some(Err(error)) => return Err(call(error)),
                None => return Ok(()),
            }
        }
    }
}

/// All that is on the server: see the table above. Buckets are streams, too (ADR-8 and ADR-20 of NATS);
/// `Context::create_key_value` does not understand what servers before 2.10 say of the account.
fn streams(name: &StreamName, keep: Duration) -> [stream::Config; 5] {
    let queue = stream::Config {
        name: name.to_string(),
        subjects: vec![format!("{name}.run.*")],
        // A message is removed when it is acknowledged.
        retention: RetentionPolicy::WorkQueue,
        ..stream::Config::default()
    };
    let dead = stream::Config {
        name: format!("{name}-dead"),
        subjects: vec![format!("{name}.dead.*")],
        max_age: keep,
        ..stream::Config::default()
    };
    let runs = stream::Config {
        name: format!("KV_{name}-runs"),
        subjects: vec![format!("$KV.{name}-runs.>")],
        max_messages_per_subject: 1,
        deny_delete: true,
        ..bucket(keep)
    };
    let objects = |part: &str, max_age| stream::Config {
        name: format!("OBJ_{name}-{part}"),
        subjects: vec![
            format!("$O.{name}-{part}.C.>"),
            format!("$O.{name}-{part}.M.>"),
        ],
        ..bucket(max_age)
    };
    let bundles = objects("bundles", Duration::ZERO);
    [queue, dead, runs, objects("files", keep), bundles]
}

fn bucket(max_age: Duration) -> stream::Config {
    stream::Config {
        max_age,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        allow_direct: true,
        num_replicas: 1,
        ..stream::Config::default()
    }
}

fn cancel_key(id: &RunId) -> String {
    // No id has a dot.
    format!("cancel.{id}")
}

async fn connect(flags: &EngineFlags) -> Result<Context, Failure> {
    let mut options = ConnectOptions::new()
        .name("runner")
        .connection_timeout(CONNECT_TIME)
        .event_callback(|event| async move { tell(&event) })
        .max_reconnects(None);
    if let Some(path) = &flags.nkey {
        options = options.nkey(read_private("--nkey", path)?);
    }
    if let Some(path) = &flags.creds {
        let text = read_private("--creds", path)?;
        options = options
            .credentials(&text)
            .map_err(|error| Failure::refused("credentials", format!("--creds: {error}")))?;
    }
    if let Some(path) = &flags.tls_ca {
        options = options
            .add_root_certificates(path.clone())
            .require_tls(true);
    }
    if let (Some(certificate), Some(key)) = (&flags.tls_cert, &flags.tls_key) {
        read_private("--tls-key", key)?;
        options = options
            .add_client_certificate(certificate.clone(), key.clone())
            .require_tls(true);
    }
    let servers: Result<Vec<ServerAddr>, _> = flags.nats.split(',').map(str::parse).collect();
    let servers = servers.map_err(|error| {
        Failure::refused("usage", format!("--nats: {error}")).with_hint(ADDRESS_HINT)
    })?;
    // The package reads them, and does not use them.
    let mut accounts = servers
        .iter()
        .filter_map(|server| Some((server.username()?, server.password()?)));
    if let Some((user, password)) = accounts.next() {
        options = options.user_and_password(user.to_owned(), password.to_owned());
    }
    let client = options.connect(&servers).await.map_err(|error| {
        // The address may have a password.
        Failure::failed(
            "nats_failed",
            format!("cannot connect to the server: {error}"),
        )
        .with_hint("--nats and NATS_URL name it: nats://HOST:PORT")
    })?;
    Ok(jetstream::new(client))
}

/// What happens to the connection while it is used.
fn tell(event: &Event) {
    match event {
        // What fails by it says more; and of each attempt to connect again there is an error.
        Event::Connected | Event::Closed | Event::Draining | Event::ClientError(_) => (),
        Event::Disconnected
        | Event::LameDuckMode
        | Event::SlowConsumer(_)
        | Event::ServerError(_) => complain(&format!("warning: the server: {event}"), None),
    }
}

fn read_private(flag: &str, path: &Path) -> Result<String, Failure> {
    let shown = escape(path.as_os_str().as_encoded_bytes());
    let refused =
        |problem: String| Failure::refused("credentials", format!("{flag}: {shown}: {problem}"));
    let failed = |error: std::io::Error| refused(error.to_string());
    let file = own_file::open(path, OFlags::NOFOLLOW, 0o077).map_err(failed)?;
    let file =
        file.ok_or_else(|| refused("expected a file that nobody else may read".to_owned()))?;
    let text = std::io::read_to_string(file).map_err(failed)?;
    Ok(text.trim().to_owned())
}
