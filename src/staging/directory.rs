//! Opens untrusted directories by descriptor, whatever their mode.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Buffer of one getdents64(2): some hundred names.
const LISTING_BYTES: usize = 32 * 1_024;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: CString,
    pub(super) kind: FileType,
}

/// Opens the directory `name` in `parent` for reading, never through a link.
pub(super) fn open(parent: BorrowedFd<'_>, name: impl Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, READ, Mode::empty())
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// As [`open`], and gives the owner (us) the rights to list and to change the directory.
///
/// # Errors
/// EXDEV if `name` is a mount point: what is mounted there is not ours.
pub(super) fn open_with_rights(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = match open(parent, name) {
        Err(Errno::ACCESS) => open_forbidden(parent, name, Some(parent))?,
        other => other?,
    };
    same_mount(parent, opened.as_fd())?;
    let stat = rustix::fs::fstat(&opened)?;
    if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
        match rustix::fs::fchmod(&opened, Mode::RWXU) {
            // Not ours: the call that its mode forbids fails and reports it.
            Ok(()) | Err(Errno::PERM | Errno::ROFS) => (),
            Err(errno) => return Err(errno),
        }
    }
    Ok(opened)
}

/// As [`open`], for a directory that we just made: the umask may have removed our own rights.
pub(super) fn open_made(parent: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    match open(parent, name) {
        Err(Errno::ACCESS) => open_forbidden(parent, name, None),
        other => other,
    }
}

/// Opens a directory whose mode forbids its owner to read it, after changing the mode.
fn open_forbidden(
    parent: BorrowedFd<'_>,
    name: impl Arg,
    on_mount_of: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if let Some(directory) = on_mount_of {
        same_mount(directory, seen.as_fd())?;
    }
    reopen_with_rights(seen.as_fd())
}

/// Gives the owner (us) all rights, then opens the directory again. `directory` may be `O_PATH`.
pub(super) fn reopen_with_rights(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // fchmod(2) refuses O_PATH descriptors. Their path in /proc leads to the same directory after a
    // rename.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::chmodat(CWD, path.as_str(), Mode::RWXU, AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path.as_str(), flags, Mode::empty())
}

/// EXDEV unless both are on the same mount.
fn same_mount(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<(), Errno> {
    let mount = |fd| {
        let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        // Linux before 5.8 does not report the mount; then only the devices are compared.
        let known = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok((
            known.then_some(stat.stx_mnt_id),
            stat.stx_dev_major,
            stat.stx_dev_minor,
        ))
    };
    if mount(one)? == mount(other)? {
        return Ok(());
    }
    Err(Errno::XDEV)
}

/// Appends the next few entries of `directory` to `found`; `false` at the end.
pub(super) fn list_some(
    directory: BorrowedFd<'_>,
    found: &mut VecDeque<Entry>,
) -> Result<bool, Errno> {
    let mut buffer = Vec::<u8>::with_capacity(LISTING_BYTES);
    let mut listing = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut any = false;
    while let Some(entry) = listing.next() {
        let entry = entry?;
        any = true;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            found.push_back(Entry {
                name: name.to_owned(),
                kind: entry.file_type(),
            });
        }
        // The next step would call the kernel again.
        if listing.is_buffer_empty() {
            break;
        }
    }
    Ok(any)
}

pub(super) fn is_empty(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut found = VecDeque::new();
    while found.is_empty() && list_some(directory, &mut found)? {}
    Ok(found.is_empty())
}

/// Identifies a file as long as it is open: device and inode.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
