//! From sources to the overlay: what lies where, how large it is, and where its bytes are read.

use std::path::Path;
use std::sync::Arc;

use crate::bundle::tree::Conflict;
use crate::bundle::{Entry, LEFT_OUT, SEGMENTS_MAX, Tree, UnpackLimits, case_twins, links};
use crate::compose::error::{ComposeError, SizeLimit, SourceProblem};
use crate::compose::files::{DirectoryFiles, FileIdentity, WorkspaceFiles};
use crate::compose::github::{FetchedTree, GitHub, ResolvedRef};
use crate::compose::layer::{Layer, LayerForm};
use crate::compose::origin::{SourceKind, SourceOrigin};
use crate::compose::overlay::{Contents, Item, Overlay, RootIndex, SourceIndex};
use crate::compose::walk::{Links, LocalSource, Walk, directory_target};
use crate::kernel::file::CallError;
use crate::spec::code_block::SourceTarget;
use crate::spec::host_policy::UnpackCaps;
use crate::spec::path::RelPath;
use crate::spec::report::WarningReport;

/// The folder of a bundle that belongs to this program.
const RESERVED: &[u8] = b".runner";
/// Where the resolved manifest lies in the bundle.
const RESOLVED_MANIFEST: &[u8] = b".runner/manifest.json";
/// Files that are looked at for each that the bundle may hold: those that are left out, are not
/// taken, or give way to later ones.
const LISTED_FOR_EACH: u64 = 16;

/// How sources are gathered.
#[derive(Debug, Clone)]
pub struct GatherOptions<'call> {
    /// How large the bundle may be.
    pub caps: UnpackCaps,
    /// Whether what links point to is copied in their place.
    pub follow_symlinks: bool,
    /// Where the workspace lies on this host: absolute links into it can be followed.
    pub workspace: Option<&'call Path>,
    /// Files that are no part of the workspace: what is being written to.
    pub exclude: Vec<FileIdentity>,
}

/// What is known of a fetched source.
#[derive(Debug)]
pub struct FetchedSource {
    /// Which source.
    pub source: SourceIndex,
    /// The commit, and what was asked for.
    pub resolved: ResolvedRef,
    /// The archive and its files, kept open until the bundle is written.
    pub tree: FetchedTree,
}

/// What one source gives, later replaced or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given {
    /// Files and links.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Everything that a bundle will hold, and what it is read from.
pub struct Gathered<'files> {
    /// What lies where, with its sources.
    pub overlay: Overlay,
    /// The same as the writer of archives sees it.
    pub tree: Tree,
    /// The sources, in the order in which they lie over each other.
    pub origins: Vec<SourceOrigin>,
    /// What each source gives.
    pub given: Vec<Given>,
    /// What was fetched.
    pub fetched: Vec<FetchedSource>,
    /// What a person should know.
    pub warnings: Vec<WarningReport>,
    /// How large the archive may be, in bytes.
    pub(crate) archive_bytes_max: u64,
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

impl Gathered<'_> {
    /// The directory that contents name.
    pub(crate) fn root(&self, index: RootIndex) -> &dyn WorkspaceFiles {
        match index
            .checked_sub(1)
            .and_then(|at| self.repositories.get(at))
        {
            Some(repository) => repository,
            None => self.workspace,
        }
    }

    /// The source that the entry at `path` comes from.
    #[must_use]
    pub fn origin_of(&self, path: &RelPath) -> Option<&SourceOrigin> {
        self.origins.get(self.overlay.get(path)?.source)
    }
}

/// Lists the files of all `layers` and lays them over each other; repositories are fetched.
/// `manifest` is what `.runner/manifest.json` will hold.
///
/// No byte of a file of the workspace is read.
///
/// # Errors
/// [`ComposeError::Source`], [`ComposeError::Link`], [`ComposeError::BundleSize`].
pub fn gather<'files>(
    layers: &[Layer],
    manifest: Option<&[u8]>,
    files: &'files dyn WorkspaceFiles,
    github: &dyn GitHub,
    options: &GatherOptions<'_>,
) -> Result<Gathered<'files>, ComposeError> {
    let mut gathering = Gathering::new(options.caps);
    gathering.origins = layers.iter().map(|layer| layer.origin.clone()).collect();
    gathering.given = vec![Given::default(); layers.len()];
    let mut repositories = Vec::new();
    let mut fetched = Vec::new();
    for (source, layer) in layers.iter().enumerate() {
        let refused = |problem| ComposeError::of_source(&layer.origin, problem);
        let mut walk = Walk {
            files,
            root: 0,
            source,
            links: match options.follow_symlinks {
                true => Links::Follow(options.workspace),
                false => Links::Keep,
            },
            exclude: &options.exclude,
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
                path,
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
                    gathering: &mut gathering,
                };
                walk.tree(None, github_target(path.as_ref(), target))
            }
        }
        .map_err(refused)?;
    }
    if let Some(manifest) = manifest {
        gathering.add_manifest(manifest)?;
    }
    let tree = gathering.finish(options.caps)?;
    Ok(Gathered {
        overlay: gathering.overlay,
        tree,
        origins: gathering.origins,
        given: gathering.given,
        fetched,
        warnings: gathering.warnings,
        archive_bytes_max: options.caps.archive_bytes,
        workspace: files,
        repositories,
    })
}

fn github_target<'path>(
    path: Option<&'path RelPath>,
    target: &'path SourceTarget,
) -> Option<&'path RelPath> {
    match (path, target) {
        (Some(path), target) => directory_target(path, target),
        (None, SourceTarget::Path { path, .. }) => Some(path),
        (None, SourceTarget::Same | SourceTarget::Top) => None,
    }
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

/// What grows while sources are gathered.
pub(crate) struct Gathering {
    overlay: Overlay,
    origins: Vec<SourceOrigin>,
    given: Vec<Given>,
    caps: UnpackCaps,
    listed: u64,
    left_out: LeftOut,
    reserved: LeftOut,
    warnings: Vec<WarningReport>,
}

/// Entries that are left out: the first, and how many.
#[derive(Default)]
struct LeftOut {
    first: Option<RelPath>,
    count: u64,
}

impl LeftOut {
    fn add(&mut self, path: &RelPath) {
        self.first.get_or_insert_with(|| path.clone());
        self.count += 1;
    }

    fn warning(&self, code: &str, what: &str) -> Option<WarningReport> {
        let first = self.first.as_ref()?;
        let others = self.count - 1;
        Some(WarningReport::new(
            code,
            format!("`{first}` and {others} more entries {what} are left out"),
        ))
    }
}

impl Gathering {
    fn new(caps: UnpackCaps) -> Self {
        Self {
            overlay: Overlay::default(),
            origins: Vec::new(),
            given: Vec::new(),
            caps,
            listed: 0,
            left_out: LeftOut::default(),
            reserved: LeftOut::default(),
            warnings: Vec::new(),
        }
    }

    /// Adds a warning about a source.
    pub(crate) fn warn(&mut self, source: SourceIndex, code: &str, text: &str) {
        let message = match self.origins.get(source) {
            Some(origin) => format!("{origin}: {text}"),
            None => text.to_owned(),
        };
        self.warnings.push(WarningReport::new(code, message));
    }

    fn list_max(&self) -> u64 {
        self.caps.entries.saturating_mul(LISTED_FOR_EACH)
    }

    /// How many more names may be listed.
    pub(crate) fn room_to_list(&self) -> u64 {
        self.list_max().saturating_sub(self.listed)
    }

    /// Counts names that were listed.
    pub(crate) fn listed(&mut self, names: u64) -> Result<(), SourceProblem> {
        self.listed = self.listed.saturating_add(names);
        match self.list_max() < self.listed {
            true => Err(SourceProblem::TooManyFiles {
                limit: self.list_max(),
            }),
            false => Ok(()),
        }
    }

    /// Whether something that was found in a directory is left out; it is remembered.
    pub(crate) fn leaves_out(&mut self, to: &RelPath) -> bool {
        if LEFT_OUT.contains(&to.file_name()) {
            self.left_out.add(to);
            return true;
        }
        if is_reserved(to) {
            self.reserved.add(to);
            return true;
        }
        false
    }

    /// Refuses what a source names itself and every bundle leaves out.
    pub(crate) fn refuse_left_out(path: &RelPath) -> Result<(), SourceProblem> {
        match path.segments().any(|segment| LEFT_OUT.contains(&segment)) {
            true => Err(SourceProblem::Reserved {
                path: path.to_string(),
                reason: "lies in .git, .hg or .svn, which bundles never hold",
            }),
            false => Ok(()),
        }
    }

    /// Refuses what a source puts itself where this program puts the resolved manifest.
    pub(crate) fn refuse_reserved(to: &RelPath) -> Result<(), SourceProblem> {
        match is_reserved(to) {
            true => Err(SourceProblem::Reserved {
                path: to.to_string(),
                reason: "lies in .runner, which holds the resolved manifest",
            }),
            false => Ok(()),
        }
    }

    /// Refuses what lies deeper than archives may be.
    pub(crate) fn check_depth(to: &RelPath) -> Result<(), SourceProblem> {
        let segments = to.segments().count();
        match SEGMENTS_MAX < segments {
            true => Err(SourceProblem::TooDeep {
                path: to.clone(),
                segments,
                limit: SEGMENTS_MAX,
            }),
            false => Ok(()),
        }
    }

    /// Puts one item of a source into the overlay.
    pub(crate) fn place(
        &mut self,
        to: &RelPath,
        item: Item,
        source: SourceIndex,
    ) -> Result<(), SourceProblem> {
        Self::check_depth(to)?;
        if let Some(given) = self.given.get_mut(source)
            && item != Item::Directory
        {
            given.files += 1;
            if let Item::File { bytes, .. } = item {
                given.bytes = given.bytes.saturating_add(bytes);
            }
        }
        self.overlay.insert(to, item, source).map_err(|conflict| {
            let other = self.origins.get(conflict.there_source);
            SourceProblem::Conflict {
                path: conflict.path,
                here: conflict.here,
                there_path: conflict.there_path,
                there: conflict.there,
                other: Box::new(other.cloned().unwrap_or_else(resolved_origin)),
            }
        })?;
        match self.caps.entries < self.overlay.len() as u64 {
            true => Err(SourceProblem::Size {
                entry: to.clone(),
                what: SizeLimit::Entries {
                    limit: self.caps.entries,
                },
            }),
            false => Ok(()),
        }
    }

    fn inline(
        &mut self,
        path: &RelPath,
        content: &Arc<[u8]>,
        source: SourceIndex,
    ) -> Result<(), SourceProblem> {
        Self::refuse_left_out(path)?;
        Self::refuse_reserved(path)?;
        self.place(path, file_of(Arc::clone(content)), source)
    }

    fn add_manifest(&mut self, manifest: &[u8]) -> Result<(), ComposeError> {
        let origin = resolved_origin();
        self.origins.push(origin.clone());
        RelPath::parse(RESOLVED_MANIFEST)
            .map_err(|error| SourceProblem::Path {
                path: origin.file.clone(),
                error,
            })
            .and_then(|path| self.place(&path, file_of(manifest.into()), self.origins.len() - 1))
            .map_err(|problem| ComposeError::of_source(&origin, problem))
    }

    /// Checks the whole, and makes of it what the writer of archives takes.
    fn finish(&mut self, caps: UnpackCaps) -> Result<Tree, ComposeError> {
        let limits = UnpackLimits {
            compressed_bytes: caps.archive_bytes,
            unpacked_bytes: caps.unpacked_bytes,
            entries: caps.entries,
        }
        .tree();
        let mut tree = Tree::default();
        for (path, placed) in self.overlay.iter() {
            let entry = match &placed.item {
                Item::File {
                    executable, bytes, ..
                } => Entry::File {
                    executable: *executable,
                    bytes: *bytes,
                },
                Item::Directory => Entry::Directory,
                Item::Symlink { target } => Entry::Symlink {
                    target: target.clone(),
                },
            };
            tree.insert(path.clone(), entry, limits)
                .map_err(|conflict| ComposeError::BundleSize {
                    entry: path.to_string(),
                    // The overlay has no conflicts: what is left are the two limits.
                    what: match conflict {
                        Conflict::NameBytes => SizeLimit::Names {
                            limit: limits.name_bytes,
                        },
                        _ => SizeLimit::Entries {
                            limit: limits.entries,
                        },
                    },
                })?;
        }
        check_bytes(&tree, caps.unpacked_bytes)?;
        links::check_all(&tree).map_err(|(path, error)| {
            let source = self.overlay.get(&path).map(|placed| placed.source);
            let origin = source.and_then(|source| self.origins.get(source));
            ComposeError::Link {
                at: Box::new(origin.cloned().unwrap_or_else(resolved_origin)),
                path,
                error: Box::new(error),
            }
        })?;
        let warnings = [
            self.left_out
                .warning("bundle_left_out", "of .git, .hg or .svn"),
            self.reserved
                .warning("bundle_reserved", "of the reserved folder .runner"),
            case_twins(&tree),
        ];
        self.warnings.extend(warnings.into_iter().flatten());
        Ok(tree)
    }
}

fn check_bytes(tree: &Tree, limit: u64) -> Result<(), ComposeError> {
    let mut total: u64 = 0;
    for (path, entry) in tree.in_archive_order() {
        if let Entry::File { bytes, .. } = entry {
            total = total.saturating_add(*bytes);
            if limit < total {
                return Err(ComposeError::BundleSize {
                    entry: path.to_string(),
                    what: SizeLimit::Unpacked {
                        bytes: total,
                        limit,
                    },
                });
            }
        }
    }
    Ok(())
}

fn is_reserved(to: &RelPath) -> bool {
    to.segments().next() == Some(RESERVED)
}

fn resolved_origin() -> SourceOrigin {
    SourceOrigin {
        file: ".runner/manifest.json".to_owned(),
        place: None,
        pointer: String::new(),
        kind: SourceKind::Resolved,
    }
}

fn file_of(bytes: Arc<[u8]>) -> Item {
    Item::File {
        executable: false,
        bytes: bytes.len() as u64,
        contents: Contents::Bytes(bytes),
    }
}
