//! Gathers sources into the overlay: paths, sizes and where the content is.

use std::path::Path;

use crate::error::BundleError;
use crate::files::{DirectoryFiles, FileIdentity};
use crate::filter::{FileFilter, Purpose};
use crate::gathered::Gathering;
pub use crate::gathered::{Gathered, SourceSize};
use crate::large_content;
use crate::layer::{Layer, LayerForm, RepositorySource};
use crate::overlay::SourceIndex;
use crate::walk::{Links, Walk, directory_target};
use sources::github::{GitHub, GitHubError, InUseDirectory};
use spec::digest::Digest;
use spec::host_policy::UnpackCaps;
use spec::lock::Lock;
use spec::manifest::commits::{SourceCommit, with_commits};
use spec::path::escape;

/// Options for gathering.
#[derive(Debug, Clone)]
pub struct GatherOptions<'call> {
    pub caps: UnpackCaps,
    /// Copies the targets of links instead of the links.
    pub follow_symlinks: bool,
    /// Workspace on this host; absolute links into it are followed.
    pub workspace: Option<&'call Path>,
    pub exclude: Vec<FileIdentity>,
    /// Fetches the commits of this lock; a reference without one is refused.
    pub lock: Option<&'call Lock>,
}

/// A fetched repository source.
#[derive(Debug)]
pub struct FetchedSource {
    pub source: SourceIndex,
    pub commit: SourceCommit,
    pub archive_bytes: u64,
    pub archive_digest: Digest,
    /// Open until the bundle is written.
    pub(crate) files: DirectoryFiles,
    /// Prevents removal of the directory.
    _hold: Option<InUseDirectory>,
}

/// Lists the files of all `layers`, fetches repositories and merges everything. `manifest` becomes
/// `.runner/manifest.json`, with the fetched commits added.
///
/// Of the workspace files it reads only ignore files and possible credentials. Without `github`
/// repositories are left out.
///
/// # Errors
/// [`BundleError::At`] for an error of a source, [`BundleError::Size`].
pub fn gather(
    layers: &[Layer],
    manifest: Option<&serde_json::Value>,
    files: &DirectoryFiles,
    github: Option<&dyn GitHub>,
    options: &GatherOptions<'_>,
) -> Result<Gathered, BundleError> {
    let origins = layers.iter().map(|layer| layer.origin.clone()).collect();
    let mut gathering = Gathering::new(options.caps, origins);
    for (source, layer) in layers.iter().enumerate() {
        let begun = gathering.matching.begin();
        begun.map_err(|error| error.at(&layer.origin))?;
        let added = match &layer.form {
            LayerForm::Inline { path, content } => gathering.add_inline(path, content, source),
            LayerForm::GitHub(repository) => match github {
                Some(github) => add_repository(&mut gathering, source, repository, github, options),
                None => Ok(()),
            },
            LayerForm::Folder { .. } | LayerForm::Local(_) => {
                add_local(&mut gathering, source, &layer.form, files, options)
            }
        };
        added.map_err(|error| error.at(&layer.origin))?;
    }
    if let Some(manifest) = manifest {
        let fetched = gathering.fetched.iter();
        let commits: Vec<SourceCommit> = fetched.map(|source| source.commit.clone()).collect();
        let manifest = with_commits(manifest.clone(), &commits);
        gathering.add_manifest(format!("{manifest:#}\n").as_bytes())?;
    }
    let mut gathered = gathering.finish()?;
    let warnings = large_content::warnings(&gathered.overlay);
    gathered.warnings.extend(warnings);
    Ok(gathered)
}

/// Adds files of the workspace.
fn add_local(
    gathering: &mut Gathering,
    source: SourceIndex,
    form: &LayerForm,
    files: &DirectoryFiles,
    options: &GatherOptions<'_>,
) -> Result<(), BundleError> {
    let purpose = match form {
        LayerForm::Folder(_) => Purpose::OwnFolder,
        _ => Purpose::NamedFolder,
    };
    let mut walk = Walk {
        files,
        root: 0,
        source,
        links: if options.follow_symlinks {
            Links::Follow(options.workspace)
        } else {
            Links::Keep
        },
        exclude: &options.exclude,
        filter: Some(FileFilter::new(purpose)?),
        gathering,
    };
    match form {
        LayerForm::Folder(path) => walk.add_tree(path.as_ref(), None)?,
        LayerForm::Local(local) => walk.add_local(local)?,
        LayerForm::Inline { .. } | LayerForm::GitHub(_) => (),
    }
    let Walk {
        filter, gathering, ..
    } = walk;
    for warning in filter.iter().flat_map(FileFilter::warnings) {
        gathering.warn(source, &warning.code, &warning.message);
    }
    Ok(())
}

/// Fetches a repository and adds its files, without a filter: they are already published.
fn add_repository(
    gathering: &mut Gathering,
    source: SourceIndex,
    form: &RepositorySource,
    github: &dyn GitHub,
    options: &GatherOptions<'_>,
) -> Result<(), BundleError> {
    let RepositorySource {
        repository,
        reference,
        path,
        target,
    } = form;
    let sha = match options.lock {
        Some(lock) => lock.pinned(repository, reference).map(str::to_owned),
        None => {
            let resolved = github.resolve_ref(repository, reference)?;
            gathering.warnings.extend(resolved.warnings);
            Some(resolved.sha)
        }
    };
    let sha = sha.ok_or_else(|| GitHubError::NotLocked {
        repository: repository.clone(),
        reference: escape(reference.as_bytes()),
    })?;
    let tree = github.fetch(repository, &sha, path.as_ref())?;
    let files = DirectoryFiles::new(tree.directory);
    let mut walk = Walk {
        files: &files,
        root: gathering.fetched.len() + 1,
        source,
        links: if options.follow_symlinks {
            Links::Follow(None)
        } else {
            Links::Keep
        },
        exclude: &[],
        filter: None,
        gathering,
    };
    walk.add_tree(None, directory_target(path.as_ref(), target))?;
    gathering.fetched.push(FetchedSource {
        source,
        commit: SourceCommit {
            repository: repository.clone(),
            reference: reference.clone(),
            sha,
        },
        archive_bytes: tree.archive_bytes,
        archive_digest: tree.archive_digest,
        files,
        _hold: tree.hold,
    });
    Ok(())
}
