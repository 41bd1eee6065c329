//! Why what a body needs could not be installed.

use crate::plan::preparation::PreparationError;
use crate::run::preparation::failure::Failed;
use archive::UnpackError;
use archive::deb::DebError;
use sources::oci::error::OciError;
use sources::oci::store::StoreError;
use spec::outcome::Outcome;
use spec::preparation_report::PreparationReport;
use store::CacheError;

/// Why what a body needs could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum PreparationProblem {
    #[error(transparent)]
    Plan(#[from] PreparationError),
    /// A run did not succeed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// A run left what no layer may hold.
    #[error("what the preparation of `runner.needs.{kind}` left is not a layer of packages")]
    Layer {
        /// `npm` or `pip`.
        kind: &'static str,
        #[source]
        source: Box<UnpackError>,
    },
    /// A run left something at a place that is none of its kind's.
    #[error(
        "the preparation of `runner.needs.{kind}` left {found}; expected nothing but {expected}"
    )]
    Elsewhere {
        /// `npm` or `pip`.
        kind: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("the package archive {file} of `runner.needs.native`")]
    Deb {
        file: String,
        #[source]
        source: DebError,
    },
    /// The store, or waiting for somebody who prepares the same.
    #[error("prepared packages cannot be kept")]
    Store(#[source] Box<OciError>),
    /// The store of prepared layers.
    #[error("prepared packages cannot be kept")]
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
    /// Stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Plan(error) => error.code(),
            Self::Failed(_) => "preparation_failed",
            Self::Layer { .. } | Self::Elsewhere { .. } | Self::Deb { .. } => "preparation_refused",
            Self::Store(error) => error.code(),
            Self::Layers(_) => "store_unusable",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.hint(),
            Self::Failed(failed) => failed.hint.clone(),
            Self::Store(error) => error.hint(),
            Self::Layer { .. } | Self::Elsewhere { .. } | Self::Deb { .. } | Self::Layers(_) => {
                None
            }
        }
    }

    /// What the report says of the run that failed.
    #[must_use]
    pub fn row(&self) -> Option<&PreparationReport> {
        match self {
            Self::Failed(failed) => Some(&failed.row),
            _ => None,
        }
    }

    /// What the run is.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Plan(_) | Self::Layer { .. } | Self::Elsewhere { .. } | Self::Deb { .. } => {
                Outcome::Refused
            }
            Self::Failed(_) | Self::Store(_) | Self::Layers(_) => Outcome::Failed,
        }
    }
}
