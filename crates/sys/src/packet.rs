//! Packet sockets that copy packets without consuming them (packet(7)).

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use super::process::check;
use super::seccomp::as_sock_fprog;
use super::socket::set_option;
use filter::bpf::Instruction;

/// Opens a close-on-exec, non-blocking packet socket on a device, with `filter` attached. Reads
/// packets of every protocol, starting at the network header. Allocates nothing.
///
/// # Errors
/// EPERM without CAP_NET_RAW in the user namespace of the network namespace; the errno of
/// socket(2), setsockopt(2) or bind(2).
pub fn tap(device_index: u32, filter: &[Instruction]) -> Result<OwnedFd, Errno> {
    // Protocol 0: nothing arrives until the filter is set and the socket is bound.
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: integers only.
    let made = check(unsafe { libc::syscall(libc::SYS_socket, libc::AF_PACKET, kind, 0) })?;
    let made = i32::try_from(made).map_err(|_range| Errno::RANGE)?;
    // SAFETY: the kernel just made this descriptor; it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(made) };
    let program = as_sock_fprog(filter)?;
    // SAFETY: SO_ATTACH_FILTER takes a `sock_fprog`, whose instructions live across the call.
    unsafe { set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }?;
    // SAFETY: sockaddr_ll is plain integers; all zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).map_err(|_range| Errno::RANGE)?;
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL)
        .map_err(|_range| Errno::RANGE)?
        .to_be();
    address.sll_ifindex = device_index.cast_signed();
    // SAFETY: the address lives across the call and has the given size.
    check(unsafe {
        libc::syscall(
            libc::SYS_bind,
            socket.as_raw_fd(),
            &raw const address,
            size_of_val(&address),
        )
    })?;
    Ok(socket)
}
