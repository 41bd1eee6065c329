//! Reads manifests and their block documents from the workspace.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::BundleError;
use crate::files::{DirectoryFiles, FoundKind};
use crate::walk::{join, parse};
use spec::document::{DocumentError, Node, TEXT_BYTES_MAX, Value};
use spec::inventory::{self, Inventory};
use spec::manifest::{
    BlockDocument, BlockDocuments, BlockReference, Format, Manifest, ManifestError,
    ReferenceTarget, block_references, block_references_of_sandbox, parse_with,
};
use spec::path::{RelPath, escape_path};
use spec::report::WarningReport;
use sys::file::{self, CallError, read_regular};

/// File names of manifests, in search order.
pub(crate) const MANIFEST_NAMES: [&str; 6] = [
    "manifest.yaml",
    "manifest.yml",
    "manifest.json",
    "CODE.md",
    "TOOL.md",
    "WORKFLOW.md",
];

/// Path of the manifest that `bundle` adds, with everything that it inherits. In an unpacked bundle it
/// precedes the others.
pub const RESOLVED_MANIFEST: &str = ".runner/manifest.json";

/// Paths of a bundle's manifest, in order of precedence.
pub const BUNDLE_MANIFEST_NAMES: [&str; 7] = {
    let [a, b, c, d, e, f] = MANIFEST_NAMES;
    [RESOLVED_MANIFEST, a, b, c, d, e, f]
};

/// Path of a workspace's inventory of secrets (AIP-19).
pub const INVENTORY: &str = ".secrets/SECRETS.md";

/// Files for registry slugs, absolute: `refs` of the host policy.
pub type Registry = BTreeMap<String, PathBuf>;

/// A parsed manifest.
#[derive(Debug)]
pub struct ManifestFile {
    pub path: RelPath,
    pub root: Node,
    pub manifest: Manifest,
    pub blocks: BlockDocuments,
}

impl ManifestFile {
    /// Whether other manifests may refer to it. The rich form has a kind, the lean form a schema.
    pub(crate) fn is_code_workspace(&self) -> bool {
        let is_lean = self
            .root
            .get("schema")
            .is_some_and(|schema| schema.value == Value::Text("code/v2".to_owned()));
        is_lean || self.manifest.kind == spec::manifest::Kind::CodeWorkspace
    }
}

/// Returns the manifests of these names in `folder` (`None`: the root), in this order. All but the first
/// are ignored.
pub(crate) fn manifests_in(
    files: &DirectoryFiles,
    folder: Option<&RelPath>,
    names: &[&str],
) -> Result<Vec<RelPath>, CallError> {
    let mut found = Vec::new();
    for name in names {
        // Fails only if the joined path is too long; then no such file exists.
        let Ok(path) = parse(name.as_bytes()).and_then(|name| join(folder, &name)) else {
            continue;
        };
        let entry = files.find(&path)?;
        if entry.is_some_and(|entry| matches!(entry.kind, FoundKind::File { .. })) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Warns about other manifests in the folder of `manifest`.
pub(crate) fn ignored_warnings(manifest: &RelPath, all: &[RelPath]) -> Vec<WarningReport> {
    let others = all.iter().filter(|other| *other != manifest);
    others
        .map(|other| {
            let message = format!("{other} is ignored: {manifest} comes first");
            WarningReport::new("manifest_ignored", message)
        })
        .collect()
}

#[derive(Debug)]
pub(crate) struct ManifestDocuments {
    pub root: Node,
    pub blocks: BlockDocuments,
}

/// Reads the documents that [`read_manifest`] validates. Fails for an unreadable manifest and for a
/// syntax error.
pub(crate) fn read_documents(
    files: &DirectoryFiles,
    path: &RelPath,
    registry: &Registry,
) -> Result<ManifestDocuments, BundleError> {
    let name = path.to_string();
    let text = read_text(files, path).map_err(BundleError::ManifestUnreadable)?;
    let root = parse_named(&text, path.as_bytes())
        .map_err(|error| BundleError::Manifest(vec![ManifestError::of_document(&name, error)]))?;
    let blocks = blocks_of(files, path, &root, registry);
    Ok(ManifestDocuments { root, blocks })
}

/// Reads the workspace documents that the blocks of `root` at `path` refer to.
pub(crate) fn blocks_of(
    files: &DirectoryFiles,
    path: &RelPath,
    root: &Node,
    registry: &Registry,
) -> BlockDocuments {
    read_blocks(&|file| parse_text(files, file), path, root, registry)
}

/// Reads and validates the manifest at `path` with its block documents. The error has all problems.
pub(crate) fn read_manifest(
    files: &DirectoryFiles,
    path: &RelPath,
    registry: &Registry,
) -> Result<ManifestFile, BundleError> {
    let ManifestDocuments { root, blocks } = read_documents(files, path, registry)?;
    let parsed = parse_with(&root, &path.to_string(), &blocks);
    match parsed.manifest {
        Some(manifest) => Ok(ManifestFile {
            path: path.clone(),
            root,
            manifest,
            blocks,
        }),
        None => Err(BundleError::Manifest(parsed.errors)),
    }
}

/// Returns the format for a file name.
#[must_use]
pub fn format_of(name: &[u8]) -> Format {
    match name.rsplit(|byte| *byte == b'.').next() {
        Some(b"json") => Format::Json,
        Some(b"md") => Format::FrontMatter,
        _ => Format::Yaml,
    }
}

/// A document that was read, and parsed if it is one.
pub type ParsedDocument = Result<Node, DocumentError>;

/// Parses `text` in a process without rights, in the format for the file name.
///
/// # Errors
/// [`DocumentError`].
pub fn parse_named(text: &[u8], name: &[u8]) -> ParsedDocument {
    reader::parse_document(text, format_of(name))
}

/// Reads and parses a document of the workspace. The error completes "which …".
///
/// # Errors
/// [`Unread`], as a clause.
pub fn parse_text(files: &DirectoryFiles, path: &RelPath) -> Result<ParsedDocument, String> {
    let text = read_text(files, path).map_err(|unread| unread.tried())?;
    Ok(parse_named(&text, path.as_bytes()))
}

/// Reads the inventory at [`INVENTORY`] with `read`. An invalid one gives an empty list.
pub fn read_inventory(
    read: impl FnOnce(&RelPath) -> Option<Result<ParsedDocument, String>>,
) -> Option<Inventory> {
    let path = RelPath::parse(INVENTORY.as_bytes()).ok()?;
    let read = read(&path)?;
    let parsed = read.and_then(|parsed| {
        let root = parsed.map_err(|error| ManifestError::of_document(INVENTORY, error));
        let inventory = root.and_then(|root| inventory::of_document(&root, INVENTORY));
        inventory.map_err(|error| error.to_string())
    });
    Some(parsed.unwrap_or_else(|why| Inventory::unreadable(INVENTORY, &why)))
}

/// Parses an inventory, in the format for the file name. `shown` is its name in errors.
///
/// # Errors
/// [`ManifestError`]: the first error and its place. Values are never repeated.
pub fn parse_inventory(text: &[u8], name: &[u8], shown: &str) -> Result<Inventory, ManifestError> {
    let root = parse_named(text, name).map_err(|error| ManifestError::of_document(shown, error))?;
    inventory::of_document(&root, shown)
}

/// Reads the inventory of the workspace.
pub fn inventory_of_workspace(files: &DirectoryFiles) -> Option<Inventory> {
    read_inventory(|path| match files.find(path) {
        Ok(None) => None,
        _ => Some(parse_text(files, path)),
    })
}

/// Reads and parses a document in the folder of a manifest. The error completes "which …".
pub type ReadDocument<'call> = dyn Fn(&RelPath) -> Result<ParsedDocument, String> + 'call;

/// Reads the block documents of `root`, the manifest at `path`. A document that cannot be read is
/// recorded and becomes an error of the manifest if the block is needed.
pub fn read_blocks(
    read: &ReadDocument<'_>,
    path: &RelPath,
    root: &Node,
    registry: &Registry,
) -> BlockDocuments {
    let mut blocks = BlockDocuments::default();
    for reference in block_references(root) {
        let is_sandbox = reference.block == "sandbox";
        let document = read_block(read, Some(path), reference.clone(), registry, &mut blocks);
        let inventory = blocks
            .get(&reference)
            .filter(|_| is_sandbox)
            .and_then(|document| block_references_of_sandbox(&document.root));
        if let Some(inventory) = inventory {
            read_block(read, document.as_ref(), inventory, registry, &mut blocks);
        }
    }
    blocks
}

/// Reads the document that `reference` in `document` names. Both paths, the argument and the result, are
/// `None` for a document of the host.
fn read_block(
    read: &ReadDocument<'_>,
    document: Option<&RelPath>,
    reference: BlockReference,
    registry: &Registry,
    blocks: &mut BlockDocuments,
) -> Option<RelPath> {
    let (target, no_slug) = match document {
        Some(document) => (
            reference.target(document),
            "is not among `refs` of the host's configuration",
        ),
        None => (
            Ok(ReferenceTarget::Slug(reference.text.clone())),
            "is in a document of the host's registry, whose folder is not searched",
        ),
    };
    match target {
        Err(why) => blocks.insert_missing(reference, why),
        Ok(ReferenceTarget::Slug(slug)) => match registry.get(&slug) {
            Some(file) => add_host_file(reference, file, blocks),
            None => blocks.insert_missing(reference, no_slug.to_owned()),
        },
        Ok(ReferenceTarget::File(path)) => {
            match read(&path) {
                Ok(parsed) => add(reference, path.to_string(), parsed, blocks),
                Err(tried) => blocks.insert_missing(reference, tried),
            }
            return Some(path);
        }
    }
    None
}

fn add_host_file(reference: BlockReference, file: &Path, blocks: &mut BlockDocuments) {
    let shown = escape_path(file);
    match read_host_file(file) {
        Ok(text) => {
            let parsed = parse_named(&text, file.as_os_str().as_bytes());
            add(reference, shown, parsed, blocks);
        }
        Err(unread) => blocks.insert_missing(reference, unread.tried()),
    }
}

fn add(
    reference: BlockReference,
    shown: String,
    parsed: ParsedDocument,
    blocks: &mut BlockDocuments,
) {
    match parsed {
        Ok(root) => blocks.insert(reference, BlockDocument { file: shown, root }),
        Err(error) => blocks.insert_invalid(reference, ManifestError::of_document(&shown, error)),
    }
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{file}` {problem}")]
pub struct Unread {
    pub file: String,
    pub problem: &'static str,
    #[source]
    pub source: Option<CallError>,
}

impl Unread {
    pub(crate) fn new(file: &str, problem: &'static str, source: Option<CallError>) -> Self {
        Self {
            file: file.to_owned(),
            problem,
            source,
        }
    }

    fn from_call(file: &str, call: &'static str, errno: Errno) -> Self {
        Self::new(
            file,
            "cannot be read",
            Some(CallError::new(call, file, errno)),
        )
    }

    pub(crate) fn is_denied(&self) -> bool {
        let errno = self.source.as_ref().map(|error| error.errno);
        matches!(errno, Some(Errno::ACCESS | Errno::PERM))
    }

    /// Formats the error as a clause, for a reference to this file.
    #[must_use]
    pub fn tried(&self) -> String {
        let Self {
            file,
            problem,
            source,
        } = self;
        let cause = source
            .as_ref()
            .map_or_else(String::new, |error| format!(": {error}"));
        format!("is `{file}`, which {problem}{cause}")
    }
}

const NO_FILE: &str = "is not a regular file";

/// Reads a document of the workspace, at most 1 MiB, without following links.
///
/// # Errors
/// [`Unread`].
pub(crate) fn read_text(files: &DirectoryFiles, path: &RelPath) -> Result<Vec<u8>, Unread> {
    let shown = path.to_string();
    let refused = |problem| Err(Unread::new(&shown, problem, None));
    let failed = |error| Unread::new(&shown, "cannot be read", Some(error));
    match files.find(path).map_err(failed)?.map(|found| found.kind) {
        None => return refused("is not there"),
        Some(FoundKind::File { .. }) => (),
        Some(FoundKind::Symlink) => return refused("is a symlink, which is not followed"),
        Some(_) => return refused(NO_FILE),
    }
    let file = files.open(path).map_err(failed)?;
    read_open(file, &shown)
}

/// Reads a document of the workspace by its name in errors.
#[must_use]
pub fn text_of(files: &DirectoryFiles, shown: &str) -> Option<Vec<u8>> {
    read_text(files, &RelPath::parse(shown.as_bytes()).ok()?).ok()
}

/// Reads a host file that the host policy or the user names, at most 1 MiB.
pub(crate) fn read_host_file(path: &Path) -> Result<Vec<u8>, Unread> {
    let shown = escape_path(path);
    // O_NONBLOCK: opening a FIFO would block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| Unread::from_call(&shown, "open", errno))?;
    read_open(file, &shown)
}

fn read_open(file: OwnedFd, shown: &str) -> Result<Vec<u8>, Unread> {
    read_regular(file, TEXT_BYTES_MAX).map_err(|unread| match unread {
        file::Unread::Stat(errno) => Unread::from_call(shown, "fstat", errno),
        file::Unread::Read(errno) => Unread::from_call(shown, "read", errno),
        file::Unread::NotRegular => Unread::new(shown, NO_FILE, None),
        file::Unread::TooLarge => Unread::new(shown, "is larger than 1 MiB", None),
    })
}
