//! What a bundle contains, while and after its sources are gathered.

use std::sync::Arc;

use crate::error::{BundleError, SizeLimit};
use crate::files::DirectoryFiles;
use crate::gather::FetchedSource;
use crate::hosting::unpack_limits;
use crate::left_out::LeftOut;
use crate::manifests::RESOLVED_MANIFEST;
use crate::matching::Matching;
use crate::origin::{SourceKind, SourceOrigin};
use crate::overlay::{Item, Overlay, RootIndex, SourceIndex};
use crate::walk::parse;
use archive::tree::Conflict;
use archive::{
    Entry, SEGMENTS_MAX, Tree, case_collision_warning, is_in_version_control, left_out_warning,
    links,
};
use spec::host_policy::UnpackCaps;
use spec::manifest::commits::SourceCommit;
use spec::path::RelPath;
use spec::report::WarningReport;

const RESERVED_DIRECTORY: &[u8] = b".runner";
/// Names that may be listed for each allowed entry: entries may be left out or replaced.
const NAMES_PER_ENTRY: u64 = 16;

/// The files of one source, including replaced ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceSize {
    pub files: u64,
    pub bytes: u64,
}

/// The contents of a bundle, and where to read them.
#[derive(Debug)]
pub struct Gathered {
    pub overlay: Overlay,
    /// The overlay in the form that the archive writer needs.
    pub tree: Tree,
    pub origins: Vec<SourceOrigin>,
    pub sizes: Vec<SourceSize>,
    pub fetched: Vec<FetchedSource>,
    pub warnings: Vec<WarningReport>,
    pub(crate) archive_bytes_max: u64,
}

impl Gathered {
    /// Returns the directory that contents refer to: `workspace` or a repository.
    pub(crate) fn root<'files>(
        &'files self,
        index: RootIndex,
        workspace: &'files DirectoryFiles,
    ) -> &'files DirectoryFiles {
        let fetched = index.checked_sub(1).and_then(|at| self.fetched.get(at));
        fetched.map_or(workspace, |fetched| &fetched.files)
    }

    /// Returns the commits of the fetched repositories.
    #[must_use]
    pub fn commits(&self) -> Vec<SourceCommit> {
        let fetched = self.fetched.iter();
        fetched.map(|fetched| fetched.commit.clone()).collect()
    }
}

/// [`Gathered`] while sources are added.
pub(crate) struct Gathering {
    pub(crate) fetched: Vec<FetchedSource>,
    overlay: Overlay,
    origins: Vec<SourceOrigin>,
    sizes: Vec<SourceSize>,
    caps: UnpackCaps,
    names: u64,
    pub(crate) matching: Matching,
    version_control: LeftOut,
    reserved: LeftOut,
    pub(crate) warnings: Vec<WarningReport>,
}

impl Gathering {
    pub(crate) fn new(caps: UnpackCaps, origins: Vec<SourceOrigin>) -> Self {
        Self {
            fetched: Vec::new(),
            overlay: Overlay::default(),
            sizes: vec![SourceSize::default(); origins.len()],
            origins,
            caps,
            names: 0,
            matching: Matching::default(),
            version_control: LeftOut::default(),
            reserved: LeftOut::default(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn warn(&mut self, source: SourceIndex, code: &str, text: &str) {
        let message = format!("{}: {text}", self.origins[source]);
        self.warnings.push(WarningReport::new(code, message));
    }

    fn names_max(&self) -> u64 {
        self.caps.entries.saturating_mul(NAMES_PER_ENTRY)
    }

    /// How many more names may be listed.
    pub(crate) fn names_left(&self) -> u64 {
        self.names_max().saturating_sub(self.names)
    }

    pub(crate) fn count_names(&mut self, names: usize) -> Result<(), BundleError> {
        let limit = self.names_max();
        self.names = self.names.saturating_add(names as u64);
        if self.names > limit {
            return Err(BundleError::TooManyFiles { limit });
        }
        Ok(())
    }

    /// Records and returns whether no bundle contains this entry.
    pub(crate) fn leave_out(&mut self, to: &RelPath) -> bool {
        if self.leave_out_version_control(to) {
            return true;
        }
        if is_reserved(to) {
            self.reserved.add(to, "");
            return true;
        }
        false
    }

    /// Records and returns whether `path` is in .git, .hg or .svn.
    pub(crate) fn leave_out_version_control(&mut self, path: &RelPath) -> bool {
        let is_left_out = is_in_version_control(path);
        if is_left_out {
            self.version_control.add(path, "");
        }
        is_left_out
    }

    pub(crate) fn check_not_version_control(path: &RelPath) -> Result<(), BundleError> {
        if is_in_version_control(path) {
            return Err(BundleError::Reserved {
                path: path.to_string(),
                reason: "is in .git, .hg or .svn, which bundles never contain",
            });
        }
        Ok(())
    }

    /// Refuses a path where a source must not add files.
    pub(crate) fn check_target(to: &RelPath) -> Result<(), BundleError> {
        Self::check_not_version_control(to)?;
        if is_reserved(to) {
            return Err(BundleError::Reserved {
                path: to.to_string(),
                reason: "is in .runner, which is reserved for the resolved manifest",
            });
        }
        Ok(())
    }

    /// Refuses a path above the depth limit of archives.
    pub(crate) fn check_depth(to: &RelPath) -> Result<(), BundleError> {
        let segments = to.segments().count();
        if segments > SEGMENTS_MAX {
            return Err(BundleError::TooDeep {
                path: to.clone(),
                segments,
                limit: SEGMENTS_MAX,
            });
        }
        Ok(())
    }

    pub(crate) fn insert(
        &mut self,
        to: &RelPath,
        item: Item,
        source: SourceIndex,
    ) -> Result<(), BundleError> {
        Self::check_depth(to)?;
        if item != Item::Directory {
            let size = &mut self.sizes[source];
            size.files += 1;
            size.bytes = size.bytes.saturating_add(item.bytes());
        }
        self.overlay
            .insert(to, item, source)
            .map_err(|conflict| BundleError::Conflict {
                path: conflict.path,
                kind: conflict.kind,
                other_path: conflict.other_path,
                other_kind: conflict.other_kind,
                other_source: Box::new(self.origins[conflict.other_source].clone()),
            })?;
        let limit = self.caps.entries;
        if self.overlay.len() as u64 > limit {
            return Err(BundleError::Size {
                entry: to.to_string(),
                exceeded: SizeLimit::Entries { limit },
            });
        }
        Ok(())
    }

    pub(crate) fn add_inline(
        &mut self,
        path: &RelPath,
        content: &Arc<[u8]>,
        source: SourceIndex,
    ) -> Result<(), BundleError> {
        Self::check_target(path)?;
        self.insert(path, Item::from_bytes(Arc::clone(content)), source)
    }

    /// Adds `.runner/manifest.json` as a separate source.
    pub(crate) fn add_manifest(&mut self, manifest: &[u8]) -> Result<(), BundleError> {
        let origin = SourceOrigin::whole(RESOLVED_MANIFEST.to_owned(), SourceKind::Resolved);
        self.origins.push(origin.clone());
        self.sizes.push(SourceSize::default());
        parse(RESOLVED_MANIFEST.as_bytes())
            .and_then(|path| {
                let source = self.origins.len() - 1;
                self.insert(&path, Item::from_bytes(manifest.into()), source)
            })
            .map_err(|error| error.at(&origin))
    }

    /// Checks the limits and the links of the whole bundle.
    pub(crate) fn finish(mut self) -> Result<Gathered, BundleError> {
        let tree = self.tree()?;
        links::check_all(&tree).map_err(|(path, error)| {
            let source = self.overlay.get(&path).map_or(0, |placed| placed.source);
            BundleError::Link { path, error }.at(&self.origins[source])
        })?;
        for (code, left_out, what) in [
            (
                "bundle_left_out",
                &self.version_control,
                "of .git, .hg or .svn",
            ),
            (
                "bundle_reserved",
                &self.reserved,
                "of the reserved folder .runner",
            ),
        ] {
            if let Some(first) = left_out.entries.first() {
                let others = left_out.count - 1;
                self.warnings
                    .push(left_out_warning(code, &first.path, others, what));
            }
        }
        self.warnings.extend(case_collision_warning(&tree));
        Ok(Gathered {
            overlay: self.overlay,
            tree,
            origins: self.origins,
            sizes: self.sizes,
            fetched: self.fetched,
            warnings: self.warnings,
            archive_bytes_max: self.caps.archive_bytes,
        })
    }

    fn tree(&self) -> Result<Tree, BundleError> {
        let limits = unpack_limits(self.caps).tree_limits();
        let mut tree = Tree::default();
        for (path, placed) in self.overlay.iter() {
            let too_large = |exceeded| BundleError::Size {
                entry: path.to_string(),
                exceeded,
            };
            tree.insert(path.clone(), placed.item.entry(), limits)
                .map_err(|conflict| match conflict {
                    Conflict::TooLongNames => too_large(SizeLimit::Names {
                        limit: limits.name_bytes,
                    }),
                    // The overlay has no conflicts, so only the limits remain.
                    _ => too_large(SizeLimit::Entries {
                        limit: limits.entries,
                    }),
                })?;
        }
        let limit = self.caps.unpacked_bytes;
        let mut bytes: u64 = 0;
        for (path, entry) in tree.in_archive_order() {
            if let Entry::File { bytes: size, .. } = entry {
                bytes = bytes.saturating_add(*size);
            }
            if bytes > limit {
                return Err(BundleError::Size {
                    entry: path.to_string(),
                    exceeded: SizeLimit::Unpacked { bytes, limit },
                });
            }
        }
        Ok(tree)
    }
}

fn is_reserved(to: &RelPath) -> bool {
    to.segments().next() == Some(RESERVED_DIRECTORY)
}
