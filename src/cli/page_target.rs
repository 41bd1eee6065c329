//! The page of `--report` and of `runner report`: a file that is opened before it is needed, and
//! replaced as a whole, as that of `--json` is.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;
use serde::Serialize;

use crate::cli::print::write_all;
use crate::cli::report_file::{self, FileError, Found};
use crate::cli::report_target::TargetError;
use crate::page::{self, PageError};
use spec::path::escape;

const EXTENSION: &[u8] = b".html";

#[derive(Debug)]
pub(super) struct PageTarget {
    flag: &'static str,
    /// The flag's value, escaped.
    name: String,
    file: Found,
}

impl PageTarget {
    /// Opens the file that `flag` names.
    ///
    /// # Errors
    /// [`TargetError`] if it cannot be written, or has another name than that of a page.
    pub(super) fn open(flag: &'static str, value: &OsStr) -> Result<Self, TargetError> {
        let bytes = value.as_bytes();
        let name = escape(bytes);
        if !bytes.to_ascii_lowercase().ends_with(EXTENSION) {
            return Err(TargetError::NoPage { flag, found: name });
        }
        match report_file::open(bytes) {
            Ok(file) => Ok(Self { flag, name, file }),
            Err(error) => Err(error.at_open(flag, name)),
        }
    }

    /// Writes the page of the document `report`.
    ///
    /// # Errors
    /// [`TargetError::Page`], [`TargetError::Write`], but not for EPIPE. [`TargetError::Elsewhere`].
    pub(super) fn write(&self, report: &impl Serialize) -> Result<(), TargetError> {
        let report = serde_json::to_value(report)?;
        let page = page::render(&report)?;
        let mut fill = |fd: BorrowedFd<'_>| Ok(write_all(fd, page.as_bytes())?);
        let written = match &self.file {
            Found::Stream(fd) => fill(fd.as_fd()),
            Found::File(file) => file.write(&mut fill),
        };
        match written {
            Ok(()) | Err(FileError::Call(Errno::PIPE)) => Ok(()),
            Err(error) => Err(error.at_write(self.flag, self.name.clone())),
        }
    }
}

impl From<PageError> for TargetError {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}
