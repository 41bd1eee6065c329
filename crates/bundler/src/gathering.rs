//! State of gathering: the overlay and the left-out entries.

use std::sync::Arc;

use crate::error::{ComposeError, SizeLimit, SourceProblem};
use crate::hosting::limits_of;
use crate::origin::{SourceKind, SourceOrigin};
use crate::overlay::{Contents, Item, Overlay, SourceIndex};
use archive::tree::Conflict;
use archive::{Entry, LEFT_OUT, SEGMENTS_MAX, Tree, case_twins, links};
use spec::host_policy::UnpackCaps;
use spec::path::RelPath;
use spec::report::WarningReport;

const RESERVED: &[u8] = b".runner";
const RESOLVED_MANIFEST: &[u8] = b".runner/manifest.json";
/// Listed entries per entry of the limit, since entries may be left out or replaced.
const LISTED_FOR_EACH: u64 = 16;

/// Counts of one source, including replaced entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given {
    pub files: u64,
    pub bytes: u64,
}

pub(crate) struct Gathering {
    pub overlay: Overlay,
    pub origins: Vec<SourceOrigin>,
    pub given: Vec<Given>,
    caps: UnpackCaps,
    listed: u64,
    left_out: LeftOut,
    reserved: LeftOut,
    pub warnings: Vec<WarningReport>,
}

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
        let message = match self.count - 1 {
            0 => format!("`{first}` is left out, of the entries {what}"),
            others => format!("`{first}` and {others} more entries {what} are left out"),
        };
        Some(WarningReport::new(code, message))
    }
}

impl Gathering {
    pub(crate) fn new(caps: UnpackCaps, origins: Vec<SourceOrigin>) -> Self {
        Self {
            overlay: Overlay::default(),
            given: vec![Given::default(); origins.len()],
            origins,
            caps,
            listed: 0,
            left_out: LeftOut::default(),
            reserved: LeftOut::default(),
            warnings: Vec::new(),
        }
    }

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

    pub(crate) fn room_to_list(&self) -> u64 {
        self.list_max().saturating_sub(self.listed)
    }

    pub(crate) fn listed(&mut self, names: u64) -> Result<(), SourceProblem> {
        self.listed = self.listed.saturating_add(names);
        match self.list_max() < self.listed {
            true => Err(SourceProblem::TooManyFiles {
                limit: self.list_max(),
            }),
            false => Ok(()),
        }
    }

    /// Whether every bundle leaves this entry out; records it.
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

    pub(crate) fn refuse_left_out(path: &RelPath) -> Result<(), SourceProblem> {
        match path.segments().any(|segment| LEFT_OUT.contains(&segment)) {
            true => Err(SourceProblem::Reserved {
                path: path.to_string(),
                reason: "lies in .git, .hg or .svn, which bundles never hold",
            }),
            false => Ok(()),
        }
    }

    pub(crate) fn refuse_reserved(to: &RelPath) -> Result<(), SourceProblem> {
        match is_reserved(to) {
            true => Err(SourceProblem::Reserved {
                path: to.to_string(),
                reason: "lies in .runner, which holds the resolved manifest",
            }),
            false => Ok(()),
        }
    }

    /// Refuses a path above the depth limit of archives.
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

    pub(crate) fn inline(
        &mut self,
        path: &RelPath,
        content: &Arc<[u8]>,
        source: SourceIndex,
    ) -> Result<(), SourceProblem> {
        Self::refuse_left_out(path)?;
        Self::refuse_reserved(path)?;
        self.place(path, file_of(Arc::clone(content)), source)
    }

    pub(crate) fn add_manifest(&mut self, manifest: &[u8]) -> Result<(), ComposeError> {
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

    pub(crate) fn finish(&mut self) -> Result<Tree, ComposeError> {
        let caps = self.caps;
        let limits = limits_of(caps).tree();
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
                    // The overlay has no conflicts, so only the two limits remain.
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
