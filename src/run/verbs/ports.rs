//! Connections from the host to ports of sandboxes.

use std::io::{BufReader, ErrorKind, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_error, socket_type};

use crate::run::verbs::sandboxes::{SandboxError, connect};
use sandbox::control::Client;
use spec::request::Caller;
use spec::sandboxes::SandboxName;
use sys::link::{self, Message};

/// How long a port may take to accept.
const CONNECT_TIME: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// Most connections that are forwarded at once; further ones wait in the queues of the listeners.
const CONNECTIONS_MAX: usize = 100;
/// How long to wait for a place, or for a descriptor.
const NO_PLACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
const PAUSE: Duration = Duration::from_millis(50);
/// How long connections may go on after the end of the sandbox.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const BUFFER_BYTES: usize = 64 << 10;

/// A connection to a port of a sandbox.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// While it lives the sandbox is not idle.
    client: Client,
}

/// Connects to a port at 127.0.0.1 of the sandbox, or if that refuses at ::1.
fn connect_to_port(
    caller: &Caller,
    name: &SandboxName,
    port: u16,
) -> Result<Connection, SandboxError> {
    let attempt = |is_v6| -> Result<Result<Connection, Errno>, SandboxError> {
        let client = connect(caller, name)?;
        let asked = client.connect_to_port(port, is_v6);
        let asked = asked.map_err(|error| SandboxError::of_control(name, error))?;
        Ok(asked
            .and_then(until_connected)
            .map(|socket| Connection { socket, client }))
    };
    let connected = match attempt(false)? {
        Err(Errno::CONNREFUSED) => attempt(true)?.map_err(|_no_v6| Errno::CONNREFUSED),
        other => other,
    };
    connected.map_err(|errno| SandboxError::NoListener {
        name: name.clone(),
        port,
        errno,
    })
}

/// The socket comes from a process with the rights of a body.
fn until_connected(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    if socket_type(&socket)? != SocketType::STREAM {
        return Err(Errno::PROTOTYPE);
    }
    let mut watched = [PollFd::new(&socket, PollFlags::OUT)];
    match poll(&mut watched, Some(&CONNECT_TIME))? {
        0 => Err(Errno::TIMEDOUT),
        _ => socket_error(&socket)?.map(|()| socket),
    }
}

/// Passes a connection to the process at the other end of standard output.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn pass(caller: &Caller, name: &SandboxName, port: u16) -> Result<(), SandboxError> {
    let Connection { socket, client } = connect_to_port(caller, name, port)?;
    let descriptors = [socket.as_fd(), client.as_fd()];
    let sent = link::send(rustix::stdio::stdout(), Message::of(0), &descriptors);
    sent.map_err(|errno| SandboxError::call("pass the connection", errno))
}

/// Forwards connections to ports of a sandbox, until it ends.
pub(crate) struct Forwarding<Report> {
    pub(crate) caller: Caller,
    pub(crate) name: SandboxName,
    /// Listeners that do not block, and the ports of the sandbox.
    pub(crate) ports: Vec<(TcpListener, u16)>,
    /// Takes errors of single connections.
    pub(crate) report: Report,
}

impl<Report: Fn(&SandboxError) + Send + Sync + 'static> Forwarding<Report> {
    /// Calls `started` once the sandbox answers. Returns why the forwarding has ended.
    pub(crate) fn run(self, started: impl FnOnce()) -> SandboxError {
        let forwarding = Arc::new(self);
        let ended = forwarding.serve_all(started);
        // What the sandbox has sent is on its way still.
        let since = Instant::now();
        while Arc::strong_count(&forwarding) > 1 && since.elapsed() < DRAIN_TIME {
            std::thread::sleep(PAUSE);
        }
        ended.err().unwrap_or_else(|| SandboxError::Ended {
            name: forwarding.name.clone(),
        })
    }

    fn serve_all(self: &Arc<Self>, started: impl FnOnce()) -> Result<(), SandboxError> {
        let client = connect(&self.caller, &self.name)?;
        let waits = client.wait_for_end();
        waits.map_err(|error| SandboxError::of_control(&self.name, error))?;
        started();
        loop {
            let is_full = Arc::strong_count(self) > CONNECTIONS_MAX;
            for number in self.wait(&client, is_full)? {
                let Some((listener, port)) =
                    number.checked_sub(1).and_then(|at| self.ports.get(at))
                else {
                    return Ok(());
                };
                if let Some(near) = accept(listener)? {
                    let (forwarding, port) = (Arc::clone(self), *port);
                    let serve = move || forwarding.serve(&near, port);
                    let started = std::thread::Builder::new().spawn(serve);
                    started.map_err(|error| failed("start a thread", &error))?;
                }
            }
        }
    }

    /// Waits for the end of the sandbox, which is 0, and for connections to the listeners, which are numbered from 1.
    fn wait(&self, client: &Client, is_full: bool) -> Result<Vec<usize>, SandboxError> {
        let listeners = if is_full { &[][..] } else { &self.ports };
        let listeners = listeners.iter().map(|(listener, _)| listener.as_fd());
        let mut watched: Vec<PollFd<'_>> = std::iter::once(client.as_fd())
            .chain(listeners)
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        match poll(&mut watched, is_full.then_some(&NO_PLACE)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(SandboxError::call("wait for connections", errno)),
        }
        let numbered = watched.iter().enumerate();
        let ready = numbered.filter(|(_, watched)| !watched.revents().is_empty());
        Ok(ready.map(|(number, _)| number).collect())
    }

    fn serve(&self, near: &TcpStream, port: u16) {
        match connect_to_port(&self.caller, &self.name, port) {
            Ok(Connection { socket, client }) => {
                copy_both(near, &TcpStream::from(socket));
                drop(client);
            }
            Err(error) => (self.report)(&error),
        }
    }
}

/// `None`: the connection has gone, or there is no descriptor for it yet.
fn accept(listener: &TcpListener) -> Result<Option<TcpStream>, SandboxError> {
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::ConnectionAborted | ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            std::thread::sleep(PAUSE);
            Ok(None)
        }
        Err(error) => Err(failed("accept a connection", &error)),
    }
}

fn failed(act: &'static str, error: &std::io::Error) -> SandboxError {
    SandboxError::call(act, sys::file::errno_of(error))
}

/// Copies in both directions, each until its end. Each piece is sent at once, as it came.
fn copy_both(near: &TcpStream, far: &TcpStream) {
    let is_ready = [near, far].map(|stream| {
        let blocks = stream.set_nonblocking(false);
        blocks.and_then(|()| stream.set_nodelay(true))
    });
    if is_ready.iter().any(Result::is_err) {
        return;
    }
    std::thread::scope(|scope| {
        let back = std::thread::Builder::new().spawn_scoped(scope, || copy_half(far, near));
        match back {
            Ok(_thread) => copy_half(near, far),
            Err(_no_thread) => close([near, far]),
        }
    });
}

/// Copies one direction. Its end closes this half of `to`, and an error both connections.
fn copy_half(from: &TcpStream, mut to: &TcpStream) {
    let copied = copy(&mut BufReader::with_capacity(BUFFER_BYTES, from), &mut to);
    if copied.and_then(|_| to.shutdown(Shutdown::Write)).is_err() {
        close([from, to]);
    }
}

fn close(streams: [&TcpStream; 2]) {
    for stream in streams {
        // It may be closed already.
        let _closed = stream.shutdown(Shutdown::Both);
    }
}
