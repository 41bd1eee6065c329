//! Parsing and validation of manifests and indexes.

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use serde::Deserialize;

use crate::answers;
use crate::oci::error::OciError;
use crate::oci::store::BlobDescriptor;
use spec::digest::Digest;
use spec::oci::media::{
    DOCKER_LIST, DOCKER_MANIFEST, EMPTY, INDEX, MANIFEST, SOURCE, SOURCE_CONFIG, SOURCE_SNAPSHOT,
};
use spec::oci::source_config::{CONFIG_BYTES_MAX, SourceConfigError};
use spec::path::escape;
use spec::units::limit;

const CONFIG_LIMIT_BYTES: u64 = CONFIG_BYTES_MAX as u64;
/// The only schema version that the image-spec defines.
const SCHEMA_VERSION: u32 = 2;
/// Content of the empty descriptor (image-spec, manifest.md).
const EMPTY_BYTES: &[u8] = b"{}";
const TEXT_CHARACTERS_MAX: usize = 120;
const PLATFORMS_SHOWN_MAX: usize = 16;

/// Why an artifact is refused. No file of it was unpacked. All texts are escaped.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactProblem {
    #[error("`{tag}` is a tag, which can be moved; expected @sha256:DIGEST")]
    Tag {
        /// As the caller wrote it.
        tag: String,
    },
    #[error("the document is not an OCI manifest: {problem}")]
    Document {
        /// What was found and what is expected.
        problem: String,
    },
    #[error("found {found}, expected a manifest for {expected}")]
    Platform {
        /// `manifests for PLATFORM, …` or `no manifests`.
        found: String,
        expected: String,
    },
    #[error("found an artifact of type {found}, expected {SOURCE}")]
    Type { found: String },
    #[error("found a config of type {found}, expected {SOURCE_CONFIG}, or {EMPTY} with `{{}}`")]
    ConfigType { found: String },
    #[error("found {found} layers, expected one")]
    Layers { found: usize },
    #[error("found a layer of type {found}, expected {SOURCE_SNAPSHOT}")]
    LayerType { found: String },
    #[error("found the digest `{found}`, expected sha256: and 64 hexadecimal digits")]
    Algorithm { found: String },
    #[error("its layer has {bytes} bytes, this host allows {}", limit(.limit_bytes))]
    LayerTooLarge { bytes: u64, limit_bytes: u64 },
    #[error("its config has {bytes} bytes, this host allows {}", limit(&CONFIG_LIMIT_BYTES))]
    ConfigTooLarge { bytes: u64 },
    #[error("its config is refused: {0}")]
    Config(SourceConfigError),
}

impl ArtifactProblem {
    /// Adds `place`, which must be escaped.
    pub(super) fn at(self, place: impl Into<String>) -> OciError {
        OciError::Artifact {
            place: place.into(),
            problem: Box::new(self),
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Tag { .. } => "tag_not_allowed",
            Self::Document { .. } => "artifact_invalid",
            Self::Platform { .. } => "artifact_no_platform",
            Self::Type { .. } => "artifact_wrong_type",
            Self::ConfigType { .. } => "artifact_config_type",
            Self::Layers { .. } => "artifact_layers",
            Self::LayerType { .. } => "artifact_layer_type",
            Self::Algorithm { .. } => "artifact_digest",
            Self::LayerTooLarge { .. } | Self::ConfigTooLarge { .. } => "artifact_too_large",
            Self::Config(_) => "artifact_config_invalid",
        }
    }

    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Tag { .. } => {
                "`runner source inspect` shows the digest; --allow-tags accepts the tag"
            }
            Self::Type { .. } => {
                "build a source artifact with `runner source build`; use an image with --image"
            }
            Self::LayerTooLarge { .. } => "the limit is `oci.layer` of the host's configuration",
            Self::Config(error) => return Some(error.hint()),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

#[derive(Debug)]
pub(super) enum Document {
    Manifest(Box<ImageManifest>),
    Index(Box<ImageIndex>),
}

/// Keys that distinguish a manifest from an index. A document with the keys of both is refused,
/// because two readers could parse the same digest as different artifacts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
    config: Option<serde::de::IgnoredAny>,
}

impl Document {
    /// Parses a document by its own `mediaType` and keys. The digest covers them, but not the HTTP
    /// header.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ArtifactProblem> {
        let invalid = |problem: String| ArtifactProblem::Document { problem };
        let no_json = |error: serde_json::Error| invalid(abbreviate(&error.to_string()));
        let document = answers::parse(bytes).map_err(|problem| invalid(abbreviate(&problem)))?;
        let kind = Kind::deserialize(&document).map_err(no_json)?;
        let is_index = kind.manifests.is_some();
        if is_index && (kind.layers.is_some() || kind.config.is_some()) {
            return Err(invalid(
                "it has the keys of a manifest and of an index".to_owned(),
            ));
        }
        let expected = if is_index {
            [INDEX, DOCKER_LIST]
        } else {
            [MANIFEST, DOCKER_MANIFEST]
        };
        if let Some(found) = kind
            .media_type
            .filter(|found| !expected.contains(&&**found))
        {
            return Err(invalid(format!("its mediaType is {}", abbreviate(&found))));
        }
        let (document, version) = if is_index {
            let index: ImageIndex = serde_json::from_value(document).map_err(no_json)?;
            let version = index.schema_version();
            (Self::Index(Box::new(index)), version)
        } else {
            let manifest: ImageManifest = serde_json::from_value(document).map_err(no_json)?;
            let version = manifest.schema_version();
            (Self::Manifest(Box::new(manifest)), version)
        };
        match version {
            SCHEMA_VERSION => Ok(document),
            other => Err(invalid(format!("its schemaVersion is {other}"))),
        }
    }

    /// Like [`Document::parse`], but refuses an index.
    pub(super) fn parse_manifest(bytes: &[u8]) -> Result<ImageManifest, ArtifactProblem> {
        match Self::parse(bytes)? {
            Self::Manifest(manifest) => Ok(*manifest),
            Self::Index(_) => Err(ArtifactProblem::Document {
                problem: "it is an index, expected a manifest".to_owned(),
            }),
        }
    }
}

/// Returns this machine's platform in OCI notation.
pub(super) fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{architecture}")
}

/// Selects the manifest for Linux on this machine's processor. An entry without a platform matches
/// if it is the only one.
pub(super) fn for_this_platform(index: &ImageIndex) -> Result<BlobDescriptor, ArtifactProblem> {
    let name = |descriptor: &Descriptor| {
        descriptor
            .platform()
            .as_ref()
            .map(|platform| format!("{}/{}", platform.os(), platform.architecture()))
    };
    let expected = platform();
    let all = index.manifests();
    let found = match all.as_slice() {
        [only] if only.platform().is_none() => Some(only),
        _ => all
            .iter()
            .find(|entry| name(entry).as_ref() == Some(&expected)),
    };
    if let Some(found) = found {
        return blob_descriptor(found);
    }
    let entries = all.iter().take(PLATFORMS_SHOWN_MAX);
    let platforms =
        entries.map(|entry| name(entry).map_or("no platform".to_owned(), |text| abbreviate(&text)));
    let mut platforms: Vec<String> = platforms.collect();
    platforms.dedup();
    let found = match platforms.as_slice() {
        [] => "no manifests".to_owned(),
        platforms => format!("manifests for {}", platforms.join(", ")),
    };
    Err(ArtifactProblem::Platform { found, expected })
}

pub(crate) fn blob_descriptor(descriptor: &Descriptor) -> Result<BlobDescriptor, ArtifactProblem> {
    let text = descriptor.digest().to_string();
    match Digest::parse(&text) {
        Some(digest) => Ok(BlobDescriptor {
            digest,
            bytes: descriptor.size(),
        }),
        None => Err(ArtifactProblem::Algorithm {
            found: abbreviate(&text),
        }),
    }
}

/// The blobs of a source artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceParts {
    /// `None` for the empty descriptor.
    pub config: Option<BlobDescriptor>,
    pub layer: BlobDescriptor,
}

/// Parses a manifest and returns the config and the layer of a source artifact.
///
/// # Errors
/// [`ArtifactProblem`].
pub fn read_source_parts(manifest: &[u8]) -> Result<SourceParts, ArtifactProblem> {
    source_parts(&Document::parse_manifest(manifest)?)
}

/// Checks that a manifest is a source artifact and returns its blobs.
///
/// # Errors
/// [`ArtifactProblem`]: the first violation found.
pub(super) fn source_parts(manifest: &ImageManifest) -> Result<SourceParts, ArtifactProblem> {
    let config = manifest.config();
    let config_type = config.media_type().to_string();
    let stated = manifest.artifact_type().as_ref().map(ToString::to_string);
    // Without `artifactType`, the media type of the config applies (image-spec, manifest.md).
    let is_by_config = stated.is_none();
    let found = stated.unwrap_or_else(|| config_type.clone());
    if found != SOURCE {
        return Err(ArtifactProblem::Type {
            found: abbreviate(&found),
        });
    }
    let config_descriptor = blob_descriptor(config)?;
    let empty = BlobDescriptor {
        digest: Digest::of(EMPTY_BYTES),
        bytes: EMPTY_BYTES.len() as u64,
    };
    let config = match &*config_type {
        SOURCE_CONFIG => Some(config_descriptor),
        SOURCE if is_by_config => Some(config_descriptor),
        EMPTY if config_descriptor == empty => None,
        other => {
            return Err(ArtifactProblem::ConfigType {
                found: abbreviate(other),
            });
        }
    };
    if let Some(config) = config.filter(|config| config.bytes > CONFIG_LIMIT_BYTES) {
        let bytes = config.bytes;
        return Err(ArtifactProblem::ConfigTooLarge { bytes });
    }
    let [layer] = manifest.layers().as_slice() else {
        return Err(ArtifactProblem::Layers {
            found: manifest.layers().len(),
        });
    };
    let layer_type = layer.media_type().to_string();
    if layer_type != SOURCE_SNAPSHOT {
        return Err(ArtifactProblem::LayerType {
            found: abbreviate(&layer_type),
        });
    }
    let layer = blob_descriptor(layer)?;
    Ok(SourceParts { config, layer })
}

/// Refuses a snapshot above the limit of the host, before it is read.
pub(super) fn check_layer(layer: &BlobDescriptor, limit_bytes: u64) -> Result<(), ArtifactProblem> {
    let bytes = layer.bytes;
    if bytes > limit_bytes {
        return Err(ArtifactProblem::LayerTooLarge { bytes, limit_bytes });
    }
    Ok(())
}

/// Escapes a text and cuts it.
pub(super) fn abbreviate(text: &str) -> String {
    let text = escape(text.as_bytes());
    match text.char_indices().nth(TEXT_CHARACTERS_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
