//! Unpacks the layers of an image, or finds them in the store.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use oci_spec::image::Descriptor;

use crate::answers;
use crate::oci::artifact::{self, abbreviate, blob_descriptor};
use crate::oci::error::OciError;
use crate::oci::fetcher::Fetcher;
use crate::oci::layers::left::{self, Left};
use crate::oci::layers::{Image, ImageProblem, LAYERS_MAX, LockedLayer, Merged};
use crate::oci::observer::Observer;
use crate::oci::origin::Origin;
use crate::oci::pull::{Artifact, LayerReader, unpack_error};
use crate::oci::store::{Blob, BlobDescriptor, Store};
use crate::to_json;
use archive::{Compression, LayerView, Refusal, UnpackError, UnpackLimits};
use reader::{Feed, Layer, Problem};
use spec::digest::Digest;
use spec::oci::image_config::{ImageConfig, ImageConfigError};
use spec::oci::media::{
    DOCKER_CONFIG, DOCKER_LAYER, DOCKER_LAYER_PLAIN, IMAGE_CONFIG, LAYER_GZIP, LAYER_TAR,
    LAYER_ZSTD,
};
use spec::path::{RelPath, escape_path};
use spec::report::WarningReport;
use spec::units;
use store::{Label, StoreDirectory};
use sys::file::CallError;

const CONFIG_BYTES_MAX: u64 = 4 << 20;
const MANIFEST_LAYERS_MAX: usize = 256;
/// Longest note of a layer. The store reads notes that are somewhat longer.
const NOTE_BYTES_MAX: usize = 60 << 20;

/// First line of the note of a layer. The encoded [`LayerView`] follows.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// The root is opaque, so that it hides all layers below.
    hides_all: bool,
    is_empty: bool,
    entries: u64,
    warnings: Vec<(String, String)>,
}

/// Encodes the note of an unpacked layer.
///
/// # Errors
/// [`UnpackError::Entry`]: the names of all layers exceed the limit of a note.
fn encode_note(layer: &Layer, left: &Left) -> Result<Vec<u8>, UnpackError> {
    let note = Note {
        hides_all: layer.hides_all,
        is_empty: left.entries == 0 && left.whiteouts == 0,
        entries: left.entries,
        warnings: layer
            .warnings
            .iter()
            .map(|warning| (warning.code.clone(), warning.message.clone()))
            .collect(),
    };
    let mut bytes = to_json(&note);
    bytes.push(b'\n');
    bytes.extend(layer.view.write());
    if bytes.len() > NOTE_BYTES_MAX {
        let refusal = Refusal::too_long_names(NOTE_BYTES_MAX as u64);
        return Err(UnpackError::entry(0, b"all layers together", refusal));
    }
    Ok(bytes)
}

/// Reads the view that the next layer needs of `layer` and the layers below.
pub(super) fn read_view(layer: &LockedLayer) -> Result<LayerView, OciError> {
    let note = layer.note()?;
    let cut = note.iter().position(|byte| *byte == b'\n');
    let view = cut.and_then(|cut| LayerView::read(&note[cut + 1..]));
    view.ok_or_else(|| damaged(layer))
}

fn read_note(layer: &LockedLayer) -> Result<Note, OciError> {
    let note = layer.note()?;
    let line = note.split(|byte| *byte == b'\n').next();
    line.and_then(|line| serde_json::from_slice(line).ok())
        .ok_or_else(|| damaged(layer))
}

fn damaged(layer: &LockedLayer) -> OciError {
    let entry = escape_path(&layer.path);
    ImageProblem::Damaged { entry }.at("the store")
}

/// The key of a layer in the store, above the layer with the key `below`.
///
/// Unlike its `ChainID` (OCI image-spec, config.md), it also has the digest of the blob, which this process
/// computed. The `diff_id` is the word of the process that unpacked the blob: if it is taken over, it can say what
/// it likes, but only about the blob that took it over.
fn layer_key(below: Option<&Digest>, layer: &LayerDescriptor) -> Digest {
    let below = below.map_or_else(|| "bottom".to_owned(), Digest::to_string);
    let (blob, compression) = (layer.blob.digest, layer.compression.name());
    let parts = format!("{below} {blob} {compression} {}", layer.diff_id);
    Digest::of(parts.as_bytes())
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
    let builder = ImageBuilder {
        fetcher: Fetcher::new(store, origin, observer),
        cache: store.layers()?,
        limits,
        place: &artifact.place,
    };
    let config = builder.read_config(artifact)?;
    let layers = builder.check_layers(artifact, &config)?;
    let mut locked: Vec<LockedLayer> = Vec::new();
    let mut has_entries: Vec<bool> = Vec::new();
    let mut warnings = Vec::new();
    let mut cached = true;
    let mut chain: Option<Digest> = None;
    for layer in &layers {
        let id = layer_key(chain.as_ref(), layer);
        let (unpacked, is_cached) = builder.find_or_unpack(layer, &id, &locked)?;
        cached &= is_cached;
        let note = read_note(&unpacked)?;
        builder.check_limits(layer, &unpacked, &note)?;
        if note.hides_all {
            locked.clear();
            has_entries.clear();
        }
        let noted = note.warnings.into_iter();
        warnings.extend(noted.map(|(code, message)| WarningReport::new(&code, message)));
        locked.push(unpacked);
        has_entries.push(!note.is_empty);
        chain = Some(id);
    }
    Ok(Image {
        digest: artifact.digest,
        config,
        layers: builder.drop_empty(locked, has_entries)?,
        cached,
        from_store: artifact.from_store && !builder.fetcher.has_fetched(),
        warnings,
    })
}

/// A layer of the manifest.
struct LayerDescriptor {
    /// Counted from 1.
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
}

impl ImageBuilder<'_> {
    fn refused(&self, problem: ImageProblem) -> OciError {
        problem.at(self.place)
    }

    fn read_config(&self, artifact: &Artifact) -> Result<ImageConfig, OciError> {
        let descriptor = artifact.manifest.config();
        let found = descriptor.media_type().to_string();
        if ![IMAGE_CONFIG, DOCKER_CONFIG].contains(&found.as_str()) {
            let found = abbreviate(&found);
            return Err(self.refused(ImageProblem::ConfigType { found }));
        }
        let blob = blob_descriptor(descriptor).map_err(|problem| problem.at(self.place))?;
        if blob.bytes > CONFIG_BYTES_MAX {
            return Err(self.refused(ImageProblem::ConfigTooLarge {
                bytes: blob.bytes,
                limit_bytes: CONFIG_BYTES_MAX,
            }));
        }
        let bytes = self.fetcher.read(&blob, CONFIG_BYTES_MAX)?;
        let config = answers::parse(&bytes)
            .map_err(|problem| ImageConfigError::unreadable(&problem))
            .and_then(ImageConfig::read)
            .map_err(|error| self.refused(ImageProblem::Config(error)))?;
        let found = format!("{}/{}", config.os, config.architecture);
        let expected = artifact::platform();
        if found != expected {
            let found = abbreviate(&found);
            return Err(self.refused(ImageProblem::Platform { found, expected }));
        }
        Ok(config)
    }

    fn check_layers(
        &self,
        artifact: &Artifact,
        config: &ImageConfig,
    ) -> Result<Vec<LayerDescriptor>, OciError> {
        let layers = artifact.manifest.layers();
        if layers.len() != config.diff_ids.len() {
            return Err(self.refused(ImageProblem::Layers {
                layers: layers.len(),
                diff_ids: config.diff_ids.len(),
            }));
        }
        if layers.len() > MANIFEST_LAYERS_MAX {
            return Err(self.refused(ImageProblem::TooManyLayers {
                found: layers.len(),
                limit: LAYERS_MAX,
            }));
        }
        let pairs = layers.iter().zip(&config.diff_ids).zip(1..);
        pairs
            .map(|((descriptor, diff_id), index)| self.check_layer(index, descriptor, *diff_id))
            .collect()
    }

    fn check_layer(
        &self,
        index: usize,
        descriptor: &Descriptor,
        diff_id: Digest,
    ) -> Result<LayerDescriptor, OciError> {
        if let Some(url) = descriptor.urls().as_ref().and_then(|urls| urls.first()) {
            let url = abbreviate(url);
            return Err(self.refused(ImageProblem::ForeignLayer { index, url }));
        }
        let compression = match descriptor.media_type().to_string().as_str() {
            LAYER_GZIP | DOCKER_LAYER => Compression::Gzip,
            LAYER_ZSTD => Compression::Zstd,
            LAYER_TAR | DOCKER_LAYER_PLAIN => Compression::Plain,
            other => {
                let found = abbreviate(other);
                return Err(self.refused(ImageProblem::LayerType { index, found }));
            }
        };
        let blob = blob_descriptor(descriptor).map_err(|problem| {
            let problem = problem.to_string();
            self.refused(ImageProblem::Layer { index, problem })
        })?;
        if blob.bytes > self.limits.compressed_bytes {
            let problem = format!(
                "it has {} bytes, this host allows {}",
                blob.bytes,
                units::bytes(self.limits.compressed_bytes)
            );
            return Err(self.refused(ImageProblem::Layer { index, problem }));
        }
        Ok(LayerDescriptor {
            index,
            blob,
            compression,
            diff_id,
        })
    }

    /// A cached layer may have been unpacked under larger limits.
    fn check_limits(
        &self,
        layer: &LayerDescriptor,
        unpacked: &LockedLayer,
        note: &Note,
    ) -> Result<(), OciError> {
        let (index, limits) = (layer.index, self.limits);
        let problem = if unpacked.bytes > limits.unpacked_bytes {
            format!(
                "its files have {} bytes, this host allows {}",
                unpacked.bytes,
                units::bytes(limits.unpacked_bytes)
            )
        } else if note.entries > limits.entries {
            format!(
                "it has {} entries, this host allows {}",
                note.entries, limits.entries
            )
        } else {
            return Ok(());
        };
        Err(self.refused(ImageProblem::Layer { index, problem }))
    }

    fn find_or_unpack(
        &self,
        layer: &LayerDescriptor,
        id: &Digest,
        below: &[LockedLayer],
    ) -> Result<(LockedLayer, bool), OciError> {
        self.fetcher.find_or_unpack(
            &format!("layer-{}", id.hexadecimal()),
            &layer.blob,
            || Ok(self.cache.find(id)?),
            |blob| self.unpack(layer, id, below, blob),
        )
    }

    fn unpack(
        &self,
        layer: &LayerDescriptor,
        id: &Digest,
        below: &[LockedLayer],
        blob: &Blob,
    ) -> Result<LockedLayer, OciError> {
        let observer = self.fetcher.observer;
        let view = below.last().map(read_view).transpose()?;
        let merged = Merged::new(below);
        let building = self.cache.begin()?;
        let feed = Feed {
            source: &mut LayerReader::new(&blob.file, observer, &layer.blob),
            is_cancelled: &|| observer.is_cancelled(),
        };
        let unpacked = reader::unpack_layer(
            feed,
            layer.compression,
            building.tree(),
            view.unwrap_or_default(),
            self.limits,
            NOTE_BYTES_MAX as u64,
        );
        self.fetcher
            .finish_unpacking(blob, &unpacked, |(unpacked, archive)| {
                unpacked.diff_id == layer.diff_id && *archive == layer.blob.digest
            })?;
        let (unpacked, _) = unpacked.map_err(|problem| self.unpack_error(layer, problem))?;
        if unpacked.diff_id != layer.diff_id {
            return Err(self.refused(ImageProblem::DiffId {
                index: layer.index,
                found: unpacked.diff_id,
                expected: layer.diff_id,
            }));
        }
        let below = |path: &RelPath| {
            if observer.is_cancelled() {
                return Err(CallError::new("fstatat", path.to_string(), Errno::CANCELED));
            }
            merged.has(path)
        };
        let hidden = unpacked
            .hiding
            .write(building.tree(), &unpacked.view, &below);
        observer.check("unpacking a layer")?;
        hidden.map_err(|error| self.unpack_error(layer, Problem::of(&error)))?;
        let left = left::check(building.tree(), self.limits)
            .map_err(|problem| self.unpack_error(layer, problem))?;
        let note = encode_note(&unpacked, &left)
            .map_err(|error| self.unpack_error(layer, Problem::of(&error)))?;
        let label = Label {
            bytes: unpacked.bytes,
            disk_bytes: left.disk_bytes,
            note: &note,
            is_verified_on_use: false,
        };
        let published = self.cache.publish(building, id, label)?;
        self.fetcher.store.enforce_size_limit()?;
        Ok(published)
    }

    fn unpack_error(&self, layer: &LayerDescriptor, problem: Problem) -> OciError {
        unpack_error(self.fetcher.store, self.place, layer.blob.digest, problem)
    }

    /// Drops empty layers, except the last, whose note has the view of all layers.
    fn drop_empty(
        &self,
        layers: Vec<LockedLayer>,
        has_entries: Vec<bool>,
    ) -> Result<Vec<LockedLayer>, OciError> {
        let last = layers.len().saturating_sub(1);
        let pairs = layers.into_iter().zip(has_entries).enumerate();
        let layers: Vec<LockedLayer> = pairs
            .filter(|(index, (_, has_entries))| *has_entries || *index == last)
            .map(|(_, (layer, _))| layer)
            .collect();
        if layers.len() > LAYERS_MAX {
            return Err(self.refused(ImageProblem::TooManyLayers {
                found: layers.len(),
                limit: LAYERS_MAX,
            }));
        }
        Ok(layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that a blob took over can say that the blob has the `DiffID` of a layer that others trust.
    #[test]
    fn a_layer_is_found_by_its_own_blob_alone() {
        let layer = |blob: &[u8], compression, diff_id: &[u8]| LayerDescriptor {
            index: 1,
            blob: BlobDescriptor {
                digest: Digest::of(blob),
                bytes: blob.len() as u64,
            },
            compression,
            diff_id: Digest::of(diff_id),
        };
        let trusted = layer(b"trusted", Compression::Gzip, b"tar");
        let others = [
            layer(b"hostile", Compression::Gzip, b"tar"),
            layer(b"trusted", Compression::Zstd, b"tar"),
            layer(b"trusted", Compression::Gzip, b"another tar"),
        ];
        let above = layer(b"above", Compression::Gzip, b"above");
        let keys = |lowest: &LayerDescriptor| {
            let lowest = layer_key(None, lowest);
            [layer_key(Some(&lowest), &above), lowest]
        };
        let trusted = keys(&trusted);
        assert_eq!(trusted, keys(&layer(b"trusted", Compression::Gzip, b"tar")));
        for other in &others {
            assert!(keys(other).iter().all(|key| !trusted.contains(key)));
        }
    }
}
