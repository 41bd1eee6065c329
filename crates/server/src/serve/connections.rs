//! Accepts connections, with limits for clients that are many, slow or strangers.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hyper::Request;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use companion::complain;

use super::access::{Access, Token, check_host, check_origin, check_peer, check_token};
use super::body::{DOCUMENT_BYTES_MAX, STALL};
use super::error::ApiError;
use super::listeners::Listeners;
use super::metrics::Refused;
use super::server::Shared;
use super::unread::{Drained, Limits, ReportedBody, Unread};
use super::write_timeout::WriteTimeout;

/// Most connections of each socket; more wait.
const CONNECTIONS_MAX: usize = 256;

/// A client that sends the head of a request slower, or keeps a connection without one, is closed.
const HEAD_TIME: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 32 << 10;

/// How long the rest of a request that was answered before it was read is dropped.
const UNREAD_TIME: Duration = Duration::from_secs(10);

/// How long to wait when the process or the host has no descriptors left.
const NO_DESCRIPTORS: Duration = Duration::from_millis(100);

/// What each connection needs.
#[derive(Debug, Clone)]
pub(super) struct Front {
    pub(super) router: Router,
    /// What answers on the loopback interface instead, and checks who asks.
    pub(super) tcp_router: Option<Router>,
    pub(super) token: Option<Arc<Token>>,
    pub(super) server: Shared,
}

/// Where a connection comes from.
#[derive(Debug, Clone)]
enum Entrance {
    Unix,
    /// Without a token: the router checks who asks.
    Tcp {
        token: Option<Arc<Token>>,
        port: u16,
    },
}

/// Serves until `stopped` becomes true, and then until the connections have ended.
pub(super) async fn serve(listeners: Listeners, front: Front, stopped: watch::Receiver<bool>) {
    let mut loops = JoinSet::new();
    let Listeners { unix, tcp, own } = listeners;
    loops.spawn(serve_unix(unix, front.clone(), stopped.clone()));
    if let (Some(tcp), Some(token)) = (tcp, front.token.clone()) {
        loops.spawn(serve_tcp(tcp, token, front, stopped));
    }
    while loops.join_next().await.is_some() {}
    drop(own);
}

async fn serve_unix(listener: UnixListener, front: Front, stopped: watch::Receiver<bool>) {
    let accept = async || {
        let (stream, _address) = listener.accept().await?;
        let peer = stream.peer_cred()?;
        Ok(match check_peer(peer) {
            Ok(()) => Some((stream, Entrance::Unix)),
            Err(stranger) => {
                if front.server.metrics.refused(Refused::Peer) {
                    let message = format!("warning: refused {stranger}");
                    complain(&message, Some("/metrics counts further ones"));
                }
                None
            }
        })
    };
    accept_all(accept, &front, stopped).await;
}

async fn serve_tcp(
    listener: TcpListener,
    token: Arc<Token>,
    front: Front,
    stopped: watch::Receiver<bool>,
) {
    let token = front.tcp_router.is_none().then_some(token);
    let accept = async || {
        let (stream, _address) = listener.accept().await?;
        let stream = without_delay(stream)?;
        let port = stream.local_addr()?.port();
        let token = token.clone();
        Ok(Some((stream, Entrance::Tcp { token, port })))
    };
    accept_all(accept, &front, stopped).await;
}

/// Sends each piece at once: one that follows another would wait for its acknowledgement, which takes 40 ms.
///
/// # Errors
/// Those of setsockopt(2).
pub(super) fn without_delay(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Accepts until the server stops. `accept` returns `None` for a client that is not served.
async fn accept_all<Stream, Accepting>(
    accept: impl Fn() -> Accepting,
    front: &Front,
    mut stopped: watch::Receiver<bool>,
) where
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Accepting: Future<Output = std::io::Result<Option<(Stream, Entrance)>>>,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let stops = stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = next(&places, &accept) => accepted,
            () = until(&mut stopped) => break,
            Some(_ended) = connections.join_next() => continue,
        };
        match accepted {
            Ok(Some((stream, entrance, place))) => {
                let connection = attend(stream, entrance, front.clone(), stops.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Ok(None) => (),
            Err(error) => {
                let message = format!("warning: a connection was not accepted: {error}");
                complain(&message, None);
                tokio::time::sleep(NO_DESCRIPTORS).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Waits until the server stops.
async fn until(stopped: &mut watch::Receiver<bool>) {
    // An error: the sender has gone, and with it the server.
    let _stopped = stopped.wait_for(|stopped| *stopped).await.map(drop);
}

/// The next connection, once there is a place for it.
async fn next<Stream, Accepting>(
    places: &Arc<Semaphore>,
    accept: &impl Fn() -> Accepting,
) -> std::io::Result<Option<(Stream, Entrance, OwnedSemaphorePermit)>>
where
    Accepting: Future<Output = std::io::Result<Option<(Stream, Entrance)>>>,
{
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let accepted = accept().await?;
    Ok(accepted.map(|(stream, entrance)| (stream, entrance, place)))
}

async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    entrance: Entrance,
    front: Front,
    mut stopped: watch::Receiver<bool>,
) {
    let limits = Limits {
        time: UNREAD_TIME,
        // What would have been read of a request that was not refused.
        bytes: front.server.max_file.max(DOCUMENT_BYTES_MAX as u64),
    };
    let unread = Unread::default();
    let stream = WriteTimeout::new(stream, STALL);
    let stream = Drained::new(stream, unread.clone(), limits);
    let service = service_fn(move |request| {
        let (entrance, front) = (entrance.clone(), front.clone());
        let answer = move |request| answer(request, entrance, front);
        unread.clone().watch(request, answer)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    // An error is that of a client that has gone or speaks no HTTP: nobody is left to tell.
    tokio::select! {
        _ended = connection.as_mut() => (),
        () = until(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            let _ended = connection.await;
        }
    }
}

async fn answer(
    mut request: Request<ReportedBody>,
    entrance: Entrance,
    front: Front,
) -> Result<Response, Infallible> {
    let access = match enter(&request, &entrance) {
        Ok(access) => access,
        Err(error) => {
            let why = match error.status {
                StatusCode::UNAUTHORIZED => Refused::Token,
                _ => Refused::Page,
            };
            front.server.metrics.refused(why);
            return Ok(error.into_response());
        }
    };
    request.extensions_mut().insert(access);
    let router = match (entrance, front.tcp_router) {
        (Entrance::Tcp { .. }, Some(router)) => router,
        _ => front.router,
    };
    TowerToHyperService::new(router).call(request).await
}

/// What the client of a request may do.
fn enter<Body>(request: &Request<Body>, entrance: &Entrance) -> Result<Access, ApiError> {
    let headers = request.headers();
    match entrance {
        Entrance::Unix => {
            check_origin(headers, None)?;
            Ok(Access::Owner)
        }
        Entrance::Tcp { token, port } => {
            check_origin(headers, Some(*port))?;
            check_host(request.uri(), headers, *port)?;
            if let Some(token) = token
                && request.uri().path() != "/health"
            {
                check_token(headers, token)?;
            }
            Ok(Access::Templates)
        }
    }
}
