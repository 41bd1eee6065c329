//! Probes of host features that change nothing.

use std::ffi::CStr;
use std::os::fd::AsFd as _;

use rustix::fs::Mode;
use rustix::io::Errno;

use spec::host::HostEntry;

use super::mount;
use super::namespace::{self, kind};
use super::process::{self, Forked};

/// Effective uid of this process in its user namespace.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective gid of this process in its user namespace.
#[must_use]
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns the type of the file at `path`, and the target of a link; `None` if it does not exist. A
/// final link is not followed.
///
/// # Errors
/// The errno of lstat(2) or readlink(2), except "not found".
pub fn host_entry(path: &CStr) -> Result<Option<HostEntry>, Errno> {
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
        Ok(status) => match rustix::fs::FileType::from_raw_mode(status.st_mode) {
            rustix::fs::FileType::Directory => Ok(Some(HostEntry::Directory)),
            rustix::fs::FileType::Symlink => rustix::fs::readlink(path, Vec::new())
                .map(|target| Some(HostEntry::Link(target.into_bytes()))),
            _ => Ok(Some(HostEntry::File)),
        },
    }
}

/// System calls that the sandbox needs. Without [`Self::Openat2`] paths are walked by component, and
/// only runs with an image fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// fsopen(2), Linux 5.2.
    Fsopen,
    /// clone3(2), Linux 5.3.
    Clone3,
    /// openat2(2), Linux 5.6.
    Openat2,
    /// mount_setattr(2), Linux 5.12.
    MountSetattr,
    /// unshare(2) for a user namespace.
    Unshare,
}

/// Checks that the call exists and that no outer filter refuses it. The arguments are invalid, so the call
/// has no effect.
///
/// # Errors
/// An errno that the kernel does not return for these arguments: ENOSYS, or that of a filter.
pub fn try_call(call: Call) -> Result<(), Errno> {
    let nothing = std::ptr::null::<u8>();
    let result = match call {
        // SAFETY: a null name is refused (EFAULT, or EPERM before that).
        Call::Fsopen => unsafe { libc::syscall(libc::SYS_fsopen, nothing, 0) },
        // SAFETY: size 0 is refused (EINVAL) before the pointer is read.
        Call::Clone3 => unsafe { libc::syscall(libc::SYS_clone3, nothing, 0) },
        // SAFETY: size 0 is refused (EINVAL) before the pointers are read.
        Call::Openat2 => unsafe { libc::syscall(libc::SYS_openat2, -1, nothing, nothing, 0) },
        // SAFETY: size 0 is refused (EINVAL) before the pointers are read.
        Call::MountSetattr => unsafe {
            libc::syscall(libc::SYS_mount_setattr, -1, nothing, 0, nothing, 0)
        },
        // SAFETY: integers; CLONE_VFORK is none of the flags of unshare(2), which is refused (EINVAL).
        Call::Unshare => unsafe {
            libc::syscall(libc::SYS_unshare, kind::USER | libc::CLONE_VFORK as u64)
        },
    };
    match process::check(result) {
        Err(Errno::INVAL) | Ok(_) => Ok(()),
        Err(Errno::FAULT | Errno::PERM) if call == Call::Fsopen => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether the kernel supports seccomp filters that kill processes (Linux 4.14).
#[must_use]
pub fn has_seccomp_filter() -> bool {
    const GET_ACTION_AVAIL: u32 = 2;
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the action lives across the call, which only reads it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) };
    process::check(result).is_ok()
}

/// Mounts an overlayfs in the user and mount namespace of a child that ends at once. With `writable`
/// it also checks the extended attributes, which tmpfs supports since Linux 6.6.
///
/// The calling process must have one thread.
///
/// # Errors
/// The errno of the call that failed.
pub fn try_overlay(writable: bool) -> Result<(), Errno> {
    let (uid, gid) = (effective_uid(), effective_gid());
    let maps = [uid, gid].map(|id| format!("1000 {id} 1"));
    // SAFETY: the caller has one thread, and the child allocates nothing and exits.
    match unsafe { process::fork_into(kind::USER | kind::MOUNT, None) }? {
        Forked::Child => {
            let errno = mount_overlay(&maps, writable)
                .err()
                .map_or(0, Errno::raw_os_error);
            process::exit_now(errno)
        }
        Forked::Parent { pid, .. } => {
            let ended = process::wait(pid, true)?.ok_or(Errno::CHILD)?;
            match ended.raw_status {
                0 => Ok(()),
                status if status & 0x7f == 0 => Err(Errno::from_raw_os_error(status >> 8)),
                _ => Err(Errno::IO),
            }
        }
    }
}

fn mount_overlay([uid_map, gid_map]: &[String; 2], writable: bool) -> Result<(), Errno> {
    namespace::write_id_maps(uid_map.as_bytes(), gid_map.as_bytes())?;
    mount::make_private()?;
    let space = mount::new_tmpfs(c"65536", c"64")?;
    // A directory that exists on every system; only this child sees the mount.
    mount::attach(space.as_fd(), c"/proc")?;
    rustix::process::chdir(c"/proc")?;
    for directory in [c"lower", c"upper", c"work"] {
        rustix::fs::mkdirat(rustix::fs::CWD, directory, Mode::from_raw_mode(0o755))?;
    }
    if !writable {
        return mount::new_overlay(c"upper:lower", None).map(drop);
    }
    mount::check_overlay_attributes(c"upper")?;
    mount::new_overlay(c"lower", Some((c"upper", c"work"))).map(drop)
}

/// Creates `kinds` of namespaces (see [`super::namespace::kind`]) and a user namespace in a child
/// that ends at once (clone3(2), wait4(2)).
///
/// The calling process must have one thread.
pub fn make_namespaces(kinds: u64) -> Result<(), Errno> {
    // SAFETY: the caller has one thread, and the child exits at once.
    match unsafe { process::fork_into(kind::USER | kinds, None) }? {
        Forked::Child => process::exit_now(0),
        Forked::Parent { pid, .. } => process::wait(pid, true).map(|_ended| ()),
    }
}
