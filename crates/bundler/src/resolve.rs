//! Resolves a manifest to its sources: replaces `ref` sources, depth first, by the sources of the
//! code-workspaces. Reads only manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use crate::error::BundleError;
use crate::files::{DirectoryFiles, FoundKind};
use crate::folders::{base_of, folder_at};
use crate::layer::{Layer, LayerForm, LocalSource, RepositorySource};
use crate::manifests::{
    MANIFEST_NAMES, ManifestFile, RESOLVED_MANIFEST, Registry, ignored_warnings,
    inventory_of_workspace, manifests_in, read_manifest,
};
use crate::origin::{SourceKind, SourceOrigin};
use crate::secrets::{add_inventory, runner_metadata};
use crate::walk::{outermost_link, suggest_path};
use sources::github::RefShape;
use spec::code_block::{CodeSource, SourcePath};
use spec::document::Node;
use spec::inventory::{Consumer, Inventory};
use spec::manifest::{self, Kind, Level, source_nodes};
use spec::path::{RelPath, escape};
use spec::report::WarningReport;

/// Maximum nesting of code-workspaces.
const REFERENCE_DEPTH_MAX: usize = 8;
/// Maximum number of sources. Those of a code-workspace count for each reference to it.
pub(crate) const SOURCES_MAX: usize = 4_096;

/// Inputs of resolution.
#[derive(Debug, Clone, Copy)]
pub struct ResolveRequest<'call> {
    pub manifest: &'call RelPath,
    pub registry: &'call Registry,
    /// Refuses references to branches and tags.
    pub require_pin: bool,
}

/// A resolved manifest.
#[derive(Debug)]
pub struct Resolution {
    pub file: RelPath,
    pub root: Node,
    /// With inherited values: the content of `.runner/manifest.json`.
    pub manifest: serde_json::Value,
    /// In overlay order: later ones override earlier ones.
    pub layers: Vec<Layer>,
    pub warnings: Vec<WarningReport>,
}

/// Resolves the manifest and the code-workspaces it refers to. Reads no content of sources.
///
/// # Errors
/// [`BundleError::Manifest`], [`BundleError::Unreadable`], and [`BundleError::At`] for
/// cycles, depth and references that are not pinned.
pub fn resolve(
    request: ResolveRequest<'_>,
    files: &DirectoryFiles,
) -> Result<Resolution, BundleError> {
    let mut resolver = Resolver::new(files, request.registry, request.require_pin);
    let file = resolver.read(request.manifest)?;
    let inherited = resolver.add_manifest(&file)?;
    let mut manifest = inherited.manifest;
    let mut provenance = inherited.provenance;
    // Only the file name: the bundle must not depend on which folder is the workspace.
    let file_name = escape(request.manifest.file_name());
    for decided_by in provenance.values_mut() {
        if *decided_by == request.manifest.to_string() {
            decided_by.clone_from(&file_name);
        }
    }
    // Only information, so other data at its place stays.
    if let Ok(map) = runner_metadata(&mut manifest) {
        map.insert("provenance".to_owned(), serde_json::json!(provenance));
    }
    let mut inventories = std::mem::take(&mut resolver.inventories);
    inventories.extend(inventory_of_workspace(files));
    let not_granted = add_inventory(&mut manifest, &file, inventories)?;
    resolver.warnings.extend(not_granted);
    manifest.sort_all_objects();
    Ok(Resolution {
        file: file.path.clone(),
        root: file.root.clone(),
        manifest,
        layers: resolver.layers,
        warnings: resolver.warnings,
    })
}

/// Resolves the sources of `code`, without a manifest.
pub(crate) fn resolve_code(
    code: &[CodeSource],
    files: &DirectoryFiles,
    registry: &Registry,
) -> Result<Vec<Layer>, BundleError> {
    let mut resolver = Resolver::new(files, registry, false);
    for (index, source) in code.iter().enumerate() {
        let origin = SourceOrigin {
            file: "code".to_owned(),
            place: None,
            pointer: format!("/sources/{index}"),
            kind: kind_of(source),
        };
        let added = resolver.add_source(&origin, source, None);
        added.map_err(|error| error.at(&origin))?;
    }
    Ok(resolver.layers)
}

struct Resolver<'call> {
    files: &'call DirectoryFiles,
    registry: &'call Registry,
    require_pin: bool,
    layers: Vec<Layer>,
    warnings: Vec<WarningReport>,
    read: BTreeMap<RelPath, Rc<ManifestFile>>,
    merged: BTreeMap<RelPath, Rc<Workspace>>,
    inventories: Vec<Inventory>,
    /// The outermost manifest.
    who: Option<Consumer>,
    /// Stack of the manifests being resolved, outermost first.
    open: Vec<RelPath>,
}

struct Workspace {
    level: Level,
    layers: Range<usize>,
    /// Nesting depth of its code-workspaces.
    height: usize,
}

struct Inherited {
    manifest: serde_json::Value,
    /// Maps a JSON Pointer to the manifest that decided it.
    provenance: BTreeMap<String, String>,
    height: usize,
}

impl<'call> Resolver<'call> {
    fn new(files: &'call DirectoryFiles, registry: &'call Registry, require_pin: bool) -> Self {
        Self {
            files,
            registry,
            require_pin,
            layers: Vec::new(),
            warnings: Vec::new(),
            read: BTreeMap::new(),
            merged: BTreeMap::new(),
            inventories: Vec::new(),
            who: None,
            open: Vec::new(),
        }
    }

    fn read(&mut self, path: &RelPath) -> Result<Rc<ManifestFile>, BundleError> {
        if let Some(file) = self.read.get(path) {
            return Ok(Rc::clone(file));
        }
        let file = Rc::new(read_manifest(self.files, path, self.registry)?);
        let who = self.who.get_or_insert_with(|| file.manifest.consumer());
        // `secrets_none` is relevant for the outermost manifest only.
        let is_outermost = *who == file.manifest.consumer();
        let warnings = file.manifest.warnings.iter();
        let warnings = warnings.filter(|warning| is_outermost || warning.code != "secrets_none");
        self.warnings.extend(warnings.cloned());
        let inventories = file.manifest.inventories.iter().cloned();
        self.inventories.extend(inventories);
        self.read.insert(path.clone(), Rc::clone(&file));
        Ok(file)
    }

    /// Adds the sources of one manifest and returns it with inherited values.
    fn add_manifest(&mut self, file: &ManifestFile) -> Result<Inherited, BundleError> {
        self.open.push(file.path.clone());
        let folder = folder_of(&file.path);
        let mut workspaces: Vec<Rc<Workspace>> = Vec::new();
        if file.manifest.code.is_empty() {
            let origin = SourceOrigin::whole(file.path.to_string(), SourceKind::Folder);
            self.add_layer(origin, LayerForm::Folder(folder.clone()))?;
        }
        let nodes = source_nodes(&file.root);
        for (index, source) in file.manifest.code.iter().enumerate() {
            let found = nodes.get(index);
            let origin = SourceOrigin {
                file: file.path.to_string(),
                place: found.map(|found| found.node.place),
                pointer: found.map_or_else(String::new, |found| found.pointer.clone()),
                kind: kind_of(source),
            };
            let base = folder
                .clone()
                .filter(|_| found.is_some_and(|found| found.is_lean));
            let added = self.add_source(&origin, source, base.as_ref());
            workspaces.extend(added.map_err(|error| error.at(&origin))?);
        }
        self.open.pop();
        let asking = match &self.who {
            Some(who) => &file.manifest.requesting_as(who),
            None => &file.manifest,
        };
        let own = Level {
            file: file.path.to_string(),
            resolved: manifest::resolved(&file.root, asking, &file.blocks),
            provenance: BTreeMap::new(),
        };
        let height = workspaces
            .iter()
            .map(|workspace| workspace.height + 1)
            .max();
        let workspaces = first_and_last(workspaces);
        let levels = workspaces.iter().map(|workspace| workspace.level.clone());
        let levels: Vec<Level> = levels.collect();
        let inherited =
            manifest::inherit(own, &levels).map_err(|error| BundleError::Manifest(vec![error]))?;
        for warning in inherited.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        Ok(Inherited {
            manifest: inherited.manifest,
            provenance: inherited.provenance,
            height: height.unwrap_or(0),
        })
    }

    /// Returns the code-workspace of a `ref` source.
    fn add_source(
        &mut self,
        origin: &SourceOrigin,
        source: &CodeSource,
        base: Option<&RelPath>,
    ) -> Result<Option<Rc<Workspace>>, BundleError> {
        let form = match source {
            CodeSource::Reference { path } => {
                return self.add_reference(base, path).map(Some);
            }
            CodeSource::Inline { path, content } => LayerForm::Inline {
                path: path.clone(),
                content: content.as_bytes().into(),
            },
            CodeSource::Local {
                path,
                directory,
                target,
                glob,
            } => LayerForm::Local(LocalSource {
                base: base_of(base, path)?,
                path: path.below.clone(),
                directory: *directory,
                target: target.clone(),
                glob: glob.clone(),
            }),
            CodeSource::GitHub {
                repository,
                reference,
                path,
                target,
            } => {
                let shape = RefShape::of(reference);
                if self.require_pin && shape != RefShape::Commit {
                    return Err(BundleError::PinRequired {
                        repository: repository.clone(),
                        reference: escape(reference.as_bytes()),
                        shape,
                    });
                }
                LayerForm::GitHub(RepositorySource {
                    repository: repository.clone(),
                    reference: reference.clone(),
                    path: path.clone(),
                    target: target.clone(),
                })
            }
        };
        self.add_layer(origin.clone(), form).map(|()| None)
    }

    fn add_layer(&mut self, origin: SourceOrigin, form: LayerForm) -> Result<(), BundleError> {
        if self.layers.len() >= SOURCES_MAX {
            let problem = BundleError::TooManySources { limit: SOURCES_MAX };
            return Err(problem.at(&origin));
        }
        self.layers.push(Layer { origin, form });
        Ok(())
    }

    fn add_reference(
        &mut self,
        base: Option<&RelPath>,
        path: &SourcePath,
    ) -> Result<Rc<Workspace>, BundleError> {
        let folder = folder_at(base, path)?;
        let (manifest, warnings) = referenced_manifest(self.files, folder.as_ref())?;
        check_chain(&self.open, &manifest)?;
        // Above the depth limit the cached workspace is resolved again, so that the error shows the
        // chain of references.
        let depth = |cached: &Rc<Workspace>| self.open.len() + cached.height;
        let cached = self.merged.get(&manifest).cloned();
        if let Some(cached) = cached.filter(|cached| depth(cached) <= REFERENCE_DEPTH_MAX) {
            let layers = self.layers[cached.layers.clone()].to_vec();
            for layer in layers {
                self.add_layer(layer.origin, layer.form)?;
            }
            return Ok(cached);
        }
        if !self.read.contains_key(&manifest) {
            self.warnings.extend(warnings);
        }
        let file = self.read(&manifest)?;
        if !file.is_code_workspace() {
            return Err(BundleError::NotCodeWorkspace {
                path: manifest,
                found: match file.manifest.kind {
                    Kind::Workflow => "of `kind: workflow`",
                    _ => "of `kind: tool`",
                },
            });
        }
        let first = self.layers.len();
        let inherited = self.add_manifest(&file)?;
        let level = Level {
            file: manifest.to_string(),
            resolved: inherited.manifest,
            provenance: inherited.provenance,
        };
        let workspace = Rc::new(Workspace {
            level,
            layers: first..self.layers.len(),
            height: inherited.height,
        });
        self.merged.insert(manifest, Rc::clone(&workspace));
        Ok(workspace)
    }
}

/// Refuses a reference from the innermost of the `open` manifests to `manifest`, if it is a cycle or
/// too deep.
pub(crate) fn check_chain(open: &[RelPath], manifest: &RelPath) -> Result<(), BundleError> {
    let chain = |from| {
        let names = open.iter().skip(from).chain([manifest]);
        names.map(folder_name).collect()
    };
    if let Some(first) = open.iter().position(|open| open == manifest) {
        return Err(BundleError::Cycle {
            chain: chain(first),
        });
    }
    if open.len() > REFERENCE_DEPTH_MAX {
        return Err(BundleError::Depth {
            chain: chain(0),
            limit: REFERENCE_DEPTH_MAX,
        });
    }
    Ok(())
}

/// Drops repeated references between the first one, which fixes the order of hosts, and the last one,
/// which overrides the others.
fn first_and_last(workspaces: Vec<Rc<Workspace>>) -> Vec<Rc<Workspace>> {
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for (index, workspace) in workspaces.iter().enumerate() {
        last.insert(workspace.level.file.clone(), index);
    }
    let mut first = BTreeSet::new();
    let mut kept = Vec::new();
    for (index, workspace) in workspaces.into_iter().enumerate() {
        let is_first = first.insert(workspace.level.file.clone());
        if is_first || last.get(&workspace.level.file) == Some(&index) {
            kept.push(workspace);
        }
    }
    kept
}

/// Finds the manifest of the folder that a `ref` source names, and warns about other manifests in it.
pub(crate) fn referenced_manifest(
    files: &DirectoryFiles,
    folder: Option<&RelPath>,
) -> Result<(RelPath, Vec<WarningReport>), BundleError> {
    let shown = || folder.map_or_else(|| ".".to_owned(), RelPath::to_string);
    let unreadable = |source| BundleError::Unreadable {
        path: shown(),
        source,
    };
    // The workspace itself is a directory.
    if let Some(folder) = folder {
        let path = folder.clone();
        let found = files.find(folder);
        if let (Ok(None) | Err(_), Some(path)) = (&found, outermost_link(files, folder)) {
            return Err(BundleError::ReferenceIsLink { path });
        }
        match found.map_err(unreadable)?.map(|found| found.kind) {
            Some(FoundKind::Directory) => (),
            Some(FoundKind::Symlink) => return Err(BundleError::ReferenceIsLink { path }),
            Some(other) => {
                let found = other.name();
                return Err(BundleError::ReferenceNotFolder { path, found });
            }
            None => {
                let suggestion = suggest_path(files, &path);
                return Err(BundleError::Missing { path, suggestion });
            }
        }
    }
    let all = manifests_in(files, folder, &MANIFEST_NAMES).map_err(unreadable)?;
    match all.first() {
        Some(manifest) => Ok((manifest.clone(), ignored_warnings(manifest, &all))),
        None => Err(BundleError::NoManifest {
            path: shown(),
            names: MANIFEST_NAMES.join(", "),
        }),
    }
}

/// The folder that the manifest describes: for the resolved one, that of the unpacked bundle.
fn folder_of(manifest: &RelPath) -> Option<RelPath> {
    let folder = manifest.parent()?;
    let is_resolved =
        Path::new(OsStr::from_bytes(manifest.as_bytes())).ends_with(RESOLVED_MANIFEST);
    if is_resolved {
        folder.parent()
    } else {
        Some(folder)
    }
}

pub(crate) fn folder_name(manifest: &RelPath) -> String {
    match manifest.parent() {
        Some(folder) => folder.to_string(),
        None => ".".to_owned(),
    }
}

fn kind_of(source: &CodeSource) -> SourceKind {
    match source {
        CodeSource::Inline { .. } => SourceKind::Inline,
        CodeSource::Local { .. } => SourceKind::Local,
        CodeSource::GitHub { .. } => SourceKind::GitHub,
        CodeSource::Reference { .. } => SourceKind::Reference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_through_a_link_names_the_link() {
        let workspace = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(workspace.path().join("real/deep/er")).expect("made");
        std::os::unix::fs::symlink("real", workspace.path().join("link")).expect("linked");
        let files = DirectoryFiles::open_root(workspace.path()).expect("opened");
        for folder in ["link", "link/deep", "link/deep/er"] {
            let folder = RelPath::parse(folder.as_bytes()).expect("a path");
            let error = referenced_manifest(&files, Some(&folder)).expect_err("not followed");
            let text = error.to_string();
            assert!(text.starts_with("`link` is a symlink"), "{folder}: {text}");
        }
    }
}
