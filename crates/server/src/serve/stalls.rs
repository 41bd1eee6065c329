//! A connection that fails when its client takes nothing for a time.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// hyper has a limit of time for heads only: an answer that nobody reads would hold its call for ever.
#[derive(Debug)]
pub(super) struct Stalls<Stream> {
    stream: Stream,
    limit: Duration,
    /// Runs while a write waits.
    waits: bool,
    timer: Pin<Box<Sleep>>,
}

impl<Stream> Stalls<Stream> {
    pub(super) fn new(stream: Stream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            waits: false,
            timer: Box::pin(sleep(limit)),
        }
    }

    /// What a write returned, or an error if it has waited too long.
    fn judge<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for Stalls<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<Stream: AsyncWrite + Unpin> AsyncWrite for Stalls<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::runtime::Builder;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    fn block_on(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        block_on(async {
            let (client, server) = tokio::io::duplex(16);
            let mut server = Stalls::new(server, LIMIT);
            let written = server.write_all(&[0; 64]).await;
            assert_eq!(
                written.expect_err("nobody reads").kind(),
                ErrorKind::TimedOut
            );
            drop(client);
        });
        block_on(async {
            let (mut client, server) = tokio::io::duplex(16);
            let mut server = Stalls::new(server, LIMIT);
            let reads = async {
                let mut piece = [0; 8];
                // Longer than the limit together, and never as long at once.
                for _ in 0..8 {
                    sleep(LIMIT / 4).await;
                    client.read_exact(&mut piece).await.expect("read");
                }
            };
            let (written, ()) = tokio::join!(server.write_all(&[0; 64]), reads);
            written.expect("written");
        });
    }
}
