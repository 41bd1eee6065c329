//! Inspects the host directories and files that are mounted in a run, and clones their trees for
//! root.

use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::view::{self, Access, MountSource, NO_DEVICES, RequestedMount};
use spec::path::escape;
use spec::request::ViewEntry;
use sys::credentials::HostIds;
use sys::link::DESCRIPTORS_MAX;
use sys::mount::{self, Attributes};
use sys::nofollow;
use sys::owner_map::OwnerMap;
use sys::trusted_links::{self, Unopened};

/// A requested mount that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{what} {object} {problem}")]
    Refused {
        /// Stable.
        code: &'static str,
        what: &'static str,
        /// Escaped.
        object: String,
        problem: String,
        hint: Option<String>,
    },
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

/// Maximum number of trees cloned for root. One message to the child carries them and the
/// descriptors of the cgroups.
const TREES_MAX: usize = DESCRIPTORS_MAX - 13;

/// Inspects each source. For root (`body` is `Some`) also clones each tree and maps its owner to the
/// body, because the child, which has the body's uid, cannot traverse directories of root.
///
/// # Errors
/// [`MountError::Refused`]: the source does not exist, or cannot be written with the body's uid;
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
        if let (Some(owners), MountSource::Host { path, access }) = (&mut owners, &mount.source) {
            if trees.len() == TREES_MAX {
                return Err(too_many(entries.len()));
            }
            let (access, path) = (*access, Path::new(OsStr::from_bytes(path)));
            let (tree, is_directory) = clone_tree(path, owners, access == Access::Writable)?;
            mount.is_directory = is_directory;
            mount.source = MountSource::Tree {
                tree: trees.len(),
                access,
            };
            trees.push(tree);
        }
        mounts.push(mount);
    }
    Ok((mounts, trees))
}

/// Inspects the source of one entry without cloning it. Resolves the links of a read-only source.
/// The caller must have resolved and checked the links of a writable source; they are not resolved
/// again.
///
/// # Errors
/// [`MountError::Refused`]: the source does not exist, is a device, or cannot be resolved; the target
/// is not allowed.
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
    let (source, found) = if *writable {
        let found = source.metadata();
        let found = found.map_err(|error| source_missing(source, &error))?;
        (source.clone(), found)
    } else {
        resolve_source(source)?
    };
    refuse_device(&source, &found)?;
    view::check_target(target.as_os_str().as_bytes())
        .map_err(|error| with_other_target(error, &source, *writable))?;
    let mut mount = RequestedMount::of(entry, found.is_dir());
    let path = source.into_os_string().into_vec();
    mount.source = MountSource::Host { path, access };
    Ok(mount)
}

/// Refuses a device of any mode, because the sandbox cannot limit what its driver does.
fn refuse_device(source: &Path, found: &Metadata) -> Result<(), MountError> {
    let kind = found.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        return Ok(());
    }
    Err(MountError::Refused {
        code: "mount_source_device",
        what: "mount source",
        object: escape(source.as_os_str().as_bytes()),
        problem: format!("is a device; {NO_DEVICES}"),
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
/// [`MountError::Refused`]: the source does not exist, a link on the way belongs to another user, or
/// the resolved path is another file. The latter happens with links of /proc that lead into another
/// mount namespace.
pub fn resolve_source(source: &Path) -> Result<(PathBuf, Metadata), MountError> {
    let missing = |error: std::io::Error| source_missing(source, &error);
    let followed = source.metadata().map_err(missing)?;
    let opened =
        trusted_links::open(source.as_os_str().as_bytes()).map_err(|unopened| match unopened {
            Unopened::Call(errno) => missing(errno.into()),
            Unopened::Link { link, uid } => MountError::Refused {
                code: "mount_source_link",
                what: "mount source",
                object: escape(source.as_os_str().as_bytes()),
                problem: format!(
                    "cannot be used: the link `{}` on the way belongs to uid {uid}",
                    escape(&link)
                ),
                hint: Some(
                    "name the path itself, or create the link as the user who runs this".to_owned(),
                ),
            },
        })?;
    let descriptor_path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let real = std::fs::read_link(descriptor_path).map_err(missing)?;
    let found = real.symlink_metadata().map_err(missing)?;
    if (followed.dev(), followed.ino()) == (found.dev(), found.ino()) {
        return Ok((real, found));
    }
    let real = escape(real.as_os_str().as_bytes());
    Err(MountError::Refused {
        code: "mount_source_changed",
        what: "mount source",
        object: escape(source.as_os_str().as_bytes()),
        problem: format!("is another file than {real}, to which its links resolve by name"),
        hint: Some("name a path of the runner's own mount namespace".to_owned()),
    })
}

fn source_missing(source: &Path, error: &std::io::Error) -> MountError {
    MountError::Refused {
        code: "mount_source_missing",
        what: "mount source",
        object: escape(source.as_os_str().as_bytes()),
        problem: format!("cannot be opened: {error}"),
        hint: Some("name a path that exists on the host and that you may access".to_owned()),
    }
}

fn too_many(count: usize) -> MountError {
    MountError::Refused {
        code: "mounts_too_many",
        what: "number of mounts",
        object: count.to_string(),
        problem: format!("exceeds the limit of {TREES_MAX} for runs of root"),
        hint: Some("mount a directory that contains several of them".to_owned()),
    }
}

/// The id maps of this run, one per owner of its mounts. Creating one needs a process, which costs
/// several times as much as a mount.
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
        let index = match self.maps.iter().position(|(mapped, _)| *mapped == owner) {
            Some(index) => index,
            None => {
                self.maps.push((owner, OwnerMap::new(owner, self.body)?));
                self.maps.len() - 1
            }
        };
        Ok(&self.maps[index].1)
    }
}

/// Suggests another target in the error of a refused target.
fn with_other_target(mut error: MountError, source: &Path, writable: bool) -> MountError {
    let name = source.file_name().and_then(OsStr::to_str);
    if let MountError::Refused { hint, .. } = &mut error
        && is_plain(source)
        && let Some(name) = name
    {
        let source = source.display();
        let mode = if writable { "" } else { ":ro" };
        *hint = Some(format!(
            "mount it at another path: --mount {source}:/data/{name}{mode}"
        ));
    }
    error
}

/// Clones the tree at `source`, whose links are resolved. Also returns whether it is a directory.
fn clone_tree(
    source: &Path,
    owners: &mut Owners,
    writable: bool,
) -> Result<(OwnedFd, bool), MountError> {
    let escaped = escape(source.as_os_str().as_bytes());
    let act = |what: &str| MountError::call(format!("{what} the mount source {escaped}"));
    let path =
        CString::new(source.as_os_str().as_bytes()).map_err(|_nul| act("open")(Errno::INVAL))?;
    let (opened, _) = nofollow::open(&path).map_err(act("open"))?;
    let found = rustix::fs::fstat(&opened).map_err(act("inspect"))?;
    let tree = mount::clone_all(opened.as_fd()).map_err(act("clone"))?;
    if writable || !is_open_to_all(&found) {
        let owner = HostIds {
            uid: found.st_uid,
            gid: found.st_gid,
        };
        map_owner(tree.as_fd(), owner, owners, writable, &escaped)?;
    }
    let mut attributes = Attributes::NOSUID.and(Attributes::NODEV);
    if !writable {
        attributes = attributes.and(Attributes::RDONLY);
    }
    mount::restrict_tree(tree.as_fd(), attributes).map_err(act("restrict"))?;
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok((tree, kind == FileType::Directory))
}

fn map_owner(
    tree: BorrowedFd<'_>,
    owner: HostIds,
    owners: &mut Owners,
    writable: bool,
    escaped: &str,
) -> Result<(), MountError> {
    let map = owners
        .map(owner)
        .map_err(MountError::call("create an id map"))?;
    match mount::map_owners(tree, map.as_fd()) {
        Ok(()) => Ok(()),
        // A read-only mount also works with other owners. Writes would fail later.
        Err(_) if !writable => Ok(()),
        Err(errno) => Err(MountError::Refused {
            code: "mount_not_mappable",
            what: "mount source",
            object: escaped.to_owned(),
            problem: format!("is on a file system that cannot map its owner to the body ({errno})"),
            hint: Some("mount it read-only, or run as an ordinary user".to_owned()),
        }),
    }
}

/// Whether this is a regular file that others may read and execute like its owner. Such a file needs
/// no id map.
fn is_open_to_all(found: &Stat) -> bool {
    let mode = found.st_mode;
    let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
    is_file && (mode >> 6) & 0o5 == mode & 0o5
}
