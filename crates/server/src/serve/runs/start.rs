//! Starts runs: `runner exec`, which goes on without this process.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use companion::exec::ExecPlan;
use spec::ulid::ulid;
use spec::utc::text_of_milliseconds;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::blocking;
use super::known::{Known, Record, RunDirectory};
use super::receive::{Received, file_name};
use super::store::{Store, now_ms};
use crate::serve::access::Access;
use crate::serve::error::ApiError;
use crate::serve::files::host_failed;
use crate::serve::metrics::Refused;
use crate::serve::server::{Server, Shared};
use crate::serve::verbs::{not_executed, refusal};

/// How often files are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How long a client waits until its run has begun.
const BEGIN_TIME: Duration = Duration::from_secs(10);
/// When a client may ask again for a place that there is not.
const RETRY_AFTER_S: u32 = 5;

/// What became of the wish for a run.
#[derive(Debug)]
pub(super) enum Started {
    New(Known),
    /// The run with this key, which was started before.
    Before(Known),
}

/// What makes a request the same one, however often it is sent.
#[derive(Debug)]
pub(super) struct IdempotencyKey {
    pub(super) text: String,
    pub(super) request_digest: String,
}

/// The run that a client has started with this key.
///
/// # Errors
/// Those of reading.
pub(super) async fn find_by_key(
    store: &Store,
    access: Access,
    key: Option<&str>,
) -> Result<Option<Known>, ApiError> {
    let Some(key) = key.map(str::to_owned) else {
        return Ok(None);
    };
    let store = store.clone();
    blocking(move || store.find_by_key(access, &key)).await
}

/// The run that a client has started with this request.
///
/// # Errors
/// 422: another request came with its key. Those of reading.
async fn find_same(
    store: &Store,
    access: Access,
    key: Option<&IdempotencyKey>,
) -> Result<Option<Known>, ApiError> {
    let known = find_by_key(store, access, key.map(|key| &*key.text)).await?;
    let first = known
        .as_ref()
        .and_then(|known| known.record.request_digest.as_ref());
    let digest = key.map(|key| &key.request_digest);
    if first.is_some() && first != digest {
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "another request came with this Idempotency-Key before",
        ));
    }
    Ok(known)
}

/// Refuses one more run if as many go on as may.
///
/// # Errors
/// 429.
pub(super) async fn admit(server: &Server, store: &Store) -> Result<(), ApiError> {
    let store = store.clone();
    let count = blocking(move || store.live()).await?;
    if count < server.runs.max_runs {
        return Ok(());
    }
    server.metrics.refused(Refused::Runs);
    let message = format!(
        "{count} runs go on, and --max-runs is {}",
        server.runs.max_runs
    );
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_runs", message);
    Err(error.retry_after_s(RETRY_AFTER_S))
}

/// Starts a run, and waits until it has begun.
///
/// # Errors
/// There is no place for it, or what `runner exec` says of its words.
pub(super) async fn start(
    server: Shared,
    store: Store,
    access: Access,
    key: Option<IdempotencyKey>,
    mut received: Received,
) -> Result<Started, ApiError> {
    if let Some(known) = find_same(&store, access, key.as_ref()).await? {
        return Ok(Started::Before(known));
    }
    let (bundle, shown) = received.take_bundle(store.bundles(access)).await?;
    let record = Record {
        created_at: text_of_milliseconds(now_ms()),
        is_tcp: access != Access::Owner,
        idempotency_key: key.as_ref().map(|key| key.text.clone()),
        request_digest: key.as_ref().map(|key| key.request_digest.clone()),
        bundle: shown,
        template: received.wanted.template.clone(),
    };
    let stderr = prepare(&received, &record).map_err(host_failed)?;
    // One after the other: of two, one would not see the other.
    let turn = server.runs.turn.lock().await;
    if let Some(known) = find_same(&store, access, key.as_ref()).await? {
        return Ok(Started::Before(known));
    }
    admit(&server, &store).await?;
    let keep_runs = server.runs.keep_runs;
    let pruned = store.clone();
    blocking(move || pruned.prune(keep_runs.saturating_sub(1))).await?;
    let id = new_id()?;
    let run = store.run(&id);
    let stdout = File::create(RunDirectory(received.directory.path().to_owned()).stdout());
    let stdout = stdout.map_err(host_failed)?;
    std::fs::rename(received.directory.path(), &run.0).map_err(host_failed)?;
    let mut command = server.verbs.runner();
    command
        .args(words(&received, &run, &bundle))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr));
    let spawned = command.spawn();
    // It has the lock, too.
    drop(command);
    drop(turn);
    let begun = match spawned {
        Ok(child) => begin(Arc::clone(&server), &run, child).await,
        Err(error) => Err(not_executed(&error)),
    };
    if let Err(error) = begun {
        blocking(move || std::fs::remove_dir_all(&run.0)).await?;
        return Err(error);
    }
    let known = blocking(move || store.find(access, &id)).await?;
    known
        .map(Started::New)
        .ok_or_else(|| ApiError::failed("the run was removed at once"))
}

/// Writes what has to be there before the run is visible. Returns the file with the lock.
fn prepare(received: &Received, record: &Record) -> std::io::Result<File> {
    let run = RunDirectory(received.directory.path().to_owned());
    std::fs::write(run.request(), serde_json::to_vec(record)?)?;
    if let Some(inputs) = &received.wanted.inputs {
        std::fs::write(run.inputs(), serde_json::to_vec(inputs)?)?;
    }
    std::fs::create_dir(run.artifacts())?;
    let stderr = File::create(run.stderr())?;
    stderr.lock()?;
    Ok(stderr)
}

fn words(received: &Received, run: &RunDirectory, bundle: &Path) -> Vec<OsString> {
    let flags: Vec<OsString> = received.flags.iter().map(OsString::from).collect();
    let keys = received.keys.iter().enumerate();
    let plan = ExecPlan {
        bundle,
        workspace: &run.workspace(),
        flags: &flags,
        inputs_files: keys
            .map(|(number, key)| (key.as_str(), file_name(number)))
            .collect(),
        inputs: received.wanted.inputs.is_some().then(|| run.inputs()),
        events: run.events(),
        report: run.report(),
        outputs: run.artifacts(),
        arguments: &received.wanted.args,
    };
    plan.words()
}

fn new_id() -> Result<String, ApiError> {
    let mut random = [0; 10];
    match rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()) {
        Ok(_filled) => Ok(ulid(now_ms(), random)),
        Err(_errno) => Err(ApiError::failed("the host has no random numbers")),
    }
}

/// Waits until the run has begun, and leaves it to itself.
///
/// # Errors
/// It ended before: its words are refused, or there is no memory or processor for it.
async fn begin(server: Shared, run: &RunDirectory, mut child: Child) -> Result<(), ApiError> {
    let until = Instant::now() + BEGIN_TIME;
    // Its limits may be in the bundle: only after its plan it is known whether there is a place for it.
    let has_totals = server.verbs.has_totals();
    loop {
        let ended = child.try_wait().map_err(host_failed)?;
        let has_begun = run.has_begun().map_err(host_failed)?;
        if has_begun && (!has_totals || run.is_planned().map_err(host_failed)?) {
            break;
        }
        if ended.is_some() {
            // No body has run that could have written it.
            let said = std::fs::read(run.stderr()).map_err(host_failed)?;
            let error = refusal(&said);
            server.metrics.refused_by_runner(error.code());
            if !has_begun || error.status == StatusCode::TOO_MANY_REQUESTS {
                return Err(error);
            }
            break;
        }
        if Instant::now() > until {
            break;
        }
        sleep(LOOK).await;
    }
    let run = run.clone();
    tokio::spawn(async move {
        // It may be lost only with this process.
        let _ended = child.wait().await;
        let known = blocking(move || Known::read("", run)).await;
        server.runs.count(known.ok().flatten());
    });
    Ok(())
}
