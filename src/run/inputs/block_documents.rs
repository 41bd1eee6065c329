//! Reads the documents that the blocks of a manifest refer to: files of the workspace for the
//! caller's own manifest, files of the bundle for its manifest, and `refs` of the host's configuration.

use std::fmt::Display;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::run::unpacking::bundle_files::BundleFiles;
use archive::Entry;
use bundler::files::DirectoryFiles;
use bundler::manifests::{self, INVENTORY, Registry, parse_text, read_blocks, read_inventory};
use spec::document::Node;
use spec::inventory::Inventory;
use spec::manifest::{
    BlockDocuments, BlockReference, block_references, block_references_of_sandbox,
};
use spec::path::{RelPath, escape_path};

#[derive(Debug, Default)]
pub(super) struct ReferencedDocuments {
    pub(super) blocks: BlockDocuments,
    /// Secret inventories that `sandbox.env.auth` names and that do not exist; they count as empty.
    /// For a bundle also its default inventory.
    pub(in crate::run) inventories: Vec<Inventory>,
}

/// Reads the documents that `root`, the manifest at `path`, refers to. Paths are relative to the
/// manifest's directory, stay in `workspace`, and no link is followed.
pub(super) fn read_from_workspace(
    root: &Node,
    path: &Path,
    workspace: Option<&Path>,
    refs: &Registry,
) -> ReferencedDocuments {
    let located = locate_manifest(path, workspace);
    let read = |file: &RelPath| match &located {
        Ok((_, files)) => parse_text(files, file),
        Err(why) => Err(why.clone()),
    };
    let manifest_path = match &located {
        Ok((manifest_path, _)) => Some(manifest_path.clone()),
        Err(_) => RelPath::parse(
            path.file_name()
                .map_or(&b"manifest"[..], |name| name.as_bytes()),
        )
        .ok(),
    };
    let mut documents = ReferencedDocuments::default();
    let Some(manifest_path) = manifest_path else {
        return documents;
    };
    documents.blocks = read_blocks(&read, &manifest_path, root, refs);
    documents.remove_missing_inventories(root);
    documents
}

/// Reads the documents that `root`, the manifest at `manifest_path` of the bundle, refers to: only
/// files of the bundle and `refs` of the host's configuration.
pub(super) fn read_from_bundle(
    root: &Node,
    manifest_path: &RelPath,
    bundle: &dyn BundleFiles,
    refs: &Registry,
) -> ReferencedDocuments {
    let read = |file: &RelPath| {
        let why = match bundle.tree().get(file) {
            Some(Entry::File { .. }) => match bundle.parse(file) {
                Ok(parsed) => return Ok(parsed),
                Err(problem) => problem,
            },
            Some(Entry::Symlink { .. }) => "is a symlink, which is not followed".to_owned(),
            Some(Entry::Directory) => "is not a regular file".to_owned(),
            None => "is not there".to_owned(),
        };
        Err(format!("is `{file}` of the bundle, which {why}"))
    };
    let mut documents = ReferencedDocuments {
        blocks: read_blocks(&read, manifest_path, root, refs),
        inventories: Vec::new(),
    };
    documents.remove_missing_inventories(root);
    let inventory = read_inventory(|path| bundle.tree().get(path).map(|_exists| read(path)));
    documents.inventories.extend(inventory);
    documents
}

/// Reads a document of the workspace by its name in errors of the manifest at `path`.
pub(super) fn text_in_workspace(
    path: &Path,
    workspace: Option<&Path>,
    shown: &str,
) -> Option<Vec<u8>> {
    let (_, files) = locate_manifest(path, workspace).ok()?;
    manifests::text_of(&files, shown)
}

/// Reads the workspace's inventory at `path` without following links.
pub(in crate::run) fn inventory_of_workspace(path: &Path) -> Option<Inventory> {
    match DirectoryFiles::open_root(path) {
        Ok(files) => manifests::inventory_of_workspace(&files),
        Err(error) => Some(Inventory::unreadable(INVENTORY, &error.to_string())),
    }
}

/// The references of `env.auth`, including those of a sandbox in another document.
fn auth_references(root: &Node, blocks: &BlockDocuments) -> Vec<BlockReference> {
    block_references(root)
        .into_iter()
        .filter_map(|reference| match reference.block {
            "env.auth" => Some(reference),
            "sandbox" => block_references_of_sandbox(&blocks.get(&reference)?.root),
            _ => None,
        })
        .collect()
}

impl ReferencedDocuments {
    /// A missing inventory of `env.auth` counts as empty instead of failing: its names suffice if the
    /// caller gives the values.
    fn remove_missing_inventories(&mut self, root: &Node) {
        for reference in auth_references(root, &self.blocks) {
            if let Some(why) = self.blocks.forget_missing(&reference) {
                let inventory = Inventory::unreadable(&reference.text, &why);
                self.inventories.push(inventory);
            }
        }
    }
}

/// The manifest's path in the workspace, and the workspace's files.
///
/// # Errors
/// Why no document beside it can be read; completes "which …".
fn locate_manifest(
    manifest: &Path,
    workspace: Option<&Path>,
) -> Result<(RelPath, DirectoryFiles), String> {
    let failed = |problem: &dyn Display| format!("cannot be looked up: {problem}");
    let real = |path: &Path| {
        let shown = escape_path(path);
        path.canonicalize()
            .map_err(|error| failed(&format_args!("{shown}: {error}")))
    };
    let workspace = workspace.ok_or("is looked up in the workspace, which is not known")?;
    let workspace = real(workspace)?;
    let manifest = real(manifest)?;
    let manifest_path = manifest.strip_prefix(&workspace).map_err(|_elsewhere| {
        "is looked up in the workspace, which does not contain the manifest".to_owned()
    })?;
    let manifest_path =
        RelPath::parse(manifest_path.as_os_str().as_bytes()).map_err(|error| failed(&error))?;
    let files = DirectoryFiles::open_root(&workspace).map_err(|error| failed(&error))?;
    Ok((manifest_path, files))
}
