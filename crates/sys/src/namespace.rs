//! Namespaces: their kinds, unshare, and the setup of a new one.

use std::ffi::CStr;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::process::check;

/// CLONE_NEW… flags of clone3(2) and unshare(2).
pub mod kind {
    /// CLONE_NEWNS.
    pub const MOUNT: u64 = 0x0002_0000;
    /// CLONE_NEWCGROUP.
    pub const CGROUP: u64 = 0x0200_0000;
    /// CLONE_NEWUTS.
    pub const UTS: u64 = 0x0400_0000;
    /// CLONE_NEWIPC.
    pub const IPC: u64 = 0x0800_0000;
    /// CLONE_NEWUSER.
    pub const USER: u64 = 0x1000_0000;
    /// CLONE_NEWPID.
    pub const PID: u64 = 0x2000_0000;
    /// CLONE_NEWNET.
    pub const NETWORK: u64 = 0x4000_0000;
    /// CLONE_NEWTIME (Linux 5.6).
    pub const TIME: u64 = 0x0000_0080;
}

/// Moves this process into new namespaces of `kinds`, flags of [`kind`] (unshare(2)). Fails with
/// EPERM without CAP_SYS_ADMIN in the user namespace.
pub fn unshare(kinds: u64) -> Result<(), Errno> {
    // SAFETY: an integer; the call accesses no memory of this process.
    check(unsafe { libc::syscall(libc::SYS_unshare, kinds) }).map(|_zero| ())
}

/// Enters a new time namespace with `offsets` (time_namespaces(7)). Children have the same clocks.
///
/// The process itself must enter it, because before Linux 6.3 a vfork(2) child that shares its
/// memory cannot be in another time namespace.
///
/// # Errors
/// unshare(2): EINVAL without CONFIG_TIME_NS, ENOSPC at user.max_time_namespaces. The errno of
/// writing `/proc/self/timens_offsets` or of setns(2).
pub fn set_clocks(offsets: &[u8]) -> Result<(), Errno> {
    unshare(kind::TIME)?;
    write_file(c"/proc/self/timens_offsets", offsets)?;
    let time_namespace = rustix::fs::openat(
        rustix::fs::CWD,
        c"/proc/self/ns/time_for_children",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&time_namespace),
        Some(rustix::thread::LinkNameSpaceType::Time),
    )
}

/// Writes `text` into an existing file in one write(2). Allocates nothing.
///
/// # Errors
/// The errno of open(2) or write(2); EIO for a partial write.
pub fn write_file(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())?;
    if rustix::io::write(&file, text)? == text.len() {
        Ok(())
    } else {
        Err(Errno::IO)
    }
}

/// Writes the id maps of this process. Denies setgroups(2), which is required to write gid_map
/// without capabilities in the parent user namespace. Allocates nothing.
pub fn write_id_maps(uid_map: &[u8], gid_map: &[u8]) -> Result<(), Errno> {
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", uid_map)?;
    write_file(c"/proc/self/gid_map", gid_map)
}

/// Interface index of the loopback device, the first of every network namespace.
pub const LOOPBACK_INDEX: u32 = 1;

/// Brings up the loopback device of this network namespace (socket(2), ioctl(2)).
pub fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is a name and a union of plain data; all zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = 0x1 | 0x40; // IFF_UP and IFF_RUNNING
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives across the call.
    let result = unsafe {
        libc::ioctl(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SIOCSIFFLAGS,
            &raw const request,
        )
    };
    check(result.into()).map(|_zero| ())
}
