//! The client's side: a connection to the supervisor of a sandbox, for one request.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Refusal, VERSION, answer, request};
use crate::prepare::BodyStreams;
use crate::records::RecordsError;
use crate::steps::ChildStep;
use spec::sandboxes::{
    CommandRecord, CommandRequest, DOCUMENT_BYTES_MAX, LogAnswer, LogRequest, PrivateFiles,
    SandboxState, UpdateAnswer, UpdateRequest,
};
use sys::file::errno_of;
use sys::link::{self, Message, Received};

/// A connection to the supervisor of a sandbox.
#[derive(Debug)]
pub struct Client {
    link: OwnedFd,
    /// Where the supervisor writes the record of a command.
    command: OnceCell<File>,
}

/// What a supervisor says about a command.
#[derive(Debug)]
pub enum Answer {
    Started {
        /// 0: not told, by a supervisor of an earlier version.
        id: u64,
        /// The caller's end of its terminal, if one was asked for.
        terminal: Option<OwnedFd>,
    },
    /// The step that failed, and the errno.
    NotStarted(ChildStep, Errno),
    /// Its first process has ended.
    Ended {
        raw_status: i32,
        /// It was stopped, because its time was over.
        has_timed_out: bool,
        /// If it has a cgroup of its own or a time.
        record: Option<Box<CommandRecord>>,
    },
    Refused(Refusal),
    /// The sandbox has ended, and the command with it.
    Gone,
}

/// The request did not reach the supervisor, or no valid answer came back.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("there is no sandbox with this name")]
    NoSandbox,
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("the supervisor refuses: {0:?}")]
    Refused(Refusal),
    #[error("the supervisor gave an answer that cannot be read")]
    Malformed,
    #[error("the supervisor does not answer")]
    Unresponsive,
    #[error("cannot {act}")]
    Call {
        act: &'static str,
        #[source]
        source: Errno,
    },
}

pub(super) fn call(act: &'static str) -> impl Fn(Errno) -> ControlError {
    move |source| match source {
        // Only calls with a time end so.
        Errno::AGAIN => ControlError::Unresponsive,
        source => ControlError::Call { act, source },
    }
}

/// The address of the socket `name` in `directory`: its path may be longer than an address.
fn address(directory: BorrowedFd<'_>, name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Makes the control socket `name` in `directory`, which refuses clients until [`super::Commands`] listens.
/// Fails with EADDRINUSE if there is one.
///
/// # Errors
/// The errno of socket(2) or bind(2).
pub(crate) fn bind(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::bind(&socket, &address(directory, name)?)?;
    Ok(socket)
}

impl Client {
    /// Connects to the supervisor that listens on the socket `name` of `directory`. With a `time`, it and each
    /// call to the supervisor take no longer.
    ///
    /// # Errors
    /// [`ControlError::NoSandbox`], also where only the socket of a killed supervisor is left, or the
    /// sandbox is being created;
    /// [`ControlError::Unresponsive`]; [`ControlError::Call`].
    pub(crate) fn connect(
        directory: BorrowedFd<'_>,
        name: &str,
        time: Option<Duration>,
    ) -> Result<Self, ControlError> {
        let failed = call("connect to the supervisor of the sandbox");
        let link = socket().map_err(&failed)?;
        if time.is_some() {
            // That of sending is that of connect(2), too.
            for timeout in [Timeout::Send, Timeout::Recv] {
                set_socket_timeout(&link, timeout, time).map_err(&failed)?;
            }
        }
        let address = address(directory, name).map_err(&failed)?;
        match rustix::net::connect(&link, &address) {
            Ok(()) => Ok(Self {
                link,
                command: OnceCell::new(),
            }),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Err(ControlError::NoSandbox),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Readable when the supervisor has said something.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Starts a command with these streams, which a terminal replaces. With `is_measured` its end tells what
    /// it used, if the host has cgroups that count it.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn exec(
        &self,
        wanted: &CommandRequest,
        streams: &BodyStreams,
        is_measured: bool,
    ) -> Result<Answer, ControlError> {
        let document = document(wanted)?;
        let document = self.command.get_or_init(|| document);
        let BodyStreams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let descriptors = [
            document.as_fd(),
            stdin.as_fd(),
            stdout.as_fd(),
            stderr.as_fd(),
        ];
        self.send(request::EXEC, [is_measured.into(), 0], &descriptors)?;
        self.receive()
    }

    /// Sends `signal` to the process group of the command.
    ///
    /// # Errors
    /// [`ControlError::Call`].
    pub fn signal(&self, signal: i32) -> Result<(), ControlError> {
        self.send(request::SIGNAL, [signal, 0], &[])
    }

    /// Waits for what becomes of the command.
    ///
    /// # Errors
    /// [`ControlError::Malformed`], [`ControlError::Call`].
    pub fn receive(&self) -> Result<Answer, ControlError> {
        let Some((Message { kind, values }, descriptors)) = self.hear()? else {
            return Ok(Answer::Gone);
        };
        let [first, second, errno] = values;
        match kind {
            answer::STARTED => Ok(Answer::Started {
                id: u64::try_from(first).unwrap_or(0),
                terminal: descriptors.into_iter().flatten().next(),
            }),
            answer::NOT_STARTED => {
                let (step, _) = ChildStep::from_number(first).ok_or(ControlError::Malformed)?;
                Ok(Answer::NotStarted(step, link::errno_from_peer(errno)))
            }
            answer::ENDED => Ok(Answer::Ended {
                raw_status: first,
                has_timed_out: second != 0,
                record: match self.command.get().filter(|_| errno != 0) {
                    Some(file) => Some(read_answer(file)?),
                    None => None,
                },
            }),
            answer::REFUSED => {
                let refusal = Refusal::of_number(first).ok_or(ControlError::Malformed)?;
                Ok(Answer::Refused(refusal))
            }
            _ => Err(ControlError::Malformed),
        }
    }

    /// Asks for the state of the sandbox.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn state(&self) -> Result<SandboxState, ControlError> {
        let failed = call("ask the supervisor for the state of the sandbox");
        self.ask(request::STATE, memory_file().map_err(failed)?)
    }

    /// Asks for the private files of the sandbox, and their directories in the same order. With
    /// `freezes`, the processes of the sandbox stand still until this client is dropped, unless the answer
    /// says that they cannot.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn files(&self, freezes: bool) -> Result<(PrivateFiles, Vec<OwnedFd>), ControlError> {
        let failed = call("ask the supervisor for the files of the sandbox");
        let document = memory_file().map_err(failed)?;
        self.send(request::FILES, [freezes.into(), 0], &[document.as_fd()])?;
        let directories: Vec<OwnedFd> = self.expect_done()?.into_iter().flatten().collect();
        let files: PrivateFiles = read_answer(&document)?;
        match files.places.len() == directories.len() {
            true => Ok((files, directories)),
            false => Err(ControlError::Malformed),
        }
    }

    /// Asks for what a command wrote.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn log(&self, wanted: &LogRequest) -> Result<LogAnswer, ControlError> {
        self.ask(request::LOG, document(wanted)?)
    }

    /// Moves the end of the sandbox.
    ///
    /// # Errors
    /// [`ControlError`]; [`Refusal::Version`] if the supervisor does not know the request.
    pub fn update(&self, wanted: &UpdateRequest) -> Result<UpdateAnswer, ControlError> {
        let asked = self.ask(request::UPDATE, document(wanted)?);
        asked.map_err(of_earlier_version)
    }

    /// Sends a request whose answer replaces the content of `document`.
    fn ask<T: DeserializeOwned>(&self, kind: u32, document: File) -> Result<T, ControlError> {
        self.send(kind, [0; 2], &[document.as_fd()])?;
        self.expect_done()?;
        read_answer(&document)
    }

    /// Asks for a connection to a TCP port of the sandbox's loopback: a socket that does not block, connected or
    /// connecting, or the errno. The sandbox is not idle until this client is dropped.
    ///
    /// # Errors
    /// [`ControlError`]; [`Refusal::Version`] if the supervisor does not know the request.
    pub fn connect_to_port(
        &self,
        port: u16,
        is_v6: bool,
    ) -> Result<Result<OwnedFd, Errno>, ControlError> {
        self.send(request::CONNECT, [port.into(), is_v6.into()], &[])?;
        match self.hear()? {
            Some((message, _)) if message.kind == answer::NOT_CONNECTED => {
                Ok(Err(link::errno_from_peer(message.values[0])))
            }
            heard => {
                let received = done(heard).map_err(of_earlier_version)?;
                let socket = received.into_iter().flatten().next();
                socket.map(Ok).ok_or(ControlError::Malformed)
            }
        }
    }

    /// Waits from now on for the end of the sandbox: then [`Client::as_fd`] is readable.
    ///
    /// # Errors
    /// As [`Client::connect_to_port`].
    pub fn wait_for_end(&self) -> Result<(), ControlError> {
        self.send(request::WAIT, [0; 2], &[])?;
        self.expect_done().map(drop).map_err(of_earlier_version)
    }

    /// Stops all processes of the sandbox.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn pause(&self) -> Result<(), ControlError> {
        self.send(request::PAUSE, [0; 2], &[])?;
        self.expect_done().map(drop)
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn resume(&self) -> Result<(), ControlError> {
        self.send(request::RESUME, [0; 2], &[])?;
        self.expect_done().map(drop)
    }

    /// Sends `signal` to the process group of the command with this id, or SIGKILL to its session.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn kill(&self, id: u64, signal: i32) -> Result<(), ControlError> {
        // No command has an id that is not representable.
        let id = i32::try_from(id).unwrap_or(0);
        self.send(request::KILL, [signal, id], &[])?;
        self.expect_done().map(drop)
    }

    /// Ends the sandbox and waits until its supervisor has removed everything and ended. With `force`
    /// also while commands run.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn end(&self, force: bool) -> Result<(), ControlError> {
        self.send(request::END, [force.into(), 0], &[])?;
        self.expect_done()?;
        match self.receive()? {
            Answer::Gone => Ok(()),
            _ => Err(ControlError::Malformed),
        }
    }

    /// `None`: the supervisor has ended.
    fn hear(&self) -> Result<Option<(Message, Received)>, ControlError> {
        match link::receive(self.link.as_fd()) {
            Err(Errno::CONNRESET) => Ok(None),
            Err(Errno::BADMSG) => Err(ControlError::Malformed),
            other => other.map_err(call("hear the supervisor")),
        }
    }

    fn expect_done(&self) -> Result<Received, ControlError> {
        done(self.hear()?)
    }

    fn send(
        &self,
        kind: u32,
        [value, id]: [i32; 2],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let message = Message::with(kind, [VERSION, value, id]);
        match link::send(self.link.as_fd(), message, descriptors) {
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ControlError::NoSandbox),
            other => other.map_err(call("speak to the supervisor")),
        }
    }
}

fn done(heard: Option<(Message, Received)>) -> Result<Received, ControlError> {
    match heard {
        // It ended before it read the request.
        None => Err(ControlError::NoSandbox),
        Some((message, received)) if message.kind == answer::DONE => Ok(received),
        Some((message, _)) if message.kind == answer::REFUSED => {
            let refusal = Refusal::of_number(message.values[0]);
            Err(refusal.map_or(ControlError::Malformed, ControlError::Refused))
        }
        Some(_) => Err(ControlError::Malformed),
    }
}

/// A supervisor of an earlier version takes a request that it does not know for a malformed one.
fn of_earlier_version(error: ControlError) -> ControlError {
    match error {
        ControlError::Refused(Refusal::Malformed) => ControlError::Refused(Refusal::Version),
        other => other,
    }
}

fn memory_file() -> Result<File, Errno> {
    memfd_create(c"control", MemfdFlags::CLOEXEC).map(File::from)
}

fn read_answer<T: DeserializeOwned>(mut document: &File) -> Result<T, ControlError> {
    let mut text = Vec::new();
    let read = document
        .seek(SeekFrom::Start(0))
        .and_then(|_start| document.read_to_end(&mut text));
    read.map_err(|error| call("read the answer of the supervisor")(errno_of(&error)))?;
    serde_json::from_slice(&text).map_err(|_encode| ControlError::Malformed)
}

/// A file with `wanted`, read from its start.
fn document(wanted: &impl Serialize) -> Result<File, ControlError> {
    let failed = call("send the request to the supervisor");
    let text = serde_json::to_vec(wanted).map_err(|_encode| failed(Errno::INVAL))?;
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(failed(Errno::TOOBIG));
    }
    let mut document = memory_file().map_err(&failed)?;
    let written = document
        .write_all(&text)
        .and_then(|()| document.seek(SeekFrom::Start(0)));
    written.map_err(|error| failed(errno_of(&error)))?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_that_knows_no_update_is_of_another_version() {
        let (supervisor, link) = link::pair().expect("made");
        let malformed = [Refusal::Malformed as i32, 0, 0];
        let answer = Message::with(answer::REFUSED, malformed);
        link::send(supervisor.as_fd(), answer, &[]).expect("sent");
        let wanted = UpdateRequest {
            timeout_ms: Some(1),
            idle_timeout_ms: None,
        };
        let command = OnceCell::new();
        let client = Client { link, command };
        let refused = client.update(&wanted).expect_err("refused");
        let is_version = matches!(refused, ControlError::Refused(Refusal::Version));
        assert!(is_version, "{refused}");
    }
}
