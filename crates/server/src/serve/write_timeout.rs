//! A connection whose writes time out if the client does not read.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// hyper limits only the time for request headers: a call whose response nobody reads would never end.
#[derive(Debug)]
pub(super) struct WriteTimeout<Stream> {
    stream: Stream,
    limit: Duration,
    /// Whether a write is pending; `timer` runs meanwhile.
    is_waiting: bool,
    timer: Pin<Box<Sleep>>,
}

impl<Stream> WriteTimeout<Stream> {
    pub(super) fn new(stream: Stream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            is_waiting: false,
            timer: Box::pin(sleep(limit)),
        }
    }

    /// Returns the result of a write, or `TimedOut` if it was pending for `limit`.
    fn check_time<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for WriteTimeout<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<Stream: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.check_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check_time(flushed, context)
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
    fn a_write_times_out_if_nobody_reads_but_not_for_a_slow_reader() {
        block_on(async {
            let (client, server) = tokio::io::duplex(16);
            let mut server = WriteTimeout::new(server, LIMIT);
            let written = server.write_all(&[0; 64]).await;
            assert_eq!(
                written.expect_err("nobody reads").kind(),
                ErrorKind::TimedOut
            );
            drop(client);
        });
        block_on(async {
            let (mut client, server) = tokio::io::duplex(16);
            let mut server = WriteTimeout::new(server, LIMIT);
            let reads = async {
                let mut piece = [0; 8];
                // Each pause is shorter than the limit, all together are longer.
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
