//! The documents that blocks of a manifest lie in: files of the caller's workspace for the caller's
//! own manifest, files of the bundle for one that travels in it, and what slugs of the host's
//! registry stand for.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::bundle::Entry;
use crate::compose::files::DirectoryFiles;
use crate::compose::manifests::{Registry, read_blocks, read_text};
use crate::run::error::RunError;
use crate::run::subject::{BundleFiles, MANIFEST_BYTES_MAX};
use crate::spec::document::Node;
use crate::spec::inventory::{self, Inventory};
use crate::spec::manifest::{
    BlockDocuments, BlockReference, block_references, block_references_of_sandbox,
};
use crate::spec::path::{RelPath, escape};

/// What the references of the caller's manifest came to.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// The documents, for the manifest's reader.
    pub(super) blocks: BlockDocuments,
    /// The first inventory of secrets that it names, in `secrets` or in `sandbox.env.auth`. Where
    /// that is not there it has no entries: it lets nobody have anything.
    pub(super) inventory: Option<Inventory>,
}

/// Reads what `root`, the manifest at `path`, refers to. Paths are relative to the manifest's
/// folder and stay in `workspace`, and no link is followed there.
///
/// # Errors
/// [`RunError::Manifest`] for a file that is no inventory.
pub(super) fn of_caller(
    root: &Node,
    path: &Path,
    workspace: Option<&Path>,
    registry: &Registry,
) -> Result<Named, RunError> {
    let place = place_of(path, workspace);
    let read = |file: &RelPath| match &place {
        Ok((_, files)) => read_text(files, file).map_err(|unread| unread.tried()),
        Err(why) => Err(why.clone()),
    };
    let holder = match &place {
        Ok((holder, _)) => Some(holder.clone()),
        Err(_) => RelPath::parse(
            path.file_name()
                .map_or(&b"manifest"[..], |name| name.as_bytes()),
        )
        .ok(),
    };
    let mut named = Named::default();
    let Some(holder) = holder else {
        return Ok(named);
    };
    named.blocks = read_blocks(&read, &holder, root, registry);
    for reference in inventories(root, &named.blocks) {
        let known = named.blocks.get(&reference);
        let inventory = match known {
            Some(document) => inventory::of_document(&document.root, &document.file)?,
            None => match forget_auth(&mut named.blocks, &reference) {
                Some(why) => Inventory {
                    file: format!("{} ({why})", escape(reference.text.as_bytes())),
                    ..Inventory::default()
                },
                // What is no document is refused with its manifest.
                None => continue,
            },
        };
        named.inventory.get_or_insert(inventory);
    }
    Ok(named)
}

/// Reads what `root`, the manifest at `holder` of the bundle, refers to: nothing but files of the
/// bundle, and what the host's registry has.
pub(super) fn of_bundle(
    root: &Node,
    holder: &RelPath,
    bundle: &dyn BundleFiles,
    registry: &Registry,
) -> BlockDocuments {
    let read = |file: &RelPath| {
        let why = match bundle.tree().get(file) {
            Some(Entry::File { .. }) => match bundle.head(file, MANIFEST_BYTES_MAX + 1) {
                Ok(text) if text.len() as u64 <= MANIFEST_BYTES_MAX => return Ok(text),
                Ok(_) => "is larger than 1 MiB".to_owned(),
                Err(problem) => problem,
            },
            Some(Entry::Symlink { .. }) => "is a symlink, which is not followed".to_owned(),
            Some(Entry::Directory) => "is not a regular file".to_owned(),
            None => "is not there".to_owned(),
        };
        Err(format!("is `{file}` of the bundle, which {why}"))
    };
    let mut blocks = read_blocks(&read, holder, root, registry);
    for reference in inventories(root, &blocks) {
        forget_auth(&mut blocks, &reference);
    }
    blocks
}

/// The inventories that are named, that of a sandbox in another document too.
fn inventories(root: &Node, blocks: &BlockDocuments) -> Vec<BlockReference> {
    block_references(root)
        .into_iter()
        .filter_map(|reference| match reference.block {
            "secrets" | "env.auth" => Some(reference),
            "sandbox" => block_references_of_sandbox(&blocks.get(&reference)?.root),
            _ => None,
        })
        .collect()
}

/// Why `reference` leads nowhere, where it does not. The names of `env.auth` say enough for whoever
/// gives the values himself: there it is no error.
fn forget_auth(blocks: &mut BlockDocuments, reference: &BlockReference) -> Option<String> {
    let why = blocks.forget_missing(reference)?;
    if reference.block == "secrets" {
        blocks.insert_missing(reference.clone(), why.clone());
    }
    Some(why)
}

/// Where the manifest lies in the workspace, and the files there; else why nothing can be read
/// beside it: completes "which …".
fn place_of(
    manifest: &Path,
    workspace: Option<&Path>,
) -> Result<(RelPath, DirectoryFiles), String> {
    let outside = || "is looked for in the workspace, where the manifest does not lie".to_owned();
    let real = |path: &Path| path.canonicalize().map_err(|_unreachable| outside());
    let workspace = real(workspace.ok_or_else(outside)?)?;
    let manifest = real(manifest)?;
    let holder = manifest
        .strip_prefix(&workspace)
        .map_err(|_elsewhere| outside())?;
    let holder =
        RelPath::parse(holder.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    let files = DirectoryFiles::open_root(&workspace).map_err(|error| error.to_string())?;
    Ok((holder, files))
}
