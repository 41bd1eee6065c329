//! `runner sandbox watch`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use crate::cli::args::CommonFlags;
use crate::cli::exit_code::of_signal;
use crate::cli::sandboxes::{cp, parse_name};
use crate::run::sandbox_files::{CopyError, watch};
use spec::report::{ErrorReport, with_causes};
use spec::request::Caller;

pub(super) const HELP: &str = "\
Each line is a JSON object: `type` is `started` (first), `create`, `write`, `remove`, `rename` (it
has another name now), `chmod`, or `overflow` (events were lost). `path` is from the directory, or
`path_base64` if it is not UTF-8.

Examples:
  runner sandbox watch build /scratch
  runner sandbox watch -r build /src

Exit codes: 125 no such sandbox or directory, or it is not there any more; 128 + n signal n.";

#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Watch the directories below it, too
    #[arg(short, long)]
    pub recursive: bool,
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    /// A directory of the sandbox
    #[arg(value_name = "PATH")]
    pub path: OsString,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// Prints events. Returns the exit code.
pub(super) fn print(args: &Watch, caller: &Caller) -> Result<u8, ErrorReport> {
    let name = parse_name(&args.sandbox)?;
    let path = cp::some_path(args.path.as_bytes())?;
    match watch(caller, &name, path, args.recursive) {
        Ok(()) => Ok(0),
        Err(CopyError::Cancelled(signal)) => Ok(of_signal(signal)),
        Err(CopyError::Sandbox(error)) => Err(error.report()),
        Err(error) => Err(ErrorReport {
            code: "watch_failed".to_owned(),
            message: with_causes(&error),
            hint: None,
            source_line: None,
        }),
    }
}
