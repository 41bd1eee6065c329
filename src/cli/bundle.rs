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
use bundler::files::FileIdentity;
use bundler::gather::{GatherOptions, Gathered, gather};
use bundler::github::{GitHub, GitHubError, Progress, Token};
use bundler::hosting::{Locked, client};
use bundler::layer::LayerForm;
use bundler::locate::{Located, locate};
use bundler::locking::{differences_unfetched, lock_of};
use bundler::manifests::{Unread, read_host_file};
use bundler::output::OutputFile;
use bundler::resolve::{Resolution, ResolveRequest, resolve};
use bundler::runnable::{check_manifest, check_run, read_manifest_of};
use bundler::write::{WrittenBundle, content_digest, write};
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::lock::{Lock, LockDifference, LockError};
use spec::manifest::Manifest;
use spec::path::escape;
use spec::report::{WarningReport, with_causes};

/// Other variables that ask for pinned references (AIP-26 and its implementer's guide).
const REQUIRE_PIN: [&str; 2] = ["WORKSPACE_TOOLS_REQUIRE_PIN", "AIP26_REQUIRE_PIN"];

/// Why `runner bundle` did not do what was asked.
#[derive(Debug, thiserror::Error)]
enum BundleError {
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{file}: the bundle is not what the lock file says:\n{}", lines(.differences))]
    Drift {
        file: String,
        differences: Vec<LockDifference>,
    },
    #[error("the lock file {0}")]
    LockUnreadable(#[source] Unread),
    #[error("workspace source {id}: `{reference}` names a tag, expected a digest")]
    SourceTag { id: String, reference: String },
    #[error("{problem}")]
    Usage {
        problem: &'static str,
        hint: &'static str,
    },
    #[error("github.token: {problem}")]
    Token { problem: String },
    #[error("the resolved manifest cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

fn lines(differences: &[LockDifference]) -> String {
    let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
    lines.join("\n")
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
    let located = locate(
        &bundle.subject,
        bundle.workspace.as_deref(),
        surroundings.working_directory.as_deref(),
    )?;
    warn(&located.warnings, printer);
    let require_pin = requires_pin(bundle.require_pin, surroundings, policy);
    let resolution = resolve(
        ResolveRequest {
            manifest: &located.manifest,
            registry: &policy.refs,
            require_pin,
        },
        &located.files,
    )?;
    warn(&resolution.warnings, printer);
    let locked = match (&bundle.lock, bundle.locked) {
        (Some(file), true) => Some(read_lock(file)?),
        _ => None,
    };
    let manifest = read_manifest_of(&resolution)?;
    check_manifest(&resolution, &manifest, &policy.images)?;
    check_pinned(&manifest, bundle.lock.is_some() || require_pin)?;
    if let (Some(lock), Some(path)) = (&locked, &bundle.lock) {
        // Before a reference that it does not know is refused alone.
        let differences = differences_unfetched(lock, &manifest, &resolution.layers);
        refuse_differences(path, differences)?;
    }
    let status = ProgressStatus::new(printer);
    let progress = |progress: &Progress<'_>| status.tell(progress);
    let github = client(
        policy,
        token(&resolution, policy, surroundings)?,
        cache_directory(policy, surroundings),
        &progress,
    )?;
    let pinned = locked.as_ref().map(|lock| Locked {
        github: &github,
        lock,
    });
    let github = pinned
        .as_ref()
        .map_or(&github as &dyn GitHub, |pinned| pinned as &dyn GitHub);
    let Targets {
        mut output,
        mut lock_file,
    } = targets(bundle)?;
    let gathered = gathered(
        bundle,
        &located,
        &resolution,
        policy,
        github,
        [&output, &lock_file],
    )?;
    tell_gathered(&gathered, printer);
    check_run(&resolution, &manifest, &gathered.tree)?;
    let drift = |digest| {
        let now = lock_of(&manifest, &resolution.layers, &gathered, digest);
        if let (Some(lock), Some(path)) = (&locked, &bundle.lock) {
            refuse_differences(path, lock.differences(&now))?;
        }
        Ok::<_, BundleError>(now)
    };
    let is_final = match &output {
        Some(file) => file.is_stream(),
        None => bundle.output.is_some(),
    };
    if is_final && locked.is_some() {
        // Whoever reads it has it before the exit code.
        drift(content_digest(&gathered)?)?;
    }
    let written = match (&mut output, bundle.output.is_some()) {
        (Some(file), _) => {
            let written = write(&gathered, file);
            Some(written.map_err(|error| file.named(error))?)
        }
        (None, true) => {
            let written = write(&gathered, &mut StandardOutput);
            Some(written.map_err(|error| error.at("standard output"))?)
        }
        (None, false) => None,
    };
    let digest = digest_of(bundle, &gathered, written)?;
    if let Some(digest) = digest.filter(|_| bundle.lock.is_some()) {
        let now = drift(digest)?;
        if let Some(file) = &mut lock_file {
            file.fill(now.to_json()?.as_bytes())?;
        }
    }
    // Last, when nothing can be refused any more; the lock file says what the bundle is.
    if let Some(file) = output {
        file.commit()?;
    }
    if let Some(file) = lock_file {
        file.commit()?;
    }
    tell_written(written, bundle, printer);
    Ok(bundle_list::text(bundle, &gathered, digest)?)
}

/// What a lock file says is what the bundle gets: no tag that may move.
fn check_pinned(manifest: &Manifest, pins: bool) -> Result<(), BundleError> {
    let mut sources = manifest.workspace_sources.iter();
    match sources.find(|source| source.is_pinned() == Some(false)) {
        Some(source) if pins => Err(BundleError::SourceTag {
            id: escape(source.id.as_bytes()),
            reference: escape(source.reference.as_bytes()),
        }),
        _ => Ok(()),
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

fn refuse_differences(lock: &Path, differences: Vec<LockDifference>) -> Result<(), BundleError> {
    match differences.is_empty() {
        true => Ok(()),
        false => Err(BundleError::Drift {
            file: shown(lock),
            differences,
        }),
    }
}

fn gathered<'files>(
    bundle: &Bundle,
    located: &'files Located,
    resolution: &Resolution,
    policy: &HostPolicy,
    github: &dyn GitHub,
    outputs: [&Option<OutputFile>; 2],
) -> Result<Gathered<'files>, BundleError> {
    let mut exclude = Vec::new();
    for output in outputs.into_iter().flatten() {
        exclude.extend(output.replaces()?);
        exclude.push(output.identity()?);
    }
    if let Some(lock) = bundle.lock.as_deref().filter(|_| bundle.locked) {
        exclude.push(identity_of(lock)?);
    }
    let options = GatherOptions {
        caps: policy.unpack,
        follow_symlinks: bundle.symlinks == Some(SymlinksArgument::Follow),
        workspace: Some(&located.workspace),
        exclude,
    };
    Ok(gather(
        &resolution.layers,
        Some(&resolution.manifest),
        &located.files,
        github,
        &options,
    )?)
}

/// The file that is read as the lock file.
fn identity_of(path: &Path) -> Result<FileIdentity, BundleError> {
    FileIdentity::at(path).map_err(|source| {
        BundleError::LockUnreadable(Unread {
            file: shown(path),
            problem: "cannot be looked at",
            source: Some(source),
        })
    })
}

/// The digest of the contents, where something asks for it.
fn digest_of(
    bundle: &Bundle,
    gathered: &Gathered<'_>,
    written: Option<WrittenBundle>,
) -> Result<Option<Digest>, BundleError> {
    match written {
        Some(written) => Ok(Some(written.content_digest)),
        None if bundle.print_digest || bundle.lock.is_some() => Ok(Some(content_digest(gathered)?)),
        None => Ok(None),
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

fn read_lock(path: &Path) -> Result<Lock, BundleError> {
    let text = read_host_file(path).map_err(BundleError::LockUnreadable)?;
    Ok(Lock::parse(&text, &shown(path))?)
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

fn warn(warnings: &[WarningReport], printer: &Printer) {
    for warning in warnings {
        let text = format!("warning: {} ({})", warning.message, warning.code);
        printer.line(Tone::Warning, &text);
    }
}

fn tell_gathered(gathered: &Gathered<'_>, printer: &Printer) {
    warn(&gathered.warnings, printer);
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
        // One line for each, with what to do about it.
        BundleError::Compose(ComposeError::Manifest(errors)) => {
            for error in errors {
                refused(error.code(), &error.to_string(), error.hint());
            }
        }
        BundleError::Compose(error) if error.class() == ErrorClass::Output => {
            let text = format!("failed: {} ({})", with_causes(error), error.code());
            printer.line(Tone::Error, &text);
            if let Some(hint) = error.hint() {
                printer.line(Tone::Hint, &format!("hint: {hint}"));
            }
        }
        BundleError::Compose(error) => refused(error.code(), &with_causes(error), error.hint()),
        BundleError::GitHub(error) => refused(error.code(), &with_causes(error), error.hint()),
        BundleError::Lock(error) => {
            refused("lock_invalid", &with_causes(error), Some(error.hint()))
        }
        BundleError::Drift { .. } => refused(
            "lock_drift",
            &with_causes(error),
            Some("write the lock file anew: leave out --locked".to_owned()),
        ),
        BundleError::LockUnreadable(_) => refused(
            "lock_invalid",
            &with_causes(error),
            Some("write one: leave out --locked".to_owned()),
        ),
        BundleError::SourceTag { .. } => refused(
            "source_tag_refused",
            &with_causes(error),
            Some(
                "write its digest behind it, @sha256:…: `runner source inspect` prints it"
                    .to_owned(),
            ),
        ),
        BundleError::Usage { hint, .. } => {
            refused("usage", &with_causes(error), Some((*hint).to_owned()));
        }
        BundleError::Token { .. } => refused(
            "github_setting",
            &with_causes(error),
            Some("mend `github.token` of the host's configuration, or what it names".to_owned()),
        ),
        BundleError::Json(_) => refused("manifest", &with_causes(error), None),
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
