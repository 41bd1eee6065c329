//! Why a manifest is refused: where, what was found, what was expected, what to do.

use crate::document::{DocumentError, DocumentProblem, Place};
use crate::path::escape;
use crate::units::limit;

/// A manifest that is refused, or that asks for something this host will not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.written())]
pub struct ManifestError {
    /// The file as it was named to [`crate::manifest::parse`].
    pub file: String,
    /// Line and column, where one place is to blame.
    pub place: Option<Place>,
    /// JSON Pointer (RFC 6901) of the value, where it belongs to one.
    pub pointer: Option<String>,
    pub problem: Box<Problem>,
}

impl ManifestError {
    fn written(&self) -> String {
        let place = self
            .place
            .map_or_else(String::new, |place| format!(":{place}"));
        let pointer = match self.pointer.as_deref() {
            None | Some("") => String::new(),
            Some(pointer) => format!(" at {pointer}"),
        };
        format!(
            "{}{place}{pointer}: {}",
            escape(self.file.as_bytes()),
            self.problem
        )
    }

    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.problem.code()
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.problem.hint()
    }

    /// An error of the text itself, before anything in it was read.
    pub fn of_document(file: &str, error: DocumentError) -> Self {
        Self {
            file: file.to_owned(),
            place: error.place,
            pointer: None,
            problem: Box::new(Problem::Document(error.problem)),
        }
    }
}

/// Why a manifest is refused. Texts of the manifest in here are already escaped and shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is not a document.
    #[error("{0}")]
    Document(DocumentProblem),
    /// A key that nothing reads.
    #[error("found the key `{key}`, expected {}", keys(known))]
    UnknownKey {
        key: String,
        known: Vec<&'static str>,
        /// Advice that is better than "did you mean", or the word that was meant.
        near: Option<String>,
    },
    /// A value of another type.
    #[error("found {found}, expected {expected}")]
    WrongType {
        found: String,
        expected: String,
        hint: Option<String>,
    },
    /// A whole number that is too small or too large.
    #[error("found {found}, expected a whole number from {minimum} to {maximum}")]
    OutOfRange {
        found: String,
        minimum: u64,
        maximum: u64,
    },
    /// A word that is none of those that are known here.
    #[error("found `{found}`, expected one of {}", expected.join(", "))]
    UnknownValue {
        found: String,
        expected: Vec<&'static str>,
        near: Option<&'static str>,
    },
    /// A key that must be there.
    #[error("the key `{key}` is missing")]
    MissingKey { key: &'static str },
    /// Two keys that exclude each other.
    #[error("found both `{one}` and `{other}`, expected one of them")]
    Conflict {
        one: &'static str,
        other: &'static str,
    },
    /// A path that could leave its folder, or that is not a path.
    #[error("the path `{found}` {reason}")]
    PathRefused { found: String, reason: String },
    /// A key of `inputsFiles` or `outputsFiles` that is not one path segment.
    #[error("the key `{found}` {reason}; it becomes the name of a file, `/scratch/{found}`")]
    FileKeyRefused { found: String, reason: String },
    /// Two entries that claim the same thing.
    #[error("`{found}` is claimed twice, first by {first}")]
    Duplicate {
        found: String,
        /// Who claimed it first: a JSON Pointer.
        first: String,
    },
    /// A token in a path that is not known.
    #[error("{0}")]
    Token(crate::tokens::TokenError),
    /// `<toolId>` or `<workflowId>` without an id that can be part of a path.
    #[error("the path uses `{token}`, but the id `{id}` is not one path segment")]
    TokenId { token: &'static str, id: String },
    /// An entry of `egress` that is no host.
    #[error("found `{found}`: {reason}")]
    Egress {
        found: String,
        reason: crate::egress::EgressError,
    },
    /// A `run` that cannot be started.
    #[error("{0}")]
    Run(crate::run_form::RunError),
    /// A `{ref}` or `{file}` block that is not looked up here.
    #[error(
        "`{block}` refers to `{reference}`, which {}",
        tried.as_deref().unwrap_or("cannot be resolved here")
    )]
    RefUnresolvable {
        /// `runner`, `sandbox`, `secrets`, `env.auth`.
        block: &'static str,
        reference: String,
        /// What was looked for and why that failed: completes "which …".
        tried: Option<String>,
    },
    /// A credential that stands in the manifest itself. Its value is never repeated.
    #[error("found a credential in plain text: {why}")]
    PlaintextCredential { why: &'static str },
    /// A `sandbox` block of the command-line family (AIP-29).
    #[error("found `{key}`, which belongs to the sandbox block of a CLI manifest (AIP-29)")]
    CliSandbox {
        /// The key that gave it away.
        key: String,
    },
    /// A provider that is not part of this program.
    #[error("the provider `{provider}` is not available: {why}")]
    ProviderUnavailable { provider: String, why: &'static str },
    /// `read_only: true`.
    #[error("the sandbox is read-only, so no command may run in it")]
    SandboxReadOnly,
    /// Where a mount must not be.
    #[error("the mount point `{found}` {reason}")]
    MountTarget {
        found: String,
        reason: crate::mount_target::MountTargetError,
    },
    /// A mount of a storage block, or of another workspace.
    #[error("a storage at `{at}` is not mounted here: only the workspace is")]
    StorageUnsupported {
        at: String,
        /// Whether the body was to write there.
        writable: bool,
    },
    /// Files that other files must be fetched for.
    #[error("`{key}` names sources that have not been fetched")]
    CodeUnresolved {
        /// `code` or `source`.
        key: &'static str,
    },
    /// IO blocks where there is no call.
    #[error("a code-workspace has no `{key}`: it belongs to the tool that uses the workspace")]
    IoInCodeWorkspace { key: &'static str },
    /// `_workflowFsRoot` declared as something else than text.
    #[error("`_workflowFsRoot` is declared with another type than string; the host sets it")]
    FsRootType,
    /// A JSON Schema that is too large.
    #[error("the schema has {bytes} bytes, expected at most {}", limit(.bytes_max))]
    SchemaTooLarge { bytes: usize, bytes_max: usize },
    /// The language that a code-workspace or the manifest itself needs is not that of `run`.
    #[error("`needs.language` is {language}{}, but `run` starts `{program}`", as_said_by(decided_by.as_deref()))]
    NeedsContradictRun {
        /// `node` or `python`.
        language: &'static str,
        /// The file that says so, escaped, where it is not the one that has `run`.
        decided_by: Option<String>,
        program: String,
    },
    /// What `exec` would refuse.
    #[error("{message}")]
    NotRunnable {
        code: &'static str,
        /// What was found and what was expected.
        message: String,
        hint: Option<String>,
    },
    /// What is left when enough errors have been told.
    #[error("{more} more errors are not listed")]
    More { more: usize },
}

impl Problem {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Document(problem) => problem.code(),
            Self::UnknownKey { .. } => "unknown_key",
            Self::WrongType { .. } => "wrong_type",
            Self::OutOfRange { .. } => "out_of_range",
            Self::UnknownValue { .. } => "unknown_value",
            Self::MissingKey { .. } => "missing_key",
            Self::Conflict { .. } => "conflicting_keys",
            Self::PathRefused { .. } => "path_refused",
            Self::FileKeyRefused { .. } => "file_key_refused",
            Self::Duplicate { .. } => "duplicate_claim",
            Self::Token(error) => error.code(),
            Self::TokenId { .. } => "token_id_invalid",
            Self::Egress { .. } => "egress_invalid",
            Self::Run(error) => error.code(),
            Self::RefUnresolvable { block, .. } => match block.as_bytes() {
                b"runner" => "runner_ref_unresolvable",
                b"sandbox" => "sandbox_ref_unresolvable",
                b"secrets" | b"env.auth" => "secrets_ref_unresolvable",
                _ => "mount_ref_unresolvable",
            },
            Self::PlaintextCredential { .. } => "plaintext_credential",
            Self::CliSandbox { .. } => "sandbox_is_cli_block",
            Self::ProviderUnavailable { .. } => "provider_unavailable",
            Self::SandboxReadOnly => "sandbox_read_only",
            Self::MountTarget { .. } => "mount_refused",
            Self::StorageUnsupported { .. } => "storage_unsupported",
            Self::CodeUnresolved { .. } => "code_unresolved",
            Self::IoInCodeWorkspace { .. } => "io_in_code_workspace",
            Self::FsRootType => "fs_root_declared",
            Self::SchemaTooLarge { .. } => "schema_too_large",
            Self::NeedsContradictRun { .. } => "needs_contradict_run",
            Self::NotRunnable { code, .. } => code,
            Self::More { .. } => "more_errors",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Document(problem) => problem.hint()?,
            Self::UnknownKey {
                near: Some(near), ..
            } => return Some(near.clone()),
            Self::UnknownKey { known, .. } if KEYS_NAMED_MAX < known.len() => {
                "`runner schema manifest` lists them"
            }
            Self::UnknownKey { .. } => return None,
            Self::WrongType { hint, .. } => return hint.clone(),
            Self::NotRunnable { hint, .. } => return hint.clone(),
            Self::UnknownValue { near, .. } => return near.map(did_you_mean),
            Self::OutOfRange { .. } | Self::MissingKey { .. } | Self::Duplicate { .. } => {
                return None;
            }
            Self::Conflict { one, other } => {
                return Some(format!("remove `{other}` or `{one}`"));
            }
            Self::PathRefused { .. } => "write a path below the folder, such as `data/in.csv`",
            Self::FileKeyRefused { .. } => "use a plain name such as `report.csv`",
            Self::Token(error) => return error.hint(),
            Self::TokenId { .. } => "set `id` to a name without `/`",
            Self::Egress { .. } => "write `host`, `host:port` or `*.host`",
            Self::Run(error) => return error.hint(),
            Self::RefUnresolvable { tried: None, .. } => {
                "write the block itself instead of the reference"
            }
            Self::RefUnresolvable { .. } => {
                "name a file of the workspace, such as `./RUNNER.md`, or a slug that `refs` of the \
                 host's configuration knows, or write the block itself"
            }
            Self::NeedsContradictRun {
                decided_by: None, ..
            } => "change `runner.needs.language` or `run`",
            Self::NeedsContradictRun { .. } => {
                "state `runner.needs.language` beside `run`: what the manifest says wins"
            }
            Self::More { .. } => "mend those that are listed first",
            Self::PlaintextCredential { .. } => {
                "name the secret in `secrets` and pass its value with `--secret NAME=REF`"
            }
            Self::CliSandbox { .. } => {
                "write a sandbox block of AIP-36: `provider: local`, `network.egress`, `mounts`"
            }
            Self::ProviderUnavailable { .. } => "use `provider: local`",
            Self::SandboxReadOnly => "remove `read_only: true`",
            Self::MountTarget { .. } => "mount below a folder of its own, such as `/workspace`",
            Self::StorageUnsupported { at, writable } => {
                let mode = if *writable { "" } else { ":ro" };
                return Some(format!(
                    "give a directory with the data in its place: --mount DIR:{at}{mode}"
                ));
            }
            Self::CodeUnresolved { .. } => "run `runner bundle` first, then execute what it made",
            Self::IoInCodeWorkspace { .. } => "remove it here",
            Self::FsRootType => "declare it as `{type: string}` or not at all",
            Self::SchemaTooLarge { .. } => "make the schema smaller",
        };
        Some(text.to_owned())
    }
}

/// "did you mean `near`?"
pub(super) fn did_you_mean(near: &str) -> String {
    format!("did you mean `{near}`?")
}

/// Most keys that a message names.
const KEYS_NAMED_MAX: usize = 14;
/// Who says so, where it is another file.
fn as_said_by(file: Option<&str>) -> String {
    file.map_or_else(String::new, |file| format!(", as {file} says"))
}

/// The keys that are read in one place, where a person would read them all.
fn keys(known: &[&'static str]) -> String {
    match known {
        [] => "no key at all".to_owned(),
        few if few.len() <= KEYS_NAMED_MAX => format!("one of {}", few.join(", ")),
        many => format!("one of the {} keys that are known here", many.len()),
    }
}
