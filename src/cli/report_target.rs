//! Where the report goes: opened before launch, written after the run.

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cli::print::write_all;
use crate::kernel::stdio::duplicate_inherited;
use crate::spec::path::escape;
use crate::spec::report::ErrorReport;

/// Bytes of the report that are written at once.
const PIECE_BYTES: usize = 64 << 10;

/// An open place for the report.
#[derive(Debug)]
pub enum ReportTarget {
    /// `--json`: standard output; the body's output is inside the report.
    StandardOutput,
    /// `--json=FILE` or `--json=fd:N`.
    Open {
        /// The file, or our copy of the descriptor.
        fd: OwnedFd,
        /// As it was given, escaped.
        name: String,
    },
}

/// Why the report cannot go where it should.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// `fd:` and no number.
    #[error("--json={found}: expected fd: and the number of an open descriptor, such as fd:3")]
    Malformed {
        /// As it was given, escaped.
        found: String,
    },
    /// The descriptor is not there, or not for writing.
    #[error("--json=fd:{number}: the descriptor {cause}")]
    Descriptor {
        /// Its number.
        number: i32,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// The file cannot be opened.
    #[error("--json={file} cannot be opened for writing: {errno}")]
    File {
        /// The path, escaped.
        file: String,
        /// Why.
        #[source]
        errno: Errno,
    },
    /// It was open and could not be written.
    #[error("the report could not be written to {name}: {errno}")]
    Write {
        /// The target.
        name: String,
        /// Why.
        #[source]
        errno: Errno,
    },
    /// It could not be put into words.
    #[error("the report could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl TargetError {
    /// The error as the report has it.
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        ErrorReport {
            code: "report_unwritable".to_owned(),
            message: crate::spec::report::with_causes(self),
            hint: Some("give --json a file that can be written, or fd:N that is open".to_owned()),
        }
    }
}

impl ReportTarget {
    /// Opens what `--json` names: `-` or `fd:1` is standard output, `fd:N` a descriptor that the
    /// caller left open, everything else a file, which is emptied.
    ///
    /// # Errors
    /// [`TargetError`] where it cannot be written.
    pub fn open(value: &OsStr) -> Result<Self, TargetError> {
        let bytes = value.as_bytes();
        let name = escape(bytes);
        if bytes == b"-" || bytes == b"fd:1" {
            return Ok(Self::StandardOutput);
        }
        if let Some(number) = bytes.strip_prefix(b"fd:") {
            let number = std::str::from_utf8(number)
                .ok()
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|text| text.parse().ok());
            let Some(number) = number else {
                return Err(TargetError::Malformed { found: name });
            };
            return open_descriptor(number).map(|fd| Self::Open { fd, name });
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(value, flags, Mode::from_raw_mode(0o644)) {
            Ok(fd) => Ok(Self::Open { fd, name }),
            Err(errno) => Err(TargetError::File { file: name, errno }),
        }
    }

    /// Whether the body's output has to be inside the report.
    #[must_use]
    pub fn captures(&self) -> bool {
        matches!(self, Self::StandardOutput)
    }

    /// Writes the document as one line of JSON.
    ///
    /// # Errors
    /// [`TargetError::Write`]; a reader that went away is none.
    pub fn write(&self, report: &impl serde::Serialize) -> Result<(), TargetError> {
        let (fd, name) = match self {
            Self::StandardOutput => (rustix::stdio::stdout(), "standard output"),
            Self::Open { fd, name } => (fd.as_fd(), name.as_str()),
        };
        // Piece by piece: the body's output inside it may be large.
        let mut writer = BufWriter::with_capacity(PIECE_BYTES, Descriptor(fd));
        let written = match serde_json::to_writer(&mut writer, report) {
            Ok(()) => writer.write_all(b"\n").and_then(|()| writer.flush()),
            Err(error) if error.is_io() => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        match written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            Ok(()) | Err(Errno::PIPE) => Ok(()),
            Err(errno) => Err(TargetError::Write {
                name: name.to_owned(),
                errno,
            }),
        }
    }
}

/// A descriptor that is waited for where it does not block.
struct Descriptor<'target>(BorrowedFd<'target>);

impl Write for Descriptor<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        write_all(self.0, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn open_descriptor(number: i32) -> Result<OwnedFd, TargetError> {
    let refused = |cause| TargetError::Descriptor { number, cause };
    if number == 2 {
        return Err(refused(
            "is standard error, where the body's own output goes",
        ));
    }
    let fd = duplicate_inherited(number).map_err(|_errno| refused("is not open"))?;
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(|_errno| refused("is not open"))?;
    if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::RDONLY {
        return Err(refused("is not open for writing"));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::outcome::Outcome;
    use crate::spec::report::Report;
    use std::os::fd::AsRawFd as _;

    fn open(text: &str) -> Result<ReportTarget, TargetError> {
        ReportTarget::open(OsStr::new(text))
    }

    #[test]
    fn a_target_that_cannot_be_written_is_refused() {
        let readable = std::fs::File::open("/dev/null").expect("opened");
        for text in [
            "fd:".to_owned(),
            "fd:x".to_owned(),
            "fd:-1".to_owned(),
            "fd:+1".to_owned(),
            "fd:99999999999".to_owned(),
            "fd:2".to_owned(),
            "fd:1000000".to_owned(),
            format!("fd:{}", readable.as_raw_fd()),
            "/nonexistent/report.json".to_owned(),
            "/".to_owned(),
            String::new(),
        ] {
            let error = open(&text).expect_err(&text);
            assert!(error.to_string().contains("--json="), "{error}");
        }
    }

    #[test]
    fn the_report_replaces_what_the_file_held() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("report.json");
        std::fs::write(&path, "x".repeat(100_000)).expect("written");
        let target = ReportTarget::open(path.as_os_str()).expect("opened");
        assert!(!target.captures());
        target
            .write(&Report::new("id".to_owned(), Outcome::Refused))
            .expect("written");
        let text = std::fs::read_to_string(&path).expect("readable");
        let value: serde_json::Value = serde_json::from_str(&text).expect("one JSON text");
        assert_eq!(value["outcome"], "refused");
    }

    #[test]
    fn an_open_descriptor_gets_the_report_and_a_gone_reader_is_no_error() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let target = open(&format!("fd:{}", writer.as_raw_fd())).expect("opened");
        drop(writer);
        drop(reader);
        target
            .write(&Report::new("id".to_owned(), Outcome::Exited))
            .expect("nobody reads, nobody minds");
        assert!(open("-").expect("standard output").captures());
        assert!(open("fd:1").expect("standard output").captures());
    }
}
