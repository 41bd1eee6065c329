//! `--api e2b`: what the SDKs of E2B ask their service and the agent in a sandbox (`envd`) for.
//!
//! Both parts are on one port. What the SDKs need and the verbs of `runner` do not keep is in memory: the
//! streams of commands.

mod answers;
mod control;
mod files;
mod frames;
mod lost;
mod multipart;
mod processes;
mod records;
mod start;
mod watchers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use tokio::time::timeout;

use super::access::Token;
use super::body::Pieces;
use super::error::ApiError;
use super::metrics::Refused;
use super::ports::{Target, parse_port, pass_on};
use super::routes::take_place;
use super::server::Shared;
use answers::{Problem, Unary};
use records::{Record, Records, now_unix_ms};
use spec::utc::text_of_milliseconds;
use watchers::Watchers;

/// What all calls share.
#[derive(Debug)]
struct Service {
    server: Shared,
    key: Arc<Token>,
    records: Records,
    /// As the sandboxes write the start of a command.
    started_at: String,
    watchers: Watchers,
}

/// The versions of the SDKs that the tests use, by their registries.
pub(crate) const TESTED: [(&str, &str); 2] = [("PyPI", "2.63.0"), ("npm", "2.51.0")];

type Calls = Arc<Service>;

/// The port of `envd` in a sandbox, which is in every URL and header.
const ENVD_PORT: &str = "49983";

const DRAINED_BYTES_MAX: u64 = 64 << 10;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The version of `envd` whose calls these are: uploads without multipart, no metadata of files yet.
const ENVD_VERSION: &str = "0.5.7";

pub(super) fn router(server: Shared, key: Arc<Token>) -> Router {
    let calls = Arc::new(Service {
        server,
        key,
        records: Records::default(),
        started_at: text_of_milliseconds(now_unix_ms()),
        watchers: Watchers::default(),
    });
    control_routes()
        .route_layer(from_fn_with_state(Arc::clone(&calls), check_key))
        .merge(envd_routes().route_layer(from_fn_with_state(Arc::clone(&calls), find_record)))
        .route("/health", get(control::health))
        .fallback(async || Problem::from(no_route()))
        .method_not_allowed_fallback(async || Problem::from(no_route()))
        .layer(from_fn_with_state(Arc::clone(&calls), serve_port))
        .layer(from_fn_with_state(Arc::clone(&calls), admit))
        .with_state(calls)
}

fn control_routes() -> Router<Calls> {
    Router::new()
        .route(
            "/sandboxes",
            post(control::create).get(control::list_running),
        )
        .route("/v2/sandboxes", post(control::create).get(control::list))
        .route(
            "/sandboxes/{id}",
            get(control::get).merge(delete(control::kill)),
        )
        .route("/sandboxes/{id}/timeout", post(control::set_timeout))
        .route("/sandboxes/{id}/pause", post(control::pause))
        .route("/sandboxes/{id}/connect", post(control::connect))
        .route("/v2/sandboxes/{id}/connect", post(control::connect))
}

fn envd_routes() -> Router<Calls> {
    Router::new()
        .route("/files", get(files::read).merge(post(files::write)))
        .route("/filesystem.Filesystem/Stat", post(files::stat))
        .route("/filesystem.Filesystem/ListDir", post(files::list))
        .route(
            "/filesystem.Filesystem/MakeDir",
            post(files::make_directory),
        )
        .route("/filesystem.Filesystem/Move", post(files::rename))
        .route("/filesystem.Filesystem/Remove", post(files::remove))
        .route("/filesystem.Filesystem/WatchDir", post(watchers::watch))
        .route(
            "/filesystem.Filesystem/CreateWatcher",
            post(watchers::create),
        )
        .route(
            "/filesystem.Filesystem/GetWatcherEvents",
            post(watchers::events),
        )
        .route(
            "/filesystem.Filesystem/RemoveWatcher",
            post(watchers::remove),
        )
        .route("/process.Process/Start", post(start::start))
        .route("/process.Process/Connect", post(start::connect))
        .route("/process.Process/List", post(processes::list))
        .route("/process.Process/SendInput", post(processes::send_input))
        .route("/process.Process/Update", post(processes::update))
        .route("/process.Process/CloseStdin", post(processes::close_stdin))
        .route("/process.Process/SendSignal", post(processes::send_signal))
        .route("/process.Process/{other}", post(unsupported))
        .route("/filesystem.Filesystem/{other}", post(unsupported))
}

fn no_route() -> ApiError {
    answers::unsupported("this call of the API of E2B is not supported")
}

async fn unsupported() -> Unary {
    Unary::from(answers::unsupported("this call is not supported"))
}

/// Gives each call a place until its answer has been sent.
async fn admit(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let is_free = request.uri().path() == "/health" && port(request.headers()).is_none();
    take_place(&calls.server, ("any", "e2b"), is_free, request, next).await
}

/// The port of a server in a sandbox, if the request is for one.
fn port(headers: &HeaderMap) -> Option<&[u8]> {
    one(headers, "e2b-sandbox-port").filter(|port| *port != ENVD_PORT.as_bytes())
}

/// A request for another port than that of `envd` is for a server in the sandbox, whatever its path.
async fn serve_port(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let Some(port) = port(request.headers()) else {
        return next.run(request).await;
    };
    let port = std::str::from_utf8(port).unwrap_or_default();
    let target = match parse_port(port) {
        Ok(port) => Target::of_uri(port, request.uri()),
        Err(error) => return refuse(request, error.into()).await,
    };
    match record(&calls, request.headers()).await {
        Ok(record) => {
            let answer = pass_on(&calls.server, &record.name, target, request).await;
            answer.unwrap_or_else(|error| Problem::from(error).into_response())
        }
        Err(problem) => refuse(request, problem).await,
    }
}

/// Of the service: the header that has the API key.
async fn check_key(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    match one(request.headers(), "x-api-key") {
        Some(key) if calls.key.is(key) => next.run(request).await,
        _ => {
            calls.server.metrics.refused(Refused::Token);
            let message = "the header X-API-Key has not the key of --token-file: E2B_API_KEY names it for the SDKs";
            refuse(request, answers::unauthorized(message).into()).await
        }
    }
}

/// Of a sandbox: the headers that name it, and have its access token.
async fn find_record(State(calls): State<Calls>, mut request: Request, next: Next) -> Response {
    match record(&calls, request.headers()).await {
        Ok(record) => {
            request.extensions_mut().insert(record);
            next.run(request).await
        }
        Err(problem) => refuse(request, problem).await,
    }
}

/// Reads a short body first: a connection with one that was not read is closed, and the SDKs would use
/// it for their next call.
async fn refuse(request: Request, problem: Problem) -> Response {
    let drain = async {
        let mut pieces = Pieces::new(request.into_body(), DRAINED_BYTES_MAX)?;
        while pieces.next().await?.is_some() {}
        Ok::<_, ApiError>(())
    };
    let is_drained = matches!(timeout(DRAIN_TIME, drain).await, Ok(Ok(())));
    let response = problem.into_response();
    if is_drained {
        response
    } else {
        answers::closing(response)
    }
}

async fn record(calls: &Service, headers: &HeaderMap) -> Result<Arc<Record>, Problem> {
    let id = one(headers, "e2b-sandbox-id").and_then(|id| std::str::from_utf8(id).ok());
    let Some(id) = id else {
        return Err(ApiError::bad_request(
            "sandbox_id",
            "the header E2b-Sandbox-Id is missing: expected the id of a sandbox",
        )
        .with_hint("E2B_SANDBOX_URL makes the SDKs send it")
        .into());
    };
    // First: who has no token of it is not told whether there is such a sandbox.
    let token = calls.key.of_sandbox(id);
    if !one(headers, "x-access-token").is_some_and(|found| token.is(found)) {
        calls.server.metrics.refused(Refused::Token);
        return Err(answers::unauthorized(
            "the header X-Access-Token has not the token that the sandbox was created with",
        )
        .into());
    }
    if let Some(record) = calls.records.get(id) {
        return Ok(record);
    }
    // It may be from before this server was started.
    let living = calls.living(id).await;
    living
        .map(|living| living.record)
        .map_err(Problem::or_not_running)
}

/// The value of a header that is there once.
fn one<'headers>(headers: &'headers HeaderMap, name: &str) -> Option<&'headers [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}
