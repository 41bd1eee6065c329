//! Locates the manifest and its workspace, from a file, a folder or a name in a convention folder.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::manifests::{
    BUNDLE_MANIFEST_NAMES, MANIFEST_NAMES, RESOLVED_MANIFEST, Unread, ignored_warnings,
    manifests_in,
};
use spec::did_you_mean::nearest;
use spec::path::{RelPath, escape_path};
use spec::report::WarningReport;
use sys::file::{CallError, errno_of};

/// Folders of code-workspaces, in search order (AIP-26, "Convention: workspace folder layout").
const CONVENTION_FILES: [(&str, &str); 5] = [
    (".code-workspaces", "manifest.yaml"),
    (".code-workspaces", "manifest.yml"),
    (".code", "manifest.yaml"),
    (".code", "manifest.yml"),
    (".code", "CODE.md"),
];
/// Maximum number of names in an error.
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

/// As [`locate`], but finds the manifest that `exec` runs: of an unpacked bundle the resolved one.
///
/// # Errors
/// As [`locate`].
pub fn locate_runnable(
    subject: &Path,
    workspace: Option<&Path>,
    working_directory: Option<&Path>,
) -> Result<Located, BundleError> {
    if subject.join(RESOLVED_MANIFEST).is_file() {
        let workspace = workspace.map(canonicalize).transpose()?;
        let names = &BUNDLE_MANIFEST_NAMES;
        return locate_by_path(subject, workspace, working_directory, names);
    }
    locate(subject, workspace, working_directory)
}

/// Finds the manifest for `subject`: a manifest, a folder with one, or the name of a code-workspace in
/// a convention folder. Without `workspace`, the workspace is `working_directory` if the manifest is
/// beneath it, else the manifest's folder.
///
/// # Errors
/// [`BundleError::ManifestMissing`], [`BundleError::ManifestOutside`],
/// [`BundleError::WorkspaceNotFound`], [`BundleError::Workspace`].
pub fn locate(
    subject: &Path,
    workspace: Option<&Path>,
    working_directory: Option<&Path>,
) -> Result<Located, BundleError> {
    let workspace = workspace.map(canonicalize).transpose()?;
    if let Some(name) = single_segment(subject)
        && let Some(directory) = workspace.as_deref().or(working_directory)
        // With --workspace a name takes precedence, otherwise a path does.
        && (workspace.is_some() || !subject.exists())
    {
        let files = open(directory)?;
        if let Some(manifest) = find_by_convention(&files, &name)? {
            let all = manifests_in(&files, manifest.parent().as_ref(), &MANIFEST_NAMES);
            let all = all.map_err(|error| unreadable(&manifest, error))?;
            return Ok(Located {
                workspace: directory.to_owned(),
                files,
                warnings: ignored_warnings(&manifest, &all),
                manifest,
            });
        }
        if !subject.exists() {
            return Err(not_found(&files, directory, &name)?);
        }
    }
    locate_by_path(subject, workspace, working_directory, &MANIFEST_NAMES)
}

/// `names`: those of a manifest in a folder.
fn locate_by_path(
    subject: &Path,
    workspace: Option<PathBuf>,
    working_directory: Option<&Path>,
    names: &[&str],
) -> Result<Located, BundleError> {
    let missing = |problem: String| BundleError::ManifestMissing {
        path: escape_path(subject),
        problem,
    };
    let path = subject
        .canonicalize()
        .map_err(|error| missing(format!("cannot be opened: {error}")))?;
    let is_directory = path.is_dir();
    let folder = match (is_directory, path.parent()) {
        (true, _) => path.as_path(),
        (false, Some(own)) if path.ends_with(RESOLVED_MANIFEST) => own.parent().unwrap_or(own),
        (false, Some(parent)) => parent,
        (false, None) => return Err(missing("is not a manifest".to_owned())),
    };
    let workspace = match (workspace, working_directory) {
        (Some(workspace), _) => workspace,
        (None, Some(directory)) if folder.starts_with(directory) => directory.to_owned(),
        (None, _) => folder.to_owned(),
    };
    let files = open(&workspace)?;
    let relative =
        path.strip_prefix(&workspace)
            .map_err(|_error| BundleError::ManifestOutside {
                manifest: escape_path(&path),
                workspace: escape_path(&workspace),
            })?;
    let relative = match relative.as_os_str().as_bytes() {
        b"" => None,
        bytes => Some(RelPath::parse(bytes).map_err(|error| missing(error.to_string()))?),
    };
    let all = match relative {
        Some(file) if !is_directory => vec![file],
        folder => manifests_in(&files, folder.as_ref(), names)
            .map_err(|error| missing(format!("cannot be read: {error}")))?,
    };
    let Some(manifest) = all.first().cloned() else {
        let names = MANIFEST_NAMES.join(", ");
        return Err(missing(format!(
            "holds no manifest; expected one of {names}"
        )));
    };
    Ok(Located {
        workspace,
        files,
        warnings: ignored_warnings(&manifest, &all),
        manifest,
    })
}

fn canonicalize(workspace: &Path) -> Result<PathBuf, BundleError> {
    workspace.canonicalize().map_err(|error| {
        let errno = errno_of(&error);
        let shown = escape_path(workspace);
        BundleError::Workspace {
            source: CallError::new("realpath", shown.clone(), errno),
            workspace: shown,
        }
    })
}

fn open(workspace: &Path) -> Result<DirectoryFiles, BundleError> {
    DirectoryFiles::open_root(workspace).map_err(|source| BundleError::Workspace {
        workspace: escape_path(workspace),
        source,
    })
}

fn single_segment(subject: &Path) -> Option<RelPath> {
    let bytes = subject.as_os_str().as_bytes();
    RelPath::parse(bytes)
        .ok()
        .filter(|_| !bytes.contains(&b'/'))
}

fn find_by_convention(
    files: &DirectoryFiles,
    name: &RelPath,
) -> Result<Option<RelPath>, BundleError> {
    for (folder, file) in CONVENTION_FILES {
        let parts = [folder.as_bytes(), name.as_bytes(), file.as_bytes()];
        let Ok(path) = RelPath::parse(&parts.join(&b'/')) else {
            continue;
        };
        let found = files.find(&path);
        if found.map_err(|error| unreadable(&path, error))?.is_some() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn unreadable(path: &RelPath, error: CallError) -> BundleError {
    let unread = Unread::new(&path.to_string(), "cannot be read", Some(error));
    BundleError::ManifestUnreadable(unread)
}

fn not_found(
    files: &DirectoryFiles,
    workspace: &Path,
    name: &RelPath,
) -> Result<BundleError, BundleError> {
    let mut known = Vec::new();
    for folder in [".code-workspaces", ".code"] {
        let folder = RelPath::parse(folder.as_bytes());
        // A missing folder counts as empty.
        let listed = folder.map(|folder| files.list(Some(&folder), u64::MAX).unwrap_or_default());
        for name in listed.unwrap_or_default() {
            if let Ok(name) = RelPath::parse(&name)
                && find_by_convention(files, &name)?.is_some()
            {
                known.push(name.to_string());
            }
        }
    }
    known.sort_unstable();
    known.dedup();
    let name = name.to_string();
    let suggestion = nearest(&name, known.iter().map(String::as_str)).map(str::to_owned);
    known.truncate(NAMES_MAX);
    Ok(BundleError::WorkspaceNotFound {
        name,
        workspace: escape_path(workspace),
        known,
        suggestion,
    })
}
