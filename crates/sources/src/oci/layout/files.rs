//! Files of a layout: opened beneath its directory, without links, regular files only.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::oci::layout::error::LayoutError;
use spec::digest::Digest;
use spec::path::escape;
use spec::units::limit;
use sys::file::{CallError, Unread, open_beneath, read_regular};

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) shown: String,
    pub(super) descriptor: OwnedFd,
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Self, LayoutError> {
        let shown = escape(path.as_os_str().as_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| LayoutError::Call {
                directory: shown.clone(),
                file: ".".to_owned(),
                act: "opened",
                source: CallError::new("open", shown.clone(), errno),
            })?;
        Ok(Self { shown, descriptor })
    }

    pub(super) fn file(&self, name: &str) -> Result<Option<(File, u64)>, LayoutError> {
        // O_NONBLOCK: opening a FIFO would block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let opened = open_beneath(
            self.descriptor.as_fd(),
            name.as_bytes(),
            flags,
            Mode::empty(),
        );
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => {
                return Err(self.wrong(name, "is reached through a link, expected a regular file"));
            }
            Err(errno) => return Err(self.failed("openat2", name, "opened")(errno)),
        };
        let status = rustix::fs::fstat(&file).map_err(self.failed("fstat", name, "read"))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(self.wrong(name, "is not a regular file"));
        }
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        Ok(Some((File::from(file), bytes)))
    }

    /// Reads a file of at most `bytes_max` bytes; `None` if it does not exist.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, LayoutError> {
        let Some((file, _)) = self.file(name)? else {
            return Ok(None);
        };
        let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match read_regular(OwnedFd::from(file), most) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Unread::TooLarge) => {
                Err(self.wrong(name, &format!("has more than {}", limit(&bytes_max))))
            }
            Err(Unread::NotRegular) => Err(self.wrong(name, "is not a regular file")),
            Err(Unread::Stat(errno)) => Err(self.failed("fstat", name, "read")(errno)),
            Err(Unread::Read(errno)) => Err(self.failed("read", name, "read")(errno)),
        }
    }

    pub(super) fn wrong(&self, file: &str, problem: &str) -> LayoutError {
        LayoutError::File {
            directory: self.shown.clone(),
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
        let directory = self.shown.clone();
        move |errno| LayoutError::Call {
            directory: directory.clone(),
            file: file.to_owned(),
            act,
            source: CallError::new(call, file, errno),
        }
    }
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}", digest.to_string().replace(':', "/"))
}
