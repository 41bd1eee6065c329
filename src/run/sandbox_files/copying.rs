//! The client's side of a copy.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use archive::transfer::TOP;
use archive::transfer::pack::{PackError, PackTask, is_contents, last_segment, pack};
use archive::transfer::place::{Content, LastLink, Place, PlaceError};
use reader::{Feed, Problem, unpack_files};
use rustix::io::Errno;
use sandbox::control::{Answer, Client};
use sandbox::steps::ChildStep;
use sandbox::supervise::streams::{Writer, make_pipes};
use sandbox::supervise::watch::listen_for_signals;
use spec::report::Exit;
use spec::request::Caller;
use spec::sandboxes::{Action, CommandLimits, CommandRequest, SandboxName};

use crate::run::error::RunError;
use crate::run::host::temporary_record::{Purpose, TemporaryRecord};
use crate::run::sandbox_files::streams::{End, Streams};
use crate::run::sandbox_files::{
    ARCHIVE, CONTENTS, FOLLOW, KEEP, NAMED, SNAPSHOT, Skipped, special_entries_warning,
};
use crate::run::verbs::sandboxes::{SandboxError, connect};

const PIECE_BYTES: usize = 64 << 10;

/// Files were not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Record(Box<RunError>),
    #[error("what came out of the sandbox cannot be unpacked: {0}")]
    Unpack(Problem),
    /// What the command in the sandbox said, escaped.
    #[error("in the sandbox {name}: {message}")]
    Inside { name: SandboxName, message: String },
    #[error(
        "in the sandbox {name}: the process for its files could not be started: cannot {act}: {errno}"
    )]
    NotStarted {
        name: SandboxName,
        act: &'static str,
        errno: Errno,
    },
    #[error("in the sandbox {name}: the process for its files was ended by signal {signal}")]
    Killed { name: SandboxName, signal: i32 },
    #[error("the sandbox {name} ended, and this with it")]
    Gone { name: SandboxName },
    #[error("cannot {act}")]
    Stream {
        act: &'static str,
        #[source]
        source: io::Error,
    },
    /// By a signal to this process.
    #[error("cancelled by signal {0}")]
    Cancelled(i32),
}

impl From<RunError> for CopyError {
    fn from(error: RunError) -> Self {
        Self::Record(Box::new(error))
    }
}

/// The lines about what was skipped.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) skipped: Vec<String>,
}

/// A command that copies or watches files, and its streams.
pub(super) struct Copying<'run> {
    name: &'run SandboxName,
    client: Client,
    pub(super) streams: Streams<'run>,
}

impl<'run> Copying<'run> {
    pub(super) fn start(
        caller: &Caller,
        name: &'run SandboxName,
        action: Action,
        words: &[&[u8]],
        signals: &'run OwnedFd,
    ) -> Result<Self, CopyError> {
        let failed = |act| move |errno| SandboxError::call(act, errno);
        let wanted = CommandRequest {
            action,
            argv: words.iter().map(|word| word.to_vec()).collect(),
            environment: Vec::new(),
            working_directory: Some(b"/".to_vec()),
            terminal: None,
            timeout_ms: None,
            is_detached: false,
            limits: CommandLimits::default(),
        };
        let (ends, pipes) = make_pipes(true).map_err(failed("make the streams of the copy"))?;
        let client = connect(caller, name)?;
        let started = client.exec(&wanted, &ends, false);
        match started.map_err(|error| SandboxError::of_control(name, error))? {
            Answer::Started { .. } => (),
            answer => return Err(not_done(name, answer, &[])),
        }
        // Otherwise the end of a stream would not be seen.
        drop(ends);
        let data = match action {
            Action::ReceiveFiles => pipes.stdin,
            Action::Execute | Action::SendFiles | Action::WatchFiles => Some(pipes.stdout),
        };
        let data = data.ok_or_else(|| SandboxError::call("use the streams", Errno::BADF))?;
        Ok(Self {
            name,
            client,
            streams: Streams::new(data, pipes.stderr, signals.as_fd()),
        })
    }

    /// Waits for the end of the command. `done` is what this side has done. If both sides failed, the one
    /// that ended first has the error to tell.
    pub(super) fn finish<T>(
        mut self,
        done: Result<T, CopyError>,
    ) -> Result<(T, Vec<String>), CopyError> {
        let ended = self.streams.finish(&self.client);
        let ended = ended.map_err(|error| SandboxError::of_control(self.name, error))?;
        if let Some(signal) = self.streams.cancelled() {
            return Err(CopyError::Cancelled(signal));
        }
        let Some(End { answer, messages }) = ended else {
            return Err(CopyError::Gone {
                name: self.name.clone(),
            });
        };
        match (done, answer) {
            (Ok(done), Answer::Ended { raw_status: 0, .. }) => Ok((done, messages)),
            (Err(error), Answer::Ended { raw_status: 0, .. }) => Err(error),
            (Err(error), _) if !self.streams.is_at_end() => Err(error),
            (_, answer) => Err(not_done(self.name, answer, &messages)),
        }
    }
}

fn not_done(name: &SandboxName, answer: Answer, messages: &[String]) -> CopyError {
    let name = name.clone();
    match answer {
        Answer::Ended { raw_status, .. } => match Exit::of_wait_status(raw_status).signal {
            Some(signal) => CopyError::Killed { name, signal },
            None => CopyError::Inside {
                name,
                message: messages
                    .last()
                    .cloned()
                    .unwrap_or_else(|| "the process for its files failed".to_owned()),
            },
        },
        Answer::NotStarted(step, errno) => CopyError::NotStarted {
            name,
            act: ChildStep::act(step),
            errno,
        },
        Answer::Refused(refusal) => SandboxError::refused(&name, refusal).into(),
        Answer::Gone | Answer::Started { .. } => CopyError::Gone { name },
    }
}

pub(super) fn listen() -> Result<OwnedFd, CopyError> {
    listen_for_signals().map_err(|errno| SandboxError::call("listen for signals", errno).into())
}

fn link_word(follows_link: bool) -> &'static [u8] {
    if follows_link { FOLLOW } else { KEEP }.as_bytes()
}

fn content_of(path: &[u8]) -> Content<'_> {
    match is_contents(path) {
        true => Content::OfDirectory,
        false => Content::Named(last_segment(path)),
    }
}

/// Copies `path` of a sandbox to `destination` of the host.
///
/// # Errors
/// [`CopyError`]. Nothing is left at the destination, unless the move of the last step fails.
pub(crate) fn copy_out(
    caller: &Caller,
    name: &SandboxName,
    path: &[u8],
    destination: &[u8],
    follows_link: bool,
) -> Result<Copied, CopyError> {
    let signals = listen()?;
    let place = Place::find(destination, content_of(path), LastLink::Refuse)?;
    let limits = place.limits()?;
    let words: [&[u8]; 4] = [b"copy-out", path, TOP, link_word(follows_link)];
    let copying = Copying::start(caller, name, Action::SendFiles, &words, &signals)?;
    // Dropped after `fresh`.
    let mut record = TemporaryRecord::begin(caller)?;
    let directory = path_of(place.directory()).map_err(|source| CopyError::Stream {
        act: "find the path of the destination",
        source,
    })?;
    let fresh = place.make_fresh_named(record.choose_name(&directory, Purpose::Copy)?)?;
    let copying = RefCell::new(copying);
    let unpacked = unpack_files(
        Feed {
            source: &mut Shared(&copying),
            is_cancelled: &|| is_cancelled(&copying),
        },
        fresh.directory(),
        &limits,
    );
    let (skipped, messages) = copying
        .into_inner()
        .finish(unpacked.map_err(CopyError::Unpack))?;
    fresh.place()?;
    let lines = messages.into_iter().chain(special_entries_warning(skipped));
    Ok(Copied {
        skipped: lines.collect(),
    })
}

/// The path of an open directory, without links.
fn path_of(directory: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The source of a reader, which is asked about signals meanwhile.
struct Shared<'run, 'copy>(&'run RefCell<Copying<'copy>>);

impl Read for Shared<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().streams.read(buffer)
    }
}

fn is_cancelled(copying: &RefCell<Copying<'_>>) -> bool {
    // While the source is read, that learns of signals.
    let Ok(mut copying) = copying.try_borrow_mut() else {
        return false;
    };
    copying.streams.take_signals().is_err() || copying.streams.cancelled().is_some()
}

/// Writes a tar of `path` of a sandbox to standard output.
///
/// # Errors
/// [`CopyError`].
pub(crate) fn send_archive(
    caller: &Caller,
    name: &SandboxName,
    path: &[u8],
    follows_link: bool,
) -> Result<Copied, CopyError> {
    let signals = listen()?;
    let top: &[u8] = if is_contents(path) {
        b"."
    } else {
        last_segment(path)
    };
    let words: [&[u8]; 4] = [b"copy-out", path, top, link_word(follows_link)];
    let mut copying = Copying::start(caller, name, Action::SendFiles, &words, &signals)?;
    let sent = send_output(&mut copying.streams).map_err(|source| CopyError::Stream {
        act: "pass the archive on",
        source,
    });
    let ((), skipped) = copying.finish(sent)?;
    Ok(Copied { skipped })
}

fn send_output(streams: &mut Streams<'_>) -> io::Result<()> {
    let writer = Writer::new(rustix::stdio::stdout())?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match streams.read(&mut piece)? {
            0 => return Ok(()),
            count => streams.write_to(&writer, &piece[..count])?,
        }
    }
}

/// What is copied to a sandbox.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'run> {
    Path(&'run [u8]),
    /// A tar on standard input.
    Archive,
}

/// Copies `source` of the host to `destination` of a sandbox.
///
/// # Errors
/// [`CopyError`]. Nothing is left at the destination, unless the move of the last step fails.
pub(crate) fn copy_in(
    caller: &Caller,
    name: &SandboxName,
    source: Source<'_>,
    destination: &[u8],
    follows_link: bool,
) -> Result<Copied, CopyError> {
    let signals = listen()?;
    let (content, base): (&str, &[u8]) = match source {
        Source::Archive => (ARCHIVE, b""),
        Source::Path(path) => match content_of(path) {
            Content::Named(base) => (NAMED, base),
            Content::OfDirectory | Content::OfArchive => (CONTENTS, b""),
        },
    };
    let words: [&[u8]; 4] = [b"copy-in", destination, content.as_bytes(), base];
    let mut copying = Copying::start(caller, name, Action::ReceiveFiles, &words, &signals)?;
    let mut skipped = Vec::new();
    let sent = match source {
        Source::Path(path) => send_files(&mut copying.streams, path, follows_link, &mut skipped),
        Source::Archive => {
            let sent = pass_on(&mut copying.streams, rustix::stdio::stdin());
            sent.map_err(|source| CopyError::Stream {
                act: "pass standard input on",
                source,
            })
        }
    };
    let ((), messages) = copying.finish(sent)?;
    skipped.extend(messages);
    Ok(Copied { skipped })
}

/// Unpacks `archive`, a snapshot, in a new sandbox.
///
/// # Errors
/// [`CopyError`]. Some of the files may then be there.
pub(crate) fn restore(
    caller: &Caller,
    name: &SandboxName,
    archive: &File,
) -> Result<Copied, CopyError> {
    let signals = listen()?;
    let asked = connect(caller, name)?.files(false);
    let (files, _) = asked.map_err(|error| SandboxError::of_control(name, error))?;
    let mut words: Vec<&[u8]> = vec![b"restore", b"/", SNAPSHOT.as_bytes(), b""];
    words.extend(files.places.iter().map(|place| place.path.as_slice()));
    let mut copying = Copying::start(caller, name, Action::ReceiveFiles, &words, &signals)?;
    let sent = pass_on(&mut copying.streams, archive.as_fd());
    let sent = sent.map_err(|source| CopyError::Stream {
        act: "pass the snapshot on",
        source,
    });
    let ((), skipped) = copying.finish(sent)?;
    Ok(Copied { skipped })
}

fn send_files(
    streams: &mut Streams<'_>,
    path: &[u8],
    follows_link: bool,
    skipped: &mut Vec<String>,
) -> Result<(), CopyError> {
    let mut tell = |line| skipped.push(line);
    let mut skipped = Skipped::new(&mut tell);
    let mut out = BufWriter::with_capacity(PIECE_BYTES, streams);
    let task = PackTask {
        path,
        follows_link,
        top: TOP,
    };
    let packed = pack(task, &mut out, &mut |path, why| skipped.add(path, why));
    let packed = packed.and_then(|()| out.flush().map_err(PackError::Output));
    // An error must not write the rest when this is dropped: that would wait for the other side.
    let (_streams, _rest) = out.into_parts();
    skipped.end();
    Ok(packed?)
}

fn pass_on(streams: &mut Streams<'_>, source: BorrowedFd<'_>) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match streams.read_from(source, &mut piece)? {
            0 => return Ok(()),
            count => streams.write_all(&piece[..count])?,
        }
    }
}
