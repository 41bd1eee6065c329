//! Errors of a bundle that `exec` always refuses, with any grants, checked by `check` and `bundle`.

use crate::error::BundleError;
use crate::resolve::Resolution;
use archive::{Entry, Tree};
use spec::detection::{BundleView, EntryKind, check_target};
use spec::document::{Node, pointer_step};
use spec::image::ImageTemplate;
use spec::image::registry;
use spec::image_choice::image_of;
use spec::inventory::is_slug;
use spec::manifest::{self, ERRORS_MAX, Format, Manifest, ManifestError, Problem, SecretReference};
use spec::oci::reference::Reference;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

/// Read access of the run form to a bundle.
#[derive(Debug)]
pub struct View<'bundle>(pub &'bundle Tree);

impl BundleView for View<'_> {
    fn kind(&self, path: &RelPath) -> Option<EntryKind> {
        self.0.get(path).map(|entry| match entry {
            Entry::File { executable, .. } => EntryKind::File {
                executable: *executable,
            },
            Entry::Directory => EntryKind::Directory,
            Entry::Symlink { .. } => EntryKind::Link,
        })
    }

    fn paths(&self) -> Box<dyn Iterator<Item = &RelPath> + '_> {
        Box::new(self.0.iter().map(|(path, _)| path))
    }
}

/// Parses `.runner/manifest.json` of a bundle of `resolution`.
pub(crate) fn parse_resolved(resolution: &Resolution) -> Result<Manifest, BundleError> {
    let bytes = resolution.manifest.to_string().into_bytes();
    // Written by this process.
    let permit = ParsePermit::for_trusted_text();
    manifest::parse(&permit, &bytes, Format::Json, ".runner/manifest.json")
        .map_err(|error| BundleError::Manifest(vec![error]))
}

/// Refuses an unknown image, invalid references of sources, limits with which no program starts and
/// invalid slugs of secrets. `manifest`
/// is the resolved one.
///
/// # Errors
/// [`BundleError::Manifest`] with all errors.
pub fn check_manifest(
    resolution: &Resolution,
    manifest: &Manifest,
    images: &[ImageTemplate],
) -> Result<(), BundleError> {
    let mut found = Vec::new();
    let image = registry(images)
        .and_then(|templates| image_of(&manifest.runner, manifest.run.as_ref(), &templates));
    if let Err(error) = image {
        let hint = error.hint();
        let problem = refused(error.code(), error.to_string(), hint);
        found.push(at(resolution, "/runner/image", problem));
    }
    for (index, source) in manifest.workspace_sources.iter().enumerate() {
        if let Err(error) = Reference::parse(&source.reference) {
            let hint = "write `HOST/REPOSITORY@sha256:HEX`: `runner source inspect` prints it";
            let hint = Some(hint.to_owned());
            let problem = refused("source_reference_invalid", error.to_string(), hint);
            let pointer = format!("/workspaceSources/{index}/ref");
            found.push(at(resolution, &pointer, problem));
        }
    }
    for stated in &manifest.limits {
        if let Some(message) = stated.limit.too_small(stated.value) {
            // The source is the dotted key; of an inherited value with its file.
            let key = stated.source.split(' ').next().unwrap_or_default();
            let pointer = format!("/{}", key.replace('.', "/"));
            let problem = refused("limit_too_small", message, None);
            found.push(at(resolution, &pointer, problem));
        }
    }
    let secrets = manifest.secrets.iter();
    for secret in secrets.filter(|secret| secret.source == "secrets") {
        if found.len() >= ERRORS_MAX {
            break;
        }
        let (key, text, slug) = match &secret.reference {
            SecretReference::Vault(slug) => ("vault", slug, slug.clone()),
            SecretReference::OAuth(id) => ("oauth", id, format!("oauth/{id}")),
            SecretReference::Literal(_) => continue,
        };
        if !is_slug(&slug) {
            let problem = Problem::WrongType {
                found: format!("the slug `{}`", spec::document::excerpt(text)),
                expected: "lower-case letters, digits and `-` that start with a letter, such as \
                           `openai-api-key`"
                    .to_owned(),
                hint: None,
            };
            let pointer = format!("/secrets/{}/{key}", pointer_step(&secret.variable));
            found.push(at(resolution, &pointer, problem));
        }
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(BundleError::Manifest(found))
    }
}

/// Refuses a `run` whose file is not in `tree` or cannot be started.
pub(crate) fn check_run(
    resolution: &Resolution,
    manifest: &Manifest,
    tree: &Tree,
) -> Result<(), BundleError> {
    let Some(run) = &manifest.run else {
        return Ok(());
    };
    check_target(run, &View(tree)).map_err(|error| {
        let problem = refused(error.code(), error.to_string(), error.hint());
        BundleError::Manifest(vec![at(resolution, "/run", problem)])
    })
}

fn refused(code: &'static str, message: String, hint: Option<String>) -> Problem {
    Problem::NotRunnable {
        code,
        message,
        hint,
    }
}

fn at(resolution: &Resolution, pointer: &str, problem: Problem) -> ManifestError {
    manifest_error(&resolution.root, &resolution.file, pointer, problem)
}

/// Creates the error of the value at `pointer`, with its position in the manifest `file` if it is there.
pub(crate) fn manifest_error(
    root: &Node,
    file: &RelPath,
    pointer: &str,
    problem: Problem,
) -> ManifestError {
    let mut steps = pointer.split('/').skip(1);
    let node = steps.try_fold(root, Node::child);
    ManifestError {
        file: file.to_string(),
        place: node.map(|node| node.place),
        pointer: Some(pointer.to_owned()),
        problem: Box::new(problem),
    }
}
