//! Output files, written atomically.
//!
//! The data goes to an unnamed file (`O_TMPFILE`, open(2)) in the target directory, which is synced
//! and then linked to its name. An interrupted process leaves no file, and a named file is complete
//! even after a power loss. The umask applies to its mode.

use std::cell::Cell;
use std::io::{Read as _, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::BundleError;
use crate::files::FileIdentity;
use spec::path::escape_path;
use sys::file::{CallError, errno_of};
use sys::signal::{SignalSet, is_pending, set_mask};
use sys::trusted_links::{self, Unopened};

/// Signals with which users and service managers terminate a program.
pub const ENDING: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// An output file before [`OutputFile::commit`].
#[derive(Debug)]
pub(crate) struct OutputFile {
    pub(crate) shown: String,
    file: OwnedFd,
    /// `None` for a stream: its data is visible immediately.
    target: Option<Target>,
}

#[derive(Debug)]
struct Target {
    directory: OwnedFd,
    name: Vec<u8>,
    /// Temporary name, if the file system lacks unnamed files.
    temporary: Option<(Vec<u8>, BlockedSignals)>,
}

thread_local! {
    static BLOCKERS: Cell<u32> = const { Cell::new(0) };
}

/// While a value exists, signals that would terminate this process and leave temporary files are blocked.
#[derive(Debug)]
pub struct BlockedSignals(());

impl BlockedSignals {
    /// Blocks them.
    ///
    /// # Errors
    /// The errno of rt_sigprocmask(2).
    pub fn block() -> Result<Self, Errno> {
        set_mask(SignalSet::of(&ENDING))?;
        BLOCKERS.set(BLOCKERS.get() + 1);
        Ok(Self(()))
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let left = BLOCKERS.get().saturating_sub(1);
        BLOCKERS.set(left);
        // rt_sigprocmask(2) fails only for invalid arguments.
        if left == 0 && set_mask(SignalSet::NONE).is_err() {}
    }
}

impl OutputFile {
    /// Opens an output file for `path`. An existing regular file stays unchanged until
    /// [`OutputFile::commit`]. A directory or a dangling link is refused.
    pub(crate) fn create(path: &Path) -> Result<Self, BundleError> {
        Self::create_with(path, OFlags::TMPFILE)
    }

    pub(crate) fn standard_output() -> Result<Self, BundleError> {
        let shown = "standard output".to_owned();
        let file = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0)
            .map_err(|errno| failed(&shown, "fcntl F_DUPFD_CLOEXEC", errno))?;
        Ok(Self {
            shown,
            file,
            target: None,
        })
    }

    fn create_with(path: &Path, unnamed: OFlags) -> Result<Self, BundleError> {
        let shown = escape_path(path);
        let existing = match rustix::fs::stat(path) {
            Ok(status) => Some(FileType::from_raw_mode(status.st_mode)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(&shown, "stat", errno)),
        };
        match existing {
            // The target of a link is replaced, not the link.
            Some(FileType::RegularFile) => {
                let file = open_trusted(path, &shown)?;
                let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
                let path = path.map_err(|error| failed(&shown, "readlink", errno_of(&error)))?;
                Self::create_beside(&path, shown, unnamed)
            }
            Some(FileType::Directory) => Err(refused(&shown, "a directory", "the name of a file")),
            Some(_) => {
                // Any other error: a pipe of this process (`/dev/stdout`) has no path.
                if let Err(error @ BundleError::OutputRefused { .. }) = open_trusted(path, &shown) {
                    return Err(error);
                }
                let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = rustix::fs::open(path, flags, Mode::empty())
                    .map_err(|errno| failed(&shown, "open", errno))?;
                Ok(Self {
                    shown,
                    file,
                    target: None,
                })
            }
            None if path.as_os_str().as_bytes().ends_with(b"/") => Err(refused(
                &shown,
                "the name of a directory",
                "the name of a file",
            )),
            None if rustix::fs::lstat(path).is_ok() => Err(refused(
                &shown,
                "a symlink to a missing file",
                "a file, or a new name",
            )),
            None => Self::create_beside(path, shown, unnamed),
        }
    }

    fn create_beside(path: &Path, shown: String, unnamed: OFlags) -> Result<Self, BundleError> {
        let failed = |call, errno| failed(&shown, call, errno);
        let Some(name) = path.file_name().map(|name| name.as_bytes().to_vec()) else {
            return Err(refused(&shown, "no name", "the name of a file"));
        };
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let directory = open_trusted(above, &shown)?;
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let (file, temporary) = match rustix::fs::openat(&directory, c".", flags | unnamed, mode) {
            Ok(file) => (file, None),
            // EISDIR: a file system that ignores the flag and opens the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let temporary = temporary_name(&name);
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let blocked =
                    BlockedSignals::block().map_err(|errno| failed("rt_sigprocmask", errno))?;
                let file = rustix::fs::openat(&directory, temporary.as_slice(), flags, mode)
                    .map_err(|errno| failed("openat", errno))?;
                (file, Some((temporary, blocked)))
            }
            Err(errno) => return Err(failed("openat", errno)),
        };
        Ok(Self {
            shown,
            file,
            target: Some(Target {
                directory,
                name,
                temporary,
            }),
        })
    }

    /// Whether data is visible before [`OutputFile::commit`].
    pub(crate) fn is_stream(&self) -> bool {
        self.target.is_none()
    }

    /// The identity of the file that will be replaced.
    pub(crate) fn replaces(&self) -> Result<Option<FileIdentity>, BundleError> {
        let Some(Target {
            directory, name, ..
        }) = &self.target
        else {
            return Ok(None);
        };
        match rustix::fs::statat(directory, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(FileIdentity::from_stat(&status))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("fstatat", errno)),
        }
    }

    /// Reads at most `bytes_max` bytes of the file that will be replaced; none if it does not exist.
    pub(crate) fn start_of_replaced(&self, bytes_max: u64) -> Result<Vec<u8>, BundleError> {
        let mut start = Vec::new();
        let Some(Target {
            directory, name, ..
        }) = &self.target
        else {
            return Ok(start);
        };
        // O_NONBLOCK: another file, such as a FIFO, may have taken the name.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(directory, name.as_slice(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(start),
            Err(errno) => return Err(self.failed("openat", errno)),
        };
        std::fs::File::from(file)
            .take(bytes_max)
            .read_to_end(&mut start)
            .map_err(|error| self.failed("read", errno_of(&error)))?;
        Ok(start)
    }

    /// Whether both outputs have the same directory and name.
    pub(crate) fn has_same_path(&self, other: &Self) -> Result<bool, BundleError> {
        let (Some(target), Some(other)) = (&self.target, &other.target) else {
            return Ok(false);
        };
        let identity = |directory| {
            rustix::fs::fstat(directory)
                .map(|status| FileIdentity::from_stat(&status))
                .map_err(|errno| self.failed("fstat", errno))
        };
        Ok(
            target.name == other.name
                && identity(&target.directory)? == identity(&other.directory)?,
        )
    }

    pub(crate) fn refused(&self, found: &'static str, expected: &'static str) -> BundleError {
        refused(&self.shown, found, expected)
    }

    pub(crate) fn identity(&self) -> Result<FileIdentity, BundleError> {
        rustix::fs::fstat(&self.file)
            .map(|status| FileIdentity::from_stat(&status))
            .map_err(|errno| self.failed("fstat", errno))
    }

    pub(crate) fn write_document(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.write_all(bytes)
            .map_err(|error| self.failed("write", errno_of(&error)))
    }

    /// Syncs the file and gives it its name, replacing an existing file, which stays unchanged after an
    /// error.
    pub(crate) fn commit(mut self) -> Result<(), BundleError> {
        let Some(target) = &mut self.target else {
            return Ok(());
        };
        let committed = target.commit(&self.file);
        committed.map_err(|(call, errno)| self.failed(call, errno))
    }

    fn failed(&self, call: &'static str, errno: Errno) -> BundleError {
        failed(&self.shown, call, errno)
    }

    /// Removes a temporary file. Pending signals are delivered if it was the last one.
    fn remove_temporary(&mut self) -> Result<(), Errno> {
        let Some(target) = &mut self.target else {
            return Ok(());
        };
        match target.temporary.take() {
            Some((name, _blocked)) => {
                rustix::fs::unlinkat(&target.directory, name.as_slice(), AtFlags::empty())
            }
            None => Ok(()),
        }
    }
}

impl Target {
    /// Gives `file` its name. The error has the system call.
    fn commit(&mut self, file: &OwnedFd) -> Result<(), (&'static str, Errno)> {
        rustix::fs::fdatasync(file).map_err(|errno| ("fdatasync", errno))?;
        if let Some((temporary, _)) = &self.temporary {
            self.rename(temporary)?;
            self.temporary = None;
            return Ok(());
        }
        match link(file, &self.directory, &self.name) {
            Err(Errno::EXIST) => (),
            other => return other.map_err(|errno| ("linkat", errno)),
        }
        // linkat(2) does not replace files, so the file needs a temporary name for the rename.
        let _blocked = BlockedSignals::block().map_err(|errno| ("rt_sigprocmask", errno))?;
        let temporary = temporary_name(&self.name);
        link(file, &self.directory, &temporary).map_err(|errno| ("linkat", errno))?;
        self.rename(&temporary).map_err(|error| {
            let removed =
                rustix::fs::unlinkat(&self.directory, temporary.as_slice(), AtFlags::empty());
            removed.map_or_else(|errno| ("unlinkat", errno), |()| error)
        })
    }

    fn rename(&self, temporary: &[u8]) -> Result<(), (&'static str, Errno)> {
        rustix::fs::renameat(
            &self.directory,
            temporary,
            &self.directory,
            self.name.as_slice(),
        )
        .map_err(|errno| ("renameat", errno))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // An error of the clean-up is less useful than the one that caused it.
        if self.remove_temporary().is_err() {}
    }
}

fn failed(file: &str, call: &'static str, errno: Errno) -> BundleError {
    BundleError::Output {
        file: file.to_owned(),
        source: CallError::new(call, file, errno),
    }
}

fn refused(file: &str, found: &'static str, expected: &'static str) -> BundleError {
    BundleError::OutputRefused {
        file: file.to_owned(),
        found,
        expected,
    }
}

/// Opens `path` (O_PATH), unless a link of another user is on the way.
fn open_trusted(path: &Path, shown: &str) -> Result<OwnedFd, BundleError> {
    trusted_links::open(path.as_os_str().as_bytes()).map_err(|unopened| match unopened {
        Unopened::Link { .. } => refused(
            shown,
            "behind a symlink of another user",
            "a path whose symlinks belong to you or root",
        ),
        Unopened::Call(errno) => failed(shown, "open", errno),
    })
}

fn link(file: &OwnedFd, directory: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    // AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH before Linux 6.10: linkat(2).
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, path.as_str(), directory, name, flags)
}

fn temporary_name(name: &[u8]) -> Vec<u8> {
    // Truncated: the suffix must fit into NAME_MAX.
    let cut = name.get(..100).unwrap_or(name);
    let pid = std::process::id();
    [b".", cut, format!(".runner-{pid}.tmp").as_bytes()].concat()
}

impl Write for OutputFile {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let target = self.target.as_ref();
        let has_temporary_name = target.is_some_and(|target| target.temporary.is_some());
        if has_temporary_name && is_pending(SignalSet::of(&ENDING))? {
            // The pending signal terminates this process once no temporary file is left.
            self.remove_temporary()?;
            return Err(std::io::Error::other("interrupted by a signal"));
        }
        loop {
            match rustix::io::write(&self.file, data) {
                Err(Errno::INTR) => (),
                // A pipe that does not block.
                Err(Errno::AGAIN) => {
                    let mut file = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
                    match poll(&mut file, None) {
                        Ok(_) | Err(Errno::INTR) => (),
                        Err(errno) => return Err(errno.into()),
                    }
                }
                other => return other.map_err(Into::into),
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .expect("listed")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_complete_or_absent() {
        // File systems without O_TMPFILE: openat(2) answers EISDIR without the flag too.
        for unnamed in [OFlags::TMPFILE, OFlags::empty()] {
            let ground = tempfile::tempdir().expect("a directory");
            let target = ground.path().join("out.tar.gz");
            let dropped = OutputFile::create_with(&target, unnamed).map(|mut file| {
                file.write_all(b"half").expect("written");
            });
            dropped.expect("created");
            assert_eq!(names(ground.path()), [""; 0], "{unnamed:?}");
            for text in ["first", "second"] {
                let mut file = OutputFile::create_with(&target, unnamed).expect("created");
                file.write_all(text.as_bytes()).expect("written");
                file.commit().expect("committed");
                assert_eq!(std::fs::read_to_string(&target).expect("read"), text);
                assert_eq!(names(ground.path()), ["out.tar.gz"], "{unnamed:?}");
            }
        }
    }

    #[test]
    fn signals_are_blocked_until_no_temporary_file_is_left() {
        let are_blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("read");
            let mut lines = status.lines();
            let mask = lines.find_map(|line| line.strip_prefix("SigBlk:"));
            mask.expect("a mask")
                .contains(|digit| ('1'..='f').contains(&digit))
        };
        let ground = tempfile::tempdir().expect("a directory");
        let create = |name| OutputFile::create_with(&ground.path().join(name), OFlags::empty());
        let (first, second) = (create("a").expect("created"), create("b").expect("created"));
        assert!(are_blocked());
        first.commit().expect("committed");
        assert!(are_blocked(), "the second file is still temporary");
        drop(second);
        assert!(!are_blocked());
        create("no/such").expect_err("no directory");
        assert!(!are_blocked());
    }

    #[test]
    fn the_target_of_a_link_is_replaced() {
        let ground = tempfile::tempdir().expect("a directory");
        let (real, link) = (ground.path().join("real"), ground.path().join("link"));
        std::fs::write(&real, "old").expect("written");
        std::os::unix::fs::symlink("real", &link).expect("linked");
        let mut file = OutputFile::create(&link).expect("created");
        let replaced = file.replaces().expect("looked");
        let found = rustix::fs::stat(&real).expect("there");
        assert_eq!(replaced, Some(FileIdentity::from_stat(&found)));
        file.write_all(b"new").expect("written");
        file.commit().expect("committed");
        assert_eq!(std::fs::read_to_string(&real).expect("read"), "new");
        assert!(link.symlink_metadata().expect("there").is_symlink());
    }

    #[test]
    fn directories_and_dangling_links_are_refused_and_devices_are_written() {
        let ground = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("nowhere", ground.path().join("dangling")).expect("linked");
        for (path, code) in [
            (ground.path().to_owned(), "output_refused"),
            (ground.path().join("new/"), "output_refused"),
            (ground.path().join("dangling"), "output_refused"),
            (ground.path().join("missing/out"), "output_unwritable"),
        ] {
            let error = OutputFile::create(&path).expect_err("refused");
            assert_eq!(error.code(), code, "{error}");
        }
        let mut file = OutputFile::create(Path::new("/dev/null")).expect("opened");
        file.write_all(b"x").expect("written");
        assert_eq!(file.replaces().expect("looked"), None);
        file.commit().expect("nothing to do");
    }
}
