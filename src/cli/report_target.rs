//! The targets of flags that name a file or a descriptor, and that of `--json`: opened before launch,
//! written after the run.

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::cli::print::write_all;
use crate::cli::report_file::{self, FileError, Found, ReportFile};
use crate::page::PageError;
use spec::path::escape;
use spec::report::ErrorReport;
use sys::stdio::duplicate_inherited;

const BUFFER_BYTES: usize = 64 << 10;
/// The long names of the flags of the report.
const JSON: &str = "json";
pub(super) const REPORT: &str = "report";
pub(super) const OUTPUT: &str = "output";

/// An open target. `name` is the flag's value, escaped.
#[derive(Debug)]
pub(crate) enum ReportTarget {
    /// `--json`. The body's output is inside the report.
    StandardOutput,
    /// `--json=fd:N`, or a FILE that is a device or a FIFO.
    Open {
        /// The device, or a duplicate of the descriptor.
        fd: OwnedFd,
        flag: &'static str,
        name: String,
    },
    /// `--json=FILE`.
    File {
        file: ReportFile,
        flag: &'static str,
        name: String,
    },
}

/// What the variable of a switch may be, besides empty.
const SWITCH_VALUES: [&str; 8] = ["0", "1", "false", "no", "off", "on", "true", "yes"];

/// Why the value of `flag` cannot be written. Texts are escaped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("--{flag}={found}: expected fd: and the number of an open descriptor, such as fd:3")]
    Malformed { flag: &'static str, found: String },
    /// As in the variable of a switch.
    #[error("--json={found}: expected -, fd:N or a file")]
    Switch { found: String },
    #[error("--{flag}=fd:{number}: the descriptor {cause}")]
    Descriptor {
        flag: &'static str,
        number: i32,
        cause: &'static str,
    },
    #[error("--{flag}={file} cannot be opened for writing: {errno}")]
    File {
        flag: &'static str,
        file: String,
        #[source]
        errno: Errno,
    },
    /// The link may be another user's.
    #[error("--{flag}={file} is a symbolic link, which is not followed")]
    Link { flag: &'static str, file: String },
    /// It would redirect what is written.
    #[error("--{flag}={file}: the link `{link}` on the way belongs to uid {uid}")]
    ForeignLink {
        flag: &'static str,
        file: String,
        link: String,
        uid: u32,
    },
    /// A directory above the written report was moved or replaced during the run.
    #[error(
        "the report is not at {name}: a directory above it was replaced during the run, and what is \
         there now is not the report"
    )]
    Elsewhere { flag: &'static str, name: String },
    #[error("the report could not be written to {name}: {errno}")]
    Write {
        flag: &'static str,
        name: String,
        #[source]
        errno: Errno,
    },
    #[error("the report could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("--{flag}={found}: expected a file whose name ends with .html")]
    NoPage { flag: &'static str, found: String },
    #[error("the report could not be made a page")]
    Page(#[source] PageError),
}

impl TargetError {
    #[must_use]
    pub(crate) fn report(&self) -> ErrorReport {
        ErrorReport::new("report_unwritable", spec::report::with_causes(self))
            .with_hint(self.hint())
    }

    fn hint(&self) -> String {
        match self {
            Self::Switch { found } => {
                format!("RUNNER_OPT_JSON=- is standard output, ./{found} a file of that name")
            }
            Self::Link { flag, .. } => format!("give --{flag} the file that the link names"),
            Self::ForeignLink { .. } => "name the directory itself".to_owned(),
            Self::Elsewhere { flag, .. } => {
                format!("give --{flag} a file outside of what the body may write")
            }
            Self::File { flag, errno, .. } if *errno == Errno::NXIO => {
                format!("give --{flag} another file, or if this is a FIFO, start its reader first")
            }
            Self::File {
                flag: flag @ (REPORT | OUTPUT),
                ..
            }
            | Self::Write {
                flag: flag @ (REPORT | OUTPUT),
                ..
            } => format!("give --{flag} a file that can be written"),
            Self::Malformed { flag, .. }
            | Self::Descriptor { flag, .. }
            | Self::File { flag, .. }
            | Self::Write { flag, .. } => give_another(flag),
            Self::Json(_) => give_another(JSON),
            Self::NoPage { .. } => "--json=FILE writes the report as JSON".to_owned(),
            Self::Page(_) => "`runner inspect` prints the report as JSON".to_owned(),
        }
    }
}

impl ReportTarget {
    /// Whether a value of `--json` names standard output.
    #[must_use]
    pub(crate) fn is_standard_output(value: &OsStr) -> bool {
        value == "-" || descriptor_number(value.as_bytes()) == Some(Some(1))
    }

    /// Opens the value of `--json`: `-` and `fd:1` are standard output; `fd:N`, /dev/fd/N and the like
    /// are an inherited descriptor; everything else is a file, which is replaced after the run.
    ///
    /// # Errors
    /// [`TargetError`] if it cannot be written.
    pub(crate) fn open(value: &OsStr) -> Result<Self, TargetError> {
        if Self::is_standard_output(value) {
            return Ok(Self::StandardOutput);
        }
        let name = escape(value.as_bytes());
        if SWITCH_VALUES.contains(&&*name.to_ascii_lowercase()) {
            return Err(TargetError::Switch { found: name });
        }
        Self::of_flag(JSON, value)
    }

    /// Opens the value of another flag: an inherited descriptor but those of the body, or a file.
    ///
    /// # Errors
    /// [`TargetError`] if it cannot be written.
    pub(crate) fn of_flag(flag: &'static str, value: &OsStr) -> Result<Self, TargetError> {
        let name = escape(value.as_bytes());
        Ok(match open(flag, value)? {
            Found::Stream(fd) => Self::Open { fd, flag, name },
            Found::File(file) => Self::File { file, flag, name },
        })
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
        let (written, flag, name) = match self {
            Self::StandardOutput => {
                let written = fill(rustix::stdio::stdout(), report);
                (written, JSON, "standard output")
            }
            Self::Open { fd, flag, name } => (fill(fd.as_fd(), report), *flag, name.as_str()),
            Self::File { file, flag, name } => {
                let written = file.write(&mut |fd| fill(fd, report));
                (written, *flag, name.as_str())
            }
        };
        match written {
            Ok(()) | Err(Unwritten::File(FileError::Call(Errno::PIPE))) => Ok(()),
            Err(Unwritten::File(error)) => Err(error.at_write(flag, name.to_owned())),
            Err(Unwritten::Json(error)) => Err(error.into()),
        }
    }
}

impl FileError {
    /// The error of a file that could not be opened. `file` is what `flag` says, escaped.
    pub(super) fn at_open(self, flag: &'static str, file: String) -> TargetError {
        match self {
            Self::Call(errno) => TargetError::File { flag, file, errno },
            other => other.at_write(flag, file),
        }
    }

    /// The error of a file that could not be written.
    pub(super) fn at_write(self, flag: &'static str, name: String) -> TargetError {
        match self {
            Self::Link => TargetError::Link { flag, file: name },
            Self::ForeignLink { link, uid } => TargetError::ForeignLink {
                flag,
                file: name,
                link: escape(&link),
                uid,
            },
            Self::Elsewhere => TargetError::Elsewhere { flag, name },
            Self::Call(errno) => TargetError::Write { flag, name, errno },
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

/// Opens the value of `flag`: `fd:N`, /dev/fd/N and the like are an inherited descriptor, everything else
/// is a file.
///
/// # Errors
/// [`TargetError`] if it cannot be written, or if the body writes there, too.
pub(super) fn open(flag: &'static str, value: &OsStr) -> Result<Found, TargetError> {
    let bytes = value.as_bytes();
    let name = escape(bytes);
    match descriptor_number(bytes) {
        Some(None) => Err(TargetError::Malformed { flag, found: name }),
        Some(Some(number)) => {
            let opened = open_descriptor(number);
            opened
                .map(Found::Stream)
                .map_err(|cause| TargetError::Descriptor {
                    flag,
                    number,
                    cause,
                })
        }
        None => report_file::open(bytes).map_err(|error| error.at_open(flag, name)),
    }
}

fn give_another(flag: &str) -> String {
    format!("give --{flag} a file that can be written, or fd:N that is open")
}

/// The number in `fd:N` or a path of an open descriptor, `Some(None)` if it is none; `None` for other
/// texts.
fn descriptor_number(text: &[u8]) -> Option<Option<i32>> {
    let digits = text
        .strip_prefix(b"fd:")
        .or_else(|| descriptor_path(text))?;
    let digits = std::str::from_utf8(digits).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Some(digits.and_then(|text| text.parse().ok()))
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

/// A duplicate of an inherited descriptor, or why it cannot be written.
fn open_descriptor(number: i32) -> Result<OwnedFd, &'static str> {
    match number {
        1 => return Err("is standard output, where the body's own output goes"),
        2 => return Err("is standard error, where the body's own output goes"),
        _ => (),
    }
    let fd = duplicate_inherited(number).map_err(|_errno| "is not open")?;
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(|_errno| "is not open")?;
    if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::RDONLY {
        return Err("is not open for writing");
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
