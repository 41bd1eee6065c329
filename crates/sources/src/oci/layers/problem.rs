//! Errors of images.

use crate::oci::error::OciError;
use spec::digest::Digest;
use spec::oci::image_config::ImageConfigError;
use spec::oci::media::{IMAGE_CONFIG, LAYER_GZIP, LAYER_TAR, LAYER_ZSTD};
use spec::units::limit;

/// Why an image is refused. All texts are escaped; layers are counted from 1.
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
    #[error("its manifest has {layers} layers, its config has {diff_ids}")]
    Layers { layers: usize, diff_ids: usize },
    #[error("it has {found} layers, expected at most {limit}")]
    TooManyLayers { found: usize, limit: usize },
    #[error("layer {index} is of type {found}, expected {LAYER_GZIP}, {LAYER_ZSTD} or {LAYER_TAR}")]
    LayerType { index: usize, found: String },
    /// The descriptor has `urls`.
    #[error("layer {index} is stored elsewhere ({url}), which is not supported")]
    ForeignLayer { index: usize, url: String },
    #[error("layer {index}: {problem}")]
    Layer { index: usize, problem: String },
    #[error("layer {index} unpacks to a tar with the digest {found}, its config says {expected}")]
    DiffId {
        index: usize,
        found: Digest,
        expected: Digest,
    },
    #[error("the metadata of an unpacked layer is damaged: {entry}")]
    Damaged { entry: String },
}

impl ImageProblem {
    /// Adds the reference or path of the image, which must be escaped.
    pub(in crate::oci) fn at(self, place: impl Into<String>) -> OciError {
        OciError::Image {
            place: place.into(),
            problem: Box::new(self),
        }
    }

    pub(in crate::oci) fn code(&self) -> &'static str {
        match self {
            Self::ConfigType { .. } => "image_config_type",
            Self::ConfigTooLarge { .. } => "image_config_too_large",
            Self::Config(error) => error.code(),
            Self::Platform { .. } => "image_no_platform",
            Self::Layers { .. } => "image_layers_mismatch",
            Self::TooManyLayers { .. } => "image_layers_too_many",
            Self::LayerType { .. } => "image_layer_type",
            Self::ForeignLayer { .. } => "image_layer_foreign",
            Self::Layer { .. } => "image_layer_invalid",
            Self::DiffId { .. } => "image_layer_diff_id",
            Self::Damaged { .. } => "image_layer_damaged",
        }
    }

    pub(in crate::oci) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::ConfigType { .. } => "name an image, not a source artifact",
            Self::Platform { .. } => "use an image for this machine, or an index with one",
            Self::TooManyLayers { .. } => {
                "build the image with fewer layers, or squash it, e.g. with `skopeo` and `umoci`"
            }
            Self::ForeignLayer { .. } => "push the image again with all of its layers",
            Self::Damaged { .. } => "remove it with `runner source gc --all`",
            Self::Layers { .. } | Self::DiffId { .. } => {
                "the image is inconsistent: build and push it again"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
