//! Mounts that were asked for: what lies at their sources, and trees cloned for root.

use std::ffi::CString;
use std::fs::Metadata;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::kernel::credentials::HostIds;
use crate::kernel::link::DESCRIPTORS_MAX;
use crate::kernel::mount::{self, Attributes};
use crate::kernel::owner_map::OwnerMap;
use crate::oci::store::StorePlace;
use crate::plan::view::{Access, AskedMount, Shown};
use crate::run::error::RunError;
use crate::run::unpacking;
use crate::spec::host_policy::HostPolicy;
use crate::spec::path::escape;
use crate::spec::request::{Caller, ViewEntry};

/// Most trees that are cloned for root: one message carries them to the child, beside the groups
/// that it joins.
const TREES_MAX: usize = DESCRIPTORS_MAX - 13;

/// Looks at each source. For root (`body` given) each is cloned here, with its owner shown as the
/// body: as the body's uid the child could not go through root's own directories.
///
/// # Errors
/// [`RunError::Argument`] for a source that is not there, or that cannot be written with the
/// body's uid; [`RunError::Host`].
pub(super) fn open(
    entries: &[ViewEntry],
    body: Option<HostIds>,
) -> Result<(Vec<AskedMount>, Vec<OwnedFd>), RunError> {
    let mut mounts = Vec::with_capacity(entries.len());
    let mut trees = Vec::new();
    let mut owners = body.map(Owners::of);
    for entry in entries {
        let (mut mount, found) = look(entry)?;
        if let (
            ViewEntry::Bind {
                source, writable, ..
            },
            Some(found),
            Some(owners),
        ) = (entry, found, &mut owners)
        {
            if TREES_MAX == trees.len() {
                return Err(too_many(entries.len()));
            }
            let owner = HostIds {
                uid: found.uid(),
                gid: found.gid(),
            };
            let owner = (*writable || !is_open_to_all(&found)).then_some(owner);
            trees.push(clone_for(source, owner, owners, *writable)?);
            mount.shown = Shown::Tree {
                tree: trees.len() - 1,
                access: Access::of(*writable),
            };
        }
        mounts.push(mount);
    }
    Ok((mounts, trees))
}

/// Refuses a writable mount through which the body could put trees of its own into what is kept for
/// later runs: bundles and artifacts.
///
/// # Errors
/// [`RunError::Argument`].
pub(super) fn keep_stores_apart(
    entries: &[ViewEntry],
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(), RunError> {
    let is_lent = |entry: &ViewEntry| matches!(entry, ViewEntry::Bind { writable: true, .. });
    if !entries.iter().any(is_lent) {
        return Ok(());
    }
    // Where a place cannot even be looked at, no run uses what lies there.
    if !policy.cache.bundles.off
        && let Ok(place) = unpacking::place(caller, policy)
    {
        refuse_store(entries, &place.directory, &BUNDLES)?;
    }
    if let Ok(place) = StorePlace::choose(caller, policy) {
        refuse_store(entries, &place.directory, &ARTIFACTS)?;
    }
    Ok(())
}

/// How a mount that holds a store is told of.
struct StoreWords {
    problem: &'static str,
    hint: &'static str,
}

const BUNDLES: StoreWords = StoreWords {
    problem: "holds the cache of unpacked bundles, which the body could then change",
    hint: "mount it read-only, or keep bundles elsewhere (cache.bundles.directory) or not at all (cache.bundles.off)",
};
const ARTIFACTS: StoreWords = StoreWords {
    problem: "holds the store of images and workspace sources, which the body could then change",
    hint: "mount it read-only, or keep them elsewhere (oci.directory)",
};

/// `store` need not be made yet. Masking it would not do: a directory above it can
/// be renamed.
///
/// # Errors
/// [`RunError::Argument`].
fn refuse_store(entries: &[ViewEntry], store: &Path, words: &StoreWords) -> Result<(), RunError> {
    let store = free_of_links(store);
    for entry in entries {
        let ViewEntry::Bind {
            source,
            writable: true,
            ..
        } = entry
        else {
            continue;
        };
        let real = free_of_links(source);
        if store.starts_with(&real) || real.starts_with(&store) {
            return Err(RunError::Argument {
                code: "mount_holds_cache",
                what: "mount source",
                object: escape(source.as_os_str().as_bytes()),
                problem: words.problem.to_owned(),
                hint: Some(words.hint.to_owned()),
            });
        }
    }
    Ok(())
}

/// `path` without links as far as it exists.
fn free_of_links(path: &Path) -> std::path::PathBuf {
    let found = path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(above).ok()?))
    });
    found.unwrap_or_else(|| path.to_owned())
}

fn too_many(count: usize) -> RunError {
    RunError::Argument {
        code: "mounts_too_many",
        what: "mounts",
        object: count.to_string(),
        problem: format!("are more than root can pass on, {TREES_MAX}"),
        hint: Some("show a directory that holds several of them".to_owned()),
    }
}

/// The id maps of this run, one for each owner that its mounts have: each takes a process of its
/// own, which costs several times what the mount does.
pub(super) struct Owners {
    body: HostIds,
    maps: Vec<(HostIds, OwnerMap)>,
}

impl Owners {
    pub(super) fn of(body: HostIds) -> Self {
        Self {
            body,
            maps: Vec::new(),
        }
    }

    pub(super) fn map(&mut self, owner: HostIds) -> Result<&OwnerMap, Errno> {
        let place = match self.maps.iter().position(|(known, _)| *known == owner) {
            Some(place) => place,
            None => {
                self.maps.push((owner, OwnerMap::new(owner, self.body)?));
                self.maps.len() - 1
            }
        };
        Ok(&self.maps[place].1)
    }
}

/// What lies at the source of one entry; nothing is cloned.
///
/// # Errors
/// [`RunError::Argument`] for a source that is not there.
pub(super) fn look(entry: &ViewEntry) -> Result<(AskedMount, Option<Metadata>), RunError> {
    let found = match entry {
        ViewEntry::Tmpfs { .. } => None,
        ViewEntry::Bind { source, .. } => {
            Some(
                std::fs::metadata(source).map_err(|error| RunError::Argument {
                    code: "mount_source_missing",
                    what: "mount source",
                    object: escape(source.as_os_str().as_bytes()),
                    problem: format!("cannot be opened: {error}"),
                    hint: Some("give a path that exists on the host".to_owned()),
                })?,
            )
        }
    };
    let is_directory = found.as_ref().is_none_or(Metadata::is_dir);
    Ok((AskedMount::of(entry, is_directory), found))
}

fn clone_for(
    source: &Path,
    owner: Option<HostIds>,
    owners: &mut Owners,
    writable: bool,
) -> Result<OwnedFd, RunError> {
    let shown = escape(source.as_os_str().as_bytes());
    let path = CString::new(source.as_os_str().as_bytes())
        .map_err(|_nul| RunError::host(format!("clone the mount of {shown}"))(Errno::INVAL))?;
    let tree =
        mount::clone_tree(&path).map_err(RunError::host(format!("clone the mount of {shown}")))?;
    if let Some(owner) = owner {
        show_as_owned(tree.as_fd(), owner, owners, writable, &shown)?;
    }
    let mut attributes = Attributes::NOSUID.and(Attributes::NODEV);
    if !writable {
        attributes = attributes.and(Attributes::RDONLY);
    }
    mount::restrict_tree(tree.as_fd(), attributes)
        .map_err(RunError::host(format!("restrict the mount of {shown}")))?;
    Ok(tree)
}

fn show_as_owned(
    tree: BorrowedFd<'_>,
    owner: HostIds,
    owners: &mut Owners,
    writable: bool,
    shown: &str,
) -> Result<(), RunError> {
    let map = owners
        .map(owner)
        .map_err(RunError::host("make an id map"))?;
    match mount::map_owners(tree, map.as_fd()) {
        Ok(()) => Ok(()),
        // Read-only the owners do not matter much; writing as somebody else would fail later.
        Err(_) if !writable => Ok(()),
        Err(errno) => Err(RunError::Argument {
            code: "mount_not_mappable",
            what: "mount source",
            object: shown.to_owned(),
            problem: format!(
                "lies on a file system that cannot show the body as the owner ({errno})"
            ),
            hint: Some("mount it read-only, or run as an ordinary user".to_owned()),
        }),
    }
}

/// A single file that others may read and execute as its owner may: an id map, which takes a
/// process of its own, would change nothing.
fn is_open_to_all(found: &Metadata) -> bool {
    let mode = found.mode();
    found.is_file() && (mode >> 6) & 0o5 == mode & 0o5
}
