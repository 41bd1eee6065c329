//! Errors of package installation.

use crate::plan::preparation::PreparationError;
use crate::run::preparation::failure::Failed;
use reader::Problem;
use sources::oci::error::OciError;
use sources::oci::store::StoreError;
use spec::outcome::Outcome;
use spec::preparation_report::PreparationReport;
use store::CacheError;

/// Why the packages of a body could not be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreparationProblem {
    #[error(transparent)]
    Plan(#[from] PreparationError),
    #[error(transparent)]
    Failed(#[from] Failed),
    /// A preparation run left a file that no layer may contain.
    #[error("the result of the preparation of `runner.needs.{kind}` is not a layer of packages")]
    Layer {
        /// `native`, `npm` or `pip`.
        kind: &'static str,
        #[source]
        source: Problem,
    },
    /// A preparation run wrote outside the directories of its kind.
    #[error("the preparation of `runner.needs.{kind}` left {found}, expected only {expected}")]
    Elsewhere {
        /// `npm` or `pip`.
        kind: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("cannot read the package archive {file} of `runner.needs.native`")]
    Deb {
        file: String,
        #[source]
        source: Problem,
    },
    /// The store failed, or the wait for another process that prepares the same layer.
    #[error("cannot store the prepared packages")]
    Store(#[source] Box<OciError>),
    #[error("cannot store the prepared packages")]
    Layers(#[from] CacheError),
}

impl From<OciError> for PreparationProblem {
    fn from(error: OciError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl From<StoreError> for PreparationProblem {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error.into()))
    }
}

impl PreparationProblem {
    #[must_use]
    pub(in crate::run) fn code(&self) -> &'static str {
        match self {
            Self::Plan(error) => error.code(),
            Self::Failed(_) => "preparation_failed",
            Self::Layer { .. } | Self::Elsewhere { .. } | Self::Deb { .. } => "preparation_refused",
            Self::Store(error) => error.code(),
            Self::Layers(_) => "store_unusable",
        }
    }

    #[must_use]
    pub(in crate::run) fn hint(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.hint(),
            Self::Failed(failed) => failed.hint.clone(),
            Self::Store(error) => error.hint(),
            Self::Layer { .. } | Self::Elsewhere { .. } | Self::Deb { .. } | Self::Layers(_) => {
                None
            }
        }
    }

    /// The report's row of the failed run.
    #[must_use]
    pub(in crate::run) fn row(&self) -> Option<&PreparationReport> {
        match self {
            Self::Failed(failed) => Some(&failed.row),
            _ => None,
        }
    }

    #[must_use]
    pub(in crate::run) fn outcome(&self) -> Outcome {
        match self {
            Self::Plan(_) | Self::Layer { .. } | Self::Elsewhere { .. } | Self::Deb { .. } => {
                Outcome::Refused
            }
            Self::Failed(_) | Self::Store(_) | Self::Layers(_) => Outcome::Failed,
        }
    }
}
