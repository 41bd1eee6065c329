//! Files of a layout. Only regular files beneath its directory are opened, without following links.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::oci::layout::error::LayoutError;
use spec::digest::Digest;
use spec::path::escape_path;
use spec::units::limit;
use sys::file::{CallError, Unread, open_beneath, read_regular};

#[derive(Debug)]
pub(super) struct Directory {
    /// Escaped.
    pub(super) display_path: String,
    pub(super) descriptor: OwnedFd,
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Self, LayoutError> {
        let display_path = escape_path(path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| call_error(&display_path, "open", ".", "opened", errno))?;
        Ok(Self {
            display_path,
            descriptor,
        })
    }

    /// Opens a file; `None` if it does not exist.
    pub(super) fn open_file(&self, name: &str) -> Result<Option<File>, LayoutError> {
        // O_NONBLOCK: opening a FIFO would block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let directory = self.descriptor.as_fd();
        let file = match open_beneath(directory, name.as_bytes(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => {
                return Err(
                    self.invalid(name, "is reached through a link, expected a regular file")
                );
            }
            Err(errno) => return Err(self.failed("openat2", name, "opened")(errno)),
        };
        let status = rustix::fs::fstat(&file).map_err(self.failed("fstat", name, "read"))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(self.invalid(name, "is not a regular file"));
        }
        Ok(Some(File::from(file)))
    }

    /// Reads a file of at most `bytes_max` bytes; `None` if it does not exist.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, LayoutError> {
        let Some(file) = self.open_file(name)? else {
            return Ok(None);
        };
        let limit_bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match read_regular(OwnedFd::from(file), limit_bytes) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Unread::TooLarge) => {
                Err(self.invalid(name, &format!("has more than {}", limit(&bytes_max))))
            }
            Err(Unread::NotRegular) => Err(self.invalid(name, "is not a regular file")),
            Err(Unread::Stat(errno)) => Err(self.failed("fstat", name, "read")(errno)),
            Err(Unread::Read(errno)) => Err(self.failed("read", name, "read")(errno)),
        }
    }

    pub(super) fn invalid(&self, file: &str, problem: &str) -> LayoutError {
        LayoutError::Invalid {
            directory: self.display_path.clone(),
            file: file.to_owned(),
            problem: problem.to_owned(),
        }
    }

    pub(super) fn failed<'name>(
        &self,
        call: &'static str,
        file: &'name str,
        act: &'static str,
    ) -> impl Fn(Errno) -> LayoutError + use<'name> {
        let directory = self.display_path.clone();
        move |errno| call_error(&directory, call, file, act, errno)
    }
}

/// Creates the error of `call` on `file` of the layout `directory`; `.` is the directory itself.
pub(super) fn call_error(
    directory: &str,
    call: &'static str,
    file: &str,
    act: &'static str,
    errno: Errno,
) -> LayoutError {
    let object = if file == "." { directory } else { file };
    LayoutError::Unusable {
        directory: directory.to_owned(),
        file: file.to_owned(),
        act,
        source: CallError::new(call, object, errno),
    }
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}", digest.to_string().replace(':', "/"))
}
