//! TCP connections whose waits end with the time-outs that ureq sets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with, sockopt,
};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

#[derive(Debug)]
pub(super) struct TcpConnector;

#[derive(Debug)]
pub(super) struct TcpTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
}

#[derive(Clone, Copy)]
struct Deadline {
    /// `None`: no limit.
    at: Option<Instant>,
    reason: Timeout,
}

impl Deadline {
    fn of(timeout: NextTimeout) -> Self {
        Self {
            at: deadline(timeout),
            reason: timeout.reason,
        }
    }
}

pub(super) fn deadline(timeout: NextTimeout) -> Option<Instant> {
    let is_bounded = !timeout.after.is_not_happening();
    is_bounded
        .then(|| Instant::now().checked_add(*timeout.after))
        .flatten()
}

fn wait(stream: &TcpStream, flags: PollFlags, deadline: Deadline) -> Result<(), Error> {
    loop {
        let left = deadline
            .at
            .map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::Timeout(deadline.reason));
        }
        // Beyond the kernel's range: wait without a limit.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut descriptors = [PollFd::from_borrowed_fd(stream.as_fd(), flags)];
        match poll(&mut descriptors, left.as_ref()) {
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
            match dial(*address, deadline) {
                Ok(stream) => {
                    let config = details.config;
                    return Ok(Some(TcpTransport {
                        stream,
                        buffers: LazyBuffers::new(
                            config.input_buffer_size(),
                            config.output_buffer_size(),
                        ),
                    }));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn dial(address: SocketAddr, deadline: Deadline) -> Result<TcpStream, Error> {
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
            wait(&stream, PollFlags::OUT, deadline)?;
            sockopt::socket_error(&stream)
                .map_err(failed)?
                .map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno)),
    }
    stream.set_nodelay(true)?;
    Ok(stream)
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
                    wait(&self.stream, PollFlags::OUT, deadline)?;
                }
                Err(error) => return Err(Error::Io(error)),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let deadline = Deadline::of(timeout.for_read());
        loop {
            match (&self.stream).read(self.buffers.input_append_buf()) {
                Ok(count) => {
                    self.buffers.input_appended(count);
                    #[cfg(feature = "planted-bugs")]
                    confinement::planted::trigger("fetcher", self.buffers.input());
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.stream, PollFlags::IN, deadline)?;
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
