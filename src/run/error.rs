//! Errors of the stages of a run, and their form in the report.

use crate::plan::doctor::{Control, user_namespaces};
use crate::plan::grants::Ungranted;
use crate::plan::limits::LimitError;
use crate::plan::node_permission::NodePermissionError;
use crate::run::host::user_namespaces::settings;
use crate::run::preparation::error::PreparationProblem;
use crate::run::sources::error::SourceError;
use crate::run::unpacking::UNPACK;
use crate::staging::ScratchError;
use archive::UnpackError;
use bundler::BundleError;
use reader::{Problem, UnpackFailure};
use sandbox::cgroups::CgroupError;
use sandbox::error::SandboxError;
use sandbox::image_user::ImageUserError;
use sandbox::mounts::MountError;
use sandbox::records::RecordsError;
use sandbox::resources::ResourcesError;
use secrets::SecretError;
use sources::oci::error::OciError;
use spec::detection::RunFormError;
use spec::document::SourceLine;
use spec::image::ImageError;
use spec::io::contract::{ContractError, Mismatch, ReadDocumentError};
use spec::io::fs_root::FsRootError;
use spec::manifest::ManifestError;
use spec::outcome::Outcome;
use spec::report::ErrorReport;
use spec::run_form::RunError as RunValueError;
use spec::tokens::TokenError;
use store::HistoryError;

/// Warning code of a run that timed out before its body started.
pub(crate) const BODY_NOT_STARTED: &str = "body_not_started";

pub(crate) const RUNTIME_DIRECTORY_UNUSABLE: &str = "runtime_directory_unusable";
pub(crate) const RUNTIME_DIRECTORY_HINT: &str =
    "set RUNNER_OPT_RUNTIME_DIRECTORY to a directory of your own";

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// As the process that unpacks the bundle told it.
    #[error(transparent)]
    Reader(Problem),
    #[error("{error}")]
    Manifest {
        error: ManifestError,
        source_line: Option<Box<SourceLine>>,
    },
    /// A document that the manifest refers to.
    #[error("{error}")]
    Bundle {
        error: Box<BundleError>,
        source_line: Option<Box<SourceLine>>,
    },
    #[error("--run: {0}")]
    RunValue(#[from] RunValueError),
    #[error(transparent)]
    RunForm(#[from] RunFormError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("runner.image: {0}")]
    Image(#[from] ImageError),
    /// The image cannot be obtained.
    #[error("image {place}: {error}")]
    ImagePull {
        place: String,
        #[source]
        error: Box<OciError>,
    },
    #[error(transparent)]
    ImageUser(#[from] ImageUserError),
    #[error("sandbox.provider: `node-permission` {0}")]
    NodePermission(#[from] NodePermissionError),
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(transparent)]
    Secret(Box<SecretError>),
    #[error(transparent)]
    Source(Box<SourceError>),
    #[error("{place}: {error}")]
    Token {
        place: String,
        #[source]
        error: TokenError,
    },
    /// The JSON Schema of `inputs` or `outputs`.
    #[error("`{block}`: {error}")]
    Contract {
        block: &'static str,
        #[source]
        error: ContractError,
    },
    /// The reserved input field.
    #[error("`inputs`: {0}")]
    FsRoot(#[from] FsRootError),
    /// `--inputs` is not a JSON document.
    #[error("--inputs: {0}")]
    InputsUnreadable(#[from] ReadDocumentError),
    #[error("the inputs do not satisfy `inputs`: {}", mismatches(.0))]
    InputsInvalid(Vec<Mismatch>),
    /// The body's output does not satisfy the schema, is not JSON, or lacks a file.
    #[error("{message}")]
    Output {
        /// `missing-output`, `invalid-output` or `missing-artifact`.
        code: &'static str,
        message: String,
    },
    /// A required output file exists but could not be written to the workspace.
    #[error("{message}")]
    Undelivered {
        message: String,
        /// Advice for the first of them.
        hint: Option<String>,
    },
    /// A bundle's manifest requests something that is not granted.
    #[error(
        "the bundle's own manifest asks for {}",
        .0.iter().map(|grant| grant.what.as_str()).collect::<Vec<_>>().join(", ")
    )]
    Ungranted(Vec<Ungranted>),
    /// `needs` could not be installed.
    #[error(transparent)]
    Preparation(Box<PreparationProblem>),
    /// The configuration requires a record of the run.
    #[error("the run cannot be recorded, and the configuration says `audit: required`")]
    Unrecorded(#[source] HistoryError),
    #[error(transparent)]
    History(HistoryError),
    /// Neither a manifest nor `--run`.
    #[error("{message}")]
    NoManifest {
        /// The names that were tried, and the files that exist.
        message: String,
        hint: String,
    },
    /// Something that the caller named is unusable.
    #[error("{what} {object} {problem}")]
    Argument {
        code: &'static str,
        /// `manifest`, `mount source` …
        what: &'static str,
        object: String,
        problem: String,
        hint: Option<String>,
    },
    #[error("{error}")]
    Sandbox {
        #[source]
        error: SandboxError,
        /// Host settings that may be the cause.
        forbidding: Vec<Control>,
    },
    /// The body's program could not be started, for a known reason.
    #[error("{error}{}", .why.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    Program {
        error: SandboxError,
        why: Option<String>,
        hint: String,
    },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Records(Box<RecordsError>),
    #[error("cannot {act}: {errno}")]
    Host {
        act: String,
        #[source]
        errno: rustix::io::Errno,
    },
    /// Init ended without a known reason.
    #[error("process 1 of the sandbox, the runner's init, ended unexpectedly: {how}")]
    InitDied {
        /// Its signal or exit code.
        how: String,
    },
    #[error("processes of the run did not end after SIGKILL")]
    Unkillable,
    /// The caller's signal arrived before the body started.
    #[error("cancelled by signal {signal} before the body was started")]
    Cancelled { signal: i32 },
    /// The wall time ended before the body started.
    #[error("the wall time ended before the body was started, after {act}")]
    TimedOut { act: &'static str },
}

/// Each location with its problem, on one line.
pub(super) fn mismatches(list: &[Mismatch]) -> String {
    let texts: Vec<String> = list
        .iter()
        .map(|mismatch| {
            let pointer = match mismatch.pointer.as_str() {
                "" => "/",
                pointer => pointer,
            };
            format!("{pointer}: {}", mismatch.message)
        })
        .collect();
    texts.join("; ")
}

impl From<SandboxError> for RunError {
    fn from(error: SandboxError) -> Self {
        let forbidding = if error.may_be_forbidden() {
            user_namespaces::forbidding(&settings())
        } else {
            Vec::new()
        };
        Self::Sandbox { error, forbidding }
    }
}

impl From<ManifestError> for RunError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest {
            error,
            source_line: None,
        }
    }
}

impl From<RecordsError> for RunError {
    fn from(error: RecordsError) -> Self {
        Self::Records(Box::new(error))
    }
}

impl From<ResourcesError> for RunError {
    fn from(error: ResourcesError) -> Self {
        match error {
            ResourcesError::Records(error) => error.into(),
            ResourcesError::Cgroup(error) => error.into(),
        }
    }
}

impl From<SourceError> for RunError {
    fn from(error: SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

impl From<PreparationProblem> for RunError {
    fn from(error: PreparationProblem) -> Self {
        Self::Preparation(Box::new(error))
    }
}

impl From<SecretError> for RunError {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Cancelled { signal } => Self::Cancelled { signal },
            error => Self::Secret(Box::new(error)),
        }
    }
}

impl From<reader::Unparsed> for RunError {
    fn from(unparsed: reader::Unparsed) -> Self {
        match unparsed {
            reader::Unparsed::Document(error) => Self::InputsUnreadable(error),
            reader::Unparsed::Cancelled(signal) => Self::Cancelled { signal },
            reader::Unparsed::Host(errno) => Self::host("parse JSON")(errno),
        }
    }
}

impl From<reader::Refused> for RunError {
    fn from(refused: reader::Refused) -> Self {
        match refused {
            reader::Refused::Schema { block, error } => Self::Contract { block, error },
            reader::Refused::Document(found) => Self::InputsInvalid(found),
            reader::Refused::Cancelled(signal) => Self::Cancelled { signal },
            reader::Refused::Host(errno) => Self::host("validate by a schema")(errno),
        }
    }
}

impl From<MountError> for RunError {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Refused {
                code,
                what,
                object,
                problem,
                hint,
            } => Self::Argument {
                code,
                what,
                object,
                problem,
                hint,
            },
            MountError::Call { act, errno } => Self::Host { act, errno },
        }
    }
}

impl From<UnpackFailure> for RunError {
    fn from(failure: UnpackFailure) -> Self {
        match failure {
            UnpackFailure::Problem(problem) => Self::Reader(problem),
            UnpackFailure::TimedOut => Self::TimedOut { act: UNPACK },
            UnpackFailure::Cancelled(signal) => Self::Cancelled { signal },
            UnpackFailure::Source(errno) => UnpackError::Read(errno.into()).into(),
            UnpackFailure::Host(errno) => Self::Host {
                act: "start the process that unpacks the bundle".to_owned(),
                errno,
            },
        }
    }
}

impl RunError {
    /// A failed operation of the supervisor; `act` completes "cannot …".
    pub(crate) fn host(act: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let act = act.into();
        move |errno| Self::Host { act, errno }
    }

    /// `refused`: the request cannot be met. `failed`: the host or the runner failed, or the body
    /// broke the contract.
    #[must_use]
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Unpack(error) if !error.is_refusal() => Outcome::Failed,
            Self::Reader(problem) if !problem.is_refusal() => Outcome::Failed,
            Self::Source(error) if !error.is_refusal() => Outcome::Failed,
            Self::ImagePull { error, .. } if error.is_temporary() => Outcome::Failed,
            Self::Sandbox { .. }
            | Self::Program { .. }
            | Self::Cgroup(_)
            | Self::Records(_)
            | Self::History(_)
            | Self::Host { .. }
            | Self::InitDied { .. }
            | Self::Unkillable
            | Self::Output { .. }
            | Self::Undelivered { .. } => Outcome::Failed,
            Self::Cancelled { .. } => Outcome::Cancelled,
            Self::TimedOut { .. } => Outcome::TimedOut,
            Self::Preparation(error) => error.outcome(),
            _ => Outcome::Refused,
        }
    }

    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Unpack(error) => error.code(),
            Self::Reader(problem) => &problem.code,
            Self::Manifest { error, .. } => error.code(),
            Self::Bundle { error, .. } => error.code(),
            Self::RunValue(error) => error.code(),
            Self::RunForm(error) => error.code(),
            Self::Limit(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::ImagePull { error, .. } => error.code(),
            Self::ImageUser(error) => error.code(),
            Self::NodePermission(_) => "provider_unavailable",
            Self::Scratch(error) => error.code(),
            Self::Secret(error) => error.code(),
            Self::Source(error) => error.code(),
            Self::Token { error, .. } => error.code(),
            Self::Contract { error, .. } => error.code(),
            Self::FsRoot(_) => "fs_root_invalid",
            Self::InputsUnreadable(_) => "inputs_unreadable",
            Self::InputsInvalid(_) => "invalid-input",
            Self::Output { code, .. } => code,
            Self::Undelivered { .. } => "output_undelivered",
            Self::Ungranted(_) => "grant_required",
            Self::Preparation(error) => error.code(),
            Self::Unrecorded(_) => "run_unrecorded",
            Self::History(_) => "history_unusable",
            Self::NoManifest { .. } => "manifest_missing",
            Self::Argument { code, .. } => code,
            Self::Sandbox { error, .. } | Self::Program { error, .. } => error.code(),
            Self::Cgroup(_) => "cgroup_failed",
            Self::Records(_) => RUNTIME_DIRECTORY_UNUSABLE,
            Self::Host { .. } => "host_failed",
            Self::InitDied { .. } => "init_died",
            Self::Unkillable => "unkillable",
            Self::Cancelled { .. } => "cancelled",
            Self::TimedOut { .. } => BODY_NOT_STARTED,
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Unpack(error) => error.hint(),
            Self::Reader(problem) => problem.hint.clone(),
            Self::Manifest { error, .. } => error.hint(),
            Self::Bundle { error, .. } => error.hint(),
            Self::RunValue(error) => error.hint(),
            Self::RunForm(error) => error.hint(),
            Self::Limit(error) => error.hint(),
            Self::Contract { error, .. } => Some(error.hint().to_owned()),
            Self::Image(error) => error.hint(),
            Self::ImagePull { error, .. } => error.hint(),
            Self::NodePermission(error) => Some(error.hint().to_owned()),
            Self::Scratch(error) => error.hint().map(str::to_owned),
            Self::Secret(error) => error.hint(),
            Self::Source(error) => error.hint(),
            Self::Token { error, .. } => error.hint(),
            Self::Ungranted(missing) => {
                let mut flags: Vec<&str> =
                    missing.iter().map(|grant| grant.flag.as_str()).collect();
                flags.sort_unstable();
                flags.dedup();
                Some(format!(
                    "if you trust the bundle that far, add: {}",
                    flags.join(" ")
                ))
            }
            Self::Preparation(error) => error.hint(),
            Self::Unrecorded(_) | Self::History(_) => {
                Some("RUNNER_OPT_STATE_DIRECTORY names another directory".to_owned())
            }
            Self::NoManifest { hint, .. } => Some(hint.clone()),
            Self::Argument { hint, .. } | Self::Undelivered { hint, .. } => hint.clone(),
            Self::Sandbox { error, forbidding } => {
                user_namespaces::mend(forbidding).or_else(|| error.hint())
            }
            Self::Program { hint, .. } => Some(hint.clone()),
            Self::Records(_) => Some(RUNTIME_DIRECTORY_HINT.to_owned()),
            _ => None,
        }
    }

    /// Converts to the report's form: the message with its chain of causes.
    #[must_use]
    pub(crate) fn report(&self) -> ErrorReport {
        ErrorReport {
            source_line: match self {
                Self::Manifest { source_line, .. } | Self::Bundle { source_line, .. } => {
                    source_line.clone()
                }
                _ => None,
            },
            ..ErrorReport::of(self.code(), self, self.hint())
        }
    }
}
