//! The layers of an image, each found or unpacked.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use oci_spec::image::Descriptor;

use crate::oci::artifact::{self, shown, wanted};
use crate::oci::error::OciError;
use crate::oci::layers::{HeldLayer, Image, ImageProblem, LAYERS_MAX, Merged};
use crate::oci::listener::{Listener, Progress};
use crate::oci::origin::Origin;
use crate::oci::pull::{Artifact, Watched, unpack_error};
use crate::oci::store::{Blob, Store, StoreError, Wanted};
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
use store::Shelf;
use sys::file::CallError;

/// Largest config, in bytes: what a manifest may have too.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Most layers that are looked at at all, those without anything included.
const MANIFEST_LAYERS_MAX: usize = 256;
/// The longest note beside a layer; what the store reads of one at most is longer.
const NOTE_BYTES_MAX: usize = 60 << 20;

/// The first line of the note beside a layer; what the next one must know follows.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// Nothing of the layers below is seen.
    hides_all: bool,
    /// Nothing is in it, and it hides nothing.
    is_empty: bool,
    entries: u64,
    /// Code and message of what unpacking warned of.
    warnings: Vec<(String, String)>,
}

/// What is kept beside a layer that was unpacked or prepared.
///
/// # Errors
/// [`UnpackError::TooLongNames`] where the names in all layers are longer together than can be kept.
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
    // Nothing in it could not be written.
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

/// What the next layer must know of `layer` and those below it.
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
    ImageProblem::Damaged { entry }.at("the store").into()
}

/// The `ChainID` of a layer over those of `below` (OCI image-spec, config.md, "Layer `ChainID`").
#[must_use]
pub(crate) fn chain_id(below: Option<&Digest>, diff_id: &Digest) -> Digest {
    match below {
        None => *diff_id,
        Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
    }
}

/// The image that `artifact` is the manifest of, all layers unpacked, each once for all processes.
///
/// `limits` hold for each layer. Each layer's bytes are those that the config names, or the image is
/// refused.
///
/// # Errors
/// [`OciError`]: no image, or not for this machine; a layer is refused, too large, or of a kind that
/// is not read; what `origin` says; no room; cancelled.
pub fn image(
    store: &Store,
    artifact: &Artifact,
    limits: &UnpackLimits,
    listener: &dyn Listener,
    origin: &dyn Origin,
) -> Result<Image, OciError> {
    let mut making = Making {
        store,
        shelf: store.layers()?,
        origin,
        limits,
        listener,
        place: &artifact.place,
        asked: !artifact.from_store,
        unpacked: false,
    };
    let config = making.config(artifact)?;
    let described = making.layers(artifact, &config)?;
    let mut held: Vec<HeldLayer> = Vec::new();
    let mut seen: Vec<bool> = Vec::new();
    let mut warnings = Vec::new();
    let mut chain: Option<Digest> = None;
    for layer in &described {
        let id = chain_id(chain.as_ref(), &layer.diff_id);
        let one = making.layer(layer, &id, &held)?;
        let note = note_beside(&one)?;
        making.check_limits(layer, &one, &note)?;
        if note.hides_all {
            held.clear();
            seen.clear();
        }
        let told = note.warnings.into_iter();
        warnings.extend(told.map(|(code, message)| WarningReport::new(&code, message)));
        held.push(one);
        seen.push(!note.is_empty);
        chain = Some(id);
    }
    Ok(Image {
        digest: artifact.digest,
        config,
        layers: making.those_that_are_seen(held, seen)?,
        cached: !making.unpacked,
        from_store: !making.asked,
        warnings,
    })
}

/// A layer as manifest and config describe it.
struct Described {
    /// From 1.
    index: usize,
    blob: Wanted,
    compression: Compression,
    diff_id: Digest,
}

/// One image that is being made.
struct Making<'call> {
    store: &'call Store,
    shelf: Shelf,
    origin: &'call dyn Origin,
    limits: &'call UnpackLimits,
    listener: &'call dyn Listener,
    place: &'call str,
    /// Whether the origin was asked for anything.
    asked: bool,
    /// Whether a layer was unpacked.
    unpacked: bool,
}

impl Making<'_> {
    fn refused(&self, problem: ImageProblem) -> OciError {
        problem.at(self.place).into()
    }

    fn config(&mut self, artifact: &Artifact) -> Result<ImageConfig, OciError> {
        let descriptor = artifact.manifest.config();
        let found = descriptor.media_type().to_string();
        if ![IMAGE_CONFIG, DOCKER_CONFIG].contains(&found.as_str()) {
            let found = shown(&found);
            return Err(self.refused(ImageProblem::ConfigType { found }));
        }
        let wanted = wanted(descriptor).map_err(|problem| problem.at(self.place.to_owned()))?;
        if CONFIG_BYTES_MAX < wanted.bytes {
            return Err(self.refused(ImageProblem::ConfigTooLarge {
                bytes: wanted.bytes,
                limit_bytes: CONFIG_BYTES_MAX,
            }));
        }
        let bytes = match self.store.read(&wanted.digest, CONFIG_BYTES_MAX)? {
            Some(bytes) => bytes,
            None => {
                self.asked = true;
                // In use until it is read.
                let _blob = self.store.fetch(&wanted, self.origin, self.listener)?;
                let read = self.store.read(&wanted.digest, CONFIG_BYTES_MAX)?;
                read.unwrap_or_default()
            }
        };
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
        let blob = wanted(descriptor).map_err(|problem| {
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

    /// A layer that was unpacked under larger limits may be too large for these.
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

    /// The unpacked layer `id`, over those of `below`.
    fn layer(
        &mut self,
        layer: &Described,
        id: &Digest,
        below: &[HeldLayer],
    ) -> Result<HeldLayer, OciError> {
        if let Some(held) = self.shelf.held(id)? {
            return Ok(held);
        }
        let name = format!("layer-{}", id.to_string().trim_start_matches("sha256:"));
        let _claim = self.store.claim(&name, self.listener)?;
        if let Some(held) = self.shelf.held(id)? {
            return Ok(held);
        }
        self.unpacked = true;
        let blob = match self.store.wanted(&layer.blob)? {
            Some(blob) => blob,
            None => self.fetch(layer)?,
        };
        match self.unpack(layer, id, below, &blob) {
            // It went bad on the disk: one more download.
            Err(OciError::Store(error)) if error.is_other_bytes() => {
                let blob = self.fetch(layer)?;
                self.unpack(layer, id, below, &blob)
            }
            other => other,
        }
    }

    fn fetch(&mut self, layer: &Described) -> Result<Blob, OciError> {
        self.asked = true;
        self.store.fetch(&layer.blob, self.origin, self.listener)
    }

    fn unpack(
        &self,
        layer: &Described,
        id: &Digest,
        below: &[HeldLayer],
        blob: &Blob,
    ) -> Result<HeldLayer, OciError> {
        let view = below.last().map(view_beside).transpose()?;
        let merged = Merged::new(below);
        let building = self.shelf.begin()?;
        let unpacked = archive::unpack_layer(
            Watched::new(&blob.file, self.listener, &layer.blob),
            layer.compression,
            building.tree(),
            view.unwrap_or_default(),
            &|path| match self.listener.is_cancelled() {
                // At the end of a layer nothing is read that would ask: only the layers below.
                true => Err(CallError::new("fstatat", path.to_string(), Errno::CANCELED)),
                false => merged.has(path),
            },
            self.limits,
            &|| self.listener.is_cancelled(),
        );
        self.listener.progress(&Progress::Done);
        if self.listener.is_cancelled() {
            let during = "unpacking a layer";
            return Err(OciError::Cancelled { during });
        }
        let is_suspect = match &unpacked {
            Ok(unpacked) => unpacked.diff_id != layer.diff_id,
            Err(error) => error.is_refusal(),
        };
        if is_suspect {
            self.check_blob(layer, blob)?;
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
        let (bytes, disk_bytes) = (unpacked.bytes, unpacked.disk_bytes);
        let held = self.shelf.keep(building, id, bytes, disk_bytes, &note)?;
        self.store.settle()?;
        Ok(held)
    }

    /// Refused for what it is only where it is what it should be.
    fn check_blob(&self, layer: &Described, blob: &Blob) -> Result<(), OciError> {
        let found = self.store.digest_of(blob)?;
        if found == layer.blob.digest {
            return Ok(());
        }
        self.store.remove_damaged(&layer.blob.digest)?;
        Err(StoreError::Digest {
            place: "the store".to_owned(),
            digest: layer.blob.digest,
            found,
        }
        .into())
    }

    fn unpack_error(&self, layer: &Described, error: UnpackError) -> OciError {
        unpack_error(self.store, self.place, layer.blob.digest, error)
    }

    /// Without layers that nothing is in: but the last one, beside which stands what all are.
    fn those_that_are_seen(
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
