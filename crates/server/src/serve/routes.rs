//! The routes: one table, of which the router and the OpenAPI document are made.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::body::{Held, json, set_type};
use super::error::ApiError;
use super::metrics::Refused;
use super::parameters::{MODE, Parameter, path_parameter, switch, text};
use super::server::{PLACE, Server, Shared};
use super::types::{
    Command, CommandList, CreateSandbox, FileEntry, FileList, FinishedCommand, Health, Logs,
    Sandbox, SandboxList, SetTimeout, SignalCommand, StartCommand, StartedCommand, StreamEvent,
};
use super::{commands, file_programs, files, openapi, ports, runs, sandboxes, terminals, watching};

/// The content of a request or an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Nothing,
    /// Whatever a server in a sandbox says.
    Any,
    Json(fn(&mut SchemaGenerator) -> Schema),
    Bytes,
    Tar,
    Text,
    /// Events of a type, as lines of JSON or as server-sent events.
    Events(fn(&mut SchemaGenerator) -> Schema),
    /// A document, or a form whose part `run` is that document.
    JsonOrForm(fn(&mut SchemaGenerator) -> Schema),
}

/// A call: what the document says of it, and what answers it.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: Vec<Parameter>,
    pub(super) request: Content,
    /// Statuses of success, and what they have.
    pub(super) answers: Vec<(StatusCode, Content)>,
    handler: MethodRouter<Shared>,
}

pub(super) fn schema<Document: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Document>()
}

pub(super) fn document<Document: JsonSchema>() -> Content {
    Content::Json(schema::<Document>)
}

impl Route {
    pub(super) fn new<Call, Arguments>(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        call: Call,
    ) -> Self
    where
        Call: Handler<Arguments, Shared>,
        Arguments: 'static,
    {
        let filter = match method {
            Method::POST => MethodFilter::POST,
            Method::PUT => MethodFilter::PUT,
            Method::PATCH => MethodFilter::PATCH,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        Self {
            method,
            path,
            id,
            summary,
            query: Vec::new(),
            request: Content::Nothing,
            answers: Vec::new(),
            handler: on(filter, call),
        }
    }

    pub(super) fn query(self, query: Vec<Parameter>) -> Self {
        Self { query, ..self }
    }

    pub(super) fn takes(self, request: Content) -> Self {
        Self { request, ..self }
    }

    pub(super) fn answers(mut self, status: StatusCode, content: Content) -> Self {
        self.answers.push((status, content));
        self
    }
}

const SANDBOX: &str = "/v1/sandboxes/{name}";
const COMMANDS: &str = "/v1/sandboxes/{name}/commands";
const FILES: &str = "/v1/sandboxes/{name}/files";
pub(super) const PATH: Parameter = path_parameter("path");

/// All routes.
pub(super) fn routes() -> Vec<Route> {
    let mut routes = server_routes();
    routes.extend(sandbox_routes());
    routes.extend(snapshot_routes());
    routes.extend(command_routes());
    routes.extend(terminals::routes());
    routes.extend(file_routes());
    routes.extend(runs::routes());
    routes.extend(watching::routes());
    routes.extend(ports::routes());
    routes
}

fn server_routes() -> Vec<Route> {
    use Content::{Json, Text};
    vec![
        Route::new(
            Method::GET,
            "/health",
            "health",
            "Whether the server answers; needs no token.",
            health,
        )
        .answers(StatusCode::OK, document::<Health>()),
        Route::new(
            Method::GET,
            "/metrics",
            "metrics",
            "Counters for Prometheus.",
            metrics,
        )
        .answers(StatusCode::OK, Text),
        Route::new(
            Method::GET,
            "/openapi.json",
            "openapi",
            "This document.",
            openapi_document,
        )
        .answers(StatusCode::OK, Json(|_generator| Schema::default())),
    ]
}

fn sandbox_routes() -> Vec<Route> {
    use Content::Nothing;
    let all = "/v1/sandboxes";
    vec![
        Route::new(
            Method::GET,
            all,
            "listSandboxes",
            "List the sandboxes.",
            sandboxes::list,
        )
        .answers(StatusCode::OK, document::<SandboxList>()),
        Route::new(
            Method::POST,
            all,
            "createSandbox",
            "Create a sandbox.",
            sandboxes::create,
        )
        .takes(document::<CreateSandbox>())
        .answers(StatusCode::CREATED, document::<Sandbox>()),
        Route::new(
            Method::GET,
            SANDBOX,
            "getSandbox",
            "Describe a sandbox and its commands.",
            sandboxes::get,
        )
        .answers(StatusCode::OK, document::<Sandbox>()),
        Route::new(
            Method::DELETE,
            SANDBOX,
            "deleteSandbox",
            "End a sandbox and delete its files.",
            sandboxes::delete,
        )
        .query(vec![switch(
            "force",
            "`true`: also while commands run, which are killed.",
        )])
        .answers(StatusCode::NO_CONTENT, Nothing),
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/pause",
            "pauseSandbox",
            "Freeze all processes.",
            sandboxes::pause,
        )
        .answers(StatusCode::NO_CONTENT, Nothing),
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/resume",
            "resumeSandbox",
            "Let all processes go on.",
            sandboxes::resume,
        )
        .answers(StatusCode::NO_CONTENT, Nothing),
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/timeout",
            "setTimeout",
            "Change when a sandbox ends.",
            sandboxes::set_timeout,
        )
        .takes(document::<SetTimeout>())
        .answers(StatusCode::NO_CONTENT, Nothing),
    ]
}

fn snapshot_routes() -> Vec<Route> {
    use Content::Bytes;
    vec![
        Route::new(
            Method::GET,
            "/v1/sandboxes/{name}/snapshot",
            "getSnapshot",
            "The files that belong to the sandbox alone, as a tar; it is paused meanwhile.",
            files::snapshot,
        )
        .answers(StatusCode::OK, Content::Tar),
        Route::new(
            Method::POST,
            "/v1/restore",
            "restoreSandbox",
            "Create a sandbox with the files of a snapshot.",
            sandboxes::restore,
        )
        .query(vec![
            text("name", "Its name; by default one that is not in use."),
            text("template", "The name of a template. Needed over TCP."),
        ])
        .takes(Bytes)
        .answers(StatusCode::CREATED, document::<Sandbox>()),
    ]
}

fn command_routes() -> Vec<Route> {
    use Content::{Events, Nothing};
    let one = "/v1/sandboxes/{name}/commands/{id}";
    vec![
        Route::new(Method::GET, COMMANDS, "listCommands", "List the commands of a sandbox.", commands::list)
            .answers(StatusCode::OK, document::<CommandList>()),
        Route::new(
            Method::POST,
            COMMANDS,
            "startCommand",
            "Run a command: its result, its output as events (`Accept`), or in the background its id (201).",
            commands::start,
        )
        .takes(document::<StartCommand>())
        .answers(StatusCode::OK, document::<FinishedCommand>())
        .answers(StatusCode::OK, Events(schema::<StreamEvent>))
        .answers(StatusCode::CREATED, document::<StartedCommand>()),
        Route::new(Method::GET, one, "getCommand", "Describe a command.", commands::get)
            .answers(StatusCode::OK, document::<Command>()),
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/commands/{id}/kill",
            "killCommand",
            "Send a signal to a command.",
            commands::kill,
        )
        .takes(document::<SignalCommand>())
        .answers(StatusCode::NO_CONTENT, Nothing),
        Route::new(
            Method::GET,
            "/v1/sandboxes/{name}/commands/{id}/logs",
            "getLogs",
            "The output of a command in the background; with `follow` as events until it ends.",
            commands::logs,
        )
        .query(vec![switch("follow", "`true`: go on until the command ends.")])
        .answers(StatusCode::OK, document::<Logs>())
        .answers(StatusCode::OK, Events(schema::<StreamEvent>)),
    ]
}

fn file_routes() -> Vec<Route> {
    use Content::{Bytes, Nothing};
    vec![
        Route::new(Method::GET, FILES, "readFile", "Read a file.", files::read)
            .query(vec![PATH])
            .answers(StatusCode::OK, Bytes),
        Route::new(
            Method::PUT,
            FILES,
            "writeFile",
            "Write a file, and create its directory if only that is missing.",
            files::write,
        )
        .query(vec![PATH, MODE])
        .takes(Bytes)
        .answers(StatusCode::NO_CONTENT, Nothing),
        Route::new(
            Method::DELETE,
            FILES,
            "deleteFile",
            "Remove a file or an empty directory.",
            file_programs::delete,
        )
        .query(vec![
            PATH,
            switch("recursive", "`true`: with all that is in it."),
        ])
        .answers(StatusCode::NO_CONTENT, Nothing),
        Route::new(
            Method::GET,
            "/v1/sandboxes/{name}/files/list",
            "listFiles",
            "List a directory.",
            file_programs::list,
        )
        .query(vec![PATH])
        .answers(StatusCode::OK, document::<FileList>()),
        Route::new(
            Method::GET,
            "/v1/sandboxes/{name}/files/stat",
            "statFile",
            "Describe a file, a directory or a link.",
            file_programs::stat,
        )
        .query(vec![PATH])
        .answers(StatusCode::OK, document::<FileEntry>()),
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/files/move",
            "moveFile",
            "Rename a file or a directory; a file at the new path is replaced.",
            file_programs::rename,
        )
        .query(vec![path_parameter("from"), path_parameter("to")])
        .answers(StatusCode::NO_CONTENT, Nothing),
    ]
}

pub(super) fn router(server: Shared) -> Router {
    let router = routes().into_iter().fold(Router::new(), |router, route| {
        router.route(route.path, route.handler)
    });
    router
        .fallback(async || {
            ApiError::new(
                StatusCode::NOT_FOUND,
                "no_route",
                "the API has no such path",
            )
            .with_hint("GET /openapi.json lists them")
        })
        .method_not_allowed_fallback(async || {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "the path has no such method",
            )
            .with_hint("GET /openapi.json lists them")
        })
        .layer(from_fn_with_state(Arc::clone(&server), admit))
        .with_state(server)
}

/// Gives each call a place until its answer has been sent, and counts the answer.
async fn admit(State(server): State<Shared>, request: Request, next: Next) -> Response {
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    // The names of the table: a request cannot add one.
    let route = routes_by_name(request.method(), path.as_deref());
    let is_free = path.as_deref().is_none_or(|path| !path.starts_with("/v1/"));
    take_place(&server, route, is_free, request, next).await
}

/// Answers a request in its place, or refuses it if there is none. `route` is what it is counted as.
pub(super) async fn take_place(
    server: &Server,
    route: (&'static str, &'static str),
    is_free: bool,
    request: Request,
    next: Next,
) -> Response {
    if is_free {
        let response = next.run(request).await;
        server
            .metrics
            .answered(route.0, route.1, response.status().as_u16());
        return response;
    }
    let Ok(place) = Arc::clone(&server.calls).try_acquire_owned() else {
        server.metrics.refused(Refused::Busy);
        let message = format!(
            "{} calls are in progress, which --max-calls allows",
            server.max_calls
        );
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_calls", message);
        return error.retry_after_s(1).into_response();
    };
    let place = Arc::new(place);
    let response = PLACE.scope(Arc::clone(&place), next.run(request)).await;
    server
        .metrics
        .answered(route.0, route.1, response.status().as_u16());
    response.map(|body| {
        Body::new(Held {
            body,
            _place: place,
        })
    })
}

fn routes_by_name(method: &Method, path: Option<&str>) -> (&'static str, &'static str) {
    static NAMES: std::sync::LazyLock<Vec<(String, &'static str)>> =
        std::sync::LazyLock::new(|| {
            routes()
                .into_iter()
                .map(|route| (route.method.to_string(), route.path))
                .collect()
        });
    let found = NAMES
        .iter()
        .find(|(name, other)| method.as_str() == name && Some(*other) == path);
    found.map_or(("other", "other"), |(name, path)| (name.as_str(), path))
}

async fn health() -> Response {
    json(
        StatusCode::OK,
        &Health {
            version: env!("CARGO_PKG_VERSION"),
        },
    )
}

async fn metrics(State(server): State<Shared>) -> Response {
    let list = server.verbs.list().await;
    let calls = server.max_calls - server.calls.available_permits();
    let mut text = server.metrics.render(calls, list.ok().as_ref());
    text += &server.runs.metrics();
    let mut response = text.into_response();
    set_type(&mut response, "text/plain; version=0.0.4");
    response
}

async fn openapi_document() -> Response {
    json(StatusCode::OK, &openapi::document(&routes()))
}
