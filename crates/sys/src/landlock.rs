//! Landlock(7): rulesets over file hierarchies that a process applies to itself.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::place;
use super::process::check;

/// File access rights of `linux/landlock.h`.
pub mod rights {
    /// LANDLOCK_ACCESS_FS_EXECUTE.
    pub const EXECUTE: u64 = 1 << 0;
    /// LANDLOCK_ACCESS_FS_WRITE_FILE.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// LANDLOCK_ACCESS_FS_REFER: link or rename between directories (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// The rights above that apply to files that are not directories.
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

/// Version of the kernel's Landlock; 0 if it is missing, disabled, or hidden by an outer filter
/// (EPERM).
///
/// # Errors
/// Any other errno of landlock_create_ruleset(2).
pub fn abi() -> Result<u32, Errno> {
    let nothing = std::ptr::null::<RulesetAttr>();
    // SAFETY: a null attribute with size 0 and the VERSION flag is the documented query.
    let version = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, 1) });
    match version {
        Ok(version) => u32::try_from(version).map_err(|_range| Errno::RANGE),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// Creates a ruleset that handles `handled` rights and `scoped` scopes. Allocates nothing.
///
/// # Errors
/// The errno of landlock_create_ruleset(2); EINVAL for unknown rights.
pub fn new_ruleset(handled: u64, scoped: u64) -> Result<OwnedFd, Errno> {
    let attr = RulesetAttr {
        handled_access_fs: handled,
        handled_access_net: 0,
        scoped,
    };
    // Older kernels accept a larger structure if the fields they do not know are zero.
    let size = size_of::<RulesetAttr>();
    // SAFETY: the structure lives across the call, and its size is passed.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0)
    })?;
    let fd = i32::try_from(fd).map_err(|_range| Errno::BADF)?;
    // SAFETY: the kernel just made this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Allows `allowed` rights at `path` and beneath it. For a file only file rights are added: the
/// kernel returns EINVAL for the others. No link is followed, because other users may write the
/// directory of `path`.
///
/// # Errors
/// ENOENT if the path does not exist, ELOOP or ENOTDIR for a link on the way; the errno of
/// landlock_add_rule(2).
pub fn allow_beneath(ruleset: BorrowedFd<'_>, path: &CStr, allowed: u64) -> Result<(), Errno> {
    let parent = open_without_links(path)?;
    // Most rules have file rights only, which saves the stat.
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

/// One call with openat2(2) where it exists, because there are many rules.
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

/// Applies the ruleset to this thread and its children. Needs no_new_privs.
///
/// # Errors
/// EPERM without no_new_privs, E2BIG at the sixteenth ruleset.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(|_zero| ())
}
