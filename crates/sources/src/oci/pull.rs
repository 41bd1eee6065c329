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
use archive::{UnpackError, UnpackLimits};
use spec::digest::Digest;
use spec::oci::reference::Which;
use spec::oci::source_config::{CONFIG_BYTES_MAX, SourceConfig};
use spec::report::WarningReport;
use store::{Cache, CachedTree, InUse, is_full};

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
        match flag {
            true => Self::Allowed,
            false => Self::Refused,
        }
    }
}

/// A manifest in the store.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// For an index, the digest of the manifest for this machine.
    pub digest: Digest,
    /// The digest that the reference resolves to: the index if there is one, else `digest`.
    pub asked: Digest,
    pub manifest: ImageManifest,
    /// No request was made.
    pub from_store: bool,
    /// Origin for messages: `PLACE@DIGEST`.
    pub place: String,
}

/// An unpacked source.
#[derive(Debug)]
pub struct Snapshot {
    pub digest: Digest,
    /// `None` for the empty descriptor.
    pub config: Option<SourceConfig>,
    pub layer: BlobDescriptor,
    /// Locked while this lives. [`InUse::tree`] lists it.
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
    let (written, digest) = match which {
        Which::Digest(digest) => (format!("{}@{digest}", origin.shown()), Some(*digest)),
        tag => (format!("{}:{tag}", origin.shown()), None),
    };
    if digest.is_none() && tags == Tags::Refused {
        let problem = ArtifactProblem::Tag {
            tag: which.to_string(),
        };
        return Err(problem.at(written));
    }
    let fetcher = Fetcher::new(store, origin, observer);
    let (asked, bytes) = fetcher.manifest(which)?;
    let refused = |problem: ArtifactProblem| problem.at(format!("{}@{asked}", origin.shown()));
    let (digest, manifest) = match Document::parse(&bytes).map_err(refused)? {
        Document::Manifest(manifest) => (asked, *manifest),
        Document::Index(index) => {
            let wanted = for_this_platform(&index).map_err(refused)?;
            let (digest, bytes) = fetcher.manifest(&Which::Digest(wanted.digest))?;
            let refused =
                |problem: ArtifactProblem| problem.at(format!("{}@{digest}", origin.shown()));
            match Document::parse(&bytes).map_err(refused)? {
                Document::Manifest(manifest) => (digest, *manifest),
                Document::Index(_) => {
                    let problem = "an index lists it, and it is an index itself".to_owned();
                    return Err(refused(ArtifactProblem::Document { problem }));
                }
            }
        }
    };
    let from_store = !fetcher.has_asked();
    if !from_store {
        store.name(&written, &asked)?;
    }
    Ok(Artifact {
        digest,
        asked,
        manifest,
        from_store,
        place: format!("{}@{digest}", origin.shown()),
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
    let described = source(store, origin, which, tags, observer)?;
    let layer = described.layer;
    let place = &described.artifact.place;
    check_layer(&layer, limits.compressed_bytes).map_err(|problem| problem.at(place.clone()))?;
    let unpacking = Unpacking {
        fetcher: Fetcher::new(store, origin, observer),
        snapshots: store.snapshots()?,
        limits,
        layer: &layer,
        place,
    };
    let (tree, cached) = match unpacking.find()? {
        Some(tree) => (tree, true),
        None => unpacking.claim_and_unpack()?,
    };
    let mut warnings = tree.warnings;
    let config = described.config;
    warnings.extend(miscounted(config.as_ref(), tree.files, place));
    Ok(Snapshot {
        digest: described.artifact.digest,
        config,
        layer,
        tree: tree.in_use,
        bytes: tree.bytes,
        files: tree.files,
        cached,
        from_store: described.artifact.from_store && !unpacking.fetcher.has_asked(),
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
        Some(wanted) => {
            let parsed = SourceConfig::parse(&fetcher.read(wanted, CONFIG_BYTES_MAX as u64)?);
            Some(parsed.map_err(|error| refused(ArtifactProblem::Config(error)))?)
        }
        None => None,
    };
    artifact.from_store &= !fetcher.has_asked();
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

fn miscounted(
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

    /// Also returns whether another process unpacked it meanwhile.
    fn claim_and_unpack(&self) -> Result<(CachedTree, bool), OciError> {
        let Fetcher {
            store, observer, ..
        } = self.fetcher;
        let name = format!("unpack-{}", self.layer.digest.hexadecimal());
        let _claim = store.claim(&name, observer)?;
        match self.find()? {
            Some(tree) => Ok((tree, true)),
            None => {
                let tree = self
                    .fetcher
                    .unpack(self.layer, |blob| self.unpack_blob(blob))?;
                Ok((tree, false))
            }
        }
    }

    fn unpack_blob(&self, blob: &Blob) -> Result<CachedTree, OciError> {
        let Fetcher {
            store, observer, ..
        } = self.fetcher;
        let building = self.snapshots.begin()?;
        let mut source = Watched::new(&blob.file, observer, self.layer);
        let unpacked = archive::unpack_snapshot(&mut source, building.tree(), self.limits);
        observer.progress(&Progress::Done);
        observer.check("unpacking a layer")?;
        let is_suspect = match &unpacked {
            Ok(unpacked) => unpacked.archive_digest != Some(self.layer.digest),
            Err(error) => error.is_refusal(),
        };
        if is_suspect {
            self.fetcher.check(blob)?;
        }
        let unpacked =
            unpacked.map_err(|error| unpack_error(store, self.place, self.layer.digest, error))?;
        let bytes = self.layer.bytes;
        let published =
            self.snapshots
                .publish_without_list(building, unpacked, bytes, self.limits)?;
        store.settle()?;
        Ok(published)
    }
}

pub(super) fn unpack_error(
    store: &Store,
    place: &str,
    layer: Digest,
    error: UnpackError,
) -> OciError {
    if let UnpackError::Target { source, .. } = &error
        && (is_full(source.errno) || source.errno == Errno::ROFS)
    {
        return store.no_room(source.errno).into();
    }
    OciError::Unpack {
        place: place.to_owned(),
        digest: layer,
        source: Box::new(error),
    }
}

/// Reader that reports progress to the observer and fails when cancelled.
pub(super) struct Watched<'call> {
    file: &'call File,
    observer: &'call dyn Observer,
    layer: &'call BlobDescriptor,
    bytes: u64,
}

impl<'call> Watched<'call> {
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

impl Read for Watched<'_> {
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
