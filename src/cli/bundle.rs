//! `runner bundle`: makes a `.tar.gz`, a list, a digest or a lock file of a manifest and its sources.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::args::CommonFlags;
use crate::cli::bundle_list;
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use bundler::LockUse;
use bundler::bundle::{Bundle as Bundled, BundleHost, BundleRequest};
use bundler::check::errors_of;
use bundler::error::BundleError;
use bundler::locate::{Located, locate};
use bundler::manifests::text_of;
use spec::check::add_source_lines;
use spec::host_policy::HostPolicy;
use spec::path::{escape, escape_path};
use spec::report::{ErrorReport, WarningReport};
use spec::units::count;

/// Variables of other tools that require pinned references (AIP-26 and its implementer's guide).
const REQUIRE_PIN: [&str; 2] = ["WORKSPACE_TOOLS_REQUIRE_PIN", "AIP26_REQUIRE_PIN"];

/// Enough to write a first manifest.
pub(crate) const BUNDLE_HELP: &str = "\
A manifest.yaml beside a folder `src` with main.sh:

  name: hello
  run: [sh, src/main.sh]
  code:
    sources:
      - local: src

Without `code` the bundle is the manifest's own folder. `runner bundle . -o hello.tar.gz` makes it,
`--list` shows what is in it, `runner check .` what is wrong, `runner schema manifest` each key.
Files of that folder that .gitignore or .bundleignore names, or that look like credentials, are left
out with a warning; `!NAME` in .bundleignore includes them.

-o and --lock replace an earlier bundle or lock file, never a file of another kind.

Examples:
  runner bundle . -o hello.tar.gz
  runner bundle tool.yaml --list
  runner bundle . -o tool.tar.gz --lock manifest.lock

Exit codes: 0 done; 125 refused, failed or wrong usage, and nothing was written.";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct Bundle {
    /// A manifest, a folder with one, or the name of a code-workspace
    #[arg(value_name = "MANIFEST|DIR|NAME")]
    pub subject: PathBuf,
    /// Write the .tar.gz to this file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The directory that paths of sources are relative to [default: the working directory if the manifest is in it, else the manifest's folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Print the digest of the bundle's contents
    #[arg(long)]
    pub print_digest: bool,
    /// Print each file, its source, and the sources whose file it replaced
    #[arg(long)]
    pub list: bool,
    /// Print the list and the digest as a JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the sources of the bundle to a lock file
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Refuse if the lock file differs
    #[arg(long, requires = "lock")]
    pub locked: bool,
    /// Refuse references to branches and tags
    #[arg(long)]
    pub require_pin: bool,
    /// What to do with symbolic links [default: keep]
    #[arg(long, value_name = "WHAT")]
    pub symlinks: Option<SymlinksArgument>,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SymlinksArgument {
    /// Relative ones that stay in the bundle; others are refused
    Keep,
    /// Copy what they point to, if that is in the workspace
    Follow,
}

/// Exit code 0 or 125.
#[must_use]
pub fn bundle(
    bundle: &Bundle,
    context: &ProcessContext,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    if let Err((problem, hint)) = check_usage(bundle) {
        let error = ErrorReport::new("usage", problem).with_hint(hint);
        return printer.problem("refused", &error);
    }
    match make(bundle, context, policy, printer) {
        Ok(bundled) => {
            print_details(&bundled, bundle, printer);
            let text = bundle_list::text(bundle, &bundled.contents, bundled.digest);
            printer.document(&text, 0)
        }
        Err(error) => {
            let located = locate(
                &bundle.subject,
                bundle.workspace.as_deref(),
                context.working_directory.as_deref(),
            );
            print_errors(&error, located.ok().as_ref(), printer)
        }
    }
}

fn make(
    bundle: &Bundle,
    context: &ProcessContext,
    policy: &HostPolicy,
    printer: &Printer,
) -> Result<Bundled, BundleError> {
    let request = BundleRequest {
        subject: &bundle.subject,
        workspace: bundle.workspace.as_deref(),
        output: bundle.output.as_deref(),
        lock: match (&bundle.lock, bundle.locked) {
            (None, _) => LockUse::Unused,
            (Some(path), false) => LockUse::Write(path),
            (Some(path), true) => LockUse::Match(path),
        },
        require_pin: requires_pin(bundle.require_pin, context, policy),
        follow_symlinks: bundle.symlinks == Some(SymlinksArgument::Follow),
        wants_digest: bundle.print_digest,
    };
    let host = BundleHost {
        policy,
        working_directory: context.working_directory.as_deref(),
        cache_directory: &context.cache_directory(),
        variable: &|name| context.variable(name),
    };
    let warn = |warnings: &[WarningReport]| printer.warnings(warnings);
    bundler::bundle(&request, &host, &warn)
}

/// The error is the problem and a hint.
fn check_usage(bundle: &Bundle) -> Result<(), (&'static str, &'static str)> {
    let refused = |problem, hint| Err((problem, hint));
    let prints = bundle.print_digest || bundle.list;
    match bundle.output.as_deref() {
        Some(path) if is_standard(path) && prints => refused(
            "-o - cannot be combined with --list or --print-digest, which write to standard output too",
            "give -o a file",
        ),
        Some(path) if is_standard(path) && rustix::termios::isatty(rustix::stdio::stdout()) => {
            refused(
                "standard output is a terminal, and a bundle is binary",
                "give -o a file, or pipe the output",
            )
        }
        _ if bundle.lock.as_deref().is_some_and(is_standard) => refused(
            "--lock - would write a file named `-`",
            "give --lock a file, such as bundle.lock",
        ),
        None if !prints && bundle.lock.is_none() => refused(
            "no output is requested",
            "add -o bundle.tar.gz, or --list, --print-digest or --lock",
        ),
        _ if bundle.json && !prints => refused(
            "--json has nothing to print",
            "add --list or --print-digest",
        ),
        _ => Ok(()),
    }
}

/// Whether references to branches and tags are refused: by the flag, a variable or the host.
pub(super) fn requires_pin(flag: bool, context: &ProcessContext, policy: &HostPolicy) -> bool {
    let by_variable = REQUIRE_PIN.iter().any(|name| {
        context
            .variable(name)
            .is_some_and(|value| !matches!(value.as_bytes(), b"0" | b"false" | b"no" | b"off"))
    });
    flag || policy.require_pin || by_variable
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn print_details(bundled: &Bundled, bundle: &Bundle, printer: &Printer) {
    for commit in bundled.contents.commits() {
        let text = format!(
            "{} {} is the commit {}",
            escape(commit.repository.as_bytes()),
            escape(commit.reference.as_bytes()),
            commit.sha
        );
        printer.line(Tone::Detail, &text);
    }
    if let (Some(written), Some(path)) = (bundled.written, &bundle.output) {
        let text = format!(
            "{}: {}, {} in {}; {}",
            escape_path(path),
            count(written.entries, "entry"),
            count(written.bytes, "byte"),
            written.archive_bytes,
            written.content_digest
        );
        printer.line(Tone::Detail, &text);
    }
}

fn print_errors(error: &BundleError, located: Option<&Located>, printer: &Printer) -> u8 {
    let mut errors = errors_of(error);
    if let Some(Located { files, .. }) = located {
        add_source_lines(&mut errors, &|file| text_of(files, file));
    }
    let source_lines = errors
        .into_iter()
        .map(|error| error.source_line.map(Box::new));
    // One line for each error of a manifest.
    if let BundleError::Manifest(errors) = error {
        for (error, source_line) in errors.iter().zip(source_lines) {
            let error = ErrorReport {
                source_line,
                ..ErrorReport::of(error.code(), error, error.hint())
            };
            printer.problem("refused", &error);
        }
        return FAILED;
    }
    let what = if error.is_of_output() {
        "failed"
    } else {
        "refused"
    };
    let error = ErrorReport {
        source_line: source_lines.flatten().next(),
        ..ErrorReport::of(error.code(), error, error.hint())
    };
    printer.problem(what, &error)
}
