//! Reads layers as overlayfs would merge them, without a mount. Whiteouts, opaque directories and
//! links apply. No path leaves the root.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::oci::layers::LockedLayer;
use spec::path::{PATH_BYTES_MAX, RelPath, escape};
use spec::units::limit;
use sys::file::{CallError, Unread, open_directory, read_regular};

/// Most symbolic links per path (MAXSYMLINKS in linux/namei.h).
const LINKS_MAX: u32 = 40;
/// Most lookups per path, including those of its links.
const STEPS_MAX: u32 = 20_000;
const OPAQUE: &str = "user.overlay.opaque";

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File {
        /// Any execute bit is set.
        executable: bool,
    },
}

/// Error of a lookup in the layers.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("the image cannot be read")]
    Call(#[source] CallError),
    #[error("`{path}` of the image is larger than {}", limit(.bytes_max))]
    TooLarge { path: String, bytes_max: u64 },
}

/// Layers, merged as by overlayfs.
#[derive(Debug, Clone)]
pub struct Merged<'layers> {
    roots: Vec<BorrowedFd<'layers>>,
}

/// One name in the merged directories.
enum Found {
    /// The directory in each layer that contributes, uppermost first.
    Directory(Vec<OwnedFd>),
    /// Not a directory: its parent and its status.
    Other { parent: OwnedFd, status: Box<Stat> },
}

/// Result of a lookup that follows links.
enum Resolved {
    /// The directory in each layer that contributes; `None` for the root.
    Directory(Option<Vec<OwnedFd>>),
    Other {
        parent: OwnedFd,
        name: Vec<u8>,
        status: Box<Stat>,
    },
}

impl<'layers> Merged<'layers> {
    /// Merges `layers`, lowest first.
    #[must_use]
    pub fn new(layers: impl IntoIterator<Item = &'layers LockedLayer>) -> Self {
        Self::of_roots(layers.into_iter().map(|layer| layer.root.as_fd()))
    }

    /// Merges the roots of layers, lowest first.
    #[must_use]
    pub fn of_roots(roots: impl IntoIterator<Item = BorrowedFd<'layers>>) -> Self {
        let mut roots: Vec<_> = roots.into_iter().collect();
        roots.reverse();
        Self { roots }
    }

    /// Checks whether an entry exists at `path`, without following links.
    ///
    /// # Errors
    /// The system call that failed.
    pub fn has(&self, path: &RelPath) -> Result<bool, CallError> {
        let mut cursor = Cursor::new(&self.roots);
        let last = path.segments().count() - 1;
        for (index, name) in path.segments().enumerate() {
            match cursor.look_up(name)? {
                None => return Ok(false),
                Some(Found::Other { .. }) => return Ok(index == last),
                Some(Found::Directory(directories)) => cursor.enter(name.to_vec(), directories),
            }
        }
        Ok(true)
    }

    /// See [`Image::kind_of`](crate::oci::layers::Image::kind_of).
    pub fn kind_of(&self, path: &[u8]) -> Result<Option<Kind>, LookupError> {
        Ok(match self.find(path)? {
            Some(Resolved::Directory(_)) => Some(Kind::Directory),
            Some(Resolved::Other { status, .. }) => {
                let executable = status.st_mode & 0o111 != 0;
                is_file(&status).then_some(Kind::File { executable })
            }
            None => None,
        })
    }

    /// See [`Image::read_file`](crate::oci::layers::Image::read_file).
    pub fn read_file(&self, path: &[u8], bytes_max: u64) -> Result<Option<Vec<u8>>, LookupError> {
        let Some(Resolved::Other {
            parent,
            name,
            status,
        }) = self.find(path)?
        else {
            return Ok(None);
        };
        if !is_file(&status) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let failed =
            |call| move |errno| LookupError::Call(CallError::new(call, escape(path), errno));
        let file = rustix::fs::openat(&parent, &name[..], flags, Mode::empty())
            .map_err(failed("openat"))?;
        let limit_bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match read_regular(file, limit_bytes) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Unread::TooLarge) => Err(LookupError::TooLarge {
                path: escape(path),
                bytes_max,
            }),
            Err(Unread::NotRegular) => Ok(None),
            Err(Unread::Stat(errno)) => Err(failed("fstat")(errno)),
            Err(Unread::Read(errno)) => Err(failed("read")(errno)),
        }
    }

    /// See [`Image::directories_in`](crate::oci::layers::Image::directories_in).
    pub fn directories_in(
        &self,
        path: &[u8],
        names_max: usize,
    ) -> Result<Vec<Vec<u8>>, LookupError> {
        let failed = |errno| LookupError::Call(CallError::new("getdents64", escape(path), errno));
        let Some(Resolved::Directory(Some(layers))) = self.find(path)? else {
            return Ok(Vec::new());
        };
        let mut names = BTreeSet::new();
        for layer in &layers {
            for entry in Dir::read_from(layer).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                names.insert(name.to_vec());
                if names.len() > names_max {
                    return Ok(Vec::new());
                }
            }
        }
        let mut directories = Vec::new();
        for name in names {
            // A lower layer also lists names that an upper layer hides.
            if matches!(look_up(&layers, &name), Ok(Some(Found::Directory(_)))) {
                directories.push(name);
            }
        }
        Ok(directories)
    }

    fn find(&self, path: &[u8]) -> Result<Option<Resolved>, LookupError> {
        self.resolve(path).map_err(LookupError::Call)
    }

    fn resolve(&self, path: &[u8]) -> Result<Option<Resolved>, CallError> {
        if path.len() > PATH_BYTES_MAX {
            return Ok(None);
        }
        let mut cursor = Cursor::new(&self.roots);
        let mut pending: Vec<Vec<u8>> = Vec::new();
        push(&mut pending, path);
        let mut links = 0;
        while let Some(name) = pending.pop() {
            let is_last = pending.is_empty();
            let found = match &name[..] {
                b".." => {
                    if !cursor.go_up()? {
                        return Ok(None);
                    }
                    continue;
                }
                name => cursor.look_up(name)?,
            };
            match found {
                None => return Ok(None),
                Some(Found::Directory(directories)) => cursor.enter(name, directories),
                Some(Found::Other { parent, status }) if is_link(&status) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Ok(None);
                    }
                    let target = rustix::fs::readlinkat(&parent, &name[..], Vec::new())
                        .map_err(|errno| CallError::new("readlinkat", escape(&name), errno))?;
                    let target = target.as_bytes();
                    if target.starts_with(b"/") {
                        cursor.go_to_root();
                    }
                    push(&mut pending, target);
                }
                Some(Found::Other { parent, status }) => {
                    return Ok(is_last.then_some(Resolved::Other {
                        parent,
                        name,
                        status,
                    }));
                }
            }
        }
        Ok(Some(Resolved::Directory(cursor.directories)))
    }
}

/// A directory of the merged layers, and the path to it.
struct Cursor<'a, 'layers> {
    roots: &'a [BorrowedFd<'layers>],
    names: Vec<Vec<u8>>,
    /// `None` for the root.
    directories: Option<Vec<OwnedFd>>,
    steps: u32,
}

impl<'a, 'layers> Cursor<'a, 'layers> {
    fn new(roots: &'a [BorrowedFd<'layers>]) -> Self {
        Self {
            roots,
            names: Vec::new(),
            directories: None,
            steps: 0,
        }
    }

    /// Returns `None` for a missing name and above [`STEPS_MAX`].
    fn look_up(&mut self, name: &[u8]) -> Result<Option<Found>, CallError> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Ok(None);
        }
        match &self.directories {
            None => look_up(self.roots, name),
            Some(directories) => look_up(directories, name),
        }
    }

    fn enter(&mut self, name: Vec<u8>, directories: Vec<OwnedFd>) {
        self.names.push(name);
        self.directories = Some(directories);
    }

    fn go_to_root(&mut self) {
        self.names.clear();
        self.directories = None;
    }

    /// Moves to the parent; the parent of the root is the root. Returns `false` above
    /// [`STEPS_MAX`].
    fn go_up(&mut self) -> Result<bool, CallError> {
        let mut names = std::mem::take(&mut self.names);
        names.pop();
        self.go_to_root();
        for name in names {
            match self.look_up(&name)? {
                Some(Found::Directory(directories)) => self.enter(name, directories),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Pushes the names of `path` to a stack: the first name is the last element.
fn push(pending: &mut Vec<Vec<u8>>, path: &[u8]) {
    let names = path.rsplit(|byte| *byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    pending.extend(names.map(<[u8]>::to_vec));
}

/// Looks up `name` in `directories`, uppermost first (Documentation/filesystems/overlayfs.rst,
/// "whiteouts and opaque directories").
fn look_up(
    directories: &[impl std::os::fd::AsFd],
    name: &[u8],
) -> Result<Option<Found>, CallError> {
    let failed = |call: &'static str| move |errno: Errno| CallError::new(call, escape(name), errno);
    let mut merged = Vec::new();
    for (index, directory) in directories.iter().enumerate() {
        let directory = directory.as_fd();
        let status = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(Errno::NOENT | Errno::NAMETOOLONG) => continue,
            Err(errno) => return Err(failed("fstatat")(errno)),
        };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => {
                let opened = open_directory(directory, name).map_err(failed("openat"))?;
                let is_last = index + 1 == directories.len();
                let is_opaque =
                    !is_last && has_opaque_mark(opened.as_fd()).map_err(failed("fgetxattr"))?;
                merged.push(opened);
                if is_opaque {
                    break;
                }
            }
            // A whiteout: layers have no other devices.
            FileType::CharacterDevice => break,
            _ if merged.is_empty() => {
                let parent =
                    rustix::io::fcntl_dupfd_cloexec(directory, 0).map_err(failed("fcntl"))?;
                let status = Box::new(status);
                return Ok(Some(Found::Other { parent, status }));
            }
            _ => break,
        }
    }
    Ok((!merged.is_empty()).then_some(Found::Directory(merged)))
}

fn has_opaque_mark(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut value = [0_u8; 8];
    match rustix::fs::fgetxattr(directory, OPAQUE, &mut value) {
        Ok(count) => Ok(value.get(..count) == Some(b"y")),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn is_file(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
}

fn is_link(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Symlink
}
