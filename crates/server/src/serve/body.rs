//! Bodies of requests and answers, with their limits.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Bytes, Frame};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::ApiError;
use super::server::Place;
use spec::path::escape;

/// Most bytes of a document that a client sends.
pub(super) const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// A client that sends or takes nothing for this time has gone.
pub(super) const STALL: Duration = Duration::from_secs(30);

/// All of a document has to arrive in this time.
const DOCUMENT_TIME: Duration = Duration::from_secs(10);

/// An answer with a document.
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    // Strings, numbers and lists of them: this cannot fail.
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    set_type(&mut response, "application/json");
    response
}

pub(super) fn set_type(response: &mut Response, content_type: &'static str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // No browser may take the bytes of a sandbox for a page.
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Reads the document of a request.
///
/// # Errors
/// It is too large or too slow, or not a document of this type.
pub(super) async fn read_json<Document: DeserializeOwned>(
    body: Body,
) -> Result<Document, ApiError> {
    let bytes = read_bytes(body, DOCUMENT_BYTES_MAX).await?;
    parse_document("the body", &bytes)
}

/// Reads a document of a request. `what` has it.
///
/// # Errors
/// 400.
pub(super) fn parse_document<Document: DeserializeOwned>(
    what: &str,
    bytes: &[u8],
) -> Result<Document, ApiError> {
    parse(bytes).map_err(|problem| {
        let message = format!("{what} is not the expected document: {problem}");
        ApiError::bad_request("document", message).with_hint("GET /openapi.json describes it")
    })
}

/// Reads all of a request.
///
/// # Errors
/// It is too large or too slow.
pub(super) async fn read_bytes(body: Body, bytes_max: usize) -> Result<Vec<u8>, ApiError> {
    let mut pieces = Pieces::new(body, bytes_max as u64)?;
    let read = async {
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    };
    timeout(DOCUMENT_TIME, read)
        .await
        .unwrap_or_else(|_late| Err(too_slow()))
}

/// Reads an object.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse<Document: DeserializeOwned>(bytes: &[u8]) -> Result<Document, String> {
    // serde would take a list for the fields in their order.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err("expected an object".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| escape(error.to_string().as_bytes()))
}

/// The body of a request, piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Body,
    bytes_max: u64,
    left: u64,
}

impl Pieces {
    /// # Errors
    /// 413: it has more than `bytes_max` bytes.
    pub(super) fn new(body: Body, bytes_max: u64) -> Result<Self, ApiError> {
        let is_too_large = body.size_hint().lower() > bytes_max;
        let pieces = Self {
            body,
            bytes_max,
            left: bytes_max,
        };
        if is_too_large {
            Err(pieces.too_large())
        } else {
            Ok(pieces)
        }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The body is too large, or the client stalls or has gone.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let next = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = match timeout(STALL, next).await {
                Err(_late) => return Err(too_slow()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    let error = escape(error.to_string().as_bytes());
                    return Err(ApiError::bad_request(
                        "body",
                        format!("the body cannot be read: {error}"),
                    ));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers mean nothing here.
            if let Ok(piece) = frame.into_data() {
                let left = self.left.checked_sub(piece.len() as u64);
                self.left = left.ok_or_else(|| self.too_large())?;
                return Ok(Some(piece));
            }
        }
    }

    fn too_large(&self) -> ApiError {
        ApiError::too_large(format!("the body has more than {} bytes", self.bytes_max))
    }
}

fn too_slow() -> ApiError {
    ApiError::new(
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        "the body did not arrive in time",
    )
}

/// A body that a task sends.
#[derive(Debug)]
pub(super) struct SentBody(mpsc::Receiver<Result<Bytes, std::io::Error>>);

/// The other end: fails once the client has gone.
#[derive(Debug, Clone)]
pub(super) struct BodySender(mpsc::Sender<Result<Bytes, std::io::Error>>);

pub(super) fn channel() -> (BodySender, Body) {
    let (sender, receiver) = mpsc::channel(4);
    (BodySender(sender), Body::new(SentBody(receiver)))
}

/// The client has gone, or has taken nothing for [`STALL`].
#[derive(Debug)]
pub(super) struct ClientGone;

impl BodySender {
    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), ClientGone> {
        self.0
            .send_timeout(Ok(bytes), STALL)
            .await
            .map_err(|_full| ClientGone)
    }

    /// Closes the connection, so that the client sees that the body is cut.
    pub(super) async fn fail(&self, error: std::io::Error) {
        // A client that has gone does not see it.
        let _sent = self.0.send_timeout(Err(error), STALL).await;
    }

    /// Waits until the client has gone.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A body that holds a place among the calls until it has been sent.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) body: Body,
    pub(super) _place: Place,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
