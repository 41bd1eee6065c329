//! Pulls artifacts: from a reference to its manifest and to the unpacked tree of a source.
//!
//! A digest that is in the store needs no request. Every digest is verified before use.

use std::fs::File;
use std::io::{self, Read};

use oci_spec::image::ImageManifest;
use rustix::io::Errno;

use crate::oci::artifact::{
    ArtifactProblem, Document, check_layer, for_this_platform, source_parts,
};
use crate::oci::error::OciError;
use crate::oci::fetcher::Fetcher;
use crate::oci::observer::{NoObserver, Observer};
use crate::oci::opening::StoreAlone;
use crate::oci::origin::Origin;
use crate::oci::store::{Blob, BlobDescriptor, Store, StoreError};
use crate::progress::Progress;
use crate::verified;
use archive::UnpackLimits;
use reader::{Cause, Feed, Problem};
use spec::digest::Digest;
use spec::document::Format;
use spec::oci::reference::Which;
use spec::oci::source_config::{CONFIG_BYTES_MAX, SourceConfig};
use spec::report::WarningReport;
use store::{Cache, CachedTree, InUse};

/// Whether a tag may select the artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    Refused,
    Allowed,
}

impl Tags {
    /// Converts the flag of the command line.
    #[must_use]
    pub fn allowed(flag: bool) -> Self {
        if flag { Self::Allowed } else { Self::Refused }
    }
}

/// A manifest in the store.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// For an index, the digest of the manifest for this machine.
    pub digest: Digest,
    pub manifest: ImageManifest,
    /// No request was made.
    pub from_store: bool,
    /// Name for messages: `ORIGIN@DIGEST`.
    pub place: String,
}

/// An unpacked source.
#[derive(Debug)]
pub struct Snapshot {
    pub digest: Digest,
    /// `None` for the empty descriptor.
    pub config: Option<SourceConfig>,
    pub layer: BlobDescriptor,
    /// Locked while this value lives. [`InUse::tree`] lists the files.
    pub tree: InUse,
    pub bytes: u64,
    /// Number of regular files, if known.
    pub files: Option<u64>,
    /// The tree was already unpacked.
    pub cached: bool,
    pub from_store: bool,
    pub warnings: Vec<WarningReport>,
}

/// Pulls the manifest for `which` from `origin` and stores it under its digest and its name.
///
/// # Errors
/// [`OciError`]: a refused tag, an invalid document, no manifest for this machine, the origin, the
/// store.
pub fn artifact(
    store: &Store,
    origin: &dyn Origin,
    which: &Which,
    tags: Tags,
    observer: &dyn Observer,
) -> Result<Artifact, OciError> {
    let name = match which {
        Which::Digest(digest) => format!("{}@{digest}", origin.name()),
        tag => format!("{}:{tag}", origin.name()),
    };
    if !matches!(which, Which::Digest(_)) && tags == Tags::Refused {
        let problem = ArtifactProblem::Tag {
            tag: which.to_string(),
        };
        return Err(problem.at(name));
    }
    let fetcher = Fetcher::new(store, origin, observer);
    let place = |digest: Digest| format!("{}@{digest}", origin.name());
    let (named_digest, bytes) = fetcher.manifest(which)?;
    let refused = |problem: ArtifactProblem| problem.at(place(named_digest));
    let (digest, manifest) = match Document::parse(&bytes).map_err(refused)? {
        Document::Manifest(manifest) => (named_digest, *manifest),
        Document::Index(index) => {
            let entry = for_this_platform(&index).map_err(refused)?;
            let (digest, bytes) = fetcher.manifest(&Which::Digest(entry.digest))?;
            let manifest = Document::parse_manifest(&bytes);
            (
                digest,
                manifest.map_err(|problem| problem.at(place(digest)))?,
            )
        }
    };
    let from_store = !fetcher.has_fetched();
    if !from_store {
        store.set_name(&name, &named_digest)?;
    }
    Ok(Artifact {
        digest,
        manifest,
        from_store,
        place: place(digest),
    })
}

/// Pulls and unpacks the source artifact for `which` from `origin`. Concurrent processes unpack it
/// once.
///
/// # Errors
/// [`OciError`]: as [`artifact`]; not a source artifact, a refused config or layer, `limits`, a
/// full disk.
pub fn snapshot(
    store: &Store,
    origin: &dyn Origin,
    which: &Which,
    tags: Tags,
    limits: &UnpackLimits,
    observer: &dyn Observer,
) -> Result<Snapshot, OciError> {
    let source = source(store, origin, which, tags, observer)?;
    let layer = source.layer;
    let place = &source.artifact.place;
    check_layer(&layer, limits.compressed_bytes).map_err(|problem| problem.at(place.clone()))?;
    let unpacking = Unpacking {
        fetcher: Fetcher::new(store, origin, observer),
        snapshots: store.snapshots()?,
        limits,
        layer: &layer,
        place,
    };
    let (tree, cached) = unpacking.fetcher.find_or_unpack(
        &format!("unpack-{}", layer.digest.hexadecimal()),
        &layer,
        || unpacking.find(),
        |blob| unpacking.unpack(blob),
    )?;
    let mut warnings = tree.warnings;
    let config = source.config;
    warnings.extend(check_file_count(config.as_ref(), tree.files, place));
    Ok(Snapshot {
        digest: source.artifact.digest,
        config,
        layer,
        tree: tree.in_use,
        bytes: tree.bytes,
        files: tree.files,
        cached,
        from_store: source.artifact.from_store && !unpacking.fetcher.has_fetched(),
        warnings,
    })
}

/// A source artifact, not unpacked.
#[derive(Debug, Clone)]
pub struct Source {
    /// `from_store` includes the config.
    pub artifact: Artifact,
    pub config: Option<SourceConfig>,
    pub layer: BlobDescriptor,
}

/// Pulls manifest and config of the source artifact for `which` from `origin`.
///
/// # Errors
/// [`OciError`]: as [`artifact`]; not a source artifact, or a refused config.
pub fn source(
    store: &Store,
    origin: &dyn Origin,
    which: &Which,
    tags: Tags,
    observer: &dyn Observer,
) -> Result<Source, OciError> {
    let mut artifact = artifact(store, origin, which, tags, observer)?;
    let refused = |problem: ArtifactProblem| problem.at(artifact.place.clone());
    let parts = source_parts(&artifact.manifest).map_err(refused)?;
    let fetcher = Fetcher::new(store, origin, observer);
    let config = match &parts.config {
        Some(descriptor) => {
            let bytes = fetcher.read(descriptor, CONFIG_BYTES_MAX as u64)?;
            let read = SourceConfig::read(reader::parse_document(&bytes, Format::Json));
            Some(read.map_err(|error| refused(ArtifactProblem::Config(error)))?)
        }
        None => None,
    };
    artifact.from_store &= !fetcher.has_fetched();
    Ok(Source {
        artifact,
        config,
        layer: parts.layer,
    })
}

/// Checks whether [`snapshot`] needs neither a request nor unpacking for this digest.
///
/// # Errors
/// [`OciError::Store`], or [`OciError::Artifact`] if the digest is not a source.
pub fn is_kept(store: &Store, digest: &Digest, limits: &UnpackLimits) -> Result<bool, OciError> {
    let which = Which::Digest(*digest);
    let artifact = match artifact(store, &StoreAlone, &which, Tags::Refused, &NoObserver) {
        Err(OciError::Store(error)) if matches!(*error, StoreError::Gone { .. }) => {
            return Ok(false);
        }
        artifact => artifact?,
    };
    let refused = |problem: ArtifactProblem| problem.at(artifact.place.clone());
    let parts = source_parts(&artifact.manifest).map_err(refused)?;
    let config = parts.config.as_ref();
    if !config.is_none_or(|config| store.has(&config.digest)) {
        return Ok(false);
    }
    let (bytes, layer) = (parts.layer.bytes, &parts.layer.digest);
    Ok(store
        .snapshots()?
        .by_digest_without_list(bytes, layer, limits)?
        .is_some())
}

fn check_file_count(
    config: Option<&SourceConfig>,
    files: Option<u64>,
    place: &str,
) -> Option<WarningReport> {
    let stated = config?.snapshot.as_ref()?.file_count?;
    let found = files?;
    (stated != found).then(|| {
        let message = format!("{place}: its config says {stated} files, its snapshot has {found}");
        WarningReport::new("source_file_count", message)
    })
}

struct Unpacking<'call> {
    fetcher: Fetcher<'call>,
    snapshots: Cache,
    limits: &'call UnpackLimits,
    layer: &'call BlobDescriptor,
    place: &'call str,
}

impl Unpacking<'_> {
    fn find(&self) -> Result<Option<CachedTree>, OciError> {
        let (bytes, digest) = (self.layer.bytes, &self.layer.digest);
        Ok(self
            .snapshots
            .by_digest_without_list(bytes, digest, self.limits)?)
    }

    fn unpack(&self, blob: &Blob) -> Result<CachedTree, OciError> {
        let Fetcher {
            store, observer, ..
        } = self.fetcher;
        let building = self.snapshots.begin()?;
        let mut source = LayerReader::new(&blob.file, observer, self.layer);
        let feed = Feed {
            source: &mut source,
            is_cancelled: &|| observer.is_cancelled(),
        };
        let unpacked = reader::unpack_snapshot(feed, building.tree(), self.limits);
        self.fetcher.finish_unpacking(blob, &unpacked, |unpacked| {
            unpacked.archive_digest == Some(self.layer.digest)
        })?;
        let unpacked = unpacked.and_then(|unpacked| verified::check(building.tree(), unpacked));
        let unpacked = unpacked
            .map_err(|problem| unpack_error(store, self.place, self.layer.digest, problem))?;
        let bytes = self.layer.bytes;
        let published =
            self.snapshots
                .publish_without_list(building, unpacked, bytes, self.limits)?;
        store.enforce_size_limit()?;
        Ok(published)
    }
}

pub(super) fn unpack_error(
    store: &Store,
    place: &str,
    layer: Digest,
    problem: Problem,
) -> OciError {
    if problem.cause == Cause::Full {
        return store.write_error(Errno::NOSPC).into();
    }
    OciError::Unpack {
        place: place.to_owned(),
        digest: layer,
        source: Box::new(problem),
    }
}

/// Reader of a layer that reports progress and fails if cancelled.
pub(super) struct LayerReader<'call> {
    file: &'call File,
    observer: &'call dyn Observer,
    layer: &'call BlobDescriptor,
    bytes: u64,
}

impl<'call> LayerReader<'call> {
    pub(super) fn new(
        file: &'call File,
        observer: &'call dyn Observer,
        layer: &'call BlobDescriptor,
    ) -> Self {
        Self {
            file,
            observer,
            layer,
            bytes: 0,
        }
    }
}

impl Read for LayerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.observer.is_cancelled() {
            return Err(io::Error::from(Errno::CANCELED));
        }
        let count = self.file.read(buffer)?;
        self.bytes += count as u64;
        self.observer.progress(&Progress::Unpacking {
            digest: &self.layer.digest,
            bytes: self.bytes,
            of_bytes: self.layer.bytes,
        });
        Ok(count)
    }
}
