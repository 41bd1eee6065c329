//! `runner sandbox diff`, `snapshot` and `restore`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use archive::transfer::changes::Change;
use rustix::io::Errno;

use crate::cli::args::{self, CommonFlags, Verb};
use crate::cli::config;
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::of_signal;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_file::{self, FileError, Found};
use crate::cli::sandboxes::{Create, Sandbox, SandboxVerb, cp, parse_name};
use crate::run::sandbox_files::{self, Copied, CopyError, Snapshot};
use crate::run::verbs::sandboxes::{self, SandboxError};
use spec::path::escape;
use spec::report::{ErrorReport, with_causes};
use spec::request::Caller;
use spec::sandboxes::SandboxName;

pub(super) const DIFF_HELP: &str = "\
A: added, C: changed, D: deleted, as `docker diff`, with escaped paths. Listed are the files that
belong to the sandbox alone: /tmp, /scratch, /home/runner, the root of an image, writable sources.
Those in directories of the host (--rw) are not.

Examples:
  runner sandbox diff build";

pub(super) const SNAPSHOT_HELP: &str = "\
FILE becomes a tar of the files that `runner sandbox diff` lists, with whiteouts for deleted ones;
`-` is standard output. Processes are not kept. The sandbox is paused meanwhile, if it can be.

Examples:
  runner sandbox snapshot build build.tar
  runner sandbox snapshot build - > build.tar";

pub(super) const RESTORE_HELP: &str = "\
The flags are those of `create`. A snapshot has files only: give `restore` the --image, the sources
and the mounts that its sandbox had.

Examples:
  runner sandbox restore build.tar --name build-2 -m 2g";

#[derive(Debug, clap::Args)]
pub struct Diff {
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, clap::Args)]
pub struct SnapshotTo {
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    /// The file to write, whole or not at all
    #[arg(value_name = "FILE")]
    pub file: OsString,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, clap::Args)]
pub struct Restore {
    /// The snapshot; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub create: Create,
}

/// Prints what a sandbox has changed. Returns the exit code.
pub(super) fn diff(args: &Diff, caller: &Caller, printer: &Printer) -> Result<u8, ErrorReport> {
    let name = parse_name(&args.sandbox)?;
    let found = sandbox_files::diff(caller, &name).map_err(|error| report(&error))?;
    let lines = found.iter().map(|changed| {
        let kind = match changed.change {
            Change::Added => 'A',
            Change::Changed => 'C',
            Change::Deleted => 'D',
        };
        format!("{kind} {}\n", escape(&changed.path))
    });
    Ok(printer.document(&lines.collect::<String>(), 0))
}

/// Writes a snapshot. Returns the exit code.
pub(super) fn snapshot(
    args: &SnapshotTo,
    caller: &Caller,
    printer: &Printer,
) -> Result<u8, ErrorReport> {
    let name = parse_name(&args.sandbox)?;
    match write(&name, &args.file, caller) {
        Ok(Snapshot { is_frozen, skipped }) => {
            if !is_frozen {
                let line = "warning: this host cannot freeze the sandbox; its processes may have changed \
                            files while they were read";
                printer.line(Tone::Warning, line);
            }
            warn(&skipped, printer);
            Ok(0)
        }
        Err(Unwritten::Copy(CopyError::Cancelled(signal))) => Ok(of_signal(signal)),
        Err(Unwritten::Copy(error)) => Err(report(&error)),
        Err(Unwritten::File(error)) => Err(file_report(&args.file, &error)),
        Err(Unwritten::Terminal) => Err(cp::usage(
            "a snapshot is not written to a terminal",
            "name a file, or pass it on: `| tar -t`",
        )),
    }
}

/// Why there is no snapshot.
#[derive(Debug)]
enum Unwritten {
    Copy(CopyError),
    File(FileError),
    Terminal,
}

impl From<FileError> for Unwritten {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

fn write(name: &SandboxName, file: &OsStr, caller: &Caller) -> Result<Snapshot, Unwritten> {
    let fill = |out: BorrowedFd<'_>| {
        let written = sandbox_files::snapshot(caller, name, out);
        written.map_err(Unwritten::Copy)
    };
    if file == "-" {
        let stdout = rustix::stdio::stdout();
        return match rustix::termios::isatty(stdout) {
            true => Err(Unwritten::Terminal),
            false => fill(stdout),
        };
    }
    let target = match report_file::open(file.as_bytes())? {
        Found::Stream(stream) => return fill(stream.as_fd()),
        Found::File(target) => target,
    };
    let mut made = None;
    target.write(&mut |out| {
        made = Some(fill(out)?);
        Ok::<(), Unwritten>(())
    })?;
    made.ok_or(Unwritten::File(FileError::Elsewhere))
}

fn report(error: &CopyError) -> ErrorReport {
    match error {
        CopyError::Sandbox(error) => error.report(),
        error => ErrorReport {
            code: "snapshot_failed".to_owned(),
            message: with_causes(error),
            hint: None,
            source_line: None,
        },
    }
}

fn file_report(file: &OsStr, error: &FileError) -> ErrorReport {
    let problem = match error {
        FileError::Link => "it is a symbolic link, which is not followed".to_owned(),
        FileError::ForeignLink { link, uid } => {
            format!("the symbolic link `{}` belongs to uid {uid}", escape(link))
        }
        FileError::Call(errno) => errno.to_string(),
        FileError::Elsewhere => "another file has taken its place".to_owned(),
    };
    ErrorReport {
        code: "snapshot_failed".to_owned(),
        message: format!("cannot write `{}`: {problem}", escape(file.as_bytes())),
        hint: None,
        source_line: None,
    }
}

fn warn(skipped: &[String], printer: &Printer) {
    for line in skipped {
        printer.line(Tone::Warning, &format!("warning: {line}"));
    }
}

fn open_archive(path: &Path) -> io::Result<File> {
    if path == "-" {
        return Ok(rustix::stdio::stdin().try_clone_to_owned()?.into());
    }
    let archive = File::open(path)?;
    match archive.metadata()?.is_dir() {
        true => Err(Errno::ISDIR.into()),
        false => Ok(archive),
    }
}

/// The snapshot of a sandbox that is created.
pub(super) struct Restoring {
    archive: File,
    common: CommonFlags,
}

impl Restoring {
    /// Opens the snapshot that the words name. `None`: they are malformed, which is told elsewhere.
    pub(super) fn open(words: &[OsString]) -> Option<Result<Self, ErrorReport>> {
        let context = ProcessContext::read();
        let verb = args::parse(words, &context.variables).ok()?.verb;
        let Verb::Sandbox(Sandbox {
            verb: SandboxVerb::Restore(restore),
        }) = verb
        else {
            return None;
        };
        let shown = escape(restore.file.as_os_str().as_bytes());
        let opened = open_archive(&restore.file);
        Some(match opened {
            Ok(archive) => Ok(Self {
                archive,
                common: restore.create.flags.common,
            }),
            Err(error) => Err(ErrorReport {
                code: "snapshot_unreadable".to_owned(),
                message: format!("cannot read the snapshot `{shown}`: {error}"),
                hint: None,
                source_line: None,
            }),
        })
    }

    /// Unpacks the snapshot in the new sandbox, which is removed if that fails. Returns the exit code.
    pub(super) fn fill(&self, name: &str) -> u8 {
        let context = ProcessContext::read();
        let printer = Printer::new(self.common.messages, &context);
        let filled = self.try_fill(name, &context, &printer);
        filled.unwrap_or_else(|error| printer.problem("refused", &error))
    }

    fn try_fill(
        &self,
        name: &str,
        context: &ProcessContext,
        printer: &Printer,
    ) -> Result<u8, ErrorReport> {
        let (policy, _) =
            config::load(context, self.common.policy.as_deref()).map_err(|error| error.report())?;
        let (name, caller) = (parse_name(name)?, context.caller(&policy));
        match sandbox_files::restore(&caller, &name, &self.archive) {
            Ok(Copied { skipped }) => {
                warn(&skipped, printer);
                Ok(printer.document(&format!("{name}\n"), 0))
            }
            Err(error) => {
                let removed = sandboxes::remove(&caller, &name, true);
                if let Err(error @ SandboxError::Control { .. }) = removed {
                    printer.problem("refused", &error.report());
                }
                match error {
                    CopyError::Cancelled(signal) => Ok(of_signal(signal)),
                    error => Err(report(&error)),
                }
            }
        }
    }
}
