//! `/v1/sandboxes/{name}/ports/{port}/`: a proxy to a server in a sandbox.

mod exchange;
mod headers;

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::Response;
use hyper::body::Body as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use super::body::{STALL, channel};
use super::error::ApiError;
use super::routes::{Content, Route};
use super::server::{InSandbox, Server, Shared, place};
use super::verbs::{Verbs, words};
use exchange::{Answer, Sending, send};
use spec::path::escape;
use spec::sandboxes::SandboxName;
use sys::link;

/// How long a server may take for the head of its answer, once it has the request.
const ANSWER_TIME: Duration = Duration::from_secs(60);

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
    let (from, to) = stream.into_split();
    let has_body = request.method() != Method::HEAD;
    let protocol = headers::upgrade(request.method(), request.headers());
    let protocol = protocol.filter(|_| request.body().is_end_stream());
    let upgraded = hyper::upgrade::on(&mut request);
    headers::of_request(request.headers_mut());
    let has_length = request.headers().contains_key(header::CONTENT_LENGTH);
    let sending = match request.body().is_end_stream() {
        true => Sending::Nothing,
        false if has_length => Sending::Plain,
        false => Sending::Chunks,
    };
    let connection = match &protocol {
        Some(protocol) => [b"connection: upgrade\r\nupgrade: ", protocol.as_bytes()].concat(),
        None => b"connection: close".to_vec(),
    };
    let head = head_of(&request, &target, &connection, sending);
    let mut sent = tokio::spawn(send(to, head, request.into_body(), sending));
    let mut answer = Answer::new(from);
    let mut to = None;
    let late = async {
        // A request that was not sent as a whole may be answered still.
        to = Some((&mut sent).await);
        tokio::time::sleep(ANSWER_TIME).await;
    };
    let head = tokio::select! {
        head = answer.head(has_body) => head,
        () = late => return Err(gateway_timeout()),
    };
    let mut parts = head.map_err(|error| bad_gateway(&error))?;
    let is_switch = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let switched = parts.headers.remove(header::UPGRADE);
    headers::of_answer(&mut parts.headers, target.port, &target.prefix);
    if !is_switch {
        // The half of the request stays open: for many servers its end is that of the client.
        let open = (held, to, sent);
        return Ok(Response::from_parts(parts, stream_body(answer, open)));
    }
    let (Some(_asked), Some(switched)) = (protocol, switched) else {
        let error = std::io::Error::other("it changes to a protocol that was not asked for");
        return Err(bad_gateway(&error));
    };
    parts.headers.insert(header::UPGRADE, switched);
    let upgrade = header::HeaderValue::from_static("upgrade");
    parts.headers.insert(header::CONNECTION, upgrade);
    let place = place();
    tokio::spawn(async move {
        let to = match to {
            Some(to) => to,
            None => sent.await,
        };
        if let Ok(Ok(to)) = to {
            copy_both(upgraded, answer, to).await;
        }
        drop((held, place));
    });
    Ok(Response::from_parts(parts, Body::empty()))
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
    let stream = TcpStream::from_std(std::net::TcpStream::from(socket)).map_err(failed)?;
    Ok((stream, held))
}

fn head_of(request: &Request, target: &Target, connection: &[u8], sending: Sending) -> Vec<u8> {
    let Target { port, path, .. } = target;
    let line = format!(
        "{} {path} HTTP/1.1\r\nhost: localhost:{port}\r\n",
        request.method()
    );
    let mut head = [line.as_bytes(), connection, b"\r\n"].concat();
    for (name, value) in request.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    if sending == Sending::Chunks {
        head.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Sends the body on, while somebody takes it.
fn stream_body(mut answer: Answer, open: impl Send + 'static) -> Body {
    let (client, body) = channel();
    tokio::spawn(async move {
        loop {
            let piece = tokio::select! {
                piece = answer.next() => piece,
                () = client.closed() => break,
            };
            match piece {
                Ok(Some(piece)) => {
                    if client.send(piece).await.is_err() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    client.fail(error).await;
                    break;
                }
            }
        }
        drop(open);
    });
    body
}

/// Copies until the server ends, or for a while after the client has: it may be gone.
async fn copy_both(upgraded: OnUpgrade, answer: Answer, mut to: OwnedWriteHalf) {
    // A client that has gone meanwhile: nobody is left to tell.
    let Ok(client) = upgraded.await else {
        return;
    };
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (read, from) = answer.into_rest();
    let mut from_server = read.chain(from);
    let up = async {
        let _ended = copy(&mut from_client, &mut to).await;
        let _closed = to.shutdown().await;
        tokio::time::sleep(STALL).await;
    };
    tokio::select! {
        _ended = copy(&mut from_server, &mut to_client) => (),
        () = up => (),
    }
    let _closed = to_client.shutdown().await;
}

fn bad_gateway(error: &std::io::Error) -> ApiError {
    let error = escape(error.to_string().as_bytes());
    let message = format!("the server in the sandbox gave no answer of HTTP: {error}");
    ApiError::new(StatusCode::BAD_GATEWAY, "bad_gateway", message)
}

fn gateway_timeout() -> ApiError {
    let seconds = ANSWER_TIME.as_secs();
    let message = format!("the server in the sandbox gave no answer in {seconds} s");
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "gateway_timeout", message)
}
