//! Loads the manifest of the caller or of the bundle.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::plan::grants::Origin;
use crate::run::error::RunError;
use crate::run::inputs::block_documents::{self, ReferencedDocuments};
use crate::run::unpacking::bundle_files::BundleFiles;
use archive::{Entry, Tree};
use bundler::manifests::{INVENTORY, Registry};
use spec::document::{self, Node, TEXT_BYTES_MAX};
use spec::inventory::Inventory;
use spec::manifest::{self, BlockDocuments, Format, Manifest, ManifestError};
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use spec::request::BundleOptions;
use spec::run_form::Run;
use sys::file::{Unread, read_regular};

/// Paths of a bundle's manifest in order of precedence.
const MANIFEST_NAMES: [(&str, Format); 7] = [
    (RESOLVED, Format::Json),
    ("manifest.yaml", Format::Yaml),
    ("manifest.yml", Format::Yaml),
    ("manifest.json", Format::Json),
    ("CODE.md", Format::FrontMatter),
    ("TOOL.md", Format::FrontMatter),
    ("WORKFLOW.md", Format::FrontMatter),
];
/// The manifest with everything it inherits.
const RESOLVED: &str = ".runner/manifest.json";
/// Maximum size; a larger manifest is refused before it is read completely.
pub(super) const MANIFEST_BYTES_MAX: u64 = TEXT_BYTES_MAX as u64;
const TOO_LARGE: &str = "is larger than 1 MiB";

#[must_use]
pub(in crate::run) fn manifest_names() -> [&'static str; MANIFEST_NAMES.len()] {
    MANIFEST_NAMES.map(|(name, _)| name)
}

/// Paths that are read of a bundle without unpacking it: manifests, and the documents that the
/// specifications' examples place beside them.
#[must_use]
pub(in crate::run) fn document_names() -> Vec<&'static str> {
    let beside = [INVENTORY, "SECRETS.md", "RUNNER.md", "SANDBOX.md"];
    manifest_names().into_iter().chain(beside).collect()
}

#[derive(Debug)]
pub(in crate::run) struct LoadedManifest {
    pub(in crate::run) manifest: Manifest,
    /// Its path for messages; empty without a manifest.
    pub(in crate::run) file: String,
    pub(in crate::run) text: (Vec<u8>, Format),
    /// Where it comes from, which decides how far it is trusted.
    pub(in crate::run) origin: Origin,
    /// Secret inventories that were not read with the manifest: missing ones that it names, and a
    /// bundle's default one.
    pub(in crate::run) inventories: Vec<Inventory>,
    pub(in crate::run) warnings: Vec<WarningReport>,
}

/// Reads the caller's manifest, if any, before anything is unpacked.
pub(in crate::run) fn load_from_caller(
    options: &BundleOptions,
    workspace: Option<&Path>,
    registry: &Registry,
) -> Result<Option<LoadedManifest>, RunError> {
    let Some(path) = &options.manifest else {
        return Ok(None);
    };
    load_file(path, workspace, registry).map(Some)
}

/// Reads the caller's manifest at `path` and the documents in `workspace` that it names.
fn load_file(
    path: &Path,
    workspace: Option<&Path>,
    registry: &Registry,
) -> Result<LoadedManifest, RunError> {
    let shown = escape(path.as_os_str().as_bytes());
    let text = read_file(path, &shown, "manifest_unreadable", "manifest")?;
    let format = format_of(path);
    let root = document::parse(&text, format)
        .map_err(|error| ManifestError::of_document(&shown, error))?;
    let ReferencedDocuments {
        blocks,
        inventories,
    } = block_documents::read_from_workspace(&root, path, workspace, registry);
    Ok(LoadedManifest {
        manifest: parse_manifest(&root, &shown, &blocks)?,
        file: shown,
        text: (text, format),
        origin: Origin::Caller,
        inventories,
        warnings: Vec::new(),
    })
}

fn parse_manifest(root: &Node, shown: &str, blocks: &BlockDocuments) -> Result<Manifest, RunError> {
    let parsed = manifest::parse_with(root, shown, blocks);
    match parsed.errors.into_iter().next() {
        Some(first) => Err(first.into()),
        None => Ok(parsed.manifest.unwrap_or_default()),
    }
}

/// Reads a file of the caller once, up to a maximum size.
pub(in crate::run) fn read_file(
    path: &Path,
    shown: &str,
    code: &'static str,
    what: &'static str,
) -> Result<Vec<u8>, RunError> {
    let unreadable = |problem: String, hint: Option<&str>| RunError::Argument {
        code,
        what,
        object: shown.to_owned(),
        problem,
        hint: hint.map(str::to_owned),
    };
    // O_NONBLOCK: opening a FIFO would block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| unreadable(format!("cannot be opened: {errno}"), None))?;
    read_regular(file, TEXT_BYTES_MAX).map_err(|unread| match unread {
        Unread::Stat(errno) => unreadable(format!("cannot be inspected: {errno}"), None),
        Unread::NotRegular => unreadable(
            "is not a regular file".to_owned(),
            Some("name a regular file"),
        ),
        Unread::Read(errno) => unreadable(format!("cannot be read: {errno}"), None),
        Unread::TooLarge => unreadable(TOO_LARGE.to_owned(), None),
    })
}

pub(in crate::run) fn format_of(path: &Path) -> Format {
    match path.extension().map(|extension| extension.as_bytes()) {
        Some(b"json") => Format::Json,
        Some(b"md") => Format::FrontMatter,
        _ => Format::Yaml,
    }
}

/// Reads the bundle's own manifest, which is optional with `--run`.
pub(in crate::run) fn load_from_bundle(
    bundle: &dyn BundleFiles,
    has_run: bool,
    registry: &Registry,
) -> Result<LoadedManifest, RunError> {
    let tree = bundle.tree();
    let mut found = MANIFEST_NAMES
        .iter()
        .filter(|(name, _)| matches!(entry_at(tree, name), Some(Entry::File { .. })));
    let Some((name, format)) = found.next() else {
        if has_run {
            let manifest = manifest::empty();
            return Ok(LoadedManifest {
                manifest,
                file: String::new(),
                text: (Vec::new(), Format::Yaml),
                origin: Origin::Bundle,
                inventories: Vec::new(),
                warnings: Vec::new(),
            });
        }
        return Err(no_manifest(tree));
    };
    let warnings = found
        // `runner bundle` stores the resolved manifest beside the original.
        .filter(|_| *name != RESOLVED)
        .map(|(other, _)| {
            let message = format!("{other} is ignored: {name} comes first");
            WarningReport::new("manifest_ignored", message)
        })
        .collect();
    let unreadable = |problem: String| RunError::Argument {
        code: "manifest_unreadable",
        what: "manifest",
        object: format!("{name} of the bundle"),
        problem,
        hint: None,
    };
    let path = RelPath::parse(name.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
    let text = bundle
        .head(&path, MANIFEST_BYTES_MAX + 1)
        .map_err(unreadable)?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(unreadable(TOO_LARGE.to_owned()));
    }
    let root =
        document::parse(&text, *format).map_err(|error| ManifestError::of_document(name, error))?;
    let ReferencedDocuments {
        blocks,
        inventories,
    } = block_documents::read_from_bundle(&root, &path, bundle, registry);
    let manifest = parse_manifest(&root, name, &blocks)?;
    Ok(LoadedManifest {
        manifest,
        file: (*name).to_owned(),
        text: (text, *format),
        origin: Origin::Bundle,
        inventories,
        warnings,
    })
}

fn entry_at<'tree>(tree: &'tree Tree, name: &str) -> Option<&'tree Entry> {
    tree.get(&RelPath::parse(name.as_bytes()).ok()?)
}

fn no_manifest(tree: &Tree) -> RunError {
    let names: Vec<&str> = MANIFEST_NAMES.iter().map(|(name, _)| *name).collect();
    let mut message = format!("the bundle has no manifest ({})", names.join(", "));
    let nested = tree.iter().find_map(|(path, _)| {
        let (folder, rest) = path
            .as_bytes()
            .split_at(path.as_bytes().iter().position(|b| *b == b'/')?);
        let is_manifest = names.iter().any(|name| name.as_bytes() == &rest[1..]);
        is_manifest.then(|| escape(folder))
    });
    let hint = match nested {
        Some(folder) => {
            message.push_str("; there is one in its folder ");
            message.push_str(&folder);
            format!("pack the folder's contents: tar -czf bundle.tar.gz -C {folder} .")
        }
        None => "add a manifest.yaml with a `run`, or pass --run or --manifest".to_owned(),
    };
    RunError::NoManifest { message, hint }
}

/// The run value: `--run` takes precedence over the manifest.
pub(in crate::run) fn run_value(
    options: &BundleOptions,
    manifest: &Manifest,
) -> Result<Option<Run>, RunError> {
    match &options.run {
        Some(value) => Ok(Some(Run::from_option(value)?)),
        None => Ok(manifest.run.clone()),
    }
}
