//! `runner sandbox cp`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use archive::transfer::place::PlaceError;

use crate::cli::args::CommonFlags;
use crate::cli::exit_code::of_signal;
use crate::cli::print::{Printer, Tone};
use crate::cli::sandboxes::parse_name;
use crate::run::sandbox_files::{Copied, CopyError, Source, copy_in, copy_out, send_archive};
use reader::Cause;
use spec::path::escape;
use spec::report::{ErrorReport, with_causes};
use spec::request::Caller;

pub(super) const HELP: &str = "\
One of SRC and DEST is NAME:PATH, with a path from the root of the sandbox. `-` is a tar: SRC - is
standard input, for a directory that exists; DEST - is standard output. `DIR/.` copies what is in a
directory. A path of the host with a colon starts with `./` or `/`.

Examples:
  runner sandbox cp site/ build:/scratch
  runner sandbox cp build:/scratch/report.html .
  runner sandbox cp build:/scratch/out - > out.tar
  tar -c -C site . | runner sandbox cp - build:/scratch";

#[derive(Debug, clap::Args)]
pub struct Cp {
    /// Copy what a link at the end of SRC leads to
    #[arg(short = 'L', long)]
    pub follow_link: bool,
    /// The file or directory to copy
    #[arg(value_name = "SRC")]
    pub source: OsString,
    /// The place for it
    #[arg(value_name = "DEST")]
    pub destination: OsString,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// One side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side<'word> {
    Sandbox {
        name: &'word [u8],
        path: &'word [u8],
    },
    Host(&'word [u8]),
    Archive,
}

impl<'word> Side<'word> {
    fn of(word: &'word OsStr) -> Self {
        let word = word.as_bytes();
        let colon = word.iter().position(|byte| *byte == b':');
        match (word, colon) {
            (b"-", _) => Self::Archive,
            ([b'/' | b'.', ..], _) | (_, None) => Self::Host(word),
            (_, Some(colon)) => Self::Sandbox {
                name: &word[..colon],
                path: &word[colon + 1..],
            },
        }
    }
}

/// Copies files. Returns the exit code.
pub(super) fn copy(cp: &Cp, caller: &Caller, printer: &Printer) -> Result<u8, ErrorReport> {
    let follows_link = cp.follow_link;
    let copied = match (Side::of(&cp.source), Side::of(&cp.destination)) {
        (Side::Sandbox { name, path }, to @ (Side::Host(_) | Side::Archive)) => {
            let name = parse_name(&String::from_utf8_lossy(name))?;
            let path = some_path(path)?;
            match to {
                Side::Host(to) => copy_out(caller, &name, path, some_path(to)?, follows_link),
                _ if rustix::termios::isatty(rustix::stdio::stdout()) => {
                    return Err(usage(
                        "an archive is not written to a terminal",
                        "pass it on: `| tar -t`, or `> FILE`",
                    ));
                }
                _ => send_archive(caller, &name, path, follows_link),
            }
        }
        (from @ (Side::Host(_) | Side::Archive), Side::Sandbox { name, path }) => {
            let name = parse_name(&String::from_utf8_lossy(name))?;
            let source = match from {
                Side::Host(from) => Source::Path(some_path(from)?),
                _ => Source::Archive,
            };
            copy_in(caller, &name, source, some_path(path)?, follows_link)
        }
        _ => {
            return Err(usage(
                "exactly one of SRC and DEST is NAME:PATH",
                "`runner sandbox ls` lists the names",
            ));
        }
    };
    match copied {
        Ok(Copied { skipped }) => {
            for line in &skipped {
                printer.line(Tone::Warning, &format!("warning: {line}"));
            }
            Ok(0)
        }
        Err(CopyError::Cancelled(signal)) => Ok(of_signal(signal)),
        Err(error) => Err(report(&error)),
    }
}

pub(super) fn some_path(path: &[u8]) -> Result<&[u8], ErrorReport> {
    match path {
        b"" => Err(usage(
            "a path is empty",
            "`NAME:/` is the root of the sandbox, `.` the working directory of the host",
        )),
        path if path.contains(&0) => Err(usage(&format!("`{}` has a NUL", escape(path)), "")),
        path => Ok(path),
    }
}

pub(super) fn usage(message: &str, hint: &str) -> ErrorReport {
    ErrorReport {
        code: "copy_usage".to_owned(),
        message: message.to_owned(),
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
        source_line: None,
    }
}

fn report(error: &CopyError) -> ErrorReport {
    let hint = match error {
        CopyError::Sandbox(error) => return error.report(),
        CopyError::Record(error) => return error.report(),
        CopyError::Place(PlaceError::Link { path }) => Some(format!(
            "to copy to where it leads, end it with a slash: {path}/"
        )),
        CopyError::Unpack(problem) if problem.cause == Cause::TooManyBytes => Some(
            "the file system of DEST has no more free; the holes of sparse files count".to_owned(),
        ),
        _ => None,
    };
    ErrorReport {
        code: "copy_failed".to_owned(),
        message: with_causes(error),
        hint,
        source_line: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_of_the_host_unless_a_name_and_a_colon_precede_its_path() {
        let sandbox = |name, path| Side::Sandbox { name, path };
        for (word, expected) in [
            ("-", Side::Archive),
            ("a", Side::Host(b"a")),
            ("./a:b", Side::Host(b"./a:b")),
            ("/a:b", Side::Host(b"/a:b")),
            ("a:/b:c", sandbox(b"a", b"/b:c")),
            ("a:", sandbox(b"a", b"")),
            (":b", sandbox(b"", b"b")),
            ("-:b", sandbox(b"-", b"b")),
        ] {
            assert_eq!(Side::of(OsStr::new(word)), expected, "{word}");
        }
    }
}
