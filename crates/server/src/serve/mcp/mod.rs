//! `/mcp`: the tools of `runner mcp` by streamable HTTP, with one sandbox for each session.
//!
//! A session is made by `initialize`, and ends with its sandbox: by DELETE, when the sandbox is idle too
//! long or its time is over, and with this server.

mod sessions;

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use rmcp::ServerHandler;
use rmcp::model::{ProtocolVersion, ServerConfig};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::access::Access;
use super::body::{Held, parse, read_bytes};
use super::error::ApiError;
use super::routes::take_place;
use super::server::{finish_in_place, place};
use crate::mcp::{MESSAGE_BYTES_MAX, describe};
pub(super) use sessions::Mcp;

const PATH: &str = "/mcp";

/// Most streams without a call (GET) of all sessions: they leave connections for calls.
const STREAMS_MAX: usize = 128;

const SESSION_HEADER: &str = "mcp-session-id";

/// The newest version of the protocol that has sessions.
const NEWEST_WITH_SESSIONS: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// Those that clients may speak: later ones have no session that a sandbox could belong to.
fn versions() -> &'static [ProtocolVersion] {
    ProtocolVersion::known_up_to(&NEWEST_WITH_SESSIONS)
}

/// Answers what is asked outside of a session: which versions there are.
#[derive(Debug, Clone, Copy)]
struct WithoutSession;

impl ServerHandler for WithoutSession {
    fn get_info(&self) -> ServerConfig {
        describe()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(versions())
    }
}

pub(super) fn router(mcp: Arc<Mcp>) -> Router {
    Router::new()
        .route(PATH, get(listen).post(send).delete(end))
        .layer(from_fn_with_state(Arc::clone(&mcp), admit))
        .with_state(mcp)
}

/// Gives each message a place among the calls, and counts the answer.
async fn admit(State(mcp): State<Arc<Mcp>>, request: Request, next: Next) -> Response {
    let method = match *request.method() {
        Method::POST => "POST",
        Method::GET => "GET",
        Method::DELETE => "DELETE",
        _ => "other",
    };
    // A stream is no call, and has a limit of its own.
    let is_free = method == "GET";
    take_place(&mcp.server, (method, PATH), is_free, request, next).await
}

/// What decides whether a message begins a session.
#[derive(Debug, Deserialize)]
struct Peek {
    method: String,
}

fn is_initialize(message: &[u8]) -> bool {
    parse(message).is_ok_and(|peek: Peek| peek.method == "initialize")
}

/// A message of the client.
async fn send(
    State(mcp): State<Arc<Mcp>>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let message = read_bytes(body, MESSAGE_BYTES_MAX).await?;
    // The library keeps them with the call: a client that leaves does not give the place back before.
    parts.extensions.insert(place());
    let id = session_id(&parts.headers)?;
    let begins = id.is_none() && is_initialize(&message);
    let request = Request::from_parts(parts, Body::from(message));
    let response = match id {
        Some(id) => {
            let session = mcp.find(access, &id)?;
            session.calls.handle(request).await.map(Body::new)
        }
        // A client that leaves meanwhile leaves no sandbox without a session.
        None if begins => finish_in_place(mcp.open(access, request)).await?,
        None => without_session().handle(request).await.map(Body::new),
    };
    Ok(plain(response))
}

fn without_session() -> StreamableHttpService<WithoutSession, NeverSessionManager> {
    let sessions = Arc::new(NeverSessionManager::default());
    StreamableHttpService::new(|| Ok(WithoutSession), sessions, sessions::config())
}

/// A stream for messages that belong to no call, or the rest of one that was cut.
async fn listen(
    State(mcp): State<Arc<Mcp>>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = session_id(request.headers())?.ok_or_else(no_session_named)?;
    let session = mcp.find(access, &id)?;
    let streams: Arc<Semaphore> = Arc::clone(&mcp.streams);
    let Ok(place) = streams.try_acquire_owned() else {
        let message = format!("{STREAMS_MAX} streams are open, or the server is ending");
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message);
        return Err(error.retry_after_s(10));
    };
    let (parts, _body) = request.into_parts();
    let request = Request::from_parts(parts, Body::empty());
    let response = session.streams.handle(request).await;
    let response = response.map(|body| {
        Body::new(Held {
            body: Body::new(body),
            _place: Arc::new(place),
        })
    });
    Ok(plain(response))
}

/// Ends a session. Its sandbox is gone when this is answered.
async fn end(
    State(mcp): State<Arc<Mcp>>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = session_id(request.headers())?.ok_or_else(no_session_named)?;
    mcp.find(access, &id)?;
    let ended = async move {
        match mcp.end(&id).await {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(ApiError::failed(
                "the sandbox of the session was not removed",
            )),
        }
    };
    finish_in_place(ended).await
}

/// The session that a request names. `None`: none.
fn session_id(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut named = headers.get_all(SESSION_HEADER).iter();
    match (named.next().map(HeaderValue::to_str), named.next()) {
        (None, _) => Ok(None),
        (Some(Ok(id)), None) => Ok(Some(id.to_owned())),
        _ => Err(ApiError::bad_request(
            "session",
            "the header Mcp-Session-Id is not one id",
        )),
    }
}

fn no_session_named() -> ApiError {
    let message = "the header Mcp-Session-Id is missing";
    ApiError::bad_request("session", message)
}

/// No browser may take what a sandbox wrote for a page.
fn plain(mut response: Response) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_initialize_begins_a_session() {
        assert!(is_initialize(br#"{"id":1,"method":"initi\u0061lize"}"#));
        for other in [
            &br#"{"method":"ping"}"#[..],
            br#"{"method":"ping","method":"initialize"}"#,
            br#"[{"method":"initialize"}]"#,
            br#"{"params":{"method":"initialize"}}"#,
            b"initialize",
            b"",
        ] {
            assert!(!is_initialize(other));
        }
    }

    /// A sandbox belongs to a session.
    #[test]
    fn each_version_that_is_offered_begins_with_initialize() {
        assert!(versions().iter().all(ProtocolVersion::has_initialize));
        let known = ProtocolVersion::KNOWN_VERSIONS.iter();
        assert_eq!(
            known.filter(|version| version.has_initialize()).count(),
            versions().len()
        );
    }
}
