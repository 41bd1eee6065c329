//! Requests that are answered before they were read, such as those that are refused: their clients may still be
//! sending. The kernel resets a connection that is closed with unread bytes, and then the client may lose the
//! answer. So the answer says that the connection ends, and what the client still sends is read and dropped.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

const DROPPED_AT_ONCE: usize = 8 << 10;

/// The body of a request, which reports that it was read to its end.
#[derive(Debug)]
pub(super) struct ReportedBody {
    body: Incoming,
    is_read: Arc<AtomicBool>,
}

impl Body for ReportedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.is_read.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether the last request of a connection was answered before it was read. Shared by the connection and its
/// requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// Answers a request. If it was not read to its end by then, it is the last one of its connection.
    ///
    /// # Errors
    /// None.
    pub(super) async fn watch<Answering>(
        self,
        request: Request<Incoming>,
        answer: impl FnOnce(Request<ReportedBody>) -> Answering,
    ) -> Result<Response, Infallible>
    where
        Answering: Future<Output = Result<Response, Infallible>>,
    {
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        let request = request.map(|body| ReportedBody {
            body,
            is_read: Arc::clone(&is_read),
        });
        let mut response = answer(request).await?;
        if !is_read.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
            // Otherwise the client could send its next request on this connection.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response)
    }
}

/// How much is dropped, and for how long, before a connection is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// A connection whose end waits for the rest of a request.
#[derive(Debug)]
pub(super) struct Drained<Stream> {
    stream: Stream,
    unread: Unread,
    limits: Limits,
    /// Runs once the client was told the end.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<Stream> Drained<Stream> {
    pub(super) const fn new(stream: Stream, unread: Unread, limits: Limits) -> Self {
        Self {
            stream,
            unread,
            limits,
            timer: None,
        }
    }
}

impl<Stream: AsyncRead + Unpin> Drained<Stream> {
    /// Drops what the client sends until it closes the connection, or until a limit.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let time = self.limits.time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        let mut bytes = [0; DROPPED_AT_ONCE];
        while self.limits.bytes > 0 {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let count = buffer.filled().len() as u64;
                    self.limits.bytes = self.limits.bytes.saturating_sub(count);
                }
                Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return timer.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for Drained<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<Stream: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Drained<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.timer.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if self.unread.0.load(Ordering::Relaxed) {
            ready!(self.poll_drain(context));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    const LIMITS: Limits = Limits {
        time: Duration::from_millis(50),
        bytes: 64,
    };

    /// Both ends of a connection for 8 bytes at a time.
    fn connection(is_unread: bool) -> (DuplexStream, Drained<DuplexStream>) {
        let (client, server) = duplex(8);
        let unread = Unread(Arc::new(AtomicBool::new(is_unread)));
        (client, Drained::new(server, unread, LIMITS))
    }

    fn close(mut server: Drained<DuplexStream>) -> JoinHandle<io::Result<()>> {
        tokio::spawn(async move { server.shutdown().await })
    }

    #[tokio::test]
    async fn the_rest_of_a_request_is_read_before_the_connection_is_closed() {
        let (mut client, server) = connection(true);
        let closing = close(server);
        client.write_all(&[0; 48]).await.expect("read");
        assert!(!closing.is_finished(), "it may send more");
        drop(client);
        closing.await.expect("joined").expect("closed");
    }

    #[tokio::test]
    async fn a_client_that_sends_without_end_is_cut() {
        let (mut client, server) = connection(true);
        let closing = close(server);
        let mut sent = 0;
        while client.write_all(&[0; 8]).await.is_ok() {
            sent += 8;
        }
        assert!((64..=72).contains(&sent), "{sent}");
        closing.await.expect("joined").expect("closed");
    }

    #[tokio::test]
    async fn a_client_that_stays_silent_is_cut() {
        let (client, server) = connection(true);
        close(server).await.expect("joined").expect("closed");
        drop(client);
    }

    #[tokio::test]
    async fn nobody_waits_for_the_client_of_a_request_that_was_read() {
        let (client, mut server) = connection(false);
        tokio::select! {
            biased;
            closed = server.shutdown() => closed.expect("closed"),
            () = std::future::ready(()) => panic!("it waits"),
        }
        drop(client);
    }
}
