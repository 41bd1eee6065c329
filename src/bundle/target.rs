//! The directory that is written into: names are created in it, never followed out of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::bundle::error::{UnpackError, shown};
use crate::kernel::credentials::{AssumedFileIds, HostIds};
use crate::kernel::file::{CallError, open_beneath};
use crate::spec::path::RelPath;

const FILE_MODE: u32 = 0o644;
const PROGRAM_MODE: u32 = 0o755;
const DIRECTORY_MODE: u32 = 0o755;

/// Whether this process's umask takes bits away; found out once for each kind.
#[derive(Debug, Default, Clone, Copy)]
struct Masked {
    file: Option<bool>,
    program: Option<bool>,
    directory: Option<bool>,
}

/// Most directories that are held open at once.
const OPEN_MAX: usize = 16;

/// An open directory, and those beneath it that lead to the one that was used last.
#[derive(Debug)]
pub(crate) struct Target<'fd> {
    root: BorrowedFd<'fd>,
    ids: Option<HostIds>,
    /// The directory that was used last.
    here: Vec<u8>,
    /// Open directories on the way to it, outermost first, each with the length of its path.
    open: Vec<(usize, OwnedFd)>,
    masked: Masked,
}

impl<'fd> Target<'fd> {
    /// Writes into `root`; creates as `ids` where they are given.
    pub(crate) fn new(root: BorrowedFd<'fd>, ids: Option<HostIds>) -> Self {
        Self {
            root,
            ids,
            here: Vec::new(),
            open: Vec::new(),
            masked: Masked::default(),
        }
    }

    /// Opens `path`, through its parent, which stays open for the next calls.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the kernel's answer.
    pub(crate) fn open(
        &mut self,
        path: &RelPath,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, UnpackError> {
        let parent = self.parent_of(path)?;
        open_beneath(parent, path.file_name(), flags, mode)
            .map_err(|errno| failed("openat2", path, errno))
    }

    /// Creates a file that must not be there, mode 0644 or 0755, open for writing.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the kernel's answer: EEXIST where something is there.
    pub(crate) fn create_file(
        &mut self,
        path: &RelPath,
        executable: bool,
    ) -> Result<OwnedFd, UnpackError> {
        let _ids = self.assume(path)?;
        let bits = if executable { PROGRAM_MODE } else { FILE_MODE };
        let mode = Mode::from_raw_mode(bits);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = self.open(path, flags, mode)?;
        let masked = match executable {
            true => &mut self.masked.program,
            false => &mut self.masked.file,
        };
        let is_masked = match *masked {
            Some(known) => known,
            None => {
                let status =
                    rustix::fs::fstat(&file).map_err(|errno| failed("fstat", path, errno))?;
                *masked.insert(status.st_mode & 0o7777 != bits)
            }
        };
        if is_masked {
            rustix::fs::fchmod(&file, mode).map_err(|errno| failed("fchmod", path, errno))?;
        }
        Ok(file)
    }

    /// Creates a directory that must not be there, mode 0755.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the kernel's answer: EEXIST where something is there.
    pub(crate) fn create_directory(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let _ids = self.assume(path)?;
        let mode = Mode::from_raw_mode(DIRECTORY_MODE);
        let known = self.masked.directory;
        let parent = self.parent_of(path)?;
        let name = path.file_name();
        rustix::fs::mkdirat(parent, name, mode).map_err(|errno| failed("mkdirat", path, errno))?;
        let is_masked = match known {
            Some(known) => known,
            None => {
                let status = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| failed("fstatat", path, errno))?;
                status.st_mode & 0o7777 != DIRECTORY_MODE
            }
        };
        if is_masked {
            // By name: a directory without any right of ours cannot be opened for fchmod(2).
            // The name was created one call ago in a directory that only we write to.
            rustix::fs::chmodat(parent, name, mode, AtFlags::empty())
                .map_err(|errno| failed("fchmodat", path, errno))?;
        }
        self.masked.directory = Some(is_masked);
        Ok(())
    }

    /// Creates a symbolic link that must not be there.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the kernel's answer: EEXIST where something is there.
    pub(crate) fn create_symlink(
        &mut self,
        path: &RelPath,
        target: &[u8],
    ) -> Result<(), UnpackError> {
        let _ids = self.assume(path)?;
        let parent = self.parent_of(path)?;
        rustix::fs::symlinkat(target, parent, path.file_name())
            .map_err(|errno| failed("symlinkat", path, errno))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`UnpackError::Target`] with the kernel's answer.
    pub(crate) fn remove_file(&mut self, path: &RelPath) -> Result<(), UnpackError> {
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

/// Writes all of `data` to `file`.
///
/// # Errors
/// [`UnpackError::Target`] with the kernel's answer: ENOSPC where the space is used up.
pub(crate) fn write_all(
    file: BorrowedFd<'_>,
    path: &RelPath,
    mut data: &[u8],
) -> Result<(), UnpackError> {
    while !data.is_empty() {
        match rustix::io::write(file, data) {
            Ok(count) => data = data.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(failed("write", path, errno)),
        }
    }
    Ok(())
}

/// The error of `call` on `path` beneath the target.
pub(crate) fn failed(call: &'static str, path: &RelPath, errno: Errno) -> UnpackError {
    let name = shown(path.as_bytes());
    UnpackError::Target {
        source: CallError::new(call, name.clone(), errno),
        name,
    }
}
