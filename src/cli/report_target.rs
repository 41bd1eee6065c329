//! The target of `--json`: opened before launch, written after the run.

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::cli::print::write_all;
use crate::cli::report_file::{self, FileError, Found, ReportFile};
use spec::path::escape;
use spec::report::ErrorReport;
use sys::stdio::duplicate_inherited;

const BUFFER_BYTES: usize = 64 << 10;

/// An open target. `name` is the flag's value, escaped.
#[derive(Debug)]
pub(crate) enum ReportTarget {
    /// `--json`. The body's output is inside the report.
    StandardOutput,
    /// `--json=fd:N`, or a FILE that is a device or a FIFO.
    Open {
        /// The device, or a duplicate of the descriptor.
        fd: OwnedFd,
        name: String,
    },
    /// `--json=FILE`.
    File { file: ReportFile, name: String },
}

/// What the variable of a switch may be, besides empty.
const SWITCH_VALUES: [&str; 8] = ["0", "1", "false", "no", "off", "on", "true", "yes"];

/// Why the report cannot be written. Texts are escaped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("--json={found}: expected fd: and the number of an open descriptor, such as fd:3")]
    Malformed { found: String },
    /// As in the variable of a switch.
    #[error("--json={found}: expected -, fd:N or a file")]
    Switch { found: String },
    #[error("--json=fd:{number}: the descriptor {cause}")]
    Descriptor { number: i32, cause: &'static str },
    #[error("--json={file} cannot be opened for writing: {errno}")]
    File {
        file: String,
        #[source]
        errno: Errno,
    },
    /// The link may be another user's.
    #[error("--json={file} is a symbolic link, which is not followed")]
    Link { file: String },
    /// It would redirect the report.
    #[error("--json={file}: the link `{link}` on the way belongs to uid {uid}")]
    ForeignLink {
        file: String,
        link: String,
        uid: u32,
    },
    /// A directory above the written report was moved or replaced during the run.
    #[error(
        "the report is not at {name}: a directory above it was replaced during the run, and what is \
         there now is not the report"
    )]
    Elsewhere { name: String },
    #[error("the report could not be written to {name}: {errno}")]
    Write {
        name: String,
        #[source]
        errno: Errno,
    },
    #[error("the report could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl TargetError {
    #[must_use]
    pub(crate) fn report(&self) -> ErrorReport {
        ErrorReport {
            code: "report_unwritable".to_owned(),
            message: spec::report::with_causes(self),
            hint: Some(match self {
                Self::Switch { found } => {
                    format!("RUNNER_OPT_JSON=- is standard output, ./{found} a file of that name")
                }
                other => other.hint().to_owned(),
            }),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Link { .. } => "give --json the file that the link names",
            Self::ForeignLink { .. } => "name the directory itself",
            Self::Elsewhere { .. } => "give --json a file outside of what the body may write",
            Self::File { errno, .. } if *errno == Errno::NXIO => {
                "give --json another file, or if this is a FIFO, start its reader first"
            }
            _ => "give --json a file that can be written, or fd:N that is open",
        }
    }
}

impl ReportTarget {
    /// Opens the value of `--json`: `-` and `fd:1` are standard output; `fd:N`, /dev/fd/N and the like
    /// are an inherited descriptor; everything else is a file, which is replaced after the run.
    ///
    /// # Errors
    /// [`TargetError`] if it cannot be written.
    pub(crate) fn open(value: &OsStr) -> Result<Self, TargetError> {
        let bytes = value.as_bytes();
        let name = escape(bytes);
        if bytes == b"-" || bytes == b"fd:1" {
            return Ok(Self::StandardOutput);
        }
        let descriptor = bytes
            .strip_prefix(b"fd:")
            .or_else(|| descriptor_path(bytes));
        if let Some(number) = descriptor {
            let number = std::str::from_utf8(number)
                .ok()
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|text| text.parse().ok());
            return match number {
                None => Err(TargetError::Malformed { found: name }),
                Some(1) => Ok(Self::StandardOutput),
                Some(number) => open_descriptor(number).map(|fd| Self::Open { fd, name }),
            };
        }
        if SWITCH_VALUES.contains(&&*name.to_ascii_lowercase()) {
            return Err(TargetError::Switch { found: name });
        }
        match report_file::open(bytes) {
            Ok(Found::Stream(fd)) => Ok(Self::Open { fd, name }),
            Ok(Found::File(file)) => Ok(Self::File { file, name }),
            Err(error) => {
                Err(error.with_name(name, |file, errno| TargetError::File { file, errno }))
            }
        }
    }

    /// Whether the report must contain the body's output.
    #[must_use]
    pub(crate) fn captures(&self) -> bool {
        matches!(self, Self::StandardOutput)
    }

    /// Writes the document as one line of JSON.
    ///
    /// # Errors
    /// [`TargetError::Write`], but not for EPIPE. [`TargetError::Elsewhere`].
    pub(crate) fn write(&self, report: &impl serde::Serialize) -> Result<(), TargetError> {
        let (written, name) = match self {
            Self::StandardOutput => (fill(rustix::stdio::stdout(), report), "standard output"),
            Self::Open { fd, name } => (fill(fd.as_fd(), report), name.as_str()),
            Self::File { file, name } => (file.write(&mut |fd| fill(fd, report)), name.as_str()),
        };
        match written {
            Ok(()) | Err(Unwritten::File(FileError::Call(Errno::PIPE))) => Ok(()),
            Err(Unwritten::File(error)) => {
                Err(
                    error.with_name(name.to_owned(), |name, errno| TargetError::Write {
                        name,
                        errno,
                    }),
                )
            }
            Err(Unwritten::Json(error)) => Err(error.into()),
        }
    }
}

impl FileError {
    fn with_name(self, name: String, call: fn(String, Errno) -> TargetError) -> TargetError {
        match self {
            Self::Link => TargetError::Link { file: name },
            Self::ForeignLink { link, uid } => TargetError::ForeignLink {
                file: name,
                link: escape(&link),
                uid,
            },
            Self::Elsewhere => TargetError::Elsewhere { name },
            Self::Call(errno) => call(name, errno),
        }
    }
}

enum Unwritten {
    File(FileError),
    Json(serde_json::Error),
}

impl From<FileError> for Unwritten {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

fn fill(fd: BorrowedFd<'_>, report: &impl serde::Serialize) -> Result<(), Unwritten> {
    // Not as one string: the body's output inside it may be large.
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, Descriptor(fd));
    let written = match serde_json::to_writer(&mut writer, report) {
        Ok(()) => writer.write_all(b"\n").and_then(|()| writer.flush()),
        Err(error) if error.is_io() => Err(error.into()),
        Err(error) => return Err(Unwritten::Json(error)),
    };
    written.map_err(|error| {
        let errno = sys::file::errno_of(&error);
        Unwritten::File(FileError::Call(errno))
    })
}

/// The number in a path of an open descriptor, such as that of a shell's `>(…)`.
fn descriptor_path(path: &[u8]) -> Option<&[u8]> {
    match path {
        b"/dev/stdin" => Some(b"0"),
        b"/dev/stdout" => Some(b"1"),
        b"/dev/stderr" => Some(b"2"),
        _ => path
            .strip_prefix(b"/dev/fd/")
            .or_else(|| path.strip_prefix(b"/proc/self/fd/")),
    }
}

/// Waits if the descriptor is non-blocking and full.
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
    use spec::outcome::Outcome;
    use spec::report::Report;
    use std::os::fd::AsRawFd as _;

    fn open(text: &str) -> Result<ReportTarget, TargetError> {
        ReportTarget::open(OsStr::new(text))
    }

    #[test]
    fn a_target_that_cannot_be_written_is_refused() {
        let readable = std::fs::File::open("/dev/null").expect("opened");
        let directory = tempfile::tempdir().expect("a directory");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("elsewhere", &link).expect("linked");
        for text in [
            link.display().to_string(),
            directory.path().display().to_string(),
            format!("{}/new/", directory.path().display()),
            "/dev/stderr".to_owned(),
            "/dev/fd/1000000".to_owned(),
            "/dev/fd/x".to_owned(),
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
    fn a_fifo_is_written_if_it_has_a_reader_and_else_refused() {
        use rustix::fs::{CWD, FileType, Mode};
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("fifo");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("made");
        let (opened, result) = std::sync::mpsc::channel();
        let name = path.clone();
        std::thread::spawn(move || opened.send(ReportTarget::open(name.as_os_str())));
        let limit = std::time::Duration::from_secs(10);
        let error = result.recv_timeout(limit).expect("it does not wait");
        let report = error.expect_err("no reader").report();
        assert_eq!(report.code, "report_unwritable");
        let hint = report.hint.expect("a hint");
        assert!(hint.contains("FIFO"), "{hint}");

        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&path, flags, Mode::empty()).expect("opened");
        let target = ReportTarget::open(path.as_os_str()).expect("it has a reader");
        let ReportTarget::Open { fd, .. } = &target else {
            unreachable!("a FIFO is written directly");
        };
        let flags = rustix::fs::fcntl_getfl(fd).expect("open");
        assert!(!flags.contains(OFlags::NONBLOCK));
        let report = Report::new("id".to_owned(), Outcome::Refused);
        target.write(&report).expect("written");
        let mut text = [0; 64];
        assert!(rustix::io::read(&reader, &mut text).expect("readable") > 0);
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
    fn a_report_keeps_the_rights_of_the_file_that_it_replaces() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("report.json");
        std::fs::write(&path, "old").expect("written");
        for mode in [0o600, 0o664] {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, rights).expect("set");
            let target = ReportTarget::open(path.as_os_str()).expect("opened");
            let before = std::fs::read(&path).expect("readable");
            assert!(!before.is_empty(), "it is there until the end");
            target
                .write(&Report::new("id".to_owned(), Outcome::Refused))
                .expect("written");
            let found = std::fs::metadata(&path).expect("there");
            assert_eq!(found.mode() & 0o7777, mode);
        }
        let left = std::fs::read_dir(directory.path()).expect("listed");
        assert_eq!(left.count(), 1);
    }

    #[test]
    fn an_open_descriptor_gets_the_report_and_a_gone_reader_is_no_error() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let target = open(&format!("fd:{}", writer.as_raw_fd())).expect("opened");
        drop(writer);
        drop(reader);
        target
            .write(&Report::new("id".to_owned(), Outcome::Exited))
            .expect("EPIPE is not an error");
        assert!(open("-").expect("standard output").captures());
        for name in ["fd:1", "/dev/stdout", "/dev/fd/1"] {
            assert!(open(name).expect("standard output").captures());
        }
    }
}
