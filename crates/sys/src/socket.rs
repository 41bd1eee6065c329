//! Socket options that rustix leaves out.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use super::process::check;

const IPV6_TRANSPARENT: c_int = 75;
const IPV6_FREEBIND: c_int = 78;

/// Lets an IPv4 socket accept data for foreign addresses (IP_TRANSPARENT, ip(7)). Fails with EPERM
/// without CAP_NET_ADMIN in the user namespace of the network namespace.
pub fn set_transparent_v4(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT)
}

/// Lets an IPv6 socket accept data for foreign addresses. Fails with EPERM without CAP_NET_ADMIN in
/// the user namespace of the network namespace.
pub fn set_transparent_v6(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_IPV6, IPV6_TRANSPARENT)
}

/// Enables the destination address of datagrams (IP_PKTINFO, ip(7)).
pub fn set_packet_info_v4(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO)
}

/// Enables the destination address of datagrams for IPv6 (IPV6_RECVPKTINFO, ipv6(7)).
pub fn set_packet_info_v6(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
}

/// Lets an IPv6 socket send from addresses that are local only by a route (IPV6_FREEBIND, Linux
/// 4.15). IPv4 allows it by default.
pub fn set_free_source_v6(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_IPV6, IPV6_FREEBIND)
}

fn set(socket: impl AsFd, level: c_int, option: c_int) -> Result<(), Errno> {
    let on: c_int = 1;
    // SAFETY: these options take an int.
    unsafe { set_option(socket, level, option, &on) }
}

/// Calls setsockopt(2).
///
/// # Safety
/// `T` must be the C type that `option` takes.
pub(super) unsafe fn set_option<T>(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY: `value` lives across the call and has the given size; the kernel only reads it. The
    // caller guarantees its type.
    check(unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value),
            size_of::<T>(),
        )
    })
    .map(|_zero| ())
}
