//! TCP connections with cancellable waits.
//!
//! Sockets are non-blocking. Waits use poll(2) in steps of
//! [`POLL_INTERVAL`](super::cancellation::POLL_INTERVAL), up to the time-out that ureq sets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with, sockopt,
};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

use crate::http::cancellation::{Cancellation, Cancelled, POLL_INTERVAL};
use crate::http::url::{bare_host, port};

const ADDRESSES_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct TcpConnector {
    pub(super) cancellation: Cancellation,
}

#[derive(Debug)]
pub(super) struct NameResolver {
    pub(super) cancellation: Cancellation,
}

#[derive(Debug)]
pub(super) struct TcpTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
    cancellation: Cancellation,
}

#[derive(Clone, Copy)]
struct Deadline {
    at: Option<Instant>,
    reason: Timeout,
}

impl Deadline {
    fn of(timeout: NextTimeout) -> Self {
        let is_bounded = !timeout.after.is_not_happening();
        Self {
            at: is_bounded
                .then(|| Instant::now().checked_add(*timeout.after))
                .flatten(),
            reason: timeout.reason,
        }
    }

    fn next_wait(self) -> Result<Duration, Error> {
        let left = match self.at {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => POLL_INTERVAL,
        };
        if left.is_zero() {
            return Err(Error::Timeout(self.reason));
        }
        Ok(left.min(POLL_INTERVAL))
    }
}

fn cancelled() -> Error {
    Error::Io(std::io::Error::other(Cancelled))
}

fn wait(
    stream: &TcpStream,
    flags: PollFlags,
    deadline: Deadline,
    cancellation: &Cancellation,
) -> Result<(), Error> {
    loop {
        if cancellation.is_cancelled() {
            return Err(cancelled());
        }
        let left = deadline.next_wait()?;
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::from_borrowed_fd(stream.as_fd(), flags)];
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Error::Io(errno.into())),
        }
    }
}

impl Connector<()> for TcpConnector {
    type Out = TcpTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<TcpTransport>, Error> {
        let whole = Deadline::of(details.timeout);
        let mut last = Error::ConnectionFailed;
        let count = details.addrs.len();
        for (index, address) in details.addrs.iter().enumerate() {
            // A dead address must leave time for the others.
            let shares = u32::try_from(count - index).unwrap_or(1);
            let deadline = Deadline {
                at: whole.at.map(|at| {
                    let now = Instant::now();
                    now + at.saturating_duration_since(now) / shares
                }),
                reason: whole.reason,
            };
            match self.dial(*address, deadline) {
                Ok(stream) => {
                    let config = details.config;
                    return Ok(Some(TcpTransport {
                        stream,
                        buffers: LazyBuffers::new(
                            config.input_buffer_size(),
                            config.output_buffer_size(),
                        ),
                        cancellation: self.cancellation.clone(),
                    }));
                }
                Err(_) if self.cancellation.is_cancelled() => return Err(cancelled()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl TcpConnector {
    fn dial(&self, address: SocketAddr, deadline: Deadline) -> Result<TcpStream, Error> {
        let failed = |errno: Errno| Error::Io(errno.into());
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
        let connected = connect(&socket, &address);
        let stream = TcpStream::from(socket);
        match connected {
            Ok(()) => (),
            Err(Errno::INPROGRESS | Errno::INTR) => {
                wait(&stream, PollFlags::OUT, deadline, &self.cancellation)?;
                sockopt::socket_error(&stream)
                    .map_err(failed)?
                    .map_err(failed)?;
            }
            Err(errno) => return Err(failed(errno)),
        }
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Transport for TcpTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut sent = 0;
        while sent < amount {
            let deadline = Deadline::of(timeout.for_write());
            match (&self.stream).write(&self.buffers.output()[sent..amount]) {
                Ok(0) => return Err(Error::Io(ErrorKind::WriteZero.into())),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.stream, PollFlags::OUT, deadline, &self.cancellation)?;
                }
                Err(error) => return Err(Error::Io(error)),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let deadline = Deadline::of(timeout.for_read());
        if self.cancellation.is_cancelled() {
            return Err(cancelled());
        }
        loop {
            match (&self.stream).read(self.buffers.input_append_buf()) {
                Ok(count) => {
                    self.buffers.input_appended(count);
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.stream, PollFlags::IN, deadline, &self.cancellation)?;
                }
                Err(error) => return Err(Error::Io(error)),
            }
        }
    }

    /// Unexpected bytes or an end of file make the connection unusable.
    fn is_open(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(
            recv(&self.stream, &mut [0_u8; 1], flags),
            Err(Errno::AGAIN | Errno::INTR)
        )
    }
}

impl Resolver for NameResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let (host, port) = (bare_host(uri), port(uri));
        let found = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => self.look_up(host.to_owned(), port, Deadline::of(timeout))?,
        };
        let mut result = self.empty();
        for address in found.into_iter().take(ADDRESSES_MAX) {
            result.push(address);
        }
        if result.is_empty() {
            return Err(Error::HostNotFound);
        }
        Ok(result)
    }
}

impl NameResolver {
    /// getaddrinfo(3) cannot be interrupted, so it runs in a thread. After a time-out the thread
    /// ends by itself.
    fn look_up(
        &self,
        host: String,
        port: u16,
        deadline: Deadline,
    ) -> Result<Vec<SocketAddr>, Error> {
        let (sender, receiver) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("lookup".to_owned())
            .spawn(move || {
                let found = (host.as_str(), port).to_socket_addrs();
                // The receiver is gone after a time-out.
                let _late = sender.send(found.map(Vec::from_iter));
            })?;
        loop {
            if self.cancellation.is_cancelled() {
                return Err(cancelled());
            }
            match receiver.recv_timeout(deadline.next_wait()?) {
                Ok(found) => {
                    let _panicked = thread.join();
                    return found.map_err(|_cause| Error::HostNotFound);
                }
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::HostNotFound),
            }
        }
    }
}
