//! Connections with cancellable waits.
//!
//! Sockets are non-blocking. Waits use poll(2) in steps of
//! [`LOOK_EVERY`](super::watch::LOOK_EVERY), up to the time-out that ureq sets.

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

use crate::http::watch::{Cancelled, LOOK_EVERY, Watch};

const ADDRESSES_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) watch: Watch,
}

#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) watch: Watch,
}

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    buffers: LazyBuffers,
    watch: Watch,
}

#[derive(Clone, Copy)]
struct Until {
    at: Option<Instant>,
    reason: Timeout,
}

impl Until {
    fn of(timeout: NextTimeout) -> Self {
        let is_bounded = !timeout.after.is_not_happening();
        Self {
            at: is_bounded
                .then(|| Instant::now().checked_add(*timeout.after))
                .flatten(),
            reason: timeout.reason,
        }
    }

    fn piece(self) -> Result<Duration, Error> {
        let left = match self.at {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => LOOK_EVERY,
        };
        match left.is_zero() {
            true => Err(Error::Timeout(self.reason)),
            false => Ok(left.min(LOOK_EVERY)),
        }
    }
}

fn cancelled() -> Error {
    Error::Io(std::io::Error::other(Cancelled))
}

fn wait(stream: &TcpStream, flags: PollFlags, until: Until, watch: &Watch) -> Result<(), Error> {
    loop {
        if watch.is_over() {
            return Err(cancelled());
        }
        let piece = until.piece()?;
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: piece.subsec_nanos().into(),
        };
        let mut ends = [PollFd::from_borrowed_fd(stream.as_fd(), flags)];
        match poll(&mut ends, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Error::Io(errno.into())),
        }
    }
}

impl Connector<()> for Dialler {
    type Out = Wire;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<Wire>, Error> {
        let whole = Until::of(details.timeout);
        let mut last = Error::ConnectionFailed;
        let count = details.addrs.len();
        for (index, address) in details.addrs.iter().enumerate() {
            // Splits the time-out, so that a dead address leaves time for the others.
            let shares = u32::try_from(count - index).unwrap_or(1);
            let until = Until {
                at: whole.at.map(|at| {
                    let now = Instant::now();
                    now + at.saturating_duration_since(now) / shares
                }),
                reason: whole.reason,
            };
            match self.dial(*address, until) {
                Ok(stream) => {
                    let config = details.config;
                    return Ok(Some(Wire {
                        stream,
                        buffers: LazyBuffers::new(
                            config.input_buffer_size(),
                            config.output_buffer_size(),
                        ),
                        watch: self.watch.clone(),
                    }));
                }
                Err(_) if self.watch.is_over() => return Err(cancelled()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Dialler {
    fn dial(&self, address: SocketAddr, until: Until) -> Result<TcpStream, Error> {
        let failed = |errno: Errno| Error::Io(errno.into());
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
        let begun = connect(&socket, &address);
        let stream = TcpStream::from(socket);
        match begun {
            Ok(()) => (),
            Err(Errno::INPROGRESS | Errno::INTR) => {
                wait(&stream, PollFlags::OUT, until, &self.watch)?;
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

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut sent = 0;
        while sent < amount {
            let until = Until::of(timeout.for_write());
            match (&self.stream).write(&self.buffers.output()[sent..amount]) {
                Ok(0) => return Err(Error::Io(ErrorKind::WriteZero.into())),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.stream, PollFlags::OUT, until, &self.watch)?;
                }
                Err(error) => return Err(Error::Io(error)),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let until = Until::of(timeout.for_read());
        if self.watch.is_over() {
            return Err(cancelled());
        }
        loop {
            match (&self.stream).read(self.buffers.input_append_buf()) {
                Ok(count) => {
                    self.buffers.input_appended(count);
                    return Ok(0 < count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.stream, PollFlags::IN, until, &self.watch)?;
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

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let usual = match uri.scheme_str() {
            Some("https") => 443,
            _ => 80,
        };
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(usual);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = match bare.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => self.look_up(bare.to_owned(), port, Until::of(timeout))?,
        };
        let mut result = self.empty();
        for address in found.into_iter().take(ADDRESSES_MAX) {
            result.push(address);
        }
        match result.is_empty() {
            true => Err(Error::HostNotFound),
            false => Ok(result),
        }
    }
}

impl Lookup {
    /// getaddrinfo(3) cannot be interrupted, so it runs in a thread. After a time-out the thread
    /// ends by itself.
    fn look_up(&self, host: String, port: u16, until: Until) -> Result<Vec<SocketAddr>, Error> {
        let (answer, answered) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("lookup".to_owned())
            .spawn(move || {
                let found = (host.as_str(), port).to_socket_addrs();
                // The receiver is gone after a time-out.
                let _late = answer.send(found.map(Vec::from_iter));
            })?;
        loop {
            if self.watch.is_over() {
                return Err(cancelled());
            }
            match answered.recv_timeout(until.piece()?) {
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
