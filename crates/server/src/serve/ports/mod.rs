//! `/v1/sandboxes/{name}/ports/{port}/`: a proxy to a server in a sandbox.

mod headers;

use std::fmt::Display;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::Response;
use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, copy, split};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::body::{ClientGone, Pieces, STALL, channel};
use super::connections::without_delay;
use super::error::ApiError;
use super::routes::{Content, Route};
use super::server::{InSandbox, Server, Shared, place};
use super::verbs::{Verbs, words};
use super::write_timeout::WriteTimeout;
use spec::path::escape;
use spec::sandboxes::SandboxName;
use sys::link;

/// How long a server may take for the head of its answer, once it has the request.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Most bytes of the head of an answer. hyper takes at most 100 lines.
const HEAD_BYTES_MAX: usize = 32 << 10;

const ROOT: &str = "/v1/sandboxes/{name}/ports/{port}/";
const BELOW: &str = "/v1/sandboxes/{name}/ports/{port}/{*path}";

pub(super) fn routes() -> Vec<Route> {
    let methods = [
        (Method::GET, ["getPort", "getPortPath"]),
        (Method::PUT, ["putPort", "putPortPath"]),
        (Method::POST, ["postPort", "postPortPath"]),
        (Method::PATCH, ["patchPort", "patchPortPath"]),
        (Method::DELETE, ["deletePort", "deletePortPath"]),
    ];
    let summary = "The answer of a server in the sandbox to this request, of any status.";
    let both = methods.into_iter().flat_map(|(method, ids)| {
        let paths = [ROOT, BELOW].into_iter().zip(ids);
        paths.map(move |(path, id)| Route::new(method.clone(), path, id, summary, proxy))
    });
    both.map(|route| route.answers(StatusCode::OK, Content::Any))
        .collect()
}

/// A request for a server in a sandbox.
#[derive(Debug)]
pub(super) struct Target {
    port: u16,
    /// Path and query for the server.
    path: String,
    /// The path of the port in this API.
    prefix: String,
}

impl Target {
    /// All of the path is for the server.
    pub(super) fn of_uri(port: u16, uri: &Uri) -> Self {
        let query = uri.query().map(|query| format!("?{query}"));
        Self {
            port,
            path: format!("{}{}", uri.path(), query.unwrap_or_default()),
            prefix: String::new(),
        }
    }

    fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let path = uri.path();
        let mut slashes = path.match_indices('/');
        let end = slashes.nth(5).map_or(path.len(), |(at, _)| at);
        let prefix = &path[..end];
        let port = parse_port(prefix.rsplit('/').next().unwrap_or_default())?;
        let whole = Self::of_uri(port, uri);
        Ok(Self {
            path: whole.path[end..].to_owned(),
            prefix: prefix.to_owned(),
            ..whole
        })
    }
}

/// # Errors
/// 400.
pub(super) fn parse_port(text: &str) -> Result<u16, ApiError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = text.parse().ok().filter(|_| is_plain);
    port.ok_or_else(|| ApiError::bad_request("port", "a port is a number from 1 to 65535"))
}

async fn proxy(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let target = Target::parse(request.uri())?;
    pass_on(&server, &at.name, target, request).await
}

/// Passes a request to a server in a sandbox. Returns its answer.
///
/// # Errors
/// There is no such sandbox or server, or it does not speak HTTP.
pub(super) async fn pass_on(
    server: &Server,
    name: &SandboxName,
    target: Target,
    mut request: Request,
) -> Result<Response, ApiError> {
    let (stream, held) = connect(server, name, target.port).await?;
    let held = Arc::new(held);
    let wanted = headers::upgrade(request.method(), request.headers());
    let wanted = wanted.filter(|_| request.body().is_end_stream());
    let of_client = hyper::upgrade::on(&mut request);
    let (request, sent) = for_server(request, &target, wanted.as_ref())?;
    let mut answer = send(stream, Arc::clone(&held), request, sent).await?;
    headers::check_length(answer.headers()).map_err(bad_gateway)?;
    let switched = answer.headers_mut().remove(header::UPGRADE);
    headers::of_answer(answer.headers_mut(), target.port, &target.prefix);
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(_wanted), Some(switched)) = (wanted, switched) else {
            return Err(bad_gateway(
                "it changes to a protocol that was not asked for",
            ));
        };
        let upgrade = HeaderValue::from_static("upgrade");
        answer.headers_mut().insert(header::UPGRADE, switched);
        answer.headers_mut().insert(header::CONNECTION, upgrade);
        let of_server = hyper::upgrade::on(&mut answer);
        let holding = (held, place());
        tokio::spawn(async move {
            copy_both(of_client, of_server).await;
            drop(holding);
        });
    }
    Ok(answer.map(Body::new))
}

/// Sends the request over `stream`, and returns the answer. `held` is dropped when the connection ends, `sent`
/// resolves when the body of the request has.
///
/// # Errors
/// The server does not speak HTTP, or does not answer in time.
async fn send(
    stream: TcpStream,
    held: Arc<OwnedFd>,
    request: Request,
    sent: oneshot::Receiver<()>,
) -> Result<hyper::Response<hyper::body::Incoming>, ApiError> {
    let stream = TokioIo::new(WriteTimeout::new(stream, STALL));
    let made = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(stream)
        .await;
    let (mut sender, connection) = made.map_err(bad_gateway)?;
    tokio::spawn(async move {
        // Its error is that of the answer or of its body.
        let _ended = connection.with_upgrades().await;
        drop(held);
    });
    answer_within(ANSWER_TIME, sender.send_request(request), sent).await
}

/// Waits for the head of an answer, for this time from the end of the request on.
///
/// # Errors
/// 502, 504.
async fn answer_within<Answer, Error: Display>(
    time: Duration,
    answering: impl Future<Output = Result<Answer, Error>>,
    sent: oneshot::Receiver<()>,
) -> Result<Answer, ApiError> {
    let late = async {
        // The sender is dropped at the end of the request.
        let _ended = sent.await;
        tokio::time::sleep(time).await;
    };
    tokio::select! {
        answer = answering => answer.map_err(bad_gateway),
        () = late => {
            let seconds = time.as_secs();
            let message = format!("the server in the sandbox gave no answer in {seconds} s");
            Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "gateway_timeout", message))
        }
    }
}

/// The request for the server, and what ends when its body does.
///
/// # Errors
/// The path is not one of HTTP.
fn for_server(
    request: Request,
    target: &Target,
    upgrade: Option<&HeaderValue>,
) -> Result<(Request, oneshot::Receiver<()>), ApiError> {
    let (mut parts, body) = request.into_parts();
    let no_path = |_error| ApiError::bad_request("path", "the path is not one of HTTP");
    parts.uri = Uri::try_from(&target.path).map_err(no_path)?;
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    headers::of_request(&mut parts.headers, target.port, upgrade);
    let (end, ended) = oneshot::channel();
    if body.is_end_stream() {
        return Ok((Request::from_parts(parts, body), ended));
    }
    let mut pieces = Pieces::new(body, u64::MAX)?;
    let (to_server, body) = channel();
    tokio::spawn(async move {
        while let Some(piece) = pieces.next().await.transpose() {
            let passed = match piece {
                Ok(piece) => to_server.send(piece).await,
                Err(_cut) => {
                    to_server.fail(ErrorKind::ConnectionAborted.into()).await;
                    Err(ClientGone)
                }
            };
            if passed.is_err() {
                break;
            }
        }
        drop(end);
    });
    Ok((Request::from_parts(parts, body), ended))
}

/// A connection to a port, and what keeps the sandbox from being idle. `runner` makes it, and passes it here.
async fn connect(
    server: &Server,
    name: &SandboxName,
    port: u16,
) -> Result<(TcpStream, OwnedFd), ApiError> {
    let failed = |error: std::io::Error| ApiError::failed(format!("cannot connect: {error}"));
    let (own, passed) = link::pair().map_err(|errno| failed(errno.into()))?;
    let port = port.to_string();
    let verb = words(["forward", "--pass", "--", name.as_str(), &port]);
    let mut command = server.verbs.command(verb);
    command.stdout(passed);
    Verbs::run_command(command).await?;
    // `runner` has ended: there is a message, or the end.
    let message = link::receive(own.as_fd()).map_err(|errno| failed(errno.into()))?;
    let mut descriptors = message.into_iter().flat_map(|(_, received)| received);
    let (Some(Some(socket)), Some(Some(held))) = (descriptors.next(), descriptors.next()) else {
        return Err(ApiError::failed(
            "`runner sandbox forward` passed no connection",
        ));
    };
    let stream = TcpStream::from_std(std::net::TcpStream::from(socket));
    let stream = stream.and_then(without_delay).map_err(failed)?;
    Ok((stream, held))
}

/// Copies until the server ends, or for a while after the client has: it may be gone.
async fn copy_both(client: OnUpgrade, server: OnUpgrade) {
    // One that has gone meanwhile: nobody is left to tell.
    let (Ok(client), Ok(server)) = (client.await, server.await) else {
        return;
    };
    let (mut from_client, mut to_client) = split(TokioIo::new(client));
    let (mut from_server, mut to_server) = split(TokioIo::new(server));
    let up = async {
        let _ended = copy(&mut from_client, &mut to_server).await;
        let _closed = to_server.shutdown().await;
        tokio::time::sleep(STALL).await;
    };
    tokio::select! {
        _ended = copy(&mut from_server, &mut to_client) => (),
        () = up => (),
    }
    let _closed = to_client.shutdown().await;
}

fn bad_gateway(error: impl Display) -> ApiError {
    let error = escape(error.to_string().as_bytes());
    let message = format!("the server in the sandbox gave no answer of HTTP: {error}");
    ApiError::new(StatusCode::BAD_GATEWAY, "bad_gateway", message)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    type Answer = Result<u8, &'static str>;

    #[tokio::test]
    async fn the_time_for_an_answer_begins_with_the_end_of_the_request() {
        let (end, sent) = oneshot::channel();
        let waiting = answer_within(Duration::ZERO, pending::<Answer>(), sent);
        tokio::pin!(waiting);
        for _ in 0..3 {
            let early = tokio::time::timeout(Duration::from_millis(5), &mut waiting);
            assert!(early.await.is_err(), "the request is not sent");
        }
        drop(end);
        let error = waiting.await.expect_err("no answer");
        let (status, code) = (error.status, error.code());
        assert_eq!((status.as_u16(), code), (504, "gateway_timeout"));
    }

    #[tokio::test]
    async fn an_answer_that_comes_in_time_is_taken() {
        let (end, sent) = oneshot::channel();
        let answer = answer_within(Duration::ZERO, ready::<Answer>(Ok(7)), sent);
        assert_eq!(answer.await.expect("an answer"), 7);
        drop(end);
        let (end, sent) = oneshot::channel();
        drop(end);
        let failed = ready::<Answer>(Err("closed"));
        let failed = answer_within(Duration::MAX, failed, sent).await;
        assert_eq!(failed.expect_err("none").status.as_u16(), 502);
    }
}
