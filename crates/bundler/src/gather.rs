//! Gathers sources into the overlay: paths, sizes and where the content is.

use std::path::Path;

use crate::bundle_filter::BundleFilter;
use crate::error::{ComposeError, SourceProblem};
use crate::files::{DirectoryFiles, FileIdentity, WorkspaceFiles};
use crate::filter::FileFilter;
use crate::gathering::Gathering;
pub use crate::gathering::Given;
use crate::layer::{Layer, LayerForm};
use crate::origin::SourceOrigin;
use crate::overlay::{Overlay, RootIndex, SourceIndex};
use crate::walk::{Links, LocalSource, Walk, directory_target};
use crate::weight;
use archive::Tree;
use sources::github::{FetchedTree, GitHub, ResolvedRef};
use spec::host_policy::UnpackCaps;
use spec::manifest::commits::{SourceCommit, with_commits};
use spec::path::RelPath;
use spec::report::WarningReport;
use sys::file::CallError;

/// Options for gathering.
#[derive(Debug, Clone)]
pub struct GatherOptions<'call> {
    pub caps: UnpackCaps,
    /// Copies the targets of links instead of the links.
    pub follow_symlinks: bool,
    /// Workspace on this host; absolute links into it are followed.
    pub workspace: Option<&'call Path>,
    pub exclude: Vec<FileIdentity>,
}

/// A fetched repository source.
#[derive(Debug)]
pub struct FetchedSource {
    pub source: SourceIndex,
    pub resolved: ResolvedRef,
    /// Open until the bundle is written.
    pub tree: FetchedTree,
}

/// The contents of a bundle, and where to read them.
pub struct Gathered<'files> {
    pub overlay: Overlay,
    /// The overlay in the form that the archive writer needs.
    pub tree: Tree,
    pub origins: Vec<SourceOrigin>,
    pub given: Vec<Given>,
    pub commits: Vec<SourceCommit>,
    pub fetched: Vec<FetchedSource>,
    pub warnings: Vec<WarningReport>,
    pub archive_bytes_max: u64,
    workspace: &'files dyn WorkspaceFiles,
    repositories: Vec<DirectoryFiles>,
}

impl std::fmt::Debug for Gathered<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Gathered")
            .field("entries", &self.overlay.len())
            .field("sources", &self.origins.len())
            .field("fetched", &self.fetched)
            .finish_non_exhaustive()
    }
}

impl<'files> Gathered<'files> {
    pub(crate) fn of_one_directory(
        gathering: Gathering,
        tree: Tree,
        files: &'files dyn WorkspaceFiles,
        archive_bytes_max: u64,
    ) -> Self {
        Self {
            overlay: gathering.overlay,
            tree,
            origins: gathering.origins,
            given: gathering.given,
            commits: Vec::new(),
            fetched: Vec::new(),
            warnings: gathering.warnings,
            archive_bytes_max,
            workspace: files,
            repositories: Vec::new(),
        }
    }

    /// Returns the directory that contents refer to.
    pub fn root(&self, index: RootIndex) -> &dyn WorkspaceFiles {
        match index
            .checked_sub(1)
            .and_then(|at| self.repositories.get(at))
        {
            Some(repository) => repository,
            None => self.workspace,
        }
    }
}

/// Lists the files of all `layers`, fetches repositories and merges everything. `manifest` becomes
/// `.runner/manifest.json`, with the fetched commits added.
///
/// Of the workspace files it reads only ignore files and possible credentials.
///
/// # Errors
/// [`ComposeError::Source`], [`ComposeError::Link`], [`ComposeError::BundleSize`].
pub fn gather<'files>(
    layers: &[Layer],
    manifest: Option<&serde_json::Value>,
    files: &'files dyn WorkspaceFiles,
    github: &dyn GitHub,
    options: &GatherOptions<'_>,
) -> Result<Gathered<'files>, ComposeError> {
    let origins = layers.iter().map(|layer| layer.origin.clone()).collect();
    let mut gathering = Gathering::new(options.caps, origins);
    let mut repositories = Vec::new();
    let mut fetched = Vec::new();
    for (source, layer) in layers.iter().enumerate() {
        let refused = |problem| ComposeError::of_source(&layer.origin, problem);
        let is_own_folder = matches!(layer.form, LayerForm::Folder { .. });
        let filter = match layer.form {
            LayerForm::Folder { .. } | LayerForm::Local { .. } => {
                Some(BundleFilter::new(files, is_own_folder).map_err(refused)?)
            }
            // Content of a repository is already published.
            LayerForm::Inline { .. } | LayerForm::GitHub { .. } => None,
        };
        let mut walk = Walk {
            files,
            root: 0,
            source,
            links: match options.follow_symlinks {
                true => Links::Follow(options.workspace),
                false => Links::Keep,
            },
            exclude: &options.exclude,
            filter: filter.as_ref().map(|filter| filter as &dyn FileFilter),
            gathering: &mut gathering,
        };
        match &layer.form {
            LayerForm::Folder { path } => walk.tree(path.as_ref(), None),
            LayerForm::Inline { path, content } => gathering.inline(path, content, source),
            LayerForm::Local {
                base,
                path,
                directory,
                target,
                glob,
            } => walk.local(LocalSource {
                base: base.as_ref(),
                path: path.as_ref(),
                directory: *directory,
                target,
                glob: glob.as_deref(),
            }),
            LayerForm::GitHub {
                repository,
                reference,
                path,
                target,
            } => {
                let (resolved, tree) =
                    fetch(github, repository, reference, path.as_ref()).map_err(refused)?;
                gathering.warnings.extend(resolved.warnings.clone());
                repositories.push(files_of(&tree).map_err(refused)?);
                fetched.push(FetchedSource {
                    source,
                    resolved,
                    tree,
                });
                let mut walk = Walk {
                    files: &repositories[repositories.len() - 1],
                    root: repositories.len(),
                    source,
                    links: match options.follow_symlinks {
                        true => Links::Follow(None),
                        false => Links::Keep,
                    },
                    exclude: &[],
                    filter: None,
                    gathering: &mut gathering,
                };
                walk.tree(None, directory_target(path.as_ref(), target))
            }
        }
        .map_err(refused)?;
        for warning in filter.iter().flat_map(BundleFilter::told) {
            gathering.warn(source, &warning.code, &warning.message);
        }
    }
    let commits = commits(layers, &fetched);
    if let Some(manifest) = manifest {
        let manifest = with_commits(manifest.clone(), &commits);
        gathering.add_manifest(format!("{manifest:#}\n").as_bytes())?;
    }
    let tree = gathering.finish()?;
    gathering
        .warnings
        .extend(weight::warnings(&gathering.overlay));
    Ok(Gathered {
        overlay: gathering.overlay,
        tree,
        origins: gathering.origins,
        given: gathering.given,
        commits,
        fetched,
        warnings: gathering.warnings,
        archive_bytes_max: options.caps.archive_bytes,
        workspace: files,
        repositories,
    })
}

fn commits(layers: &[Layer], fetched: &[FetchedSource]) -> Vec<SourceCommit> {
    let one = |fetched: &FetchedSource| match &layers.get(fetched.source)?.form {
        LayerForm::GitHub {
            repository,
            reference,
            ..
        } => Some(SourceCommit {
            repository: repository.clone(),
            reference: reference.clone(),
            sha: fetched.resolved.sha.clone(),
        }),
        _ => None,
    };
    fetched.iter().filter_map(one).collect()
}

fn fetch(
    github: &dyn GitHub,
    repository: &str,
    reference: &str,
    path: Option<&RelPath>,
) -> Result<(ResolvedRef, FetchedTree), SourceProblem> {
    let resolved = github
        .resolve_ref(repository, reference)
        .map_err(SourceProblem::GitHub)?;
    let tree = github
        .fetch(repository, &resolved.sha, path)
        .map_err(SourceProblem::GitHub)?;
    Ok((resolved, tree))
}

fn files_of(tree: &FetchedTree) -> Result<DirectoryFiles, SourceProblem> {
    rustix::io::fcntl_dupfd_cloexec(&tree.directory, 0)
        .map(DirectoryFiles::new)
        .map_err(|errno| SourceProblem::Unreadable {
            path: ".".to_owned(),
            source: CallError::new("fcntl F_DUPFD_CLOEXEC", "the fetched files", errno),
        })
}
