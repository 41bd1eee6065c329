//! What a bundle was made of, as the lock file has it.

use crate::compose::gather::Gathered;
use crate::compose::layer::{Layer, LayerForm};
use crate::spec::digest::Digest;
use crate::spec::lock::{LOCK_VERSION, Lock, LockedKind, LockedNeeds, LockedSource};
use crate::spec::manifest::Manifest;
use crate::spec::runner_block::{Engine, Language};

/// The lock of a bundle with these contents; `manifest` is the resolved one.
#[must_use]
pub fn lock_of(
    manifest: &Manifest,
    layers: &[Layer],
    gathered: &Gathered<'_>,
    content_digest: Digest,
) -> Lock {
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
        sources: layers
            .iter()
            .enumerate()
            .map(|(index, layer)| source(layer, index, gathered))
            .collect(),
        content_digest,
    }
}

fn source(layer: &Layer, index: usize, gathered: &Gathered<'_>) -> LockedSource {
    let given = gathered.given.get(index).copied().unwrap_or_default();
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
            let fetched = gathered.fetched.iter().find(|one| one.source == index);
            if let Some(fetched) = fetched {
                locked.sha = Some(fetched.resolved.sha.clone());
                locked.archive_digest = Some(fetched.tree.archive_digest);
                locked.archive_bytes = Some(fetched.tree.archive_bytes);
            }
        }
    }
    locked
}
