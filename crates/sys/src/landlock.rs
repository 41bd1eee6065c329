//! Landlock(7): a ruleset over file hierarchies that a process lays upon itself.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::place;
use super::process::check;

/// Rights over files, as in `linux/landlock.h`.
pub mod rights {
    /// Execute a file.
    pub const EXECUTE: u64 = 1 << 0;
    /// Open a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Link or rename between directories (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// The rights above that mean something for what is not a directory.
    pub(crate) const OF_FILES: u64 = EXECUTE | WRITE_FILE;
}

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

/// The version of the kernel's Landlock, 0 where there is none: a kernel without it, one that was
/// told to leave it out, or a filter around us that does not know it (EPERM).
///
/// # Errors
/// Any other errno of landlock_create_ruleset(2): then nobody knows.
pub fn abi() -> Result<u32, Errno> {
    let nothing = std::ptr::null::<RulesetAttr>();
    // SAFETY: a null attribute with size 0 and the VERSION flag is the documented question.
    let version = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, 1) });
    match version {
        Ok(version) => u32::try_from(version).map_err(|_range| Errno::RANGE),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// A new ruleset that handles `handled` rights and `scoped` scopes. Allocates nothing.
///
/// # Errors
/// The errno of landlock_create_ruleset(2); EINVAL for rights that the kernel does not know.
pub fn new_ruleset(handled: u64, scoped: u64) -> Result<OwnedFd, Errno> {
    let attr = RulesetAttr {
        handled_access_fs: handled,
        handled_access_net: 0,
        scoped,
    };
    // Older kernels refuse a larger structure unless what they do not know is zero: it is.
    let size = size_of::<RulesetAttr>();
    // SAFETY: the structure lives across the call, and its size is passed.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0)
    })?;
    let fd = i32::try_from(fd).map_err(|_range| Errno::BADF)?;
    // SAFETY: the kernel just made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Allows `allowed` rights at `path` and beneath it; where it is not a directory, those of them that
/// files have: the kernel answers EINVAL to the others. No link is followed: what was mounted at
/// `path` may lie in a directory that others write, where a link would move the rule elsewhere.
///
/// # Errors
/// ENOENT where the path does not exist, ELOOP or ENOTDIR where there is a link on the way; the errno
/// of landlock_add_rule(2).
pub fn allow_beneath(ruleset: BorrowedFd<'_>, path: &CStr, allowed: u64) -> Result<(), Errno> {
    let parent = open_without_links(path)?;
    // Most rules are of one kind of right, and need no look.
    let allowed = if allowed & !rights::OF_FILES == 0 || is_directory(&parent)? {
        allowed
    } else {
        allowed & rights::OF_FILES
    };
    let attr = PathBeneathAttr {
        allowed_access: allowed,
        parent_fd: parent.as_raw_fd(),
    };
    // SAFETY: the structure lives across the call; rule type 1 is LANDLOCK_RULE_PATH_BENEATH.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            1,
            &raw const attr,
            0,
        )
    })
    .map(|_zero| ())
}

/// One call, for there are many rules; component by component where that call is not known.
fn open_without_links(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => place::open(path).map(|(found, _kind)| found),
        opened => opened,
    }
}

fn is_directory(found: &OwnedFd) -> Result<bool, Errno> {
    let mode = rustix::fs::fstat(found)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::Directory)
}

/// Lays the ruleset upon this thread and what it will start. Needs no_new_privs.
///
/// # Errors
/// EPERM without no_new_privs, E2BIG at the sixteenth ruleset.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(|_zero| ())
}
