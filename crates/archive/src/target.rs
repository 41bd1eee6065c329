//! The target directory: creates entries beneath it and never follows links out of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{UnpackError, shown};
use spec::path::RelPath;
use sys::credentials::{AssumedFileIds, HostIds};
use sys::file::{CallError, open_beneath};

const DIRECTORY_MODE: u32 = 0o755;

/// The mode of a file in a bundle.
pub fn file_bits(executable: bool) -> u32 {
    if executable { 0o755 } else { 0o644 }
}

/// Mode bits that the kernel is known to keep or to clear at creation: the effects of the umask and of
/// default ACLs cannot be queried directly.
#[derive(Debug, Default, Clone, Copy)]
struct CreationMask {
    kept: u32,
    cleared: u32,
    /// The kernel adds bits, as below a set-group-id directory.
    adds_bits: bool,
}

impl CreationMask {
    /// Whether an entry created with `bits` has other bits; `None` if unknown.
    fn changes(self, bits: u32) -> Option<bool> {
        if self.adds_bits || bits & self.cleared != 0 {
            return Some(true);
        }
        (bits & !self.kept == 0 && self.kept != 0).then_some(false)
    }

    /// Records that an entry created with `bits` has the mode `found`. Returns whether they differ.
    fn learn(&mut self, bits: u32, found: u32) -> bool {
        let found = found & 0o7777;
        self.kept |= bits & found;
        self.cleared |= bits & !found;
        self.adds_bits |= found & !bits != 0;
        found != bits
    }
}

/// Maximum number of directories that stay open.
const OPEN_MAX: usize = 16;

/// The open target directory, and the open directories on the path to the last used one.
#[derive(Debug)]
pub struct Target<'fd> {
    root: BorrowedFd<'fd>,
    ids: Option<HostIds>,
    /// The last used directory.
    last_directory: Vec<u8>,
    /// Open directories on the path to it, outermost first, each with the length of its path.
    open: Vec<(usize, OwnedFd)>,
    file_mask: CreationMask,
    directory_mask: CreationMask,
}

impl<'fd> Target<'fd> {
    /// Creates a target in `root`; entries are created with `ids` if given.
    pub fn new(root: BorrowedFd<'fd>, ids: Option<HostIds>) -> Self {
        Self {
            root,
            ids,
            last_directory: Vec::new(),
            open: Vec::new(),
            file_mask: CreationMask::default(),
            directory_mask: CreationMask::default(),
        }
    }

    /// Opens `path` through its parent, which stays open for later calls.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno.
    pub fn open(
        &mut self,
        path: &RelPath,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, UnpackError> {
        let parent = self.parent_of(path)?;
        open_beneath(parent, path.file_name(), flags, mode)
            .map_err(|errno| failed("openat2", path, errno))
    }

    /// Creates a new file with this mode, open for writing.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno: EEXIST if the path exists.
    pub fn create_file(&mut self, path: &RelPath, bits: u32) -> Result<OwnedFd, UnpackError> {
        let _ids = self.assume_ids(path)?;
        let mode = Mode::from_raw_mode(bits);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = self.open(path, flags, mode)?;
        let is_changed = match self.file_mask.changes(bits) {
            Some(known) => known,
            None => {
                let status =
                    rustix::fs::fstat(&file).map_err(|errno| failed("fstat", path, errno))?;
                self.file_mask.learn(bits, status.st_mode)
            }
        };
        if is_changed {
            rustix::fs::fchmod(&file, mode).map_err(|errno| failed("fchmod", path, errno))?;
        }
        Ok(file)
    }

    /// Creates a new directory with mode 0755.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno: EEXIST if the path exists.
    pub fn create_directory(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        self.create_directory_as(path, DIRECTORY_MODE)
    }

    pub(crate) fn create_directory_as(
        &mut self,
        path: &RelPath,
        bits: u32,
    ) -> Result<(), UnpackError> {
        let _ids = self.assume_ids(path)?;
        let mode = Mode::from_raw_mode(bits);
        let mut mask = self.directory_mask;
        let parent = self.parent_of(path)?;
        let name = path.file_name();
        rustix::fs::mkdirat(parent, name, mode).map_err(|errno| failed("mkdirat", path, errno))?;
        let is_changed = match mask.changes(bits) {
            Some(known) => known,
            None => {
                let status = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| failed("fstatat", path, errno))?;
                mask.learn(bits, status.st_mode)
            }
        };
        if is_changed {
            set_mode(parent, path, mode)?;
        }
        self.directory_mask = mask;
        Ok(())
    }

    pub(crate) fn set_directory_mode(
        &mut self,
        path: &RelPath,
        bits: u32,
    ) -> Result<(), UnpackError> {
        let _ids = self.assume_ids(path)?;
        set_mode(self.parent_of(path)?, path, Mode::from_raw_mode(bits))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno.
    pub fn remove_directory(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let _ids = self.assume_ids(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::unlinkat(parent, path.file_name(), AtFlags::REMOVEDIR)
            .map_err(|errno| failed("unlinkat", path, errno))?;
        // One of the open directories may be the removed one.
        self.open.clear();
        self.last_directory.clear();
        Ok(())
    }

    /// Creates the new hard link `path` to the file `from`.
    pub(crate) fn create_hard_link(
        &mut self,
        path: &RelPath,
        from: &RelPath,
    ) -> Result<(), UnpackError> {
        let source_parent = rustix::io::fcntl_dupfd_cloexec(self.parent_of(from)?, 0)
            .map_err(|errno| failed("fcntl", from, errno))?;
        let parent = self.parent_of(path)?;
        let (source_name, name) = (from.file_name(), path.file_name());
        // Without AT_SYMLINK_FOLLOW, so that a symlink itself is linked.
        rustix::fs::linkat(&source_parent, source_name, parent, name, AtFlags::empty())
            .map_err(|errno| failed("linkat", path, errno))
    }

    /// Creates an overlayfs whiteout: the character device 0:0, which needs no privilege (mknod(2) since
    /// Linux 5.8).
    pub(crate) fn create_whiteout(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let parent = self.parent_of(path)?;
        let kind = FileType::CharacterDevice;
        rustix::fs::mknodat(parent, path.file_name(), kind, Mode::empty(), 0)
            .map_err(|errno| failed("mknodat", path, errno))
    }

    /// Creates a new symbolic link.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno: EEXIST if the path exists.
    pub fn create_symlink(&mut self, path: &RelPath, target: &[u8]) -> Result<(), UnpackError> {
        let _ids = self.assume_ids(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::symlinkat(target, parent, path.file_name())
            .map_err(|errno| failed("symlinkat", path, errno))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno.
    pub fn remove_file(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let _ids = self.assume_ids(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::unlinkat(parent, path.file_name(), AtFlags::empty())
            .map_err(|errno| failed("unlinkat", path, errno))
    }

    fn assume_ids(&self, path: &RelPath) -> Result<AssumedFileIds, UnpackError> {
        AssumedFileIds::assume(self.ids).map_err(|errno| failed("setfsuid", path, errno))
    }

    /// Opens the parent of `path` from the innermost open directory above it.
    fn parent_of(&mut self, path: &RelPath) -> Result<BorrowedFd<'_>, UnpackError> {
        let bytes = path.as_bytes();
        let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/') else {
            return Ok(self.root);
        };
        let parent = &bytes[..slash];
        while let Some((length, _)) = self.open.last() {
            match parent.strip_prefix(&self.last_directory[..*length]) {
                Some([] | [b'/', ..]) => break,
                _ => drop(self.open.pop()),
            }
        }
        let open_length = self.open.last().map_or(0, |(length, _)| *length);
        if open_length < parent.len() {
            let above = self.open.last().map_or(self.root, |(_, open)| open.as_fd());
            let rest = parent[open_length..].strip_prefix(b"/").unwrap_or(parent);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let opened = open_beneath(above, rest, flags, Mode::empty())
                .map_err(|errno| failed("openat2", path, errno))?;
            self.open.truncate(OPEN_MAX - 1);
            self.open.push((parent.len(), opened));
            self.last_directory.clear();
            self.last_directory.extend_from_slice(parent);
        }
        Ok(self.open.last().map_or(self.root, |(_, open)| open.as_fd()))
    }
}

/// By name: a directory without permissions for this process cannot be opened for fchmod(2). This process
/// created the name, in a directory that only it writes to.
fn set_mode(parent: BorrowedFd<'_>, path: &RelPath, mode: Mode) -> Result<(), UnpackError> {
    rustix::fs::chmodat(parent, path.file_name(), mode, AtFlags::empty())
        .map_err(|errno| failed("fchmodat", path, errno))
}

/// Writes all of `data` to `file`.
///
/// # Errors
/// [`UnpackError::Target`] with the errno: ENOSPC if no space is left.
pub fn write_all(file: BorrowedFd<'_>, path: &RelPath, data: &[u8]) -> Result<(), UnpackError> {
    sys::file::write_all(file, data).map_err(|errno| failed("write", path, errno))
}

/// Creates the error of `call` on `path` beneath the target.
pub fn failed(call: &'static str, path: &RelPath, errno: Errno) -> UnpackError {
    let name = shown(path.as_bytes());
    UnpackError::Target {
        source: CallError::new(call, name.clone(), errno),
        name,
    }
}
