//! `runner bundle`: from a manifest and its sources to a `.tar.gz`, a list, a digest, a lock file.

use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::bundle_flags::{Bundle, SymlinksArgument};
use crate::cli::bundle_list;
use crate::cli::bundle_targets::{Targets, targets};
use crate::cli::dispatch::document;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone, write_all};
use crate::cli::progress::ProgressStatus;
use crate::cli::surroundings::Surroundings;
use bundler::error::{ComposeError, ErrorClass};
use bundler::gather::{GatherOptions, Gathered};
use bundler::hosting::client;
use bundler::layer::LayerForm;
use bundler::locate::locate;
use bundler::making::{Destination, LockUse, MakeError, Pinned};
use bundler::manifests::read_host_file;
use bundler::resolve::{Resolution, ResolveRequest, resolve};
use bundler::write::WrittenBundle;
use sources::github::{GitHubError, Progress, Token};
use spec::host_policy::HostPolicy;
use spec::path::escape;
use spec::report::with_causes;

/// Other variables that ask for pinned references (AIP-26 and its implementer's guide).
const REQUIRE_PIN: [&str; 2] = ["WORKSPACE_TOOLS_REQUIRE_PIN", "AIP26_REQUIRE_PIN"];

/// Why `runner bundle` did not do what was asked.
#[derive(Debug, thiserror::Error)]
enum BundleError {
    #[error(transparent)]
    Make(#[from] MakeError),
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
    #[error("{problem}")]
    Usage {
        problem: &'static str,
        hint: &'static str,
    },
    #[error("github.token: {problem}")]
    Token { problem: String },
}

/// Does what is asked. 0, or 125.
#[must_use]
pub fn bundle(
    bundle: &Bundle,
    surroundings: &Surroundings,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    match make(bundle, surroundings, policy, printer) {
        Ok(text) if text.is_empty() => 0,
        Ok(text) => document(printer, &text),
        Err(error) => {
            tell(&error, printer);
            FAILED
        }
    }
}

/// Makes the bundle; what is to be printed on standard output.
fn make(
    bundle: &Bundle,
    surroundings: &Surroundings,
    policy: &HostPolicy,
    printer: &Printer,
) -> Result<String, BundleError> {
    check_usage(bundle)?;
    let (workspace, here) = (&bundle.workspace, &surroundings.working_directory);
    let located = locate(&bundle.subject, workspace.as_deref(), here.as_deref())?;
    printer.warnings(&located.warnings);
    let require_pin = requires_pin(bundle.require_pin, surroundings, policy);
    let request = ResolveRequest {
        manifest: &located.manifest,
        registry: &policy.refs,
        require_pin,
    };
    let resolution = resolve(request, &located.files)?;
    printer.warnings(&resolution.warnings);
    let pinned = Pinned::of(resolution, policy, lock_use(bundle), require_pin)?;

    let status = ProgressStatus::new(printer);
    let progress = |progress: &Progress<'_>| status.tell(progress);
    let token = token(&pinned.resolution, policy, surroundings)?;
    let cache = cache_directory(policy, surroundings);
    let github = client(policy, token, cache, &progress)?;
    let Targets { output, lock_file } = targets(bundle)?;
    let options = GatherOptions {
        caps: policy.unpack,
        follow_symlinks: bundle.symlinks == Some(SymlinksArgument::Follow),
        workspace: Some(&located.workspace),
        exclude: Vec::new(),
    };
    let composed = pinned.compose(&located, &github, [&output, &lock_file], options)?;
    tell_gathered(&composed.gathered, printer);

    let mut stream = StandardOutput;
    let destination = match (output, &bundle.output) {
        (Some(file), _) => Destination::File(file),
        (None, Some(_)) => Destination::Stream(&mut stream, "standard output"),
        (None, None) => Destination::Nowhere,
    };
    let mut written = composed.write(destination, bundle.print_digest)?;
    written.commit(lock_file)?;
    tell_written(written.bundle, bundle, printer);
    let text = bundle_list::text(bundle, &written.gathered, written.digest);
    Ok(text.map_err(MakeError::from)?)
}

fn lock_use(bundle: &Bundle) -> LockUse<'_> {
    match (&bundle.lock, bundle.locked) {
        (None, _) => LockUse::Nothing,
        (Some(_), false) => LockUse::Write,
        (Some(path), true) => LockUse::Hold(path),
    }
}

fn check_usage(bundle: &Bundle) -> Result<(), BundleError> {
    let refused = |problem, hint| Err(BundleError::Usage { problem, hint });
    let prints = bundle.print_digest || bundle.list;
    match bundle.output.as_deref() {
        Some(path) if is_standard(path) && prints => refused(
            "-o - writes the bundle where --list and --print-digest write",
            "give -o a file",
        ),
        Some(path) if is_standard(path) && rustix::termios::isatty(rustix::stdio::stdout()) => {
            refused(
                "standard output is a terminal; a bundle is not for reading",
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
pub(super) fn requires_pin(flag: bool, surroundings: &Surroundings, policy: &HostPolicy) -> bool {
    let by_variable = REQUIRE_PIN.iter().any(|name| {
        surroundings
            .variable(name)
            .is_some_and(|value| !matches!(value.as_bytes(), b"0" | b"false" | b"no" | b"off"))
    });
    flag || policy.require_pin || by_variable
}

/// The token, where something will be fetched: it is not even read otherwise.
fn token(
    resolution: &Resolution,
    policy: &HostPolicy,
    surroundings: &Surroundings,
) -> Result<Option<Token>, BundleError> {
    let fetches = resolution
        .layers
        .iter()
        .any(|layer| matches!(layer.form, LayerForm::GitHub { .. }));
    let Some(reference) = policy.github.token.as_ref().filter(|_| fetches) else {
        return Ok(None);
    };
    let unusable = |problem: String| BundleError::Token { problem };
    let mut value = if let Some(name) = reference.strip_prefix("env:") {
        surroundings
            .variable(name)
            .map(|value| value.as_bytes().to_vec())
            .ok_or_else(|| {
                unusable(format!(
                    "the variable {} is not set",
                    escape(name.as_bytes())
                ))
            })?
    } else if let Some(path) = reference.strip_prefix("file:") {
        read_host_file(Path::new(path)).map_err(|unread| unusable(with_causes(&unread)))?
    } else {
        return Err(unusable(format!(
            "found `{}`, expected env:NAME or file:PATH",
            escape(reference.as_bytes())
        )));
    };
    // Nearly every file with one secret ends in a newline that is no part of it.
    if value.last() == Some(&b'\n') {
        value.pop();
    }
    Ok(Some(Token::new(&value, reference.clone())?))
}

fn cache_directory(policy: &HostPolicy, surroundings: &Surroundings) -> PathBuf {
    policy
        .cache
        .directory
        .clone()
        .unwrap_or_else(|| surroundings.cache_directory())
}

pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn tell_gathered(gathered: &Gathered<'_>, printer: &Printer) {
    printer.warnings(&gathered.warnings);
    for commit in &gathered.commits {
        let text = format!(
            "{} {} is the commit {}",
            escape(commit.repository.as_bytes()),
            escape(commit.reference.as_bytes()),
            commit.sha
        );
        printer.line(Tone::Detail, &text);
    }
}

fn tell_written(written: Option<WrittenBundle>, bundle: &Bundle, printer: &Printer) {
    if let (Some(written), Some(path)) = (written, &bundle.output) {
        let text = format!(
            "{}: {} entries, {} bytes in {}; {}",
            shown(path),
            written.entries,
            written.bytes,
            written.archive_bytes,
            written.content_digest
        );
        printer.line(Tone::Detail, &text);
    }
}

fn tell(error: &BundleError, printer: &Printer) {
    let refused = |code: &str, text: &str, hint: Option<String>| {
        printer.line(Tone::Error, &format!("refused: {text} ({code})"));
        if let Some(hint) = hint {
            printer.line(Tone::Hint, &format!("hint: {hint}"));
        }
    };
    match error {
        BundleError::Compose(error) | BundleError::Make(MakeError::Compose(error)) => {
            tell_compose(error, printer);
        }
        BundleError::Make(error) => refused(error.code(), &with_causes(error), error.hint()),
        BundleError::GitHub(error) => refused(error.code(), &with_causes(error), error.hint()),
        BundleError::Usage { hint, .. } => {
            refused("usage", &with_causes(error), Some((*hint).to_owned()));
        }
        BundleError::Token { .. } => refused(
            "github_setting",
            &with_causes(error),
            Some("mend `github.token` of the host's configuration, or what it names".to_owned()),
        ),
    }
}

fn tell_compose(error: &ComposeError, printer: &Printer) {
    let tell = |what: &str, code: &str, text: &str, hint: Option<String>| {
        printer.line(Tone::Error, &format!("{what}: {text} ({code})"));
        if let Some(hint) = hint {
            printer.line(Tone::Hint, &format!("hint: {hint}"));
        }
    };
    match error {
        // One line for each, with what to do about it.
        ComposeError::Manifest(errors) => {
            for error in errors {
                tell("refused", error.code(), &error.to_string(), error.hint());
            }
        }
        error => {
            let what = match error.class() {
                ErrorClass::Output => "failed",
                _ => "refused",
            };
            tell(what, error.code(), &with_causes(error), error.hint());
        }
    }
}

/// Standard output, which is waited for where it does not block.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        write_all(rustix::stdio::stdout(), bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
