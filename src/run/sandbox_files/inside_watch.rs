//! The command of a sandbox that watches a directory (inotify(7)). It writes records: a letter, a path from the
//! directory, and NUL.
//!
//! If nobody reads them it waits, and the kernel's queue of events ends with a mark.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags, inotify};
use rustix::io::Errno;
use spec::path::escape;

use crate::run::sandbox_files::inside::{enter_root, exit_code, stream};
use crate::run::sandbox_files::{RECURSIVE, record};

/// Room for one event with the longest name, and for many others.
const EVENT_BYTES: usize = 16 << 10;
/// Of a directory that is watched, from the root.
const PATH_BYTES_MAX: usize = 4095;
/// Written before more is kept.
const KEPT_BYTES: usize = 64 << 10;

/// Watches the directory in the second word; the third is [`RECURSIVE`] or another.
pub(in crate::run) fn watch(words: &[&CStr]) -> u8 {
    exit_code(try_watch(words))
}

fn try_watch(words: &[&CStr]) -> Result<(), String> {
    let [_, path, recursive] = words else {
        return Err("malformed words".to_owned());
    };
    enter_root()?;
    let failed = |errno| cannot_watch(path.to_bytes(), errno);
    let output = stream(rustix::stdio::stdout());
    let mut watcher = Watcher {
        root: path,
        identity: identity(&open_root(path).map_err(failed)?).map_err(failed)?,
        is_recursive: recursive.to_bytes() == RECURSIVE.as_bytes(),
        inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed)?,
        root_watch: -1,
        paths: HashMap::new(),
        output: output.map_err(|errno| format!("cannot use the output: {errno}"))?,
        kept: Vec::new(),
    };
    let ended = watcher.run();
    // What happened before the end.
    match watcher.flush().and(ended) {
        Ok(()) | Err(Ended::Unread) => Ok(()),
        Err(Ended::Gone) => Err(format!(
            "`{}` was removed, moved, replaced or unmounted",
            escape(path.to_bytes())
        )),
        Err(Ended::Call(path, errno)) => Err(cannot_watch(&path, errno)),
    }
}

fn cannot_watch(path: &[u8], errno: Errno) -> String {
    let path = escape(path);
    match errno {
        Errno::MFILE => format!("cannot watch `{path}`: the sandbox watches as much as it may"),
        Errno::NOSPC => {
            format!("cannot watch `{path}`: there are more directories than it may watch")
        }
        errno => format!("cannot watch `{path}`: {}", std::io::Error::from(errno)),
    }
}

/// Why a watch ended.
enum Ended {
    /// Nobody reads what is written.
    Unread,
    /// What is watched is not there any more.
    Gone,
    Call(Vec<u8>, Errno),
}

struct Watcher<'words> {
    root: &'words CStr,
    /// Device and inode of the directory. It is not kept open: then its removal would be no event.
    identity: (u64, u64),
    is_recursive: bool,
    inotify: OwnedFd,
    root_watch: i32,
    /// The directories from the root, by their watches.
    paths: HashMap<i32, Vec<u8>>,
    output: File,
    kept: Vec<u8>,
}

fn open_root(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Follows no link: in a sandbox there is no openat2(2), so that each name is opened by itself.
fn open_below(root: OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    names.into_iter().try_fold(root, |directory, name| {
        rustix::fs::openat(&directory, name, flags, Mode::empty())
    })
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(directory).map(|stat| (stat.st_dev, stat.st_ino))
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        directory => [directory, b"/", name].concat(),
    }
}

impl Watcher<'_> {
    fn run(&mut self) -> Result<(), Ended> {
        self.add(Vec::new(), false)?;
        self.write_record(record::STARTED, b"")?;
        loop {
            self.flush()?;
            self.wait()?;
            for (watch, flags, name) in self.read()? {
                self.report_event(watch, flags, &name)?;
            }
        }
    }

    /// Waits for events, or until nobody reads them.
    fn wait(&self) -> Result<(), Ended> {
        let mut fds = [
            PollFd::new(&self.inotify, PollFlags::IN),
            // POLLERR: the other end is closed.
            PollFd::new(&self.output, PollFlags::empty()),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => Err(Ended::Unread),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Some events of the queue: at least one, if there is any.
    fn read(&self) -> Result<Vec<(i32, ReadFlags, Vec<u8>)>, Ended> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec());
                    events.push((event.wd(), event.events(), name.unwrap_or_default()));
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(events),
                Err(errno) => return Err(self.failed(errno)),
            }
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }

    fn failed(&self, errno: Errno) -> Ended {
        Ended::Call(self.root.to_bytes().to_vec(), errno)
    }

    fn report_event(&mut self, watch: i32, flags: ReadFlags, name: &[u8]) -> Result<(), Ended> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.write_record(record::OVERFLOW, b"")?;
            // Directories that were made meanwhile.
            return match self.is_recursive {
                true => self.add(Vec::new(), false),
                false => Ok(()),
            };
        }
        let ends = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if watch == self.root_watch && flags.intersects(ends | ReadFlags::IGNORED) {
            return Err(Ended::Gone);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&watch);
        }
        // Of a directory below, which is moved or removed, or of the directory itself.
        let (Some(directory), false) = (self.paths.get(&watch), name.is_empty()) else {
            return Ok(());
        };
        let path = join(directory, name);
        let enters = self.is_recursive && flags.contains(ReadFlags::ISDIR);
        let is_made = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let letter = match () {
            () if is_made => record::CREATE,
            () if flags.contains(ReadFlags::MODIFY) => record::WRITE,
            () if flags.contains(ReadFlags::DELETE) => record::REMOVE,
            () if flags.contains(ReadFlags::MOVED_FROM) => record::RENAME,
            () if flags.contains(ReadFlags::ATTRIB) => record::CHMOD,
            () => return Ok(()),
        };
        self.write_record(letter, &path)?;
        match letter {
            record::CREATE if enters => self.add(path, true),
            record::RENAME if enters => self.forget(&path),
            _ => Ok(()),
        }
    }

    /// Watches a directory, and with `is_recursive` those below it. With `is_new`, its entries are reported.
    fn add(&mut self, top: Vec<u8>, is_new: bool) -> Result<(), Ended> {
        let mut pending = vec![top];
        while let Some(path) = pending.pop() {
            let added = self.add_one(&path, is_new, &mut pending);
            let entered = rustix::process::chdir(c"/").map_err(Added::from);
            match added.and(entered) {
                Ok(()) => (),
                Err(Added::Ended(ended)) => return Err(ended),
                Err(Added::Call(errno)) if path.is_empty() => return Err(self.failed(errno)),
                // It is gone, is something else by now, or is not for this user.
                Err(Added::Call(
                    Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::XDEV,
                )) => (),
                // Too far below.
                Err(Added::Call(Errno::NAMETOOLONG)) => self.write_record(record::OVERFLOW, b"")?,
                Err(Added::Call(errno)) => return Err(Ended::Call(path, errno)),
            }
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        path: &[u8],
        is_new: bool,
        pending: &mut Vec<Vec<u8>>,
    ) -> Result<(), Added> {
        let root = open_root(self.root)?;
        if identity(&root)? != self.identity {
            return Err(Added::Ended(Ended::Gone));
        }
        let directory = open_below(root, path)?;
        // inotify(7) takes a path; this one leads to the directory whatever has become of its name.
        rustix::process::fchdir(&directory)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let watch = inotify::add_watch(&self.inotify, c".", flags)?;
        if path.is_empty() {
            self.root_watch = watch;
        }
        self.paths.insert(watch, path.to_vec());
        if !self.is_recursive {
            return Ok(());
        }
        let failed = |error: std::io::Error| Added::Call(sys::file::errno_of(&error));
        for entry in std::fs::read_dir(".").map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let below = join(path, entry.file_name().as_bytes());
            if is_new {
                self.write_record(record::CREATE, &below)
                    .map_err(Added::Ended)?;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(below);
            }
        }
        Ok(())
    }

    /// Stops to watch a directory that has another name now, and those below it.
    fn forget(&mut self, path: &[u8]) -> Result<(), Ended> {
        let is_below = |other: &Vec<u8>| {
            other
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let moved = self.paths.iter().filter(|(_watch, path)| is_below(path));
        let moved: Vec<i32> = moved.map(|(watch, _path)| *watch).collect();
        for watch in moved {
            self.paths.remove(&watch);
            match inotify::remove_watch(&self.inotify, watch) {
                // The kernel has removed it.
                Ok(()) | Err(Errno::INVAL) => (),
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(())
    }

    fn write_record(&mut self, letter: u8, path: &[u8]) -> Result<(), Ended> {
        self.kept.push(letter);
        self.kept.extend_from_slice(path);
        self.kept.push(0);
        match self.kept.len() > KEPT_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Ended> {
        let written = self.output.write_all(&self.kept);
        self.kept.clear();
        written.map_err(|_closed| Ended::Unread)
    }
}

/// Why a directory is not watched.
enum Added {
    Call(Errno),
    Ended(Ended),
}

impl From<Errno> for Added {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}
