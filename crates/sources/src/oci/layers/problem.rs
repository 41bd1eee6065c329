//! Errors of images.

use spec::digest::Digest;
use spec::oci::image_config::ImageConfigError;
use spec::oci::media::{IMAGE_CONFIG, LAYER_GZIP, LAYER_TAR, LAYER_ZSTD};
use spec::units::limit;

/// A refused image. All texts are escaped.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ImageError {
    pub place: String,
    pub problem: ImageProblem,
}

/// Why an image is refused.
#[derive(Debug, thiserror::Error)]
pub enum ImageProblem {
    #[error("found a config of type {found}, expected {IMAGE_CONFIG}")]
    ConfigType { found: String },
    #[error("its config has {bytes} bytes, expected at most {}", limit(.limit_bytes))]
    ConfigTooLarge { bytes: u64, limit_bytes: u64 },
    #[error(transparent)]
    Config(ImageConfigError),
    #[error("it is for {found}, expected {expected}")]
    Platform { found: String, expected: String },
    #[error("it has {layers} layers, and its config names {diff_ids}; expected as many")]
    Layers { layers: usize, diff_ids: usize },
    #[error("it has {found} layers, expected at most {limit}")]
    TooManyLayers { found: usize, limit: usize },
    #[error("layer {index} is of type {found}, expected {LAYER_GZIP}, {LAYER_ZSTD} or {LAYER_TAR}")]
    LayerType {
        /// Counted from 1.
        index: usize,
        found: String,
    },
    /// The descriptor has `urls`: the layer is stored elsewhere.
    #[error("layer {index} lies elsewhere ({url}), where nothing is fetched from")]
    ForeignLayer {
        /// Counted from 1.
        index: usize,
        url: String,
    },
    #[error("layer {index}: {problem}")]
    Layer {
        /// Counted from 1.
        index: usize,
        problem: String,
    },
    #[error("layer {index} unpacks to a tar with the digest {found}, its config says {expected}")]
    DiffId {
        index: usize,
        found: Digest,
        expected: Digest,
    },
    #[error("what is beside an unpacked layer in the store is damaged: {entry}")]
    Damaged { entry: String },
}

impl ImageProblem {
    /// Adds `place`, which must be escaped.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> ImageError {
        ImageError {
            place: place.into(),
            problem: self,
        }
    }
}

impl ImageError {
    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &self.problem {
            ImageProblem::ConfigType { .. } => "image_config_type",
            ImageProblem::ConfigTooLarge { .. } => "image_config_too_large",
            ImageProblem::Config(error) => error.code(),
            ImageProblem::Platform { .. } => "image_no_platform",
            ImageProblem::Layers { .. } => "image_layers_mismatch",
            ImageProblem::TooManyLayers { .. } => "image_layers_too_many",
            ImageProblem::LayerType { .. } => "image_layer_type",
            ImageProblem::ForeignLayer { .. } => "image_layer_foreign",
            ImageProblem::Layer { .. } => "image_layer_invalid",
            ImageProblem::DiffId { .. } => "image_layer_diff_id",
            ImageProblem::Damaged { .. } => "image_layer_damaged",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match &self.problem {
            ImageProblem::ConfigType { .. } => "name an image; a source artifact is none",
            ImageProblem::Platform { .. } => "name an image for this machine, or an index with one",
            ImageProblem::TooManyLayers { .. } => {
                "build the image with fewer layers, or squash it, e.g. with `skopeo` and `umoci`"
            }
            ImageProblem::ForeignLayer { .. } => "push the image again with all of its layers",
            ImageProblem::Damaged { .. } => "remove it with `runner source gc`",
            ImageProblem::Layers { .. } | ImageProblem::DiffId { .. } => {
                "the image is not what its maker meant: push it again"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
