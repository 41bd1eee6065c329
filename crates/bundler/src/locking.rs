//! Lock files of bundles.

use crate::gather::{Gathered, Given};
use crate::layer::{Layer, LayerForm};
use spec::digest::Digest;
use spec::lock::{LOCK_VERSION, Lock, LockDifference, LockedKind, LockedNeeds, LockedSource};
use spec::manifest::Manifest;
use spec::runner_block::{Engine, Language};

/// Returns the lock of a bundle; `manifest` is the resolved one.
#[must_use]
pub(crate) fn lock_of(
    manifest: &Manifest,
    layers: &[Layer],
    gathered: &Gathered<'_>,
    content_digest: Digest,
) -> Lock {
    let sources = layers
        .iter()
        .enumerate()
        .map(|(index, layer)| source(layer, index, gathered))
        .collect();
    with_sources(manifest, sources, content_digest)
}

/// Compares manifest and `lock` without fetching, for a reference without a locked commit. Empty if
/// every reference has one.
#[must_use]
pub(crate) fn differences_unfetched(
    lock: &Lock,
    manifest: &Manifest,
    layers: &[Layer],
) -> Vec<LockDifference> {
    let is_pinned = |layer: &Layer| match &layer.form {
        LayerForm::GitHub {
            repository,
            reference,
            ..
        } => lock.pinned(repository, reference).is_some(),
        _ => true,
    };
    if layers.iter().all(is_pinned) {
        return Vec::new();
    }
    let sources = layers.iter().map(|layer| {
        let words = words_of(layer, Given::default());
        // Values that need the files are taken from the lock.
        match lock.sources.iter().find(|known| known.from == words.from) {
            Some(known) => LockedSource {
                sha: known.sha.clone(),
                archive_digest: known.archive_digest,
                archive_bytes: known.archive_bytes,
                bytes: known.bytes,
                files: known.files,
                ..words
            },
            None => words,
        }
    });
    lock.differences(&with_sources(
        manifest,
        sources.collect(),
        lock.content_digest,
    ))
}

fn with_sources(manifest: &Manifest, sources: Vec<LockedSource>, content_digest: Digest) -> Lock {
    let needs = &manifest.runner.needs;
    let mut egress: Vec<String> = manifest
        .egress
        .iter()
        .map(|request| request.rule.to_string())
        .collect();
    let mut secrets: Vec<String> = manifest
        .secrets
        .iter()
        .map(|secret| secret.variable.clone())
        .collect();
    for list in [&mut egress, &mut secrets] {
        list.sort_unstable();
        list.dedup();
    }
    Lock {
        version: LOCK_VERSION,
        engine: match manifest.runner.engine {
            Engine::Subprocess => "subprocess",
            Engine::Sandbox => "sandbox",
        }
        .to_owned(),
        image: manifest.runner.image.clone(),
        needs: LockedNeeds {
            language: needs.language.map(|language| {
                match language {
                    Language::Node => "node",
                    Language::Python => "python",
                    Language::Multi => "multi",
                }
                .to_owned()
            }),
            native: needs.native.clone(),
            npm: needs.npm.clone(),
            pip: needs.pip.clone(),
        },
        egress,
        secrets,
        sources,
        content_digest,
    }
}

fn source(layer: &Layer, index: usize, gathered: &Gathered<'_>) -> LockedSource {
    let given = gathered.given.get(index).copied().unwrap_or_default();
    let mut locked = words_of(layer, given);
    let fetched = gathered.fetched.iter().find(|one| one.source == index);
    if let Some(fetched) = fetched {
        locked.sha = Some(fetched.resolved.sha.clone());
        locked.archive_digest = Some(fetched.tree.archive_digest);
        locked.archive_bytes = Some(fetched.tree.archive_bytes);
    }
    locked
}

fn words_of(layer: &Layer, given: Given) -> LockedSource {
    let mut locked = LockedSource {
        from: layer.origin.name(),
        kind: LockedKind::Local,
        path: None,
        repository: None,
        reference: None,
        sha: None,
        archive_digest: None,
        archive_bytes: None,
        bytes: given.bytes,
        files: given.files,
    };
    match &layer.form {
        LayerForm::Folder { path } => {
            locked.path = path.as_ref().map(ToString::to_string);
        }
        LayerForm::Inline { path, .. } => {
            locked.kind = LockedKind::Inline;
            locked.path = Some(path.to_string());
        }
        LayerForm::Local { path, .. } => {
            let path = path.as_ref();
            locked.path = Some(path.map_or_else(|| ".".to_owned(), ToString::to_string));
        }
        LayerForm::GitHub {
            repository,
            reference,
            path,
            ..
        } => {
            locked.kind = LockedKind::GitHub;
            locked.path = path.as_ref().map(ToString::to_string);
            locked.repository = Some(repository.clone());
            locked.reference = Some(reference.clone());
        }
    }
    locked
}
