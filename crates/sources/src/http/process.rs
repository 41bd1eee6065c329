//! The fetcher: a process without rights but the network, which does HTTP, TLS and DNS for a client.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use confinement::Role;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use spec::parse_permit::ParsePermit;
use sys::allocator::keep_from_children;
use sys::worker::{Answer, Worker, WorkerLimits};

use crate::http::cancellation::Cancellation;
use crate::http::client::AgentSettings;
use crate::http::message::{Malformed, Message, PREFIX_BYTES};
use crate::http::serving::serve;

const LIMITS: WorkerLimits = WorkerLimits {
    // Time-outs end requests.
    time: None,
    // Certificates, buffers, one part of a body.
    memory_bytes: 64 << 20,
    file_bytes: 0,
    answer_bytes: 0,
};
/// Longest wait between two checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A running fetcher. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Fetcher {
    link: OwnedFd,
    _process: Worker,
}

/// What ends a wait for the fetcher.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitLimit<'call> {
    /// `None`: no limit.
    pub(super) until: Option<Instant>,
    pub(super) cancellation: &'call Cancellation,
}

/// Why there is no message. The fetcher must then be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkError {
    Cancelled,
    Late,
    /// It ended.
    Gone,
    Malformed,
    Host(Errno),
}

impl From<Malformed> for LinkError {
    fn from(_malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl Fetcher {
    /// Starts a fetcher that makes its requests as `settings` say.
    pub(super) fn start(settings: &AgentSettings) -> Result<Self, Errno> {
        Self::serving(|permit, link| serve(link, &settings.build_agent(permit)))
    }

    /// Starts a process with the rights of a fetcher that calls `serve` with its end of the link.
    pub(super) fn serving(serve: impl FnOnce(ParsePermit, OwnedFd)) -> Result<Self, Errno> {
        let (link, far_end) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let keep = [far_end.as_raw_fd()];
        let confine = |keep: &[_]| Role::Fetcher.enter(keep);
        let run = |permit, _answer: &Answer<'_>| {
            // It has credentials while it makes a request: what it frees is overwritten.
            keep_from_children(|| serve(permit, far_end));
            // What it says is on the link.
            Vec::new()
        };
        Ok(Self {
            _process: Worker::start(LIMITS, &keep, confine, run)?,
            link,
        })
    }

    /// Sends `message` and waits for the answer.
    pub(super) fn exchange(
        &self,
        message: &Message,
        limit: WaitLimit<'_>,
    ) -> Result<Message, LinkError> {
        let exchanged = limit
            .left()
            .and_then(|_left| self.send(message, limit))
            .and_then(|()| self.receive(limit));
        // A signal that cancels may also have ended the fetcher.
        exchanged.map_err(|error| match error {
            _ if limit.cancellation.is_cancelled() => LinkError::Cancelled,
            error => error,
        })
    }

    fn send(&self, message: &Message, limit: WaitLimit<'_>) -> Result<(), LinkError> {
        // It may have a credential.
        let bytes = keep_from_children(|| message.encode());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.link.as_fd(), rest, flags) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => limit.wait(self.link.as_fd(), PollFlags::OUT)?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(LinkError::Gone),
                Err(errno) => return Err(LinkError::Host(errno)),
            }
        }
        Ok(())
    }

    fn receive(&self, limit: WaitLimit<'_>) -> Result<Message, LinkError> {
        let mut prefix = [0; PREFIX_BYTES];
        self.fill(&mut prefix, limit)?;
        // A service of tokens answers with one.
        keep_from_children(|| {
            let mut payload = vec![0; Message::payload_bytes(prefix)?];
            self.fill(&mut payload, limit)?;
            Ok(Message::decode(prefix[0], payload)?)
        })
    }

    fn fill(&self, buffer: &mut [u8], limit: WaitLimit<'_>) -> Result<(), LinkError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match recv(self.link.as_fd(), rest, RecvFlags::DONTWAIT) {
                Ok((0, _) | (_, 0)) | Err(Errno::CONNRESET) => return Err(LinkError::Gone),
                Ok((count, _)) => filled += count,
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => limit.wait(self.link.as_fd(), PollFlags::IN)?,
                Err(errno) => return Err(LinkError::Host(errno)),
            }
        }
        Ok(())
    }
}

impl WaitLimit<'_> {
    /// The time until the next check.
    fn left(&self) -> Result<Duration, LinkError> {
        if self.cancellation.is_cancelled() {
            return Err(LinkError::Cancelled);
        }
        let left = match self.until {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => POLL_INTERVAL,
        };
        if left.is_zero() {
            return Err(LinkError::Late);
        }
        Ok(left.min(POLL_INTERVAL))
    }

    fn wait(&self, link: BorrowedFd<'_>, flags: PollFlags) -> Result<(), LinkError> {
        loop {
            // An interval is within the kernel's range.
            let timeout = Timespec::try_from(self.left()?).unwrap_or_default();
            match poll(&mut [PollFd::from_borrowed_fd(link, flags)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => (),
                Ok(_) => return Ok(()),
                Err(errno) => return Err(LinkError::Host(errno)),
            }
        }
    }
}
