//! `--api e2b`: the API of E2B for its SDKs: the control plane, and the agent in a sandbox (`envd`).
//!
//! Both are on one port. The streams of commands are in memory, since `runner` does not keep them.

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

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};

use super::access::Token;
use super::error::ApiError;
use super::metrics::Refused;
use super::ports::{Target, parse_port, pass_on};
use super::routes::take_place;
use super::server::Shared;
use answers::{Problem, Unary};
use records::{Record, Records, now_unix_ms};
use spec::utc::text_of_milliseconds;
use watchers::Watchers;

/// The state of all handlers.
#[derive(Debug)]
struct Service {
    server: Shared,
    key: Arc<Token>,
    records: Records,
    /// When the server started, in the format of a command's `started_at`.
    started_at: String,
    watchers: Watchers,
}

/// Versions of the SDKs that the tests use, by registry.
pub(crate) const TESTED: [(&str, &str); 2] = [("PyPI", "2.63.0"), ("npm", "2.51.0")];

type Calls = Arc<Service>;

/// The port of `envd` in a sandbox, in every URL and header.
const ENVD_PORT: &str = "49983";

/// The version of `envd` that this is compatible with: uploads without multipart, no file metadata.
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
        .merge(
            envd_routes().route_layer(from_fn_with_state(Arc::clone(&calls), check_access_token)),
        )
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

/// Counts each call in `--max-calls` until its response is sent.
async fn admit(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let is_exempt = request.uri().path() == "/health" && port(request.headers()).is_none();
    take_place(&calls.server, ("any", "e2b"), is_exempt, request, next).await
}

/// The port of a server in a sandbox, if the request is for one.
fn port(headers: &HeaderMap) -> Option<&[u8]> {
    single_header(headers, "e2b-sandbox-port").filter(|port| *port != ENVD_PORT.as_bytes())
}

/// A request for another port than that of `envd` is for a server in the sandbox, whatever its path.
async fn serve_port(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let Some(port) = port(request.headers()) else {
        return next.run(request).await;
    };
    let port = std::str::from_utf8(port).unwrap_or_default();
    let target = match parse_port(port) {
        Ok(port) => Target::of_uri(port, request.uri()),
        Err(error) => return Problem::from(error).into_response(),
    };
    match find_record(&calls, request.headers()).await {
        Ok(record) => {
            let answer = pass_on(&calls.server, &record.name, target, request).await;
            answer.unwrap_or_else(|error| Problem::from(error).into_response())
        }
        Err(problem) => problem.into_response(),
    }
}

/// For the control plane: checks the API key.
async fn check_key(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    match single_header(request.headers(), "x-api-key") {
        Some(key) if calls.key.is(key) => next.run(request).await,
        _ => {
            calls.server.metrics.refused(Refused::Token);
            let message = "the header X-API-Key is missing or wrong: set E2B_API_KEY to the key";
            Problem::from(answers::unauthorized(message)).into_response()
        }
    }
}

/// For `envd`: finds the sandbox by its id, and checks the access token.
async fn check_access_token(
    State(calls): State<Calls>,
    mut request: Request,
    next: Next,
) -> Response {
    match find_record(&calls, request.headers()).await {
        Ok(record) => {
            request.extensions_mut().insert(record);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn find_record(calls: &Service, headers: &HeaderMap) -> Result<Arc<Record>, Problem> {
    let id = single_header(headers, "e2b-sandbox-id").and_then(|id| std::str::from_utf8(id).ok());
    let Some(id) = id else {
        return Err(ApiError::bad_request(
            "sandbox_id",
            "the header E2b-Sandbox-Id is missing: expected the id of a sandbox",
        )
        .with_hint("E2B_SANDBOX_URL makes the SDKs send it")
        .into());
    };
    // Before the search: without its token, nobody learns whether the sandbox exists.
    let token = calls.key.of_sandbox(id);
    if !single_header(headers, "x-access-token").is_some_and(|found| token.is(found)) {
        calls.server.metrics.refused(Refused::Token);
        return Err(answers::unauthorized(
            "the header X-Access-Token is missing or is not the token of the sandbox",
        )
        .into());
    }
    if let Some(record) = calls.records.get(id) {
        return Ok(record);
    }
    // The sandbox may be older than this server.
    let live = calls.find_live(id).await;
    live.map(|live| live.record)
        .map_err(Problem::or_not_running)
}

/// The value of a header that occurs once.
fn single_header<'headers>(headers: &'headers HeaderMap, name: &str) -> Option<&'headers [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}
