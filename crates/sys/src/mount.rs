//! Mounts: the calls that assemble a new root. Nothing here allocates, so that a child may use it.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountFlags, MountPropagationFlags,
    MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::process::check;

/// Attributes that mount_setattr(2) adds; see its manual (Linux 5.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Set-user-id bits and file capabilities do nothing.
    pub const NOSUID: Self = Self(0x2);
    /// Device nodes cannot be opened.
    pub const NODEV: Self = Self(0x4);
    /// Nothing can be executed.
    pub const NOEXEC: Self = Self(0x8);
    /// Nothing can be written.
    pub const RDONLY: Self = Self(0x1);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const ATTR_IDMAP: u64 = 0x0010_0000;
const AT_RECURSIVE: u32 = 0x8000;
const AT_EMPTY_PATH: u32 = 0x1000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

fn set_attributes(at: i32, path: &CStr, flags: u32, attributes: &MountAttr) -> Result<(), Errno> {
    // SAFETY: path and structure live across the call, and the structure's size is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags,
            &raw const *attributes,
            size_of::<MountAttr>(),
        )
    })
    .map(|_zero| ())
}

/// Adds `attributes` to the mount at `path`; with `recursive` to those beneath it too.
///
/// Only adds: a bind keeps the nosuid, nodev and noexec that its source had, which an ordinary
/// user may not clear.
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn restrict(path: &CStr, attributes: Attributes, recursive: bool) -> Result<(), Errno> {
    let attr = MountAttr {
        set: attributes.0,
        clear: 0,
        propagation: 0,
        userns_fd: 0,
    };
    set_attributes(
        libc::AT_FDCWD,
        path,
        if recursive { AT_RECURSIVE } else { 0 },
        &attr,
    )
}

/// The same for a detached tree, which turns private as well: a clone stays in the peer group of
/// its source, and what either side mounts later would appear on the other.
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn restrict_tree(tree: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Errno> {
    let attr = MountAttr {
        set: attributes.0,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    set_attributes(tree.as_raw_fd(), c"", AT_EMPTY_PATH | AT_RECURSIVE, &attr)
}

/// Maps the owners of a detached tree by the id maps of `user_namespace` (Linux 5.12).
///
/// # Errors
/// EINVAL where the file system cannot do it, EPERM without CAP_SYS_ADMIN over it.
pub fn map_owners(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().cast_unsigned());
    let attr = MountAttr {
        set: ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        userns_fd,
    };
    set_attributes(tree.as_raw_fd(), c"", AT_EMPTY_PATH | AT_RECURSIVE, &attr)
}

/// A private copy of the mounts at `path`, attached nowhere (open_tree(2), OPEN_TREE_CLONE).
///
/// # Errors
/// The errno of open_tree(2).
pub fn clone_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(rustix::fs::CWD, path, flags)
}

/// A private copy of the one mount that `directory` is open in, from that directory on, attached
/// nowhere.
///
/// # Errors
/// The errno of open_tree(2).
pub fn clone_directory(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(directory, c"", flags)
}

/// A private copy of the mounts at what is open, with those beneath it, attached nowhere.
///
/// # Errors
/// The errno of open_tree(2).
pub fn clone_all(source: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(source, c"", flags)
}

/// Attaches a detached tree at what is open.
///
/// # Errors
/// The errno of move_mount(2).
pub fn attach_at(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", target, c"", flags)
}

/// Shows what is visible at `source`, with what is mounted beneath it, at `target` beneath the open
/// directory `root` as well; with `read_only` its uppermost mount cannot be written there. No link
/// is followed on the way to either, nor is `root` left.
///
/// # Errors
/// The errno of openat2(2), ELOOP for a link; of open_tree(2), mount_setattr(2) or move_mount(2).
pub fn graft(
    source: &CStr,
    root: BorrowedFd<'_>,
    target: &CStr,
    read_only: bool,
) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |at, path| rustix::fs::openat2(at, path, flags, Mode::empty(), resolve);
    let source = open(rustix::fs::CWD, source)?;
    let target = open(root, target)?;
    let tree = clone_all(source.as_fd())?;
    if read_only {
        let attr = MountAttr {
            set: Attributes::RDONLY.0,
            clear: 0,
            propagation: 0,
            userns_fd: 0,
        };
        set_attributes(tree.as_raw_fd(), c"", AT_EMPTY_PATH, &attr)?;
    }
    attach_at(tree.as_fd(), target.as_fd())
}

/// Attaches a detached tree at `target`.
///
/// # Errors
/// The errno of move_mount(2).
pub fn attach(tree: BorrowedFd<'_>, target: &CStr) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", rustix::fs::CWD, target, flags)
}

/// A new tmpfs, attached nowhere, nosuid and nodev, its root with mode 0755.
///
/// `size` and `inodes` are the options `size=` and `nr_inodes=` of tmpfs(5).
///
/// # Errors
/// The errno of fsopen(2), fsconfig(2) or fsmount(2).
pub fn new_tmpfs(size: &CStr, inodes: &CStr) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"size", size)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"mode", c"0755")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Most bytes of a string that fsconfig(2) takes, with its end.
pub const OPTION_BYTES_MAX: usize = 256;

/// A new overlayfs, attached nowhere, nosuid and nodev: `lower` with `upper` and `work` over it;
/// without them it is read-only and needs two directories in `lower`. What it notes of a file stands
/// in extended attributes of the user (`userxattr`, Linux 5.11), which is all that a user namespace
/// may set. All files are of one device, and keep their inode numbers.
///
/// # Errors
/// The errno of fsopen(2), fsconfig(2) or fsmount(2): ENODEV where the kernel has none, EINVAL for
/// a path of [`OPTION_BYTES_MAX`] bytes or more.
pub fn new_overlay(lower: &CStr, upper_and_work: Option<(&CStr, &CStr)>) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = context.as_fd();
    rustix::mount::fsconfig_set_flag(context, c"userxattr")?;
    rustix::mount::fsconfig_set_string(context, c"xino", c"on")?;
    rustix::mount::fsconfig_set_string(context, c"lowerdir", lower)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    match upper_and_work {
        Some((upper, work)) => {
            rustix::mount::fsconfig_set_string(context, c"upperdir", upper)?;
            rustix::mount::fsconfig_set_string(context, c"workdir", work)?;
        }
        None => attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY,
    }
    rustix::mount::fsconfig_create(context)?;
    rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Takes away what is mounted at `target`, as soon as nobody uses it.
///
/// # Errors
/// The errno of umount2(2).
pub fn detach(target: &CStr) -> Result<(), Errno> {
    rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Changes the size limits of the tmpfs that is mounted at `path` (fspick(2)).
///
/// # Errors
/// EINVAL where more is in use than the new limit allows.
pub fn resize_tmpfs(path: &CStr, size: &CStr, inodes: &CStr) -> Result<(), Errno> {
    let context = rustix::mount::fspick(rustix::fs::CWD, path, FsPickFlags::FSPICK_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"size", size)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes)?;
    rustix::mount::fsconfig_reconfigure(context.as_fd())
}

/// Mounts a new tmpfs at `target`, nosuid and nodev, with `options`.
///
/// # Errors
/// The errno of mount(2).
pub fn tmpfs_at(target: &CStr, options: &CStr) -> Result<(), Errno> {
    rustix::mount::mount(
        c"tmpfs",
        target,
        c"tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options,
    )
}

/// Mounts the proc file system of this pid namespace.
///
/// # Errors
/// EPERM where the proc that is visible now has parts masked (mount_namespaces(7)).
pub fn proc_at(target: &CStr) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"proc", target, c"proc", flags, None::<&CStr>)
}

/// Mounts a devpts of its own. The group of the terminals is the mounter's.
///
/// # Errors
/// The errno of mount(2).
pub fn devpts_at(target: &CStr) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount(
        c"devpts",
        target,
        c"devpts",
        flags,
        c"newinstance,ptmxmode=0666,mode=0620",
    )
}

/// Makes `source` visible at `target`; with `recursive` what is mounted beneath it too.
///
/// # Errors
/// The errno of mount(2).
pub fn bind(source: &CStr, target: &CStr, recursive: bool) -> Result<(), Errno> {
    if recursive {
        rustix::mount::mount_bind_recursive(source, target)
    } else {
        rustix::mount::mount_bind(source, target)
    }
}

/// No mount or unmount in this namespace reaches another one, nor the other way.
///
/// # Errors
/// The errno of mount(2).
pub fn make_private() -> Result<(), Errno> {
    rustix::mount::mount_change(
        c"/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
}

/// The working directory, which must be a mount, becomes `/`; the old root is detached.
///
/// # Errors
/// EINVAL where the working directory is not a mount point.
pub fn pivot_into_working_directory() -> Result<(), Errno> {
    rustix::process::pivot_root(c".", c".")?;
    // The old root now lies over the new one; `.` still names it.
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}
