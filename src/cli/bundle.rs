//! `runner bundle`: makes a `.tar.gz`, a list, a digest or a lock file of a manifest and its sources.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::cli::bundle_flags::{Bundle, SymlinksArgument};
use crate::cli::bundle_list;
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use bundler::LockUse;
use bundler::bundle::{Bundle as Bundled, BundleHost, BundleRequest};
use bundler::error::BundleError;
use spec::host_policy::HostPolicy;
use spec::path::escape;
use spec::report::{ErrorReport, WarningReport, with_causes};

/// Variables of other tools that require pinned references (AIP-26 and its implementer's guide).
const REQUIRE_PIN: [&str; 2] = ["WORKSPACE_TOOLS_REQUIRE_PIN", "AIP26_REQUIRE_PIN"];

/// Exit code 0 or 125.
#[must_use]
pub fn bundle(
    bundle: &Bundle,
    context: &ProcessContext,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    if let Err((problem, hint)) = check_usage(bundle) {
        return print_refusal(printer, "usage", problem.to_owned(), Some(hint.to_owned()));
    }
    let bundled = make(bundle, context, policy, printer);
    let text = bundled.and_then(|bundled| {
        print_details(&bundled, bundle, printer);
        let text = bundle_list::text(bundle, &bundled.contents, bundled.digest);
        text.map_err(BundleError::from)
    });
    match text {
        Ok(text) if text.is_empty() => 0,
        Ok(text) => printer.document(&text, 0),
        Err(error) => print_errors(&error, printer),
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
            (None, _) => LockUse::Nothing,
            (Some(path), false) => LockUse::Write(path),
            (Some(path), true) => LockUse::Hold(path),
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
            "-o - writes the bundle where --list and --print-digest write",
            "give -o a file",
        ),
        Some(path) if is_standard(path) && rustix::termios::isatty(rustix::stdio::stdout()) => {
            refused(
                "standard output is a terminal, and a bundle is binary",
                "give -o a file, or pipe the output",
            )
        }
        _ if bundle.lock.as_deref().is_some_and(is_standard) => refused(
            "--lock - would be a file called `-`",
            "give --lock a file, such as bundle.lock",
        ),
        None if !prints && bundle.lock.is_none() => refused(
            "nothing says where the bundle goes",
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
            "{}: {} entries, {} bytes in {}; {}",
            escape(path.as_os_str().as_bytes()),
            written.entries,
            written.bytes,
            written.archive_bytes,
            written.content_digest
        );
        printer.line(Tone::Detail, &text);
    }
}

fn print_errors(error: &BundleError, printer: &Printer) -> u8 {
    // One line for each error of a manifest.
    if let BundleError::Manifest(errors) = error {
        for error in errors {
            print_refusal(printer, error.code(), error.to_string(), error.hint());
        }
        return FAILED;
    }
    let what = if error.is_of_output() {
        "failed"
    } else {
        "refused"
    };
    let error = ErrorReport {
        code: error.code().to_owned(),
        message: with_causes(error),
        hint: error.hint(),
    };
    printer.problem(what, &error)
}

fn print_refusal(printer: &Printer, code: &str, message: String, hint: Option<String>) -> u8 {
    let error = ErrorReport {
        code: code.to_owned(),
        message,
        hint,
    };
    printer.problem("refused", &error)
}
