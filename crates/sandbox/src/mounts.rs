//! Opens the host directories and files that are mounted in a run, and clones their trees for root.

use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::view::{self, Access, NO_DEVICES, RequestedMount, Shown, ViewError};
use spec::path::escape;
use spec::request::ViewEntry;
use sys::credentials::HostIds;
use sys::link::DESCRIPTORS_MAX;
use sys::mount::{self, Attributes};
use sys::own_links::{self, Unopened};
use sys::owner_map::OwnerMap;
use sys::place;

/// A requested mount that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{what} {object} {problem}")]
    Source {
        /// Stable.
        code: &'static str,
        what: &'static str,
        /// The path, escaped.
        object: String,
        problem: String,
        hint: Option<String>,
    },
    #[error(transparent)]
    Target(#[from] ViewError),
    #[error("cannot {act}: {errno}")]
    Call {
        act: String,
        #[source]
        errno: Errno,
    },
}

impl MountError {
    fn call(act: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let act = act.into();
        move |errno| Self::Call { act, errno }
    }
}

/// Maximum of trees cloned for root: one message carries them and the descriptors of the cgroups to
/// the child.
const TREES_MAX: usize = DESCRIPTORS_MAX - 13;

/// Inspects each source. For root (`body` is `Some`) it also clones each tree and maps its owner to
/// the body, because the child, with the body's uid, cannot traverse directories of root.
///
/// # Errors
/// [`MountError::Source`]: the source does not exist, or cannot be written with the body's uid;
/// [`MountError::Call`].
pub fn open(
    entries: &[ViewEntry],
    body: Option<HostIds>,
) -> Result<(Vec<RequestedMount>, Vec<OwnedFd>), MountError> {
    let mut mounts = Vec::with_capacity(entries.len());
    let mut trees = Vec::new();
    let mut owners = body.map(Owners::of);
    for entry in entries {
        let mut mount = inspect(entry)?;
        if let (Some(owners), Shown::Host { source, access }) = (&mut owners, &mount.shown) {
            if TREES_MAX == trees.len() {
                return Err(too_many(entries.len()));
            }
            let (access, source) = (*access, Path::new(OsStr::from_bytes(source)));
            let writable = access == Access::Writable;
            let (tree, is_directory) = clone_for(source, owners, writable)?;
            trees.push(tree);
            mount.is_directory = is_directory;
            let tree = trees.len() - 1;
            mount.shown = Shown::Tree { tree, access };
        }
        mounts.push(mount);
    }
    Ok((mounts, trees))
}

/// Inspects the source of one entry without cloning it. Resolves the links of a read-only source.
/// The caller of [`open`] resolved and checked the links of a writable source; they are not
/// followed again.
///
/// # Errors
/// [`MountError::Source`]: the source does not exist, or no path leads to it.
pub fn inspect(entry: &ViewEntry) -> Result<RequestedMount, MountError> {
    let ViewEntry::Bind {
        source,
        target,
        writable,
    } = entry
    else {
        return Ok(RequestedMount::of(entry, true));
    };
    let access = Access::of(*writable);
    let (source, found) = match access {
        Access::Writable => {
            let found = source.metadata();
            (
                source.clone(),
                found.map_err(|error| source_missing(source, &error))?,
            )
        }
        _ => resolve_source(source)?,
    };
    refuse_device(&source, &found)?;
    view::check_target(target.as_os_str().as_bytes())
        .map_err(|error| with_other_target(error, &source, *writable))?;
    let mut mount = RequestedMount::of(entry, found.is_dir());
    let source = source.into_os_string().into_vec();
    mount.shown = Shown::Host { source, access };
    Ok(mount)
}

/// Refuses a device of any mode: no rule of the sandbox limits what its driver does.
fn refuse_device(source: &Path, found: &Metadata) -> Result<(), MountError> {
    let kind = found.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        return Ok(());
    }
    Err(MountError::Source {
        code: "mount_source_device",
        what: "mount source",
        object: escape(source.as_os_str().as_bytes()),
        problem: format!("is a device, and {NO_DEVICES}"),
        hint: None,
    })
}

/// Whether a path needs no quoting in a hint, neither for a shell nor for `--mount`.
pub fn is_plain(path: &Path) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@%,".contains(byte);
    path.as_os_str().as_bytes().iter().all(plain)
}

/// Resolves the links of `source`. Returns the path and the metadata of the file.
///
/// # Errors
/// [`MountError::Source`]: the source does not exist, a link on the way belongs to another user, or
/// another file is at the resolved path. Links of /proc may lead into other mount namespaces, where
/// the path has another meaning.
pub fn resolve_source(source: &Path) -> Result<(PathBuf, Metadata), MountError> {
    let missing = |error: std::io::Error| source_missing(source, &error);
    let asked = source.metadata().map_err(missing)?;
    let opened = own_links::open(source.as_os_str().as_bytes()).map_err(|unopened| {
        let (link, uid) = match unopened {
            Unopened::Call(errno) => return missing(errno.into()),
            Unopened::Link { link, uid } => (link, uid),
        };
        MountError::Source {
            code: "mount_source_link",
            what: "mount source",
            object: escape(source.as_os_str().as_bytes()),
            problem: format!(
                "cannot be used: the link `{}` on the way belongs to uid {uid}",
                escape(&link)
            ),
            hint: Some(
                "name the path itself, or lay the link as the user who runs this".to_owned(),
            ),
        }
    })?;
    let descriptor_path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let real = std::fs::read_link(descriptor_path).map_err(missing)?;
    let found = real.symlink_metadata().map_err(missing)?;
    if (asked.dev(), asked.ino()) == (found.dev(), found.ino()) {
        return Ok((real, found));
    }
    let real = escape(real.as_os_str().as_bytes());
    Err(MountError::Source {
        code: "mount_source_changed",
        what: "mount source",
        object: escape(source.as_os_str().as_bytes()),
        problem: format!("is not what lies at {real}, where its links lead by their names"),
        hint: Some("give a path of the runner's own mount namespace".to_owned()),
    })
}

fn source_missing(source: &Path, error: &std::io::Error) -> MountError {
    MountError::Source {
        code: "mount_source_missing",
        what: "mount source",
        object: escape(source.as_os_str().as_bytes()),
        problem: format!("cannot be opened: {error}"),
        hint: Some("give a path that exists on the host".to_owned()),
    }
}

fn too_many(count: usize) -> MountError {
    MountError::Source {
        code: "mounts_too_many",
        what: "mounts",
        object: count.to_string(),
        problem: format!("are more than root can pass on, {TREES_MAX}"),
        hint: Some("show a directory that holds several of them".to_owned()),
    }
}

/// The id maps of this run, one per owner of its mounts. Creating one needs a process, which costs
/// several times as much as the mount.
#[derive(Debug)]
pub struct Owners {
    body: HostIds,
    maps: Vec<(HostIds, OwnerMap)>,
}

impl Owners {
    /// Returns an empty set of maps for a body with these ids.
    pub fn of(body: HostIds) -> Self {
        Self {
            body,
            maps: Vec::new(),
        }
    }

    /// Returns the map from `owner` to the body; creates it at first use.
    ///
    /// # Errors
    /// The errno of clone(2) or of a write to the map.
    pub fn map(&mut self, owner: HostIds) -> Result<&OwnerMap, Errno> {
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

/// Adds a flag with another target to the error of a refused target.
fn with_other_target(mut error: ViewError, source: &Path, writable: bool) -> MountError {
    let is_plain = is_plain(source);
    let name = source.file_name().and_then(OsStr::to_str);
    let (Some(source), Some(name)) = (source.to_str(), name) else {
        return error.into();
    };
    if !is_plain {
        return error.into();
    }
    let mode = if writable { "" } else { ":ro" };
    if let ViewError::Target { instead, .. } = &mut error {
        *instead = Some(format!("--mount {source}:/data/{name}{mode}"));
    }
    error.into()
}

/// Clones the tree at `source`, whose links are resolved. Also returns whether it is a directory.
fn clone_for(
    source: &Path,
    owners: &mut Owners,
    writable: bool,
) -> Result<(OwnedFd, bool), MountError> {
    let shown = escape(source.as_os_str().as_bytes());
    let act = |what: &str| MountError::call(format!("{what} the mount source {shown}"));
    let path =
        CString::new(source.as_os_str().as_bytes()).map_err(|_nul| act("open")(Errno::INVAL))?;
    let (opened, _) = place::open(&path).map_err(act("open"))?;
    let found = rustix::fs::fstat(&opened).map_err(act("look at"))?;
    let tree = mount::clone_all(opened.as_fd()).map_err(act("clone"))?;
    if writable || !is_open_to_all(&found) {
        let owner = HostIds {
            uid: found.st_uid,
            gid: found.st_gid,
        };
        show_as_owned(tree.as_fd(), owner, owners, writable, &shown)?;
    }
    let mut attributes = Attributes::NOSUID.and(Attributes::NODEV);
    if !writable {
        attributes = attributes.and(Attributes::RDONLY);
    }
    mount::restrict_tree(tree.as_fd(), attributes).map_err(act("restrict"))?;
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok((tree, kind == FileType::Directory))
}

fn show_as_owned(
    tree: BorrowedFd<'_>,
    owner: HostIds,
    owners: &mut Owners,
    writable: bool,
    shown: &str,
) -> Result<(), MountError> {
    let map = owners
        .map(owner)
        .map_err(MountError::call("make an id map"))?;
    match mount::map_owners(tree, map.as_fd()) {
        Ok(()) => Ok(()),
        // A read-only mount works with other owners. Writes would fail later.
        Err(_) if !writable => Ok(()),
        Err(errno) => Err(MountError::Source {
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

/// Whether others may read and execute this single file like its owner: then it needs no id map.
fn is_open_to_all(found: &Stat) -> bool {
    let mode = found.st_mode;
    let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
    is_file && (mode >> 6) & 0o5 == mode & 0o5
}
