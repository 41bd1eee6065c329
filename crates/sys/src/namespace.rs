//! Namespaces: which there are, leaving them, what lies in a fresh one.

use std::ffi::CStr;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::process::check;

/// CLONE_NEW… flags of clone3(2) and unshare(2).
pub mod kind {
    /// Mounts.
    pub const MOUNT: u64 = 0x0002_0000;
    /// cgroup root.
    pub const CGROUP: u64 = 0x0200_0000;
    /// Host and domain name.
    pub const UTS: u64 = 0x0400_0000;
    /// System V IPC and POSIX message queues.
    pub const IPC: u64 = 0x0800_0000;
    /// Ids and capabilities.
    pub const USER: u64 = 0x1000_0000;
    /// Process ids.
    pub const PID: u64 = 0x2000_0000;
    /// Network.
    pub const NETWORK: u64 = 0x4000_0000;
    /// Offsets of the monotonic and the boot clock (Linux 5.6).
    pub const TIME: u64 = 0x0000_0080;
}

/// unshare(2) with `kinds` of [`kind`].
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN in the user namespace.
pub fn leave(kinds: u64) -> Result<(), Errno> {
    // SAFETY: an integer; a change of namespaces touches no memory of this process.
    check(unsafe { libc::syscall(libc::SYS_unshare, kinds) }).map(|_zero| ())
}

/// Sets the clocks of this process back: enters a time namespace of its own whose offsets
/// (time_namespaces(7)) are `offsets`. Its children have the same clocks.
///
/// Entered and not only left to the children: a child that shares this process's memory (vfork(2))
/// cannot be in another time namespace before Linux 6.3.
///
/// # Errors
/// unshare(2): EINVAL without CONFIG_TIME_NS, ENOSPC at user.max_time_namespaces. The errno of
/// writing `/proc/self/timens_offsets` or of setns(2).
pub fn set_clocks(offsets: &[u8]) -> Result<(), Errno> {
    leave(kind::TIME)?;
    write_file(c"/proc/self/timens_offsets", offsets)?;
    let fresh = rustix::fs::openat(
        rustix::fs::CWD,
        c"/proc/self/ns/time_for_children",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&fresh),
        Some(rustix::thread::LinkNameSpaceType::Time),
    )
}

/// Writes `text` into an existing file in one write(2). Allocates nothing.
///
/// # Errors
/// The errno of open(2) or write(2); EIO where the kernel took only a part.
pub fn write_file(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())?;
    if rustix::io::write(&file, text)? == text.len() {
        Ok(())
    } else {
        Err(Errno::IO)
    }
}

/// The loopback device is the first of every network namespace.
pub const LOOPBACK_INDEX: u32 = 1;

/// Brings the loopback device of this network namespace up.
///
/// # Errors
/// The errno of socket(2) or ioctl(2).
pub fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is a name and a union of plain data, for which all zero is a value.
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
