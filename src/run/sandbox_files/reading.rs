//! Reads the private files of a sandbox on the host: what it has changed, and a snapshot of them.
//!
//! Nothing here parses what the sandbox has written. Its directories come as descriptors, and nothing is
//! opened outside of them ([`archive::transfer`]).

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use archive::transfer::changes::{ChangedFile, list_changes};
use archive::transfer::pack::PackError;
use archive::transfer::snapshot::{PrivateDirectory, pack_snapshot};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sandbox::control::Client;
use sandbox::supervise::streams::Writer;
use spec::request::Caller;
use spec::sandboxes::{PrivateFiles, PrivatePlace, SandboxName};
use sys::signal;

use crate::run::sandbox_files::Skipped;
use crate::run::sandbox_files::copying::{CopyError, listen};
use crate::run::sandbox_files::streams::WRITE_INTERVAL;
use crate::run::verbs::sandboxes::{SandboxError, connect};

const PIECE_BYTES: usize = 256 << 10;

/// The private directories of a sandbox.
struct Opened {
    /// While it lives, the sandbox stands still.
    _client: Client,
    is_frozen: bool,
    places: Vec<(PrivatePlace, OwnedFd)>,
}

impl Opened {
    fn open(caller: &Caller, name: &SandboxName, freezes: bool) -> Result<Self, CopyError> {
        let client = connect(caller, name)?;
        let asked = client.files(freezes);
        let asked = asked.map_err(|error| SandboxError::of_control(name, error))?;
        let (PrivateFiles { is_frozen, places }, directories) = asked;
        Ok(Self {
            _client: client,
            is_frozen,
            places: places.into_iter().zip(directories).collect(),
        })
    }

    fn directories(&self) -> impl Iterator<Item = PrivateDirectory<'_>> {
        self.places
            .iter()
            .map(|(place, directory)| PrivateDirectory {
                path: &place.path,
                directory: directory.as_fd(),
                is_upper: place.lowers.is_some(),
            })
    }
}

/// Lists by path the files that a sandbox has made, changed or deleted, but for those on directories of the
/// host.
///
/// # Errors
/// [`CopyError`].
pub(crate) fn diff(caller: &Caller, name: &SandboxName) -> Result<Vec<ChangedFile>, CopyError> {
    let opened = Opened::open(caller, name, false)?;
    let mut all = Vec::new();
    for (private, (place, _)) in opened.directories().zip(&opened.places) {
        let lowers = place.lowers.iter().flatten();
        let lowers = lowers.map(|path| open_lower(path));
        let lowers = lowers.collect::<Result<Vec<_>, _>>();
        let lowers =
            lowers.map_err(|errno| SandboxError::call("open a layer of the image", errno))?;
        all.extend(list_changes(private, lowers)?);
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}

fn open_lower(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = Path::new(OsStr::from_bytes(path));
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// What is to be said of a snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Whether no process of the sandbox could change files meanwhile.
    pub(crate) is_frozen: bool,
    /// The lines about what was skipped.
    pub(crate) skipped: Vec<String>,
}

/// Writes the private files of a sandbox as a tar, which [`restore`](super::restore) reads.
///
/// # Errors
/// [`CopyError`]; what was written is no whole tar.
pub(crate) fn snapshot(
    caller: &Caller,
    name: &SandboxName,
    out: BorrowedFd<'_>,
) -> Result<Snapshot, CopyError> {
    let signals = listen()?;
    let opened = Opened::open(caller, name, true)?;
    let mut skipped_lines = Vec::new();
    let mut tell = |line| skipped_lines.push(line);
    let mut skipped = Skipped::new(&mut tell);
    let mut cancelled = None;
    let out = Writer::new(out).map_err(|errno| SandboxError::call("use the output", errno))?;
    let out = Cancellable {
        out,
        signals: signals.as_fd(),
        cancelled: &mut cancelled,
    };
    let mut out = BufWriter::with_capacity(PIECE_BYTES, out);
    let directories: Vec<_> = opened.directories().collect();
    let packed = pack_snapshot(&directories, &mut out, &mut |path, why| {
        skipped.add(path, why);
    });
    let packed = packed.and_then(|()| out.flush().map_err(PackError::Output));
    // After an error the rest is not written.
    let (_out, _rest) = out.into_parts();
    skipped.end();
    if let Some(signal) = cancelled {
        return Err(CopyError::Cancelled(signal));
    }
    packed?;
    Ok(Snapshot {
        is_frozen: opened.is_frozen,
        skipped: skipped_lines,
    })
}

/// A file that is written until a signal comes.
struct Cancellable<'run> {
    out: Writer,
    signals: BorrowedFd<'run>,
    cancelled: &'run mut Option<i32>,
}

impl Cancellable<'_> {
    fn check(&mut self) -> io::Result<()> {
        while let Some(number) = signal::take(self.signals)? {
            if signal::ends_a_run(number) {
                *self.cancelled = Some(number);
            }
        }
        match self.cancelled {
            Some(_) => Err(Errno::CANCELED.into()),
            None => Ok(()),
        }
    }
}

impl Write for Cancellable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match self.out.write(bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => match self.out.wait(WRITE_INTERVAL) {
                    Ok(()) | Err(Errno::AGAIN | Errno::INTR) => (),
                    Err(errno) => return Err(errno.into()),
                },
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
