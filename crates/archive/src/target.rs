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
struct Masked {
    kept: u32,
    taken: u32,
    /// The kernel adds bits, as below a set-group-id directory.
    adds: bool,
}

impl Masked {
    /// Whether an entry created with `bits` has other bits; `None` if unknown.
    fn changes(self, bits: u32) -> Option<bool> {
        if self.adds || bits & self.taken != 0 {
            return Some(true);
        }
        (bits & !self.kept == 0 && self.kept != 0).then_some(false)
    }

    /// Records the result of a creation with `bits`.
    fn learn(&mut self, bits: u32, found: u32) -> bool {
        let found = found & 0o7777;
        self.kept |= bits & found;
        self.taken |= bits & !found;
        self.adds |= found & !bits != 0;
        found != bits
    }
}

/// Maximum number of directories that are kept open.
const OPEN_MAX: usize = 16;

/// The open target directory, and the open directories on the path to the last used one.
#[derive(Debug)]
pub struct Target<'fd> {
    root: BorrowedFd<'fd>,
    ids: Option<HostIds>,
    /// The last used directory.
    here: Vec<u8>,
    /// Open directories on the path to it, outermost first, each with the length of its path.
    open: Vec<(usize, OwnedFd)>,
    masked_files: Masked,
    masked_directories: Masked,
}

impl<'fd> Target<'fd> {
    /// Creates a target in `root`; entries are created with `ids` if given.
    pub fn new(root: BorrowedFd<'fd>, ids: Option<HostIds>) -> Self {
        Self {
            root,
            ids,
            here: Vec::new(),
            open: Vec::new(),
            masked_files: Masked::default(),
            masked_directories: Masked::default(),
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
        let _ids = self.assume(path)?;
        let mode = Mode::from_raw_mode(bits);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = self.open(path, flags, mode)?;
        let is_masked = match self.masked_files.changes(bits) {
            Some(known) => known,
            None => {
                let status =
                    rustix::fs::fstat(&file).map_err(|errno| failed("fstat", path, errno))?;
                self.masked_files.learn(bits, status.st_mode)
            }
        };
        if is_masked {
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

    /// Creates a new directory with this mode.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno: EEXIST if the path exists.
    pub(crate) fn create_directory_as(
        &mut self,
        path: &RelPath,
        bits: u32,
    ) -> Result<(), UnpackError> {
        let _ids = self.assume(path)?;
        let mode = Mode::from_raw_mode(bits);
        let mut masked = self.masked_directories;
        let parent = self.parent_of(path)?;
        let name = path.file_name();
        rustix::fs::mkdirat(parent, name, mode).map_err(|errno| failed("mkdirat", path, errno))?;
        let is_masked = match masked.changes(bits) {
            Some(known) => known,
            None => {
                let status = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| failed("fstatat", path, errno))?;
                masked.learn(bits, status.st_mode)
            }
        };
        if is_masked {
            change_mode(parent, path, mode)?;
        }
        self.masked_directories = masked;
        Ok(())
    }

    /// Sets the mode of an existing directory.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno.
    pub(crate) fn change_directory(
        &mut self,
        path: &RelPath,
        bits: u32,
    ) -> Result<(), UnpackError> {
        let _ids = self.assume(path)?;
        change_mode(self.parent_of(path)?, path, Mode::from_raw_mode(bits))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno.
    pub fn remove_directory(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let _ids = self.assume(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::unlinkat(parent, path.file_name(), AtFlags::REMOVEDIR)
            .map_err(|errno| failed("unlinkat", path, errno))?;
        // One of the open directories may be the removed one.
        self.open.clear();
        self.here.clear();
        Ok(())
    }

    /// Creates the new hard link `path` to the file `from`.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno: EEXIST if the path exists.
    pub(crate) fn create_hard_link(
        &mut self,
        path: &RelPath,
        from: &RelPath,
    ) -> Result<(), UnpackError> {
        let of_source = rustix::io::fcntl_dupfd_cloexec(self.parent_of(from)?, 0)
            .map_err(|errno| failed("fcntl", from, errno))?;
        let parent = self.parent_of(path)?;
        let (name, to) = (from.file_name(), path.file_name());
        // Without AT_SYMLINK_FOLLOW, so that a symlink itself is linked.
        rustix::fs::linkat(&of_source, name, parent, to, AtFlags::empty())
            .map_err(|errno| failed("linkat", path, errno))
    }

    /// Creates an overlayfs whiteout: the character device 0:0, which needs no privilege (mknod(2) since
    /// Linux 5.8).
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno: EEXIST if the path exists.
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
        let _ids = self.assume(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::symlinkat(target, parent, path.file_name())
            .map_err(|errno| failed("symlinkat", path, errno))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the errno.
    pub fn remove_file(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let _ids = self.assume(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::unlinkat(parent, path.file_name(), AtFlags::empty())
            .map_err(|errno| failed("unlinkat", path, errno))
    }

    fn assume(&self, path: &RelPath) -> Result<AssumedFileIds, UnpackError> {
        AssumedFileIds::assume(self.ids).map_err(|errno| failed("setfsuid", path, errno))
    }

    fn parent_of(&mut self, path: &RelPath) -> Result<BorrowedFd<'_>, UnpackError> {
        let bytes = path.as_bytes();
        let Some(cut) = bytes.iter().rposition(|byte| *byte == b'/') else {
            return Ok(self.root);
        };
        let wanted = &bytes[..cut];
        while let Some((length, _)) = self.open.last() {
            match wanted.strip_prefix(&self.here[..*length]) {
                Some([] | [b'/', ..]) => break,
                _ => drop(self.open.pop()),
            }
        }
        let known = self.open.last().map_or(0, |(length, _)| *length);
        if known < wanted.len() {
            let above = self.open.last().map_or(self.root, |(_, held)| held.as_fd());
            let rest = wanted[known..].strip_prefix(b"/").unwrap_or(wanted);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let held = open_beneath(above, rest, flags, Mode::empty())
                .map_err(|errno| failed("openat2", path, errno))?;
            self.open.truncate(OPEN_MAX - 1);
            self.open.push((wanted.len(), held));
            self.here.clear();
            self.here.extend_from_slice(wanted);
        }
        Ok(self.open.last().map_or(self.root, |(_, held)| held.as_fd()))
    }
}

/// By name: a directory without permissions for this process cannot be opened for fchmod(2). This process
/// created the name, in a directory that only it writes to.
fn change_mode(parent: BorrowedFd<'_>, path: &RelPath, mode: Mode) -> Result<(), UnpackError> {
    rustix::fs::chmodat(parent, path.file_name(), mode, AtFlags::empty())
        .map_err(|errno| failed("fchmodat", path, errno))
}

/// Writes all of `data` to `file`.
///
/// # Errors
/// [`UnpackError::Target`] with the errno: ENOSPC if no space is left.
pub fn write_all(file: BorrowedFd<'_>, path: &RelPath, mut data: &[u8]) -> Result<(), UnpackError> {
    while !data.is_empty() {
        match rustix::io::write(file, data) {
            Ok(count) => data = data.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(failed("write", path, errno)),
        }
    }
    Ok(())
}

/// Creates the error of `call` on `path` beneath the target.
pub fn failed(call: &'static str, path: &RelPath, errno: Errno) -> UnpackError {
    let name = shown(path.as_bytes());
    UnpackError::Target {
        source: CallError::new(call, name.clone(), errno),
        name,
    }
}
