//! The inventory of secrets that the caller's own manifest names: a file of the workspace.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::kernel::file::open_beneath;
use crate::run::error::RunError;
use crate::run::subject::{MANIFEST_BYTES_MAX, format_of};
use crate::spec::document::{self, Node};
use crate::spec::inventory::{self, Inventory};
use crate::spec::manifest::{
    BlockDocument, BlockDocuments, BlockReference, ManifestError, ReferenceTarget, block_references,
};
use crate::spec::path::{RelPath, escape};

/// What the manifest's references to inventories came to.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// The documents, for the manifest's reader.
    pub(super) blocks: BlockDocuments,
    /// The first of them. Where it is not there it has no entries: it lets nobody have anything.
    pub(super) inventory: Option<Inventory>,
}

/// Reads the inventories that `root`, the manifest at `path`, names in `secrets` and in
/// `sandbox.env.auth`. Paths are relative to the manifest's folder and stay in `workspace`, and no
/// link is followed there.
///
/// # Errors
/// [`RunError::Manifest`] for a file that is no inventory.
pub(super) fn read(root: &Node, path: &Path, workspace: &Path) -> Result<Named, RunError> {
    let mut named = Named::default();
    let references = block_references(root)
        .into_iter()
        .filter(|reference| matches!(reference.block, "secrets" | "env.auth"));
    for reference in references {
        match look_up(&reference, path, workspace) {
            Ok((file, text)) => {
                let format = format_of(Path::new(std::ffi::OsStr::from_bytes(file.as_bytes())));
                let name = file.to_string();
                let inventory = inventory::parse(&text, format, &name)?;
                let root = document::parse(&text, format)
                    .map_err(|error| ManifestError::of_document(&name, error))?;
                named
                    .blocks
                    .insert(reference, BlockDocument { file: name, root });
                named.inventory.get_or_insert(inventory);
            }
            Err(why) => {
                named.inventory.get_or_insert(Inventory {
                    file: format!("{} ({why})", escape(reference.text.as_bytes())),
                    ..Inventory::default()
                });
                // The names of `env.auth` say enough for whoever gives the values himself.
                if reference.block == "secrets" {
                    named.blocks.insert_missing(reference, why);
                }
            }
        }
    }
    Ok(named)
}

/// The file and its text; else why not: completes "which …".
fn look_up(
    reference: &BlockReference,
    manifest: &Path,
    workspace: &Path,
) -> Result<(RelPath, Vec<u8>), String> {
    let outside = || "is looked for in the workspace, where the manifest does not lie".to_owned();
    let real = |path: &Path| path.canonicalize().map_err(|_unreachable| outside());
    let (manifest, workspace) = (real(manifest)?, real(workspace)?);
    let holder = manifest
        .strip_prefix(&workspace)
        .map_err(|_elsewhere| outside())?;
    let holder =
        RelPath::parse(holder.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    let ReferenceTarget::File(file) = reference.target(&holder)? else {
        return Err("is no file of the workspace".to_owned());
    };
    let text = read_beneath(&workspace, &file)?;
    Ok((file, text))
}

fn read_beneath(workspace: &Path, file: &RelPath) -> Result<Vec<u8>, String> {
    let unread = |errno: Errno| match errno {
        Errno::NOENT | Errno::NOTDIR => "is not there".to_owned(),
        Errno::LOOP | Errno::XDEV => "is a link, which is not followed".to_owned(),
        errno => format!("cannot be read: {errno}"),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(workspace, flags, Mode::empty()).map_err(unread)?;
    // O_NONBLOCK: a FIFO would otherwise be waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened =
        open_beneath(root.as_fd(), file.as_bytes(), flags, Mode::empty()).map_err(unread)?;
    let found = rustix::fs::fstat(&opened).map_err(unread)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err("is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    std::fs::File::from(opened)
        .take(MANIFEST_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if MANIFEST_BYTES_MAX < u64::try_from(text.len()).unwrap_or(u64::MAX) {
        return Err("is larger than 1 MiB".to_owned());
    }
    Ok(text)
}
