//! From a reference to what it stands for: a manifest, and the unpacked tree of a source.
//!
//! What is pulled by digest and lies in the store is had without any request. Everything is
//! checked before it is unpacked, and a digest that is wrong is an error wherever it is found.

use std::fs::File;
use std::io::{self, Read};

use oci_spec::image::ImageManifest;
use rustix::io::Errno;

use crate::oci::artifact::{
    ArtifactProblem, Document, SourceParts, for_this_platform, source_parts,
};
use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Progress, Silent};
use crate::oci::opening::StoreAlone;
use crate::oci::origin::{FetchedManifest, Origin};
use crate::oci::store::{Blob, Store, StoreError, Wanted};
use archive::{UnpackError, UnpackLimits};
use spec::digest::Digest;
use spec::oci::media::MANIFEST_BYTES_MAX;
use spec::oci::reference::Which;
use spec::oci::source_config::{CONFIG_BYTES_MAX, SourceConfig};
use spec::report::WarningReport;
use store::{Cache, InUse, KeptTree, is_full};

/// Whether a tag may say which artifact is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// It is refused before anything is asked.
    Refused,
    /// It is asked for what it stands for now.
    Allowed,
}

impl Tags {
    /// As a flag has it.
    #[must_use]
    pub fn allowed(flag: bool) -> Self {
        match flag {
            true => Self::Allowed,
            false => Self::Refused,
        }
    }
}

/// A manifest that is in the store.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Its digest; of an index the one of the manifest for this machine.
    pub digest: Digest,
    /// What the reference stands for: an index where one was followed, else as `digest`.
    pub asked: Digest,
    pub manifest: ImageManifest,
    /// Whether nothing was asked for.
    pub from_store: bool,
    /// Where it comes from, for messages: `PLACE@DIGEST`.
    pub place: String,
}

/// A source that is unpacked.
#[derive(Debug)]
pub struct Snapshot {
    pub digest: Digest,
    /// What it says of itself; `None`: nothing (the empty descriptor).
    pub config: Option<SourceConfig>,
    pub layer: Wanted,
    /// The tree, in use while this lives; [`InUse::tree`] lists it.
    pub tree: InUse,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many regular files; `None`: unknown.
    pub files: Option<u64>,
    /// Whether the tree was there.
    pub cached: bool,
    /// Whether everything was there, and nothing was asked for.
    pub from_store: bool,
    /// What unpacking warned of, and what the config says otherwise.
    pub warnings: Vec<WarningReport>,
}

/// The manifest that `which` stands for at `origin`. It is in the store afterwards, under its
/// digest and its name.
///
/// # Errors
/// [`OciError`]: a tag that is refused, what `origin` says, a document that is none, nothing for
/// this machine, the store.
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

/// Documents out of the store, else out of the origin.
struct Documents<'call> {
    store: &'call Store,
    origin: &'call dyn Origin,
    listener: &'call dyn Listener,
    /// Whether the origin was asked for any.
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

/// The tree of the source artifact that `which` stands for at `origin`, unpacked once.
///
/// # Errors
/// [`OciError`]: as [`artifact`]; no source artifact, its config or its layer is refused, too
/// large for `limits`, no room.
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

/// A source artifact, without its snapshot.
#[derive(Debug, Clone)]
pub struct Source {
    /// The manifest; `from_store` counts the config too.
    pub artifact: Artifact,
    /// What it says of itself; `None`: nothing (the empty descriptor).
    pub config: Option<SourceConfig>,
    pub layer: Wanted,
}

/// The source artifact that `which` stands for at `origin`, as far as its config.
///
/// # Errors
/// [`OciError`]: as [`artifact`]; no source artifact, or its config is refused.
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

/// Whether [`snapshot`] would have the source with this digest without any request, and unpacked.
///
/// # Errors
/// [`OciError::Store`], and [`OciError::Artifact`] for what is in the store and no source.
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

/// The bytes of the config, where there is one.
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
    // In use until it is read.
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

/// One look for an unpacked layer.
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
        let digest = self.layer.digest.to_string();
        let name = format!("unpack-{}", digest.trim_start_matches("sha256:"));
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
                // It went bad on the disk: one more download.
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
            // Refused for what it is only where it is what it should be.
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

/// What it means that a layer was not unpacked into the store.
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

/// Reads a layer; the listener hears how far, and can end it.
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
