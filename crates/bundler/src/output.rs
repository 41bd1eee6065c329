//! Output files, written atomically.
//!
//! The data goes to an unnamed file (`O_TMPFILE`, open(2)) in the target directory, which is synced
//! and then linked to its name. An interrupted process leaves no file, and a named file is complete
//! even after a power loss. The umask applies to its mode.

use std::io::{Read as _, Write};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::ComposeError;
use crate::files::FileIdentity;
use spec::path::escape;
use sys::file::CallError;
use sys::signal::{SignalSet, is_pending, set_mask};

/// Signals with which users and service managers terminate a program.
pub const ENDING: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// An output file before [`OutputFile::commit`].
#[derive(Debug)]
pub struct OutputFile {
    shown: String,
    file: OwnedFd,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Stream,
    Named {
        directory: OwnedFd,
        name: Vec<u8>,
        /// Temporary name, if the file system lacks unnamed files. While it exists, signals that
        /// would terminate this process and leave the file are blocked.
        temporary: Option<Vec<u8>>,
    },
}

impl OutputFile {
    /// Opens an output file for `path`. An existing regular file stays unchanged until
    /// [`OutputFile::commit`].
    ///
    /// # Errors
    /// [`ComposeError::Output`]; [`ComposeError::OutputRefused`] for a directory or a dangling
    /// link.
    pub fn create(path: &Path) -> Result<Self, ComposeError> {
        Self::create_with(path, OFlags::TMPFILE)
    }

    fn create_with(path: &Path, unnamed: OFlags) -> Result<Self, ComposeError> {
        let shown = escape(path.as_os_str().as_bytes());
        let failed = |call, errno| ComposeError::Output {
            file: shown.clone(),
            source: CallError::new(call, shown.clone(), errno),
        };
        let refused = |found, expected| ComposeError::OutputRefused {
            file: shown.clone(),
            found,
            expected,
        };
        let there = match rustix::fs::stat(path) {
            Ok(status) => Some(FileType::from_raw_mode(status.st_mode)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed("stat", errno)),
        };
        match there {
            // Written beside the target of a link, so that the link is kept.
            Some(FileType::RegularFile) => {
                let path = path.canonicalize().map_err(|error| {
                    failed(
                        "realpath",
                        Errno::from_io_error(&error).unwrap_or(Errno::IO),
                    )
                })?;
                Self::beside(&path, shown, unnamed)
            }
            Some(FileType::Directory) => Err(refused("a directory", "the name of a file")),
            Some(_) => {
                let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = rustix::fs::open(path, flags, Mode::empty())
                    .map_err(|errno| failed("open", errno))?;
                Ok(Self {
                    shown,
                    file,
                    place: Place::Stream,
                })
            }
            None if path.as_os_str().as_bytes().ends_with(b"/") => {
                Err(refused("the name of a directory", "the name of a file"))
            }
            None if rustix::fs::lstat(path).is_ok() => {
                Err(refused("a symlink to nothing", "a file, or no such name"))
            }
            None => Self::beside(path, shown, unnamed),
        }
    }

    fn beside(path: &Path, shown: String, unnamed: OFlags) -> Result<Self, ComposeError> {
        let failed = |call, errno| ComposeError::Output {
            file: shown.clone(),
            source: CallError::new(call, shown.clone(), errno),
        };
        let Some(name) = path.file_name().map(|name| name.as_bytes().to_vec()) else {
            return Err(ComposeError::OutputRefused {
                file: shown,
                found: "no name",
                expected: "the name of a file",
            });
        };
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(above, flags, Mode::empty()).map_err(|errno| failed("open", errno))?;
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(&directory, c".", flags | unnamed, mode) {
            Ok(file) => Ok(Self {
                shown,
                file,
                place: Place::Named {
                    directory,
                    name,
                    temporary: None,
                },
            }),
            // EISDIR: a file system that ignores the flag and opens the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let temporary = temporary_name(&name);
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                set_mask(SignalSet::of(&ENDING))
                    .map_err(|errno| failed("rt_sigprocmask", errno))?;
                let file = rustix::fs::openat(&directory, temporary.as_slice(), flags, mode)
                    .map_err(|errno| failed("openat", errno))?;
                Ok(Self {
                    shown,
                    file,
                    place: Place::Named {
                        directory,
                        name,
                        temporary: Some(temporary),
                    },
                })
            }
            Err(errno) => Err(failed("openat", errno)),
        }
    }

    /// Whether data is visible immediately instead of at [`OutputFile::commit`].
    #[must_use]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.place, Place::Stream)
    }

    /// Returns the identity of the file that will be replaced.
    ///
    /// # Errors
    /// [`ComposeError::Output`].
    pub fn replaces(&self) -> Result<Option<FileIdentity>, ComposeError> {
        let Place::Named {
            directory, name, ..
        } = &self.place
        else {
            return Ok(None);
        };
        match rustix::fs::statat(directory, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(FileIdentity::of(&status))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("fstatat", errno)),
        }
    }

    /// Reads at most `most` bytes of the file that will be replaced, if any.
    ///
    /// # Errors
    /// [`ComposeError::Output`].
    pub fn start_of_replaced(&self, most: u64) -> Result<Option<Vec<u8>>, ComposeError> {
        let Place::Named {
            directory, name, ..
        } = &self.place
        else {
            return Ok(None);
        };
        // O_NONBLOCK: another file, such as a FIFO, may have taken the name.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(directory, name.as_slice(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed("openat", errno)),
        };
        let mut start = Vec::new();
        std::fs::File::from(file)
            .take(most)
            .read_to_end(&mut start)
            .map_err(|error| {
                self.failed("read", Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
        Ok(Some(start))
    }

    /// Whether both outputs have the same directory and name.
    ///
    /// # Errors
    /// [`ComposeError::Output`].
    pub fn is_at_the_place_of(&self, other: &Self) -> Result<bool, ComposeError> {
        let (
            Place::Named {
                directory: here,
                name,
                ..
            },
            Place::Named {
                directory: there,
                name: other_name,
                ..
            },
        ) = (&self.place, &other.place)
        else {
            return Ok(false);
        };
        let identity = |directory| {
            rustix::fs::fstat(directory)
                .map(|status| FileIdentity::of(&status))
                .map_err(|errno| self.failed("fstat", errno))
        };
        Ok(name == other_name && identity(here)? == identity(there)?)
    }

    /// Creates the error for a path that is not allowed.
    #[must_use]
    pub fn refused(&self, found: &'static str, expected: &'static str) -> ComposeError {
        ComposeError::OutputRefused {
            file: self.shown.clone(),
            found,
            expected,
        }
    }

    /// Returns the identity of the new file.
    ///
    /// # Errors
    /// [`ComposeError::Output`].
    pub fn identity(&self) -> Result<FileIdentity, ComposeError> {
        rustix::fs::fstat(&self.file)
            .map(|status| FileIdentity::of(&status))
            .map_err(|errno| self.failed("fstat", errno))
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// [`ComposeError::Output`].
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), ComposeError> {
        self.write_all(bytes).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.failed("write", errno)
        })
    }

    /// Adds the name of this file to a write error.
    #[must_use]
    pub fn named(&self, error: ComposeError) -> ComposeError {
        error.at(&self.shown)
    }

    /// Syncs the file and renames it to its name, replacing an existing file.
    ///
    /// # Errors
    /// [`ComposeError::Output`]; the target is unchanged.
    pub fn commit(mut self) -> Result<(), ComposeError> {
        let Place::Named {
            directory,
            name,
            temporary,
        } = &mut self.place
        else {
            return Ok(());
        };
        let shown = self.shown.clone();
        let failed = |call, errno| ComposeError::Output {
            file: shown.clone(),
            source: CallError::new(call, shown.clone(), errno),
        };
        rustix::fs::fdatasync(&self.file).map_err(|errno| failed("fdatasync", errno))?;
        if let Some(own) = temporary {
            rustix::fs::renameat(&*directory, own.as_slice(), &*directory, &**name)
                .map_err(|errno| failed("renameat", errno))?;
            *temporary = None;
            return set_mask(SignalSet::NONE).map_err(|errno| failed("rt_sigprocmask", errno));
        }
        match link(&self.file, directory, name) {
            Err(Errno::EXIST) => (),
            other => return other.map_err(|errno| failed("linkat", errno)),
        }
        // linkat(2) does not replace files, so the file needs a temporary name for the rename.
        // Signals are blocked while it exists.
        set_mask(SignalSet::of(&ENDING)).map_err(|errno| failed("rt_sigprocmask", errno))?;
        let own = temporary_name(name);
        let renamed = link(&self.file, directory, &own)
            .map_err(|errno| ("linkat", errno))
            .and_then(|()| {
                rustix::fs::renameat(&*directory, own.as_slice(), &*directory, &**name).map_err(
                    |errno| {
                        let removed =
                            rustix::fs::unlinkat(&*directory, own.as_slice(), AtFlags::empty());
                        match removed {
                            Ok(()) => ("renameat", errno),
                            Err(errno) => ("unlinkat", errno),
                        }
                    },
                )
            });
        let unmasked = set_mask(SignalSet::NONE).map_err(|errno| ("rt_sigprocmask", errno));
        renamed
            .and(unmasked)
            .map_err(|(call, errno)| failed(call, errno))
    }

    fn failed(&self, call: &'static str, errno: Errno) -> ComposeError {
        ComposeError::Output {
            file: self.shown.clone(),
            source: CallError::new(call, self.shown.clone(), errno),
        }
    }

    /// Removes a temporary file; pending signals are delivered.
    fn take_back(&mut self) -> Result<(), Errno> {
        let Place::Named {
            directory,
            temporary,
            ..
        } = &mut self.place
        else {
            return Ok(());
        };
        let Some(own) = temporary.take() else {
            return Ok(());
        };
        let removed = rustix::fs::unlinkat(&*directory, own.as_slice(), AtFlags::empty());
        set_mask(SignalSet::NONE).and(removed)
    }

    fn has_temporary_name(&self) -> bool {
        matches!(
            self.place,
            Place::Named {
                temporary: Some(_),
                ..
            }
        )
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // The original error is already reported and more useful.
        if self.take_back().is_err() {}
    }
}

fn link(file: &OwnedFd, directory: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    // AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH before Linux 6.10: linkat(2).
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, path.as_str(), directory, name, flags)
}

fn temporary_name(name: &[u8]) -> Vec<u8> {
    // Recognizable, and short enough for the suffix.
    let cut = name.get(..100).unwrap_or(name);
    let pid = std::process::id();
    [b".", cut, format!(".runner-{pid}.tmp").as_bytes()].concat()
}

impl Write for OutputFile {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if self.has_temporary_name() && is_pending(SignalSet::of(&ENDING))? {
            // A pending signal terminates this process here.
            self.take_back()?;
            return Err(std::io::Error::other("a signal came"));
        }
        rustix::io::retry_on_intr(|| rustix::io::write(&self.file, data)).map_err(Into::into)
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
    fn a_file_is_there_whole_or_not_at_all() {
        // The second way is that of file systems without O_TMPFILE: a flag that openat(2) answers
        // with EISDIR stands for them.
        for unnamed in [OFlags::TMPFILE, OFlags::empty()] {
            let ground = tempfile::tempdir().expect("a directory");
            let target = ground.path().join("out.tar.gz");
            let given_up = OutputFile::create_with(&target, unnamed).map(|mut file| {
                file.write_all(b"half").expect("written");
            });
            given_up.expect("created");
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
    fn a_link_stays_a_link_and_what_it_points_to_is_replaced() {
        let ground = tempfile::tempdir().expect("a directory");
        let (real, link) = (ground.path().join("real"), ground.path().join("link"));
        std::fs::write(&real, "old").expect("written");
        std::os::unix::fs::symlink("real", &link).expect("linked");
        let mut file = OutputFile::create(&link).expect("created");
        let replaced = file.replaces().expect("looked");
        let found = rustix::fs::stat(&real).expect("there");
        assert_eq!(replaced, Some(FileIdentity::of(&found)));
        file.write_all(b"new").expect("written");
        file.commit().expect("committed");
        assert_eq!(std::fs::read_to_string(&real).expect("read"), "new");
        assert!(link.symlink_metadata().expect("there").is_symlink());
    }

    #[test]
    fn what_is_no_file_is_refused_or_written_as_it_is() {
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
