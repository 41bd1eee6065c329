//! The lock file of a bundle: it pins references, and with `--locked` the bundle must match it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::BundleError;
use crate::gather::{Gathered, SourceSize};
use crate::layer::{Layer, LayerForm};
use crate::manifests::read_host_file;
use crate::resolve::Resolution;
use crate::runnable::{check_manifest, check_run, parse_resolved};
use crate::schemas::invalid_schemas;
use spec::digest::Digest;
use spec::document::Format;
use spec::host_policy::HostPolicy;
use spec::lock::{LOCK_VERSION, Lock, LockDifference, LockedKind, LockedNeeds, LockedSource};
use spec::manifest::Manifest;
use spec::path::{escape, escape_path};
use spec::runner_block::Needs;

/// How a lock file is used.
#[derive(Debug, Clone, Copy)]
pub enum LockUse<'call> {
    Unused,
    /// The lock of the bundle is written to this path.
    Write(&'call Path),
    /// `--locked`: the bundle must match it.
    Match(&'call Path),
}

/// A lock file that the bundle must match.
#[derive(Debug)]
struct RequiredLock {
    shown: String,
    lock: Lock,
}

impl RequiredLock {
    fn read(path: &Path) -> Result<Self, BundleError> {
        let shown = escape_path(path);
        let text = read_host_file(path).map_err(BundleError::LockUnreadable)?;
        let lock = Lock::read(reader::parse_document(&text, Format::Json), &shown)?;
        Ok(Self { shown, lock })
    }

    fn check(&self, differences: Vec<LockDifference>) -> Result<(), BundleError> {
        if differences.is_empty() {
            return Ok(());
        }
        Err(BundleError::Drift {
            file: self.shown.clone(),
            differences,
        })
    }
}

/// A resolved manifest with the references of its lock file.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) resolution: Resolution,
    /// Whether a lock file is written or compared.
    pub(crate) has_lock: bool,
    manifest: Manifest,
    required: Option<RequiredLock>,
}

impl Pinned {
    /// Checks the manifest of `resolution`, and what the lock file says about it, before anything is
    /// fetched.
    pub(crate) fn new(
        resolution: Resolution,
        policy: &HostPolicy,
        lock: LockUse<'_>,
        require_pin: bool,
    ) -> Result<Self, BundleError> {
        let required = match lock {
            LockUse::Match(path) => Some(RequiredLock::read(path)?),
            LockUse::Unused | LockUse::Write(_) => None,
        };
        let manifest = parse_resolved(&resolution)?;
        check_manifest(&resolution, &manifest, &policy.images)?;
        let invalid = invalid_schemas(&resolution.file, &resolution.root);
        if !invalid.is_empty() {
            return Err(BundleError::Manifest(invalid));
        }
        let has_lock = !matches!(lock, LockUse::Unused);
        if has_lock || require_pin {
            refuse_tags(&manifest)?;
        }
        if let Some(required) = &required {
            let layers = &resolution.layers;
            required.check(differences_before_fetch(&required.lock, &manifest, layers))?;
        }
        Ok(Self {
            resolution,
            has_lock,
            manifest,
            required,
        })
    }

    /// Returns the lock that the bundle must match.
    pub(crate) fn lock(&self) -> Option<&Lock> {
        self.required.as_ref().map(|required| &required.lock)
    }

    pub(crate) fn check_run(&self, contents: &Gathered) -> Result<(), BundleError> {
        check_run(&self.resolution, &self.manifest, &contents.tree)
    }

    /// Creates the lock of the bundle and compares it with the one that it must match.
    pub(crate) fn lock_of(&self, contents: &Gathered, digest: Digest) -> Result<Lock, BundleError> {
        let layers = self.resolution.layers.iter().enumerate();
        let sources = layers.map(|(index, layer)| {
            let mut locked = locked_source(layer, contents.sizes[index]);
            let mut fetched = contents.fetched.iter();
            let fetched = fetched.find(|fetched| fetched.source == index);
            if let Some(fetched) = fetched {
                locked.sha = Some(fetched.commit.sha.clone());
                locked.archive_digest = Some(fetched.archive_digest);
                locked.archive_bytes = Some(fetched.archive_bytes);
            }
            locked
        });
        let lock = lock(&self.manifest, sources.collect(), digest);
        if let Some(required) = &self.required {
            required.check(required.lock.differences(&lock))?;
        }
        Ok(lock)
    }
}

/// Refuses workspace sources that are referenced by a tag, since a tag can move.
fn refuse_tags(manifest: &Manifest) -> Result<(), BundleError> {
    let mut sources = manifest.workspace_sources.iter();
    match sources.find(|source| source.is_pinned() == Some(false)) {
        Some(source) => Err(BundleError::SourceTag {
            id: escape(source.id.as_bytes()),
            reference: escape(source.reference.as_bytes()),
        }),
        None => Ok(()),
    }
}

/// Compares the manifest with `lock` before anything is fetched. Returns no difference if `lock` has
/// the commit of every reference: then the bundle is compared after fetching.
fn differences_before_fetch(
    lock: &Lock,
    manifest: &Manifest,
    layers: &[Layer],
) -> Vec<LockDifference> {
    let is_pinned = |layer: &Layer| match &layer.form {
        LayerForm::GitHub(source) => lock.pinned(&source.repository, &source.reference).is_some(),
        _ => true,
    };
    if layers.iter().all(is_pinned) {
        return Vec::new();
    }
    let sources = layers.iter().map(|layer| {
        let source = locked_source(layer, SourceSize::default());
        // What depends on the fetched files is unknown and counts as equal.
        match lock.sources.iter().find(|known| known.from == source.from) {
            Some(known) => LockedSource {
                sha: known.sha.clone(),
                archive_digest: known.archive_digest,
                archive_bytes: known.archive_bytes,
                bytes: known.bytes,
                files: known.files,
                ..source
            },
            None => source,
        }
    });
    let new = self::lock(manifest, sources.collect(), lock.content_digest);
    lock.differences(&new)
}

fn lock(manifest: &Manifest, sources: Vec<LockedSource>, content_digest: Digest) -> Lock {
    let Needs {
        language,
        native,
        npm,
        pip,
    } = &manifest.runner.needs;
    let egress = manifest.egress.iter();
    let secrets = manifest.secrets.iter();
    Lock {
        version: LOCK_VERSION,
        engine: manifest.runner.engine.name().to_owned(),
        image: manifest.runner.image.clone(),
        needs: LockedNeeds {
            language: language.map(|language| language.name().to_owned()),
            native: native.clone(),
            npm: npm.clone(),
            pip: pip.clone(),
        },
        egress: sorted(egress.map(|request| request.rule.to_string())),
        secrets: sorted(secrets.map(|secret| secret.variable.clone())),
        sources,
        content_digest,
    }
}

fn sorted(words: impl Iterator<Item = String>) -> Vec<String> {
    BTreeSet::from_iter(words).into_iter().collect()
}

fn locked_source(layer: &Layer, size: SourceSize) -> LockedSource {
    let mut locked = LockedSource {
        from: layer.origin.name(),
        kind: LockedKind::Local,
        path: None,
        repository: None,
        reference: None,
        sha: None,
        archive_digest: None,
        archive_bytes: None,
        bytes: size.bytes,
        files: size.files,
    };
    match &layer.form {
        LayerForm::Folder(path) => {
            locked.path = path.as_ref().map(ToString::to_string);
        }
        LayerForm::Inline { path, .. } => {
            locked.kind = LockedKind::Inline;
            locked.path = Some(path.to_string());
        }
        LayerForm::Local(local) => {
            let path = local.path.as_ref();
            locked.path = Some(path.map_or_else(|| ".".to_owned(), ToString::to_string));
        }
        LayerForm::GitHub(source) => {
            locked.kind = LockedKind::GitHub;
            locked.path = source.path.as_ref().map(ToString::to_string);
            locked.repository = Some(source.repository.clone());
            locked.reference = Some(source.reference.clone());
        }
    }
    locked
}
