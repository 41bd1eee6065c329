//! `runner source`: pull, inspect, list, collect and remove sources in the store.

use std::path::Path;
use std::time::UNIX_EPOCH;

use sources::oci::artifact::read_source_parts;
use sources::oci::error::OciError;
use sources::oci::opening::{StoreAlone, Terms};
use sources::oci::origin::Origin;
use sources::oci::pull::{self, Source, Tags};
use sources::oci::store::{BlobDescriptor, NamedManifest, Store, StoreError};
use spec::digest::Digest;
use spec::oci::media::{MANIFEST_BYTES_MAX, SOURCE, SOURCE_SNAPSHOT};
use spec::oci::reference::{Place, Reference, ReferenceError, Which};
use spec::path::{escape, escape_path};
use spec::report::ErrorReport;
use spec::source_report::{
    SourceFound, SourceInspected, SourceKept, SourceLayer, SourceListing, SourcePulled,
    SourceRemoval,
};

/// Pulls and unpacks `reference` (`HOST/REPOSITORY@sha256:…`, `oci:DIRECTORY`).
pub(crate) fn pull(
    terms: &Terms<'_>,
    reference: &str,
    allow_tags: bool,
) -> Result<SourcePulled, ErrorReport> {
    let place = place(reference).map_err(|error| unreadable(&error))?;
    let tags = match &place {
        // A tag is allowed: the layout is a directory of the caller.
        Place::Layout { .. } => Tags::Allowed,
        Place::Registry(_) => Tags::allowed(allow_tags),
    };
    let snapshot = || {
        let store = terms.store()?;
        let origin = terms.origin(&place)?;
        let limits = terms.layer_limits();
        let observer = &*terms.observer;
        pull::snapshot(&store, &*origin, &place.which(), tags, &limits, observer)
    };
    let snapshot = snapshot().map_err(|error| explain(&error))?;
    Ok(SourcePulled {
        reference: escape(reference.as_bytes()),
        digest: snapshot.digest,
        found: found(snapshot.from_store),
        layer: layer(&snapshot.layer),
        bytes: snapshot.bytes,
        files: snapshot.files,
        config: snapshot.config,
        warnings: snapshot.warnings,
    })
}

/// Inspects the artifact `reference`: a name in the store, a layout's directory, or a reference,
/// whose tag is resolved.
pub(crate) fn inspect(terms: &Terms<'_>, reference: &str) -> Result<SourceInspected, ErrorReport> {
    let store = terms.store().map_err(|error| explain(&error))?;
    let named = store
        .named(reference)
        .map_err(|error| explain(&error.into()))?;
    let source = match named.filter(|digest| store.has(digest)) {
        Some(digest) => pull_source(terms, &store, &StoreAlone, &Which::Digest(digest)),
        None => {
            let place = inspected_place(reference).map_err(|error| unreadable(&error))?;
            terms
                .origin(&place)
                .and_then(|origin| pull_source(terms, &store, &*origin, &place.which()))
        }
    };
    let source = source.map_err(|error| explain(&error))?;
    let artifact = source.artifact;
    let annotations = artifact.manifest.annotations().clone().unwrap_or_default();
    Ok(SourceInspected {
        reference: escape(reference.as_bytes()),
        digest: artifact.digest,
        found: found(artifact.from_store),
        artifact_type: SOURCE.to_owned(),
        config: source.config,
        layer: layer(&source.layer),
        layer_in_store: store.has(&source.layer.digest),
        annotations: annotations.into_iter().collect(),
    })
}

fn pull_source(
    terms: &Terms<'_>,
    store: &Store,
    origin: &dyn Origin,
    which: &Which,
) -> Result<Source, OciError> {
    pull::source(store, origin, which, Tags::Allowed, &*terms.observer)
}

/// Lists the sources and their directory.
pub(crate) fn list(terms: &Terms<'_>) -> Result<SourceListing, ErrorReport> {
    let listing = || {
        let store = terms.store()?;
        let mut sources = Vec::new();
        for listed in store.list()? {
            sources.extend(describe_listed(&store, listed)?);
        }
        Ok(SourceListing {
            directory: escape_path(store.path()),
            size_bytes: store.size_bytes(),
            used_bytes: store.used_bytes()?,
            sources,
        })
    };
    listing().map_err(|error: OciError| explain(&error))
}

/// `None` if it is not a source.
fn describe_listed(store: &Store, listed: NamedManifest) -> Result<Option<SourceKept>, OciError> {
    let Some((_, layer)) = parts_of(store, &listed.digest)? else {
        return Ok(None);
    };
    let used = listed.used.duration_since(UNIX_EPOCH);
    Ok(Some(SourceKept {
        name: escape(listed.name.as_bytes()),
        digest: listed.digest,
        layer_bytes: layer.bytes,
        layer_in_store: store.has(&layer.digest),
        used_unix_s: used.map_or(0, |since| since.as_secs()),
    }))
}

/// Removes garbage and trees beyond the size limit; with `all`, everything unused.
pub(crate) fn collect(terms: &Terms<'_>, all: bool) -> Result<SourceRemoval, ErrorReport> {
    let gone = terms.store().and_then(|store| Ok(store.gc(all)?));
    let gone = gone.map_err(|error| explain(&error))?;
    Ok(SourceRemoval {
        blobs: gone.blobs,
        trees: gone.trees,
        bytes: gone.bytes,
    })
}

/// Removes the name `name` from the store, with everything that no other name needs.
///
/// # Errors
/// The name is unknown, or the store cannot be used.
pub(crate) fn remove(terms: &Terms<'_>, name: &str) -> Result<SourceRemoval, ErrorReport> {
    let removing = || {
        let store = terms.store()?;
        let Some(manifest) = store.named(name)? else {
            return Ok(None);
        };
        let mut blobs = vec![manifest];
        let mut snapshot = None;
        if let Some((bytes, layer)) = parts_of(&store, &manifest)? {
            blobs.extend(bytes);
            snapshot = tree_of(terms, &store, &layer)?;
        }
        for (other, digest) in store.names()? {
            if other == name {
                continue;
            }
            blobs.retain(|blob| *blob != digest);
            let text = store.peek(&digest, MANIFEST_BYTES_MAX)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            // A manifest of any kind names its parts by digest.
            blobs.retain(|blob| !text.contains(&blob.to_string()));
            if let Some((_, layer)) = parts_of(&store, &digest)?
                && snapshot.is_some()
                && tree_of(terms, &store, &layer)? == snapshot
            {
                snapshot = None;
            }
        }
        Ok(Some(store.remove(name, &blobs, snapshot.as_ref())?))
    };
    let gone = removing().map_err(|error: OciError| explain(&error))?;
    let gone = gone.ok_or_else(|| {
        ErrorReport::new(
            "source_not_stored",
            format!("`{}` is not a name of the store", escape(name.as_bytes())),
        )
        .with_hint("`runner source list` shows what is in the store")
    })?;
    Ok(SourceRemoval {
        blobs: gone.blobs,
        trees: gone.trees,
        bytes: gone.bytes,
    })
}

/// The blobs that a source's manifest names, and its layer; `None` if it is not a source or is
/// missing.
fn parts_of(
    store: &Store,
    manifest: &Digest,
) -> Result<Option<(Vec<Digest>, BlobDescriptor)>, OciError> {
    let Some(bytes) = store.peek(manifest, MANIFEST_BYTES_MAX)? else {
        return Ok(None);
    };
    let Ok(parts) = read_source_parts(&bytes) else {
        return Ok(None);
    };
    let config = parts.config.map(|config| config.digest);
    let blobs = config.into_iter().chain([parts.layer.digest]).collect();
    Ok(Some((blobs, parts.layer)))
}

/// The unpacked layer, if it was unpacked under the current limits.
fn tree_of(
    terms: &Terms<'_>,
    store: &Store,
    layer: &BlobDescriptor,
) -> Result<Option<Digest>, OciError> {
    let limits = terms.layer_limits();
    let snapshots = store.snapshots()?;
    let tree = snapshots.by_digest_without_list(layer.bytes, &layer.digest, &limits);
    Ok(tree
        .map_err(StoreError::from)?
        .map(|tree| tree.content_digest))
}

#[must_use]
fn explain(error: &OciError) -> ErrorReport {
    ErrorReport::of(error.code(), error, error.hint())
}

fn unreadable(error: &ReferenceError) -> ErrorReport {
    ErrorReport::of(error.code(), error, error.hint())
}

/// Parses `oci:` and `docker://` places, and plain references.
fn place(text: &str) -> Result<Place, ReferenceError> {
    if text.starts_with("oci:") || text.starts_with("docker://") {
        Place::parse(text)
    } else {
        Reference::parse(text).map(Place::Registry)
    }
}

/// As [`place`], and also the directory of a layout.
fn inspected_place(text: &str) -> Result<Place, ReferenceError> {
    if Path::new(text).is_dir() {
        Ok(Place::Layout {
            directory: text.into(),
            which: Which::Unnamed,
        })
    } else {
        place(text)
    }
}

fn found(from_store: bool) -> SourceFound {
    if from_store {
        SourceFound::Store
    } else {
        SourceFound::Pulled
    }
}

fn layer(layer: &BlobDescriptor) -> SourceLayer {
    SourceLayer {
        digest: layer.digest,
        bytes: layer.bytes,
        media_type: SOURCE_SNAPSHOT.to_owned(),
    }
}
