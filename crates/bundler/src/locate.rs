//! Locates the manifest and its workspace, from a file, a folder or a name in a convention folder.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::ComposeError;
use crate::files::{DirectoryFiles, WorkspaceFiles};
use crate::manifests::{MANIFEST_NAMES, find_manifest};
use crate::resolve::ignored;
use spec::did_you_mean::nearest;
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use sys::file::CallError;

/// Folders of code-workspaces, in search order (AIP-26, "Convention: workspace folder layout").
const CONVENTIONS: [(&str, &str); 5] = [
    (".code-workspaces", "manifest.yaml"),
    (".code-workspaces", "manifest.yml"),
    (".code", "manifest.yaml"),
    (".code", "manifest.yml"),
    (".code", "CODE.md"),
];
const NAMES_MAX: usize = 20;

/// A manifest and its workspace.
#[derive(Debug)]
pub struct Located {
    /// Absolute, without links.
    pub workspace: PathBuf,
    pub files: DirectoryFiles,
    /// Relative to the workspace.
    pub manifest: RelPath,
    pub warnings: Vec<WarningReport>,
}

/// Finds the manifest for `subject`: a manifest, a folder with one, or a code-workspace in a
/// convention folder. The workspace is the given one, else `working_directory` if the manifest is
/// beneath it, else the manifest's folder.
///
/// # Errors
/// [`ComposeError::ManifestMissing`], [`ComposeError::ManifestOutside`],
/// [`ComposeError::WorkspaceNotFound`], [`ComposeError::Workspace`].
pub fn locate(
    subject: &Path,
    workspace: Option<&Path>,
    working_directory: Option<&Path>,
) -> Result<Located, ComposeError> {
    let given = workspace.map(canonical).transpose()?;
    if let Some(name) = plain_name(subject)
        && let Some(around) = given.as_deref().or(working_directory)
        // With a given workspace a name takes precedence, otherwise a path does.
        && (workspace.is_some() || !subject.exists())
    {
        let files = open(around)?;
        if let Some(manifest) = by_convention(&files, &name)? {
            let warnings = beside(&files, &manifest)?;
            return Ok(Located {
                workspace: around.to_owned(),
                files,
                manifest,
                warnings,
            });
        }
        if !subject.exists() {
            return Err(not_found(&files, around, &name)?);
        }
    }
    let missing = |problem: String| ComposeError::ManifestMissing {
        path: escape(subject.as_os_str().as_bytes()),
        problem,
    };
    let path = subject
        .canonicalize()
        .map_err(|error| missing(format!("cannot be opened: {error}")))?;
    let is_directory = path.is_dir();
    let folder = match (is_directory, path.parent()) {
        (true, _) => path.as_path(),
        (false, Some(parent)) => parent,
        (false, None) => return Err(missing("is not a manifest".to_owned())),
    };
    let around = match (given, working_directory) {
        (Some(given), _) => given,
        (None, Some(here)) if folder.starts_with(here) => here.to_owned(),
        (None, _) => folder.to_owned(),
    };
    let files = open(&around)?;
    let inside = path
        .strip_prefix(&around)
        .map_err(|_error| ComposeError::ManifestOutside {
            manifest: escape(path.as_os_str().as_bytes()),
            workspace: escape(around.as_os_str().as_bytes()),
        })?;
    let inside = match inside.as_os_str().as_bytes() {
        b"" => None,
        bytes => Some(RelPath::parse(bytes).map_err(|error| missing(error.to_string()))?),
    };
    let (manifest, others) = match inside {
        Some(file) if !is_directory => (file, Vec::new()),
        folder => find_manifest(&files, folder.as_ref())
            .map_err(|error| missing(format!("cannot be read: {error}")))?
            .ok_or_else(|| {
                missing(format!(
                    "holds no manifest; expected one of {}",
                    MANIFEST_NAMES.join(", ")
                ))
            })?,
    };
    let warnings = ignored(&manifest, &others).collect();
    Ok(Located {
        workspace: around,
        files,
        manifest,
        warnings,
    })
}

fn canonical(workspace: &Path) -> Result<PathBuf, ComposeError> {
    workspace
        .canonicalize()
        .map_err(|error| ComposeError::Workspace {
            workspace: escape(workspace.as_os_str().as_bytes()),
            source: CallError::new(
                "realpath",
                escape(workspace.as_os_str().as_bytes()),
                rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
            ),
        })
}

fn open(workspace: &Path) -> Result<DirectoryFiles, ComposeError> {
    DirectoryFiles::open_root(workspace).map_err(|source| ComposeError::Workspace {
        workspace: escape(workspace.as_os_str().as_bytes()),
        source,
    })
}

fn plain_name(subject: &Path) -> Option<RelPath> {
    let bytes = subject.as_os_str().as_bytes();
    RelPath::parse(bytes)
        .ok()
        .filter(|_| !bytes.contains(&b'/'))
}

fn by_convention(files: &DirectoryFiles, name: &RelPath) -> Result<Option<RelPath>, ComposeError> {
    for (folder, file) in CONVENTIONS {
        let Some(path) = conventional(folder, name, file) else {
            continue;
        };
        let found = files
            .look(&path)
            .map_err(|source| ComposeError::Unreadable {
                file: path.to_string(),
                problem: "cannot be looked at",
                source: Some(source),
            })?;
        if found.is_some() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn beside(files: &DirectoryFiles, manifest: &RelPath) -> Result<Vec<WarningReport>, ComposeError> {
    let folder = manifest.parent();
    let found =
        find_manifest(files, folder.as_ref()).map_err(|source| ComposeError::Unreadable {
            file: manifest.to_string(),
            problem: "cannot be looked at",
            source: Some(source),
        })?;
    let all = found.map(|(first, others)| [vec![first], others].concat());
    let mut others = all.unwrap_or_default();
    others.retain(|other| other != manifest);
    Ok(ignored(manifest, &others).collect())
}

fn conventional(folder: &str, name: &RelPath, file: &str) -> Option<RelPath> {
    let parts = [folder.as_bytes(), name.as_bytes(), file.as_bytes()];
    RelPath::parse(&parts.join(&b'/')).ok()
}

fn not_found(
    files: &DirectoryFiles,
    workspace: &Path,
    name: &RelPath,
) -> Result<ComposeError, ComposeError> {
    let mut known = Vec::new();
    for folder in [".code-workspaces", ".code"] {
        let mut names = Vec::new();
        let listed = RelPath::parse(folder.as_bytes()).map(|folder| {
            files.list(Some(&folder), &mut |name| {
                names.extend(RelPath::parse(name));
                ControlFlow::Continue(())
            })
        });
        // A missing convention folder is empty.
        if listed.is_ok_and(|listed| listed.is_ok()) {
            for name in names {
                if by_convention(files, &name)?.is_some() {
                    known.push(name.to_string());
                }
            }
        }
    }
    known.sort_unstable();
    known.dedup();
    let shown = name.to_string();
    let near = nearest(&shown, known.iter().map(String::as_str)).map(str::to_owned);
    known.truncate(NAMES_MAX);
    Ok(ComposeError::WorkspaceNotFound {
        name: shown,
        workspace: escape(workspace.as_os_str().as_bytes()),
        known,
        near,
    })
}
