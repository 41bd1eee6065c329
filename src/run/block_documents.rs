//! The documents that blocks of a manifest lie in: files of the caller's workspace for the caller's
//! own manifest, files of the bundle for one that travels in it, and what slugs of the host's
//! registry stand for.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::run::loaded_manifest::{BundleFiles, MANIFEST_BYTES_MAX};
use archive::Entry;
use bundler::files::DirectoryFiles;
use bundler::manifests::{self, INVENTORY, Registry, read_blocks, read_inventory, read_text};
use spec::document::Node;
use spec::inventory::Inventory;
use spec::manifest::{
    BlockDocuments, BlockReference, block_references, block_references_of_sandbox,
};
use spec::path::RelPath;

/// What the references of the caller's manifest came to.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// The documents, for the manifest's reader.
    pub(super) blocks: BlockDocuments,
    /// The inventories of secrets that it names in `sandbox.env.auth` and that are not there: they
    /// list nothing. In a bundle the one that is looked for as well.
    pub(super) inventories: Vec<Inventory>,
}

/// Reads what `root`, the manifest at `path`, refers to. Paths are relative to the manifest's
/// folder and stay in `workspace`, and no link is followed there.
pub(super) fn of_caller(
    root: &Node,
    path: &Path,
    workspace: Option<&Path>,
    registry: &Registry,
) -> Named {
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
        return named;
    };
    named.blocks = read_blocks(&read, &holder, root, registry);
    named.forget_auth(root);
    named
}

/// Reads what `root`, the manifest at `holder` of the bundle, refers to: nothing but files of the
/// bundle, and what the host's registry has.
pub(super) fn of_bundle(
    root: &Node,
    holder: &RelPath,
    bundle: &dyn BundleFiles,
    registry: &Registry,
) -> Named {
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
    let mut named = Named {
        blocks: read_blocks(&read, holder, root, registry),
        inventories: Vec::new(),
    };
    named.forget_auth(root);
    let known = |path: &RelPath| bundle.tree().get(path).map(|_there| read(path));
    named.inventories.extend(read_inventory(known));
    named
}

/// The inventory of the workspace at `path`, read without following a link.
pub(super) fn inventory_of_workspace(path: &Path) -> Option<Inventory> {
    match DirectoryFiles::open_root(path) {
        Ok(files) => manifests::inventory_of_workspace(&files),
        Err(error) => Some(Inventory::unreadable(INVENTORY, &error.to_string())),
    }
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

impl Named {
    /// The names of `env.auth` say enough for whoever gives the values himself: an inventory that
    /// is not there is no error, and lists nothing.
    fn forget_auth(&mut self, root: &Node) {
        for reference in inventories(root, &self.blocks) {
            let Some(why) = self.blocks.forget_missing(&reference) else {
                continue;
            };
            if reference.block == "secrets" {
                self.blocks.insert_missing(reference, why);
            } else {
                let inventory = Inventory::unreadable(&reference.text, &why);
                self.inventories.push(inventory);
            }
        }
    }
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
