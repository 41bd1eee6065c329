//! `/v1/runs`: bundles that are run by `runner exec`. Each run has a directory of its own with what was asked, its
//! events, its report and its output, from which every server reads its state.

mod events;
mod known;
mod receive;
mod start;
mod store;
mod types;

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use axum::Extension;
use axum::extract::{self, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use companion::run_state::State;
use companion::run_totals::Totals;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::access::Access;
use super::body::{channel, json, set_type};
use super::error::ApiError;
use super::events::output;
use super::files::{host_failed, send};
use super::flags::Flags;
use super::parameters::text;
use super::query::Query;
use super::routes::{Content, Route, document, schema};
use super::server::{Shared, finish_in_place, malformed_path, names_of_path};
use super::templates::{self, Templates};
use super::types::{Logs, Output};
use companion::prometheus::gauge;
use companion::workspace::Workspace;
use known::Known;
use receive::Received;
use start::{IdempotencyKey, Started};
use store::{Store, open_beneath};
use types::{CreateRun, Run, RunEvent, RunList};

pub(super) use types::RUN_ID;

/// What is told of each stream of a run.
const LOG_BYTES: usize = 1 << 20;
const KEY_BYTES_MAX: usize = 255;
/// How long a run may take until it can be cancelled.
const PENDING_TIME: std::time::Duration = std::time::Duration::from_secs(10);

/// What the calls about runs share.
#[derive(Debug)]
pub(super) struct Runs {
    /// A message: there is no directory for them, and no runs.
    store: Result<(Store, Workspace), String>,
    templates: Templates,
    max_runs: usize,
    keep_runs: usize,
    /// Held while a call finds out whether there is a place for a run.
    turn: Mutex<()>,
    totals: StdMutex<Totals>,
}

impl Runs {
    /// # Errors
    /// A message about the file of templates.
    pub(super) fn open(flags: &Flags) -> Result<Self, String> {
        let templates = flags
            .run_templates
            .as_deref()
            .map(|file| templates::read("--run-templates", file));
        let store = Store::open().and_then(|store| {
            let uploads = Workspace::open_in(&store.uploads())?;
            Ok((store, uploads))
        });
        Ok(Self {
            store,
            templates: templates.transpose()?.unwrap_or_default(),
            max_runs: flags.max_runs,
            keep_runs: flags.keep_runs,
            turn: Mutex::new(()),
            totals: StdMutex::default(),
        })
    }

    fn store(&self) -> Result<&Store, ApiError> {
        Ok(&self.opened()?.0)
    }

    fn opened(&self) -> Result<&(Store, Workspace), ApiError> {
        self.store.as_ref().map_err(|message| {
            ApiError::failed(format!("the directory of runs cannot be used: {message}"))
                .with_hint("RUNNER_OPT_STATE_DIRECTORY names another state directory")
        })
    }

    /// A run has ended; `None`: nothing of it can be read.
    fn count(&self, known: Option<Known>) {
        let report = known.and_then(|known| known.report);
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add(report.as_ref());
    }

    /// For Prometheus.
    pub(super) fn metrics(&self) -> String {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = totals.render();
        let store = self.store.as_ref().ok();
        if let Some(live) = store.and_then(|(store, _)| store.live().ok()) {
            text += &gauge("runner_runs", "Runs in progress.", live);
        }
        text
    }
}

/// Does something with files.
async fn blocking<Done: Send + 'static>(
    task: impl FnOnce() -> std::io::Result<Done> + Send + 'static,
) -> Result<Done, ApiError> {
    let failed =
        |error: &dyn std::fmt::Display| ApiError::failed(format!("the files of a run: {error}"));
    match tokio::task::spawn_blocking(task).await {
        Ok(done) => done.map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

pub(super) fn routes() -> Vec<Route> {
    use Content::{Bytes, Events, JsonOrForm};
    let all = "/v1/runs";
    let one = "/v1/runs/{run}";
    vec![
        Route::new(Method::GET, all, "listRuns", "List the runs, the newest first.", list)
            .query(vec![text("state", "Only runs in this state.")])
            .answers(StatusCode::OK, document::<RunList>()),
        Route::new(
            Method::POST,
            all,
            "createRun",
            "Run a bundle; 200 if this request has started a run with the same `Idempotency-Key` before.",
            create,
        )
        .takes(JsonOrForm(schema::<CreateRun>))
        .answers(StatusCode::OK, document::<Run>())
        .answers(StatusCode::CREATED, document::<Run>()),
        Route::new(Method::GET, one, "getRun", "Describe a run.", get)
            .answers(StatusCode::OK, document::<Run>()),
        Route::new(
            Method::GET,
            "/v1/runs/{run}/events",
            "getRunEvents",
            "The events of a run, until it ends; 204 if there are no more.",
            run_events,
        )
        .query(vec![text(
            "after",
            "Only events with a larger number; the header Last-Event-ID counts before it.",
        )])
        .answers(StatusCode::OK, Events(schema::<RunEvent>))
        .answers(StatusCode::NO_CONTENT, Content::Nothing),
        Route::new(
            Method::GET,
            "/v1/runs/{run}/logs",
            "getRunLogs",
            "What the body wrote, and messages of `runner exec`: the first MiB of each stream.",
            logs,
        )
        .answers(StatusCode::OK, document::<Logs>()),
        Route::new(
            Method::POST,
            "/v1/runs/{run}/cancel",
            "cancelRun",
            "End a run: SIGTERM, and after its grace period SIGKILL; at once if it is cancelled again.",
            cancel,
        )
        .answers(StatusCode::ACCEPTED, document::<Run>()),
        Route::new(
            Method::GET,
            "/v1/runs/{run}/artifacts/{key}",
            "getArtifact",
            "An output file of a run that has ended.",
            artifact,
        )
        .answers(StatusCode::OK, Bytes),
    ]
}

/// The run that a path names, if the client may see it.
#[derive(Debug)]
struct AtRun {
    known: Known,
    key: Option<String>,
    query: Option<String>,
}

impl AtRun {
    /// # Errors
    /// 400: the query has parameters.
    fn without_query(self) -> Result<Self, ApiError> {
        Query::parse(self.query.as_deref(), &[])?;
        Ok(self)
    }
}

impl FromRequestParts<Shared> for AtRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Shared) -> Result<Self, ApiError> {
        let (access, mut names) = names_of_path(parts, server).await?;
        let id = names.remove("run").ok_or_else(malformed_path)?;
        let store = server.runs.store()?.clone();
        let known = blocking(move || store.find(access, &id)).await?;
        let known = known.ok_or_else(|| {
            ApiError::new(StatusCode::NOT_FOUND, "no_run", "there is no such run")
        })?;
        Ok(Self {
            known,
            key: names.remove("key"),
            query: parts.uri.query().map(str::to_owned),
        })
    }
}

async fn list(
    extract::State(server): extract::State<Shared>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.uri().query(), &["state"])?;
    let state: Option<State> = match query.text("state")? {
        None => None,
        Some(text) => Some(serde_json::from_value(text.into()).map_err(|_error| {
            let message = "`state` is pending, running, succeeded, failed, suspended or cancelled";
            ApiError::bad_request("query", message)
        })?),
    };
    let store = server.runs.store()?.clone();
    let known = blocking(move || store.list(access)).await?;
    let runs = known.into_iter().map(Known::document);
    let runs = runs.filter(|run| state.is_none_or(|state| run.state == state));
    let runs = runs.map(|run| Run {
        output: None,
        ..run
    });
    Ok(json(
        StatusCode::OK,
        &RunList {
            runs: runs.collect(),
        },
    ))
}

async fn create(
    extract::State(server): extract::State<Shared>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    Query::parse(request.uri().query(), &[])?;
    let key = idempotency_key(request.headers())?;
    let (store, uploads) = server.runs.opened()?;
    let first = start::find_by_key(store, access, key.as_deref()).await?;
    if first.is_none() {
        // Before the client sends its bundle, and again in turn.
        start::admit(&server, store).await?;
    }
    let directory = uploads.make().map_err(host_failed)?;
    let received = Received::receive(&server, access, directory, request).await?;
    let key = match key {
        Some(text) => Some(IdempotencyKey {
            text,
            request_digest: received.digest().await?.to_string(),
        }),
        None => None,
    };
    let starting = start::start(Arc::clone(&server), store.clone(), access, key, received);
    match finish_in_place(starting).await? {
        Started::Before(known) => Ok(json(StatusCode::OK, &known.document())),
        Started::New(known) => {
            let location = HeaderValue::try_from(format!("/v1/runs/{}", known.id));
            let mut response = json(StatusCode::CREATED, &known.document());
            if let Ok(location) = location {
                response.headers_mut().insert(header::LOCATION, location);
            }
            Ok(response)
        }
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().ok();
    let key = text.filter(|text| (1..=KEY_BYTES_MAX).contains(&text.len()));
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        ApiError::bad_request(
            "idempotency_key",
            "the header Idempotency-Key is 1 to 255 ASCII characters",
        )
    })
}

async fn get(at: AtRun) -> Result<Response, ApiError> {
    let known = at.without_query()?.known;
    Ok(json(StatusCode::OK, &known.document()))
}

async fn run_events(at: AtRun, headers: HeaderMap) -> Result<Response, ApiError> {
    let query = Query::parse(at.query.as_deref(), &["after"])?;
    let after = events::last_seen(&headers, &query)?;
    events::answer(at.known, after, &headers)
}

async fn logs(at: AtRun) -> Result<Response, ApiError> {
    let directory = at.without_query()?.known.directory;
    let read = |path: PathBuf| -> std::io::Result<Output> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(LOG_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        let is_cut = bytes.len() > LOG_BYTES;
        bytes.truncate(LOG_BYTES);
        Ok(output(bytes, is_cut))
    };
    let logs = blocking(move || {
        Ok(Logs {
            stdout: read(directory.stdout())?,
            stderr: read(directory.stderr())?,
        })
    });
    Ok(json(StatusCode::OK, &logs.await?))
}

async fn cancel(at: AtRun) -> Result<Response, ApiError> {
    let known = at.without_query()?.known;
    let until = Instant::now() + PENDING_TIME;
    let has_ended = || ApiError::new(StatusCode::CONFLICT, "run_ended", "the run has ended");
    while known.report.is_none() && known.directory.is_live().map_err(host_failed)? {
        if known.directory.has_begun().map_err(host_failed)? {
            if !signal(&known)? {
                return Err(has_ended());
            }
            return Ok(json(StatusCode::ACCEPTED, &known.document()));
        }
        if Instant::now() > until {
            let error = ApiError::new(StatusCode::CONFLICT, "run_pending", "the run is pending");
            return Err(error.retry_after_s(1));
        }
        sleep(start::LOOK).await;
    }
    Err(has_ended())
}

/// Sends SIGTERM to `runner exec`. Returns whether it lives.
fn signal(known: &Known) -> Result<bool, ApiError> {
    let pid = known.directory.pid().map_err(host_failed)?;
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(false);
    };
    let failed = |errno: rustix::io::Errno| ApiError::failed(format!("the signal: {errno}"));
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        opened => opened.map_err(failed)?,
    };
    // Another process may have the number by now. If it does not, the descriptor is of this one.
    let words = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    let events = known.directory.events();
    let events = [b"--events=", events.as_os_str().as_bytes()].concat();
    if !words.split(|byte| *byte == 0).any(|word| word == events) {
        return Ok(false);
    }
    match pidfd_send_signal(&process, Signal::TERM) {
        Err(rustix::io::Errno::SRCH) => Ok(false),
        sent => sent.map(|()| true).map_err(failed),
    }
}

async fn artifact(
    extract::State(server): extract::State<Shared>,
    at: AtRun,
) -> Result<Response, ApiError> {
    let AtRun { known, key, .. } = at.without_query()?;
    let key = key.unwrap_or_default();
    let missing = |message: &str| ApiError::new(StatusCode::NOT_FOUND, "no_artifact", message);
    let Some(report) = known.report else {
        return Err(missing("the run has no report yet, and no artifacts"));
    };
    // The key is a word of the report, and never a path.
    let mut outputs = report.outputs.into_iter();
    let found = outputs.find(|output| output.key == key && output.state == "synced");
    let Some(found) = found else {
        return Err(missing("the run has no such artifact"));
    };
    let directory = known.directory.artifacts();
    let (file, length) = blocking(move || {
        let file = open_beneath(&directory, &found.path)?;
        let metadata = file.metadata()?;
        match metadata.is_file() {
            true => Ok((file, metadata.len())),
            false => Err(std::io::Error::other("the artifact is not a file")),
        }
    })
    .await?;
    if length > server.max_file {
        let message = format!("the artifact has more than {} bytes", server.max_file);
        return Err(ApiError::too_large(message).with_hint("--max-file allows larger ones"));
    }
    let (sender, body) = channel();
    let mut response = Response::new(body);
    set_type(&mut response, "application/octet-stream");
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length.into());
    tokio::spawn(send(file.into(), length, sender));
    Ok(response)
}
