//! Pulls artifacts: from a reference to its manifest and to the unpacked tree of a source.
//!
//! A digest that is in the store needs no request. Every digest is verified before use.

use std::fs::File;
use std::io::{self, Read};

use oci_spec::image::ImageManifest;
use rustix::io::Errno;

use crate::oci::artifact::{
    ArtifactProblem, Document, SourceParts, for_this_platform, source_parts,
};
use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Silent};
use crate::oci::opening::StoreAlone;
use crate::oci::origin::{FetchedManifest, Origin};
use crate::oci::store::{Blob, Store, StoreError, Wanted};
use crate::progress::Progress;
use archive::{UnpackError, UnpackLimits};
use spec::digest::Digest;
use spec::oci::media::MANIFEST_BYTES_MAX;
use spec::oci::reference::Which;
use spec::oci::source_config::{CONFIG_BYTES_MAX, SourceConfig};
use spec::report::WarningReport;
use store::{Cache, InUse, KeptTree, is_full};

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
    pub layer: Wanted,
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
    listener: &dyn Listener,
) -> Result<Artifact, OciError> {
    let (written, digest) = match which {
        Which::Digest(digest) => (format!("{}@{digest}", origin.shown()), Some(*digest)),
        tag => (format!("{}:{tag}", origin.shown()), None),
    };
    if digest.is_none() && tags == Tags::Refused {
        let problem = ArtifactProblem::Tag {
            tag: which.to_string(),
        };
        return Err(problem.at(written).into());
    }
    let mut documents = Documents {
        store,
        origin,
        listener,
        asked: false,
    };
    let (asked, bytes) = documents.get(which)?;
    let refused = |problem: ArtifactProblem| problem.at(format!("{}@{asked}", origin.shown()));
    let (digest, manifest) = match Document::parse(&bytes).map_err(refused)? {
        Document::Manifest(manifest) => (asked, *manifest),
        Document::Index(index) => {
            let wanted = for_this_platform(&index).map_err(refused)?;
            let (digest, bytes) = documents.get(&Which::Digest(wanted.digest))?;
            let refused =
                |problem: ArtifactProblem| problem.at(format!("{}@{digest}", origin.shown()));
            match Document::parse(&bytes).map_err(refused)? {
                Document::Manifest(manifest) => (digest, *manifest),
                Document::Index(_) => {
                    let problem = "an index lists it, and it is an index itself".to_owned();
                    return Err(refused(ArtifactProblem::Document { problem }).into());
                }
            }
        }
    };
    let from_store = !documents.asked;
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

struct Documents<'call> {
    store: &'call Store,
    origin: &'call dyn Origin,
    listener: &'call dyn Listener,
    asked: bool,
}

impl Documents<'_> {
    fn get(&mut self, which: &Which) -> Result<(Digest, Vec<u8>), OciError> {
        if let Which::Digest(digest) = which
            && let Some(bytes) = self.store.read(digest, MANIFEST_BYTES_MAX)?
        {
            return Ok((*digest, bytes));
        }
        if self.listener.is_cancelled() {
            let during = "asking for a manifest";
            return Err(OciError::Cancelled { during });
        }
        self.asked = true;
        let fetched = match self.origin.is_local() {
            true => self.origin.manifest(which)?,
            false => self.wait_for(which)?,
        };
        let digest = self.store.put(&fetched.bytes)?;
        Ok((digest, fetched.bytes))
    }

    fn wait_for(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        self.listener.progress(&Progress::Asking {
            place: &self.origin.shown(),
        });
        let fetched = self.origin.manifest(which);
        self.listener.progress(&Progress::Done);
        fetched
    }
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
    listener: &dyn Listener,
) -> Result<Snapshot, OciError> {
    let described = source(store, origin, which, tags, listener)?;
    let layer = described.layer;
    let place = &described.artifact.place;
    if limits.compressed_bytes < layer.bytes {
        let problem = ArtifactProblem::TooLarge {
            what: "its layer",
            bytes: layer.bytes,
            limit_bytes: limits.compressed_bytes,
        };
        return Err(problem.at(place.clone()).into());
    }
    let kept = Unpacking {
        store,
        origin,
        limits,
        listener,
        layer: &layer,
        place,
    }
    .kept()?;
    let mut warnings = kept.tree.warnings;
    let config = described.config;
    warnings.extend(miscounted(config.as_ref(), kept.tree.files, place));
    Ok(Snapshot {
        digest: described.artifact.digest,
        config,
        layer,
        tree: kept.tree.in_use,
        bytes: kept.tree.bytes,
        files: kept.tree.files,
        cached: kept.cached,
        from_store: described.artifact.from_store && !kept.asked,
        warnings,
    })
}

/// A source artifact, not unpacked.
#[derive(Debug, Clone)]
pub struct Source {
    /// `from_store` includes the config.
    pub artifact: Artifact,
    pub config: Option<SourceConfig>,
    pub layer: Wanted,
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
    listener: &dyn Listener,
) -> Result<Source, OciError> {
    let mut artifact = artifact(store, origin, which, tags, listener)?;
    let refused = |problem: ArtifactProblem| problem.at(artifact.place.clone());
    let parts = source_parts(&artifact.manifest).map_err(refused)?;
    let mut asked = false;
    let config = match source_config(store, origin, &parts, listener, &mut asked)? {
        Some(bytes) => {
            let parsed = SourceConfig::parse(&bytes);
            Some(parsed.map_err(|error| refused(ArtifactProblem::Config(error)))?)
        }
        None => None,
    };
    artifact.from_store &= !asked;
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
    let artifact = match artifact(store, &StoreAlone, &which, Tags::Refused, &Silent) {
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
    Ok(store.snapshots()?.kept(bytes, layer, limits)?.is_some())
}

fn source_config(
    store: &Store,
    origin: &dyn Origin,
    parts: &SourceParts,
    listener: &dyn Listener,
    asked: &mut bool,
) -> Result<Option<Vec<u8>>, OciError> {
    let Some(wanted) = &parts.config else {
        return Ok(None);
    };
    let limit = CONFIG_BYTES_MAX as u64;
    if let Some(bytes) = store.read(&wanted.digest, limit)? {
        return Ok(Some(bytes));
    }
    *asked = true;
    // Holds the lock of the blob until it is read.
    let _blob = store.fetch(wanted, origin, listener)?;
    let bytes = store.read(&wanted.digest, limit)?;
    Ok(Some(bytes.unwrap_or_default()))
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
    store: &'call Store,
    origin: &'call dyn Origin,
    limits: &'call UnpackLimits,
    listener: &'call dyn Listener,
    layer: &'call Wanted,
    place: &'call str,
}

struct Kept {
    tree: KeptTree,
    cached: bool,
    asked: bool,
}

impl Unpacking<'_> {
    fn kept(&self) -> Result<Kept, OciError> {
        let snapshots = self.store.snapshots()?;
        let found = |tree| Kept {
            tree,
            cached: true,
            asked: false,
        };
        if let Some(tree) = self.look(&snapshots)? {
            return Ok(found(tree));
        }
        let name = format!("unpack-{}", self.layer.digest.hexadecimal());
        let _claim = self.store.claim(&name, self.listener)?;
        if let Some(tree) = self.look(&snapshots)? {
            return Ok(found(tree));
        }
        let was_here = self.store.wanted(self.layer)?;
        let mut asked = was_here.is_none();
        let blob = match was_here {
            Some(blob) => blob,
            None => self.fetch()?,
        };
        let unpacked = match self.unpack(&snapshots, blob) {
            Err(OciError::Store(error)) if error.is_other_bytes() && !asked => {
                // Damaged on the disk: download it once more.
                asked = true;
                self.unpack(&snapshots, self.fetch()?)
            }
            other => other,
        };
        Ok(Kept {
            tree: unpacked?,
            cached: false,
            asked,
        })
    }

    fn look(&self, snapshots: &Cache) -> Result<Option<KeptTree>, OciError> {
        Ok(snapshots.kept(self.layer.bytes, &self.layer.digest, self.limits)?)
    }

    fn fetch(&self) -> Result<Blob, OciError> {
        self.store.fetch(self.layer, self.origin, self.listener)
    }

    fn unpack(&self, snapshots: &Cache, blob: Blob) -> Result<KeptTree, OciError> {
        let building = snapshots.begin()?;
        let mut source = Watched::new(&blob.file, self.listener, self.layer);
        let unpacked = archive::unpack_snapshot(&mut source, building.tree(), self.limits);
        let cancelled = source.cancelled;
        self.listener.progress(&Progress::Done);
        if cancelled {
            let during = "unpacking a layer";
            return Err(OciError::Cancelled { during });
        }
        let found = match &unpacked {
            Ok(unpacked) => unpacked.archive_digest,
            // A refusal counts only for a blob whose digest is right.
            Err(error) if error.is_refusal() => Some(self.store.digest_of(&blob)?),
            Err(_) => None,
        };
        match found {
            Some(found) if found != self.layer.digest => {
                self.store.remove_damaged(&self.layer.digest)?;
                return Err(StoreError::Digest {
                    place: "the store".to_owned(),
                    digest: self.layer.digest,
                    found,
                }
                .into());
            }
            _ => (),
        }
        let unpacked = unpacked.map_err(|error| self.refused(error))?;
        let published =
            snapshots.publish_kept(building, unpacked, self.layer.bytes, self.limits)?;
        self.store.settle()?;
        Ok(published)
    }

    fn refused(&self, error: UnpackError) -> OciError {
        unpack_error(self.store, self.place, self.layer.digest, error)
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

/// Reader that reports progress to the listener and fails when cancelled.
pub(super) struct Watched<'call> {
    file: &'call File,
    listener: &'call dyn Listener,
    layer: &'call Wanted,
    bytes: u64,
    cancelled: bool,
}

impl<'call> Watched<'call> {
    pub(super) fn new(
        file: &'call File,
        listener: &'call dyn Listener,
        layer: &'call Wanted,
    ) -> Self {
        Self {
            file,
            listener,
            layer,
            bytes: 0,
            cancelled: false,
        }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.listener.is_cancelled() {
            self.cancelled = true;
            return Err(io::Error::from(Errno::CANCELED));
        }
        let count = self.file.read(buffer)?;
        self.bytes += count as u64;
        self.listener.progress(&Progress::Unpacking {
            digest: &self.layer.digest,
            bytes: self.bytes,
            of_bytes: self.layer.bytes,
        });
        Ok(count)
    }
}
