//! Errors of a manifest: place, problem and hint.

use crate::access_mode::AccessMode;
use crate::document::{DocumentError, DocumentProblem, Place};
use crate::path::escape;
use crate::units::limit;

/// The code of [`Problem::PlaintextCredential`].
pub(crate) const PLAINTEXT_CREDENTIAL: &str = "plaintext_credential";

/// Why a manifest is refused or cannot run on this host, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", position(.file, *.place, .pointer.as_deref()))]
pub struct ManifestError {
    pub file: String,
    pub place: Option<Place>,
    pub pointer: Option<String>,
    pub problem: Box<Problem>,
}

impl ManifestError {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.problem.code()
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.problem.hint()
    }

    /// An error of the syntax.
    pub fn of_document(file: &str, error: DocumentError) -> Self {
        Self {
            file: file.to_owned(),
            place: error.place,
            pointer: None,
            problem: Box::new(Problem::Document(error.problem)),
        }
    }
}

/// Why a manifest is refused. Texts of the manifest are escaped and shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{0}")]
    Document(DocumentProblem),
    #[error("found the key `{key}`, expected {}", keys(known))]
    UnknownKey {
        key: String,
        known: Vec<&'static str>,
        hint: Option<String>,
    },
    #[error("found {found}, expected {expected}")]
    WrongType {
        found: String,
        expected: String,
        hint: Option<String>,
    },
    #[error("found {found}, expected a whole number from {minimum} to {maximum}")]
    OutOfRange {
        found: String,
        minimum: u64,
        maximum: u64,
    },
    #[error("found `{found}`, expected one of {}", expected.join(", "))]
    UnknownValue {
        found: String,
        expected: Vec<&'static str>,
        near: Option<&'static str>,
    },
    #[error("the key `{key}` is missing")]
    MissingKey { key: &'static str },
    #[error("found both `{one}` and `{other}`, expected one of them")]
    Conflict {
        one: &'static str,
        other: &'static str,
    },
    #[error("the path `{found}` {reason}")]
    PathRefused { found: String, reason: String },
    #[error("the key `{found}` {reason}; it becomes the name of a file, `/scratch/{found}`")]
    FileKeyRefused { found: String, reason: String },
    #[error("`{found}` is declared twice, first at {first}")]
    Duplicate {
        found: String,
        /// JSON Pointer or dotted key of the first one.
        first: String,
    },
    #[error("{0}")]
    Token(crate::tokens::TokenError),
    #[error("the path uses `{token}`, but the id `{id}` is not one path segment")]
    TokenId { token: &'static str, id: String },
    #[error("found `{found}`: {reason}")]
    Egress {
        found: String,
        reason: crate::egress::EgressError,
    },
    #[error("{0}")]
    Run(crate::run_form::RunError),
    #[error(
        "`{block}` refers to `{reference}`, which {}",
        tried.as_deref().unwrap_or("cannot be resolved here")
    )]
    RefUnresolvable {
        block: &'static str,
        reference: String,
        /// What was searched and why that failed: completes "which …".
        tried: Option<String>,
    },
    /// A credential in plain text. Its value is never repeated.
    #[error("found a credential in plain text: {why}")]
    PlaintextCredential { why: &'static str },
    /// A `sandbox` block of the command-line family (AIP-29).
    #[error("found `{key}`, which belongs to the sandbox block of a CLI manifest (AIP-29)")]
    CliSandbox {
        /// The key that identifies it.
        key: String,
    },
    #[error("the provider `{provider}` is not available: {why}")]
    ProviderUnavailable { provider: String, why: &'static str },
    /// A key that a command, which has no bundle, cannot use.
    #[error("found `{key}`, {why}, expected a manifest without it")]
    NotOfCommand {
        key: String,
        why: &'static str,
        /// The hint.
        instead: &'static str,
    },
    #[error("the sandbox is read-only, so no command may run in it")]
    SandboxReadOnly,
    #[error("the mount point `{found}` {reason}")]
    MountTarget {
        found: String,
        reason: crate::mount_target::MountTargetError,
    },
    /// A mount of a storage block, or of another workspace.
    #[error("the storage at `{at}` is not supported: only the workspace can be mounted")]
    StorageUnsupported { at: String, mode: AccessMode },
    #[error("`{key}` names sources that have not been fetched")]
    CodeUnresolved {
        /// `code` or `source`.
        key: &'static str,
    },
    /// An IO block in a code-workspace.
    #[error("a code-workspace has no `{key}`: it belongs to the tool that uses the workspace")]
    IoInCodeWorkspace { key: &'static str },
    /// `_workflowFsRoot` with a type other than text.
    #[error("`_workflowFsRoot` is declared with a type other than string; the host sets it")]
    FsRootType,
    #[error("the schema has {bytes} bytes, expected at most {}", limit(.bytes_max))]
    SchemaTooLarge { bytes: usize, bytes_max: usize },
    /// The language of a code-workspace or of `needs` differs from that of `run`.
    #[error("`needs.language` is {language}{}, but `run` starts `{program}`", as_stated_by(decided_by.as_deref()))]
    NeedsContradictRun {
        language: &'static str,
        /// The file that sets it, escaped, if it is not the one with `run`.
        decided_by: Option<String>,
        program: String,
    },
    #[error("{message}")]
    NotRunnable {
        code: &'static str,
        message: String,
        hint: Option<String>,
    },
    #[error("{} not listed", crate::units::count(*more, "more error"))]
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
            Self::PlaintextCredential { .. } => PLAINTEXT_CREDENTIAL,
            Self::CliSandbox { .. } => "sandbox_is_cli_block",
            Self::ProviderUnavailable { .. } => "provider_unavailable",
            Self::NotOfCommand { .. } => "not_of_command",
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

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Document(problem) => problem.hint()?,
            Self::UnknownKey {
                hint: Some(hint), ..
            } => return Some(hint.clone()),
            Self::UnknownKey { known, .. } if known.len() > KEYS_NAMED_MAX => {
                "`runner schema manifest` lists them"
            }
            Self::UnknownKey { .. } => return None,
            Self::WrongType { hint, .. } | Self::NotRunnable { hint, .. } => return hint.clone(),
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
            Self::TokenId { .. } => {
                "set `id` to a single path segment: no `/`, not `.` or `..`, at most 255 bytes"
            }
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
                "set `runner.needs.language` in the manifest with `run`: it wins"
            }
            Self::More { .. } => "correct the listed errors first",
            Self::PlaintextCredential { .. } => {
                "name the secret in `secrets` and pass its value with `--secret NAME=REF`"
            }
            Self::CliSandbox { .. } => {
                "write a sandbox block of AIP-36: `provider: local`, `network.egress`, `mounts`"
            }
            Self::ProviderUnavailable { .. } => "use `provider: local`",
            Self::NotOfCommand { instead, .. } => instead,
            Self::SandboxReadOnly => "remove `read_only: true`",
            Self::MountTarget { .. } => "mount below a folder of its own, such as `/workspace`",
            Self::StorageUnsupported { at, mode } => {
                return Some(format!(
                    "mount a directory with the data instead: --mount DIR:{at}:{}",
                    mode.short()
                ));
            }
            Self::CodeUnresolved { .. } => "run `runner bundle` first, then execute the bundle",
            Self::IoInCodeWorkspace { .. } => "remove the key",
            Self::FsRootType => "declare it as `{type: string}` or not at all",
            Self::SchemaTooLarge { .. } => "make the schema smaller",
        };
        Some(text.to_owned())
    }
}

/// The start of a message about a file: `FILE:LINE:COLUMN at POINTER: `.
pub(super) fn position(file: &str, place: Option<Place>, pointer: Option<&str>) -> String {
    let mut position = escape(file.as_bytes());
    if let Some(place) = place {
        position += &format!(":{place}");
    }
    if let Some(pointer) = pointer.filter(|pointer| !pointer.is_empty()) {
        position += &format!(" at {pointer}");
    }
    position + ": "
}

pub(crate) fn did_you_mean(near: &str) -> String {
    format!("did you mean `{near}`?")
}

const KEYS_NAMED_MAX: usize = 14;

fn as_stated_by(file: Option<&str>) -> String {
    file.map_or_else(String::new, |file| format!(", as {file} says"))
}

fn keys(known: &[&'static str]) -> String {
    match known {
        [] => "no key".to_owned(),
        few if few.len() <= KEYS_NAMED_MAX => format!("one of {}", few.join(", ")),
        many => format!("one of the {} known keys", many.len()),
    }
}
