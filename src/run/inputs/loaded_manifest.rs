//! Loads the manifest of the caller or of the bundle.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::plan::grants::Origin;
use crate::run::error::RunError;
use crate::run::inputs::block_documents::{self, ReferencedDocuments};
use crate::run::unpacking::bundle_files::{BundleFiles, ParsingFiles};
use archive::{Entry, Tree};
use bundler::BundleError;
use bundler::check::errors_of;
use bundler::manifests::{
    BUNDLE_MANIFEST_NAMES, INVENTORY, RESOLVED_MANIFEST, Registry, parse_named,
};
use reader::Documents;
use spec::check::add_source_lines;
use spec::document::{DocumentError, Node, TEXT_BYTES_MAX};
use spec::inventory::Inventory;
use spec::manifest::{self, BlockDocuments, Manifest, ManifestError, check_for_command};
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape, escape_path, quoted};
use spec::report::WarningReport;
use spec::request::{BundleOptions, Request, Subject};
use spec::run_form::Run;
use sys::file::{Unread, read_regular};

/// Paths that are read of a bundle without unpacking it: manifests, and the documents that the
/// specifications' examples place beside them.
#[must_use]
pub(in crate::run) fn document_names() -> Vec<&'static str> {
    let beside = [INVENTORY, "SECRETS.md", "RUNNER.md", "SANDBOX.md"];
    BUNDLE_MANIFEST_NAMES.into_iter().chain(beside).collect()
}

#[derive(Debug)]
pub(in crate::run) struct LoadedManifest {
    pub(in crate::run) manifest: Manifest,
    /// Its path for messages; empty without a manifest.
    pub(in crate::run) file: String,
    /// Its document; `None` without a manifest.
    pub(in crate::run) root: Option<Node>,
    /// Where it comes from, which decides how far it is trusted.
    pub(in crate::run) origin: Origin,
    /// Secret inventories that were not read with the manifest: missing ones that it names, and a
    /// bundle's default one.
    pub(in crate::run) inventories: Vec<Inventory>,
    pub(in crate::run) warnings: Vec<WarningReport>,
}

/// Reads the caller's manifest, if any, and the documents in `workspace` that it names, before anything
/// is unpacked.
pub(in crate::run) fn load_from_caller(
    request: &Request,
    workspace: Option<&Path>,
    refs: &Registry,
) -> Result<Option<LoadedManifest>, RunError> {
    let Some(path) = &request.bundle.manifest else {
        return Ok(None);
    };
    let shown = escape_path(path);
    let text = read_file(path, &shown, "manifest_unreadable", "manifest")?;
    let text_of = |file: &str| {
        if file == shown {
            Some(text.clone())
        } else {
            block_documents::text_in_workspace(path, workspace, file)
        }
    };
    let root = parse_named(&text, path.as_os_str().as_bytes())
        .map_err(|error| refuse_document(&shown, error, &text_of))?;
    let ReferencedDocuments {
        blocks,
        inventories,
    } = block_documents::read_from_workspace(&root, path, workspace, refs);
    let manifest = parse_manifest(&root, &shown, &blocks, &text_of)?;
    let unusable = match request.subject {
        Subject::Bundle(_) => Vec::new(),
        Subject::Command(_) | Subject::Sandbox => check_for_command(&root, &shown, &blocks),
    };
    if !unusable.is_empty() {
        return Err(refuse(BundleError::Manifest(unusable), &text_of));
    }
    Ok(Some(LoadedManifest {
        manifest,
        file: shown,
        root: Some(root),
        origin: Origin::Caller,
        inventories,
        warnings: Vec::new(),
    }))
}

/// Returns the text of a file by its name in errors.
type TextOf<'call> = dyn Fn(&str) -> Option<Vec<u8>> + 'call;

pub(in crate::run) fn parse_manifest(
    root: &Node,
    shown: &str,
    blocks: &BlockDocuments,
    text_of: &TextOf<'_>,
) -> Result<Manifest, RunError> {
    let parsed = manifest::parse_with(root, shown, blocks);
    match parsed.manifest {
        Some(manifest) => Ok(manifest),
        None => Err(refuse(BundleError::Manifest(parsed.errors), text_of)),
    }
}

/// The error of a run: the first of a manifest, with its line.
pub(in crate::run) fn refuse(error: BundleError, text_of: &TextOf<'_>) -> RunError {
    let mut reported = errors_of(&error);
    add_source_lines(&mut reported, text_of);
    let first = reported.into_iter().next();
    let source_line = first.and_then(|first| first.source_line).map(Box::new);
    match error {
        BundleError::Manifest(mut errors) if !errors.is_empty() => RunError::Manifest {
            error: errors.swap_remove(0),
            source_line,
        },
        error => RunError::Bundle {
            error: Box::new(error),
            source_line,
        },
    }
}

fn refuse_document(shown: &str, error: DocumentError, text_of: &TextOf<'_>) -> RunError {
    let error = ManifestError::of_document(shown, error);
    refuse(BundleError::Manifest(vec![error]), text_of)
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
        Unread::TooLarge => unreadable("is larger than 1 MiB".to_owned(), None),
    })
}

/// Parses the documents that [`load_from_bundle`] needs, in this process: for the one without rights
/// that reads the bundle. Those of the host's `refs` are not read.
pub(in crate::run) fn parse_documents(permit: &ParsePermit, bundle: &dyn BundleFiles) -> Documents {
    let parsing = ParsingFiles::new(permit, bundle);
    let path = manifests_in(bundle.tree()).next();
    if let Some(path) = path.and_then(|name| RelPath::parse(name.as_bytes()).ok())
        && let Ok(Ok(root)) = parsing.parse(&path)
    {
        block_documents::read_from_bundle(&root, &path, &parsing, &Registry::new());
    }
    parsing.into_documents()
}

/// Reads the bundle's own manifest, which is optional with `--run`. `directory`: the bundle is no
/// archive.
pub(in crate::run) fn load_from_bundle(
    bundle: &dyn BundleFiles,
    directory: Option<&Path>,
    has_run: bool,
    refs: &Registry,
) -> Result<LoadedManifest, RunError> {
    let tree = bundle.tree();
    let mut found = manifests_in(tree);
    let Some(name) = found.next() else {
        if has_run {
            let manifest = manifest::empty();
            return Ok(LoadedManifest {
                manifest,
                file: String::new(),
                root: None,
                origin: Origin::Bundle,
                inventories: Vec::new(),
                warnings: Vec::new(),
            });
        }
        return Err(no_manifest(tree, directory));
    };
    let warnings = found
        // `runner bundle` stores the resolved manifest beside the original.
        .filter(|_| name != RESOLVED_MANIFEST)
        .map(|other| {
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
    let parsed = bundle.parse(&path).map_err(unreadable)?;
    let text_of = |file: &str| bundle.document(&RelPath::parse(file.as_bytes()).ok()?).ok();
    let root = parsed.map_err(|error| refuse_document(name, error, &text_of))?;
    let ReferencedDocuments {
        blocks,
        inventories,
    } = block_documents::read_from_bundle(&root, &path, bundle, refs);
    let manifest = parse_manifest(&root, name, &blocks, &text_of)?;
    Ok(LoadedManifest {
        manifest,
        file: name.to_owned(),
        root: Some(root),
        origin: Origin::Bundle,
        inventories,
        warnings,
    })
}

/// Names of the manifests in `tree`. All but the first are ignored.
fn manifests_in(tree: &Tree) -> impl Iterator<Item = &'static str> {
    let is_file = |name: &&str| matches!(entry_at(tree, name), Some(Entry::File { .. }));
    BUNDLE_MANIFEST_NAMES.into_iter().filter(is_file)
}

fn entry_at<'tree>(tree: &'tree Tree, name: &str) -> Option<&'tree Entry> {
    tree.get(&RelPath::parse(name.as_bytes()).ok()?)
}

fn no_manifest(tree: &Tree, directory: Option<&Path>) -> RunError {
    let mut message = format!(
        "the bundle has no manifest ({})",
        BUNDLE_MANIFEST_NAMES.join(", ")
    );
    let nested = tree.iter().find_map(|(path, _)| {
        let (folder, rest) = path
            .as_bytes()
            .split_at(path.as_bytes().iter().position(|b| *b == b'/')?);
        let is_manifest = BUNDLE_MANIFEST_NAMES
            .iter()
            .any(|name| name.as_bytes() == &rest[1..]);
        is_manifest.then(|| escape(folder))
    });
    let hint = match nested {
        Some(folder) => {
            message.push_str("; there is one in its folder ");
            message.push_str(&folder);
            match directory {
                Some(directory) => {
                    let directory = escape_path(directory);
                    let path = format!("{}/{folder}", directory.trim_end_matches('/'));
                    format!("name the folder: runner exec {}", quoted(&path))
                }
                None => {
                    let folder = quoted(&folder);
                    format!("pack the folder's contents: tar -czf bundle.tar.gz -C {folder} .")
                }
            }
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
        Some(value) => {
            let permit = ParsePermit::for_trusted_text();
            Ok(Some(Run::from_option(&permit, value)?))
        }
        None => Ok(manifest.run.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_for_a_manifest_in_a_folder_quotes_the_folder() {
        let path = RelPath::parse(b"my tool/manifest.yaml").expect("a path");
        let tree = Tree::with_program(path);
        for (directory, expected) in [
            (
                None,
                "pack the folder's contents: tar -czf bundle.tar.gz -C 'my tool' .",
            ),
            (
                Some(Path::new("a/b/")),
                "name the folder: runner exec 'a/b/my tool'",
            ),
        ] {
            let hint = no_manifest(&tree, directory).report().hint;
            assert_eq!(hint.as_deref(), Some(expected));
        }
    }
}
