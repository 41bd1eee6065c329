//! Unpacks the layers of an image, or finds them in the store.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use oci_spec::image::Descriptor;

use crate::oci::artifact::{self, blob_descriptor, shown};
use crate::oci::error::OciError;
use crate::oci::fetcher::Fetcher;
use crate::oci::layers::{HeldLayer, Image, ImageProblem, LAYERS_MAX, Merged};
use crate::oci::observer::Observer;
use crate::oci::origin::Origin;
use crate::oci::pull::{Artifact, Watched, unpack_error};
use crate::oci::store::{Blob, BlobDescriptor, Store};
use crate::progress::Progress;
use archive::{Compression, LayerView, UnpackError, UnpackLimits, UnpackedLayer};
use spec::digest::Digest;
use spec::oci::image_config::ImageConfig;
use spec::oci::media::{
    DOCKER_CONFIG, DOCKER_LAYER, DOCKER_LAYER_PLAIN, IMAGE_CONFIG, LAYER_GZIP, LAYER_TAR,
    LAYER_ZSTD,
};
use spec::path::escape;
use spec::report::WarningReport;
use spec::units;
use store::{Label, StoreDirectory};
use sys::file::CallError;

const CONFIG_BYTES_MAX: u64 = 4 << 20;
const MANIFEST_LAYERS_MAX: usize = 256;
/// Longest note of a layer, in bytes. The store reads somewhat more than this.
const NOTE_BYTES_MAX: usize = 60 << 20;

/// First line of the note of a layer. The encoded [`LayerView`] follows.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// An opaque root hides all layers below.
    hides_all: bool,
    is_empty: bool,
    entries: u64,
    warnings: Vec<(String, String)>,
}

/// Encodes the note that is stored with an unpacked or prepared layer.
///
/// # Errors
/// [`UnpackError::TooLongNames`]: the names of all layers exceed the limit of a note.
pub(crate) fn note_of(unpacked: &UnpackedLayer) -> Result<Vec<u8>, UnpackError> {
    let note = Note {
        hides_all: unpacked.hides_all,
        is_empty: unpacked.is_empty,
        entries: unpacked.entries,
        warnings: unpacked
            .warnings
            .iter()
            .map(|warning| (warning.code.clone(), warning.message.clone()))
            .collect(),
    };
    // Serialization of this type cannot fail.
    let mut bytes = serde_json::to_vec(&note).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend(unpacked.view.write());
    match bytes.len() <= NOTE_BYTES_MAX {
        true => Ok(bytes),
        false => Err(UnpackError::TooLongNames {
            index: 0,
            name: "all layers together".to_owned(),
            limit_bytes: NOTE_BYTES_MAX as u64,
        }),
    }
}

/// Reads the view that the next layer needs of `layer` and the layers below.
pub(super) fn view_beside(layer: &HeldLayer) -> Result<LayerView, OciError> {
    let note = layer.note()?;
    let cut = note.iter().position(|byte| *byte == b'\n');
    let view = cut.and_then(|cut| LayerView::read(&note[cut + 1..]));
    view.ok_or_else(|| damaged(layer))
}

fn note_beside(layer: &HeldLayer) -> Result<Note, OciError> {
    let note = layer.note()?;
    let line = note.split(|byte| *byte == b'\n').next();
    line.and_then(|line| serde_json::from_slice(line).ok())
        .ok_or_else(|| damaged(layer))
}

fn damaged(layer: &HeldLayer) -> OciError {
    let entry = escape(layer.path.as_os_str().as_encoded_bytes());
    ImageProblem::Damaged { entry }.at("the store")
}

/// Computes the `ChainID` of a layer (OCI image-spec, config.md, "Layer `ChainID`").
#[must_use]
pub(crate) fn chain_id(below: Option<&Digest>, diff_id: &Digest) -> Digest {
    match below {
        None => *diff_id,
        Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
    }
}

/// Unpacks all layers of the image whose manifest is `artifact`. Concurrent processes unpack each
/// layer once.
///
/// `limits` apply to each layer. A layer that does not match its `diff_id` is refused.
///
/// # Errors
/// [`OciError`]: not an image, another platform, a refused or unsupported layer, a limit, the
/// origin, a full disk, cancelled.
pub fn image(
    store: &Store,
    artifact: &Artifact,
    limits: &UnpackLimits,
    observer: &dyn Observer,
    origin: &dyn Origin,
) -> Result<Image, OciError> {
    let mut builder = ImageBuilder {
        fetcher: Fetcher::new(store, origin, observer),
        cache: store.layers()?,
        limits,
        place: &artifact.place,
        unpacked: false,
    };
    let config = builder.config(artifact)?;
    let described = builder.layers(artifact, &config)?;
    let mut held: Vec<HeldLayer> = Vec::new();
    let mut seen: Vec<bool> = Vec::new();
    let mut warnings = Vec::new();
    let mut chain: Option<Digest> = None;
    for layer in &described {
        let id = chain_id(chain.as_ref(), &layer.diff_id);
        let one = builder.layer(layer, &id, &held)?;
        let note = note_beside(&one)?;
        builder.check_limits(layer, &one, &note)?;
        if note.hides_all {
            held.clear();
            seen.clear();
        }
        let noted = note.warnings.into_iter();
        warnings.extend(noted.map(|(code, message)| WarningReport::new(&code, message)));
        held.push(one);
        seen.push(!note.is_empty);
        chain = Some(id);
    }
    Ok(Image {
        digest: artifact.digest,
        config,
        layers: builder.drop_empty(held, seen)?,
        cached: !builder.unpacked,
        from_store: artifact.from_store && !builder.fetcher.has_asked(),
        warnings,
    })
}

struct Described {
    index: usize,
    blob: BlobDescriptor,
    compression: Compression,
    diff_id: Digest,
}

struct ImageBuilder<'call> {
    fetcher: Fetcher<'call>,
    cache: StoreDirectory,
    limits: &'call UnpackLimits,
    place: &'call str,
    unpacked: bool,
}

impl ImageBuilder<'_> {
    fn refused(&self, problem: ImageProblem) -> OciError {
        problem.at(self.place)
    }

    fn config(&self, artifact: &Artifact) -> Result<ImageConfig, OciError> {
        let descriptor = artifact.manifest.config();
        let found = descriptor.media_type().to_string();
        if ![IMAGE_CONFIG, DOCKER_CONFIG].contains(&found.as_str()) {
            let found = shown(&found);
            return Err(self.refused(ImageProblem::ConfigType { found }));
        }
        let wanted = blob_descriptor(descriptor).map_err(|problem| problem.at(self.place))?;
        if CONFIG_BYTES_MAX < wanted.bytes {
            return Err(self.refused(ImageProblem::ConfigTooLarge {
                bytes: wanted.bytes,
                limit_bytes: CONFIG_BYTES_MAX,
            }));
        }
        let bytes = self.fetcher.read(&wanted, CONFIG_BYTES_MAX)?;
        let config = ImageConfig::parse(&bytes)
            .map_err(|error| self.refused(ImageProblem::Config(error)))?;
        let found = format!("{}/{}", config.os, config.architecture);
        let expected = artifact::platform();
        if found != expected {
            let found = shown(&found);
            return Err(self.refused(ImageProblem::Platform { found, expected }));
        }
        Ok(config)
    }

    fn layers(
        &self,
        artifact: &Artifact,
        config: &ImageConfig,
    ) -> Result<Vec<Described>, OciError> {
        let layers = artifact.manifest.layers();
        if layers.len() != config.diff_ids.len() {
            return Err(self.refused(ImageProblem::Layers {
                layers: layers.len(),
                diff_ids: config.diff_ids.len(),
            }));
        }
        if MANIFEST_LAYERS_MAX < layers.len() {
            return Err(self.refused(ImageProblem::TooManyLayers {
                found: layers.len(),
                limit: LAYERS_MAX,
            }));
        }
        let pairs = layers.iter().zip(&config.diff_ids).enumerate();
        pairs
            .map(|(before, (descriptor, diff_id))| self.described(before + 1, descriptor, *diff_id))
            .collect()
    }

    fn described(
        &self,
        index: usize,
        descriptor: &Descriptor,
        diff_id: Digest,
    ) -> Result<Described, OciError> {
        if let Some(url) = descriptor.urls().as_ref().and_then(|urls| urls.first()) {
            let url = shown(url);
            return Err(self.refused(ImageProblem::ForeignLayer { index, url }));
        }
        let compression = match descriptor.media_type().to_string().as_str() {
            LAYER_GZIP | DOCKER_LAYER => Compression::Gzip,
            LAYER_ZSTD => Compression::Zstd,
            LAYER_TAR | DOCKER_LAYER_PLAIN => Compression::Plain,
            other => {
                let found = shown(other);
                return Err(self.refused(ImageProblem::LayerType { index, found }));
            }
        };
        let blob = blob_descriptor(descriptor).map_err(|problem| {
            let problem = problem.to_string();
            self.refused(ImageProblem::Layer { index, problem })
        })?;
        if self.limits.compressed_bytes < blob.bytes {
            let problem = format!(
                "it has {} bytes, this host takes {}",
                blob.bytes,
                units::bytes(self.limits.compressed_bytes)
            );
            return Err(self.refused(ImageProblem::Layer { index, problem }));
        }
        Ok(Described {
            index,
            blob,
            compression,
            diff_id,
        })
    }

    /// A cached layer may have been unpacked under larger limits.
    fn check_limits(
        &self,
        layer: &Described,
        held: &HeldLayer,
        note: &Note,
    ) -> Result<(), OciError> {
        let (index, limits) = (layer.index, self.limits);
        let problem = match () {
            () if limits.unpacked_bytes < held.bytes => format!(
                "its files have {} bytes, this host takes {}",
                held.bytes,
                units::bytes(limits.unpacked_bytes)
            ),
            () if limits.entries < note.entries => format!(
                "it has {} entries, this host takes {}",
                note.entries, limits.entries
            ),
            () => return Ok(()),
        };
        Err(self.refused(ImageProblem::Layer { index, problem }))
    }

    fn layer(
        &mut self,
        layer: &Described,
        id: &Digest,
        below: &[HeldLayer],
    ) -> Result<HeldLayer, OciError> {
        if let Some(held) = self.cache.find(id)? {
            return Ok(held);
        }
        let name = format!("layer-{}", id.hexadecimal());
        let _claim = self.fetcher.store.claim(&name, self.fetcher.observer)?;
        if let Some(held) = self.cache.find(id)? {
            return Ok(held);
        }
        self.unpacked = true;
        self.fetcher
            .unpack(&layer.blob, |blob| self.unpack(layer, id, below, blob))
    }

    fn unpack(
        &self,
        layer: &Described,
        id: &Digest,
        below: &[HeldLayer],
        blob: &Blob,
    ) -> Result<HeldLayer, OciError> {
        let observer = self.fetcher.observer;
        let view = below.last().map(view_beside).transpose()?;
        let merged = Merged::new(below);
        let building = self.cache.begin()?;
        let unpacked = archive::unpack_layer(
            Watched::new(&blob.file, observer, &layer.blob),
            layer.compression,
            building.tree(),
            view.unwrap_or_default(),
            &|path| match observer.is_cancelled() {
                // After the end of the blob only the layers below are read, so `Watched` cannot
                // report cancellation.
                true => Err(CallError::new("fstatat", path.to_string(), Errno::CANCELED)),
                false => merged.has(path),
            },
            self.limits,
            &|| observer.is_cancelled(),
        );
        observer.progress(&Progress::Done);
        observer.check("unpacking a layer")?;
        let is_suspect = match &unpacked {
            Ok(unpacked) => unpacked.diff_id != layer.diff_id,
            Err(error) => error.is_refusal(),
        };
        if is_suspect {
            self.fetcher.check(blob)?;
        }
        let unpacked = unpacked.map_err(|error| self.unpack_error(layer, error))?;
        if unpacked.diff_id != layer.diff_id {
            return Err(self.refused(ImageProblem::DiffId {
                index: layer.index,
                found: unpacked.diff_id,
                expected: layer.diff_id,
            }));
        }
        let note = note_of(&unpacked).map_err(|error| self.unpack_error(layer, error))?;
        let label = Label {
            bytes: unpacked.bytes,
            disk_bytes: unpacked.disk_bytes,
            note: &note,
            is_verified_on_use: false,
        };
        let held = self.cache.publish(building, id, label)?;
        self.fetcher.store.settle()?;
        Ok(held)
    }

    fn unpack_error(&self, layer: &Described, error: UnpackError) -> OciError {
        unpack_error(self.fetcher.store, self.place, layer.blob.digest, error)
    }

    /// Drops empty layers, except the last: its note has the view of all layers.
    fn drop_empty(
        &self,
        held: Vec<HeldLayer>,
        seen: Vec<bool>,
    ) -> Result<Vec<HeldLayer>, OciError> {
        let last = held.len().saturating_sub(1);
        let pairs = held.into_iter().zip(seen).enumerate();
        let kept: Vec<HeldLayer> = pairs
            .filter(|(index, (_, is_seen))| *is_seen || *index == last)
            .map(|(_, (layer, _))| layer)
            .collect();
        match kept.len() <= LAYERS_MAX {
            true => Ok(kept),
            false => Err(self.refused(ImageProblem::TooManyLayers {
                found: kept.len(),
                limit: LAYERS_MAX,
            })),
        }
    }
}
