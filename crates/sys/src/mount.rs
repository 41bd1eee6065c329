//! Mount calls that assemble a new root. They allocate nothing, so that a child may call them.

use std::ffi::CStr;
use std::fmt::Arguments;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountFlags, MountPropagationFlags,
    MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::process::check;

/// Attributes that mount_setattr(2) adds (Linux 5.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Ignores set-user-id bits and file capabilities.
    pub const NOSUID: Self = Self(0x2);
    /// Denies opening device nodes.
    pub const NODEV: Self = Self(0x4);
    /// Denies executing files.
    pub const NOEXEC: Self = Self(0x8);
    /// Denies writing.
    pub const RDONLY: Self = Self(0x1);

    /// Returns the union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const ATTR_IDMAP: u64 = 0x0010_0000;
const AT_RECURSIVE: u32 = 0x8000;
const AT_EMPTY_PATH: u32 = 0x1000;

#[repr(C)]
#[derive(Default)]
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

/// Adds `attributes` to the mount at `path`, and with `recursive` to the mounts beneath it
/// (mount_setattr(2)).
///
/// Attributes are only added: an ordinary user may not clear the nosuid, nodev and noexec of a bind
/// mount's source.
pub fn restrict(path: &CStr, attributes: Attributes, recursive: bool) -> Result<(), Errno> {
    let attr = MountAttr {
        set: attributes.0,
        ..MountAttr::default()
    };
    let flags = if recursive { AT_RECURSIVE } else { 0 };
    set_attributes(libc::AT_FDCWD, path, flags, &attr)
}

/// Adds `attributes` to a detached tree and makes it private (mount_setattr(2)): a clone stays in
/// the peer group of its source, and later mounts would propagate.
pub fn restrict_tree(tree: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Errno> {
    let attr = MountAttr {
        set: attributes.0,
        propagation: libc::MS_PRIVATE,
        ..MountAttr::default()
    };
    set_attributes(tree.as_raw_fd(), c"", AT_EMPTY_PATH | AT_RECURSIVE, &attr)
}

/// Maps the owners of a detached tree by the id maps of `user_namespace` (Linux 5.12). Fails with
/// EINVAL if the file system does not support it, EPERM without CAP_SYS_ADMIN over it.
pub fn map_owners(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().cast_unsigned());
    let attr = MountAttr {
        set: ATTR_IDMAP,
        userns_fd,
        ..MountAttr::default()
    };
    set_attributes(tree.as_raw_fd(), c"", AT_EMPTY_PATH | AT_RECURSIVE, &attr)
}

/// Clones the mount at `path` and those beneath it as a detached tree (open_tree(2),
/// OPEN_TREE_CLONE). Follows links.
pub fn clone_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(rustix::fs::CWD, path, flags)
}

/// Clones the single mount of `directory`, from that directory on, as a detached tree
/// (open_tree(2)).
pub fn clone_directory(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(directory, c"", flags)
}

/// Clones the mount of `source`, from there on, and those beneath it as a detached tree
/// (open_tree(2)).
pub fn clone_all(source: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(source, c"", flags)
}

/// Attaches a detached tree at an open file or directory (move_mount(2)).
pub fn attach_at(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", target, c"", flags)
}

/// Bind-mounts `source`, relative to the working directory, and the mounts beneath it at `target`,
/// relative to the open directory `root`. Both paths are resolved without links and stay beneath
/// their directory. With `read_only` the top mount is read-only.
///
/// # Errors
/// The errno of openat2(2), ELOOP for a link; of open_tree(2), mount_setattr(2) or move_mount(2).
pub fn bind_beneath(
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
            ..MountAttr::default()
        };
        set_attributes(tree.as_raw_fd(), c"", AT_EMPTY_PATH, &attr)?;
    }
    attach_at(tree.as_fd(), target.as_fd())
}

/// Attaches a detached tree at `target` (move_mount(2)).
pub fn attach(tree: BorrowedFd<'_>, target: &CStr) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", rustix::fs::CWD, target, flags)
}

/// Creates a detached tmpfs (fsopen(2), fsconfig(2), fsmount(2)): nosuid, nodev, mode 0755.
///
/// `size` and `inodes` are the options `size=` and `nr_inodes=` of tmpfs(5).
pub fn new_tmpfs(size: &CStr, inodes: &CStr) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"size", size)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"mode", c"0755")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Maximum bytes of a string for fsconfig(2), including the NUL.
pub const OPTION_BYTES_MAX: usize = 256;

/// Creates a detached overlayfs, nosuid and nodev, with `upper` and `work` over `lower`. Without
/// them it is read-only and needs two directories in `lower`.
///
/// It uses `userxattr` (Linux 5.11), the only extended attributes that a user namespace may set.
/// All files have one device number and keep their inode numbers.
///
/// # Errors
/// The errno of fsopen(2), fsconfig(2) or fsmount(2): ENODEV without overlayfs, EINVAL for a path
/// of [`OPTION_BYTES_MAX`] bytes or more.
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

/// Checks that the directory `upper` supports the extended attributes of overlayfs. Without them
/// (tmpfs before Linux 6.6) a removed and recreated directory would show its old content.
///
/// # Errors
/// The errno of setxattr(2) or removexattr(2): EOPNOTSUPP without support.
pub fn check_overlay_attributes(upper: &CStr) -> Result<(), Errno> {
    let name = c"user.overlay.runner";
    rustix::fs::setxattr(upper, name, b"y", rustix::fs::XattrFlags::empty())?;
    rustix::fs::removexattr(upper, name)
}

/// Unmounts `target` lazily (umount2(2)).
pub fn detach(target: &CStr) -> Result<(), Errno> {
    rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Changes the limits of the tmpfs at `path` (fspick(2)). Fails with EINVAL if more is in use than
/// the new limit allows.
pub fn resize_tmpfs(path: &CStr, size: &CStr, inodes: &CStr) -> Result<(), Errno> {
    let context = rustix::mount::fspick(rustix::fs::CWD, path, FsPickFlags::FSPICK_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"size", size)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes)?;
    rustix::mount::fsconfig_reconfigure(context.as_fd())
}

/// Mounts a new tmpfs of `size_bytes` at `target`, nosuid and nodev (mount(2)).
pub fn tmpfs_at(target: &CStr, size_bytes: u64) -> Result<(), Errno> {
    let mut options = [0; 64];
    let options = c_string(
        &mut options,
        format_args!("size={size_bytes},nr_inodes=65536,mode=0755"),
    )?;
    rustix::mount::mount(
        c"tmpfs",
        target,
        c"tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options,
    )
}

/// Formats `text` into `buffer`. Allocates nothing. Fails with ENAMETOOLONG if the buffer is too
/// small.
pub fn c_string<'buffer>(
    buffer: &'buffer mut [u8],
    text: Arguments<'_>,
) -> Result<&'buffer CStr, Errno> {
    let mut rest = &mut *buffer;
    let written = rest.write_fmt(text).and_then(|()| rest.write_all(b"\0"));
    written.map_err(|_full| Errno::NAMETOOLONG)?;
    CStr::from_bytes_until_nul(buffer).map_err(|_no_end| Errno::NAMETOOLONG)
}

/// Mounts the proc file system of this pid namespace. Fails with EPERM if parts of the visible proc
/// are masked (mount_namespaces(7)).
pub fn proc_at(target: &CStr) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"proc", target, c"proc", flags, None::<&CStr>)
}

/// Mounts a new devpts (mount(2)). The terminals get the group of the mounting process.
pub fn devpts_at(target: &CStr) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount(
        c"devpts",
        target,
        c"devpts",
        flags,
        // All terminals of the host count against one limit (kernel.pty.max).
        c"newinstance,ptmxmode=0666,mode=0620,max=64",
    )
}

/// Bind-mounts `source` at `target`, with `recursive` including the mounts beneath it (mount(2)).
pub fn bind(source: &CStr, target: &CStr, recursive: bool) -> Result<(), Errno> {
    if recursive {
        rustix::mount::mount_bind_recursive(source, target)
    } else {
        rustix::mount::mount_bind(source, target)
    }
}

/// Stops mount propagation from and to this namespace (mount(2)).
pub fn make_private() -> Result<(), Errno> {
    rustix::mount::mount_change(
        c"/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
}

/// Makes the working directory, which must be a mount point, the root and detaches the old root.
/// Fails with EINVAL if the working directory is not a mount point.
pub fn pivot_into_working_directory() -> Result<(), Errno> {
    rustix::process::pivot_root(c".", c".")?;
    // The old root is now stacked on the new one; `.` still refers to it.
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}
