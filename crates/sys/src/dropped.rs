//! Packets dropped by a full socket buffer: `SO_MEMINFO` (Linux 4.12).

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use super::process::check;

/// asm-generic/socket.h
const SO_MEMINFO: libc::c_int = 55;
/// `SK_MEMINFO_VARS` of linux/sock_diag.h, and the index `SK_MEMINFO_DROPS`.
const FACTS: usize = 9;
const DROPS_AT: usize = 8;

/// Returns the number of messages dropped for `socket` since its creation (getsockopt(2)). Fails
/// with ENODATA if the kernel does not report the number.
pub fn dropped(socket: impl AsFd) -> Result<u32, Errno> {
    let mut facts = [0_u32; FACTS];
    let mut length =
        libc::socklen_t::try_from(size_of_val(&facts)).map_err(|_too_long| Errno::INVAL)?;
    // SAFETY: `facts` and `length` live across the call; the kernel writes at most `length` bytes
    // and their number.
    let status = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            facts.as_mut_ptr(),
            &raw mut length,
        )
    };
    check(status)?;
    let length = usize::try_from(length).unwrap_or(0);
    if length < size_of_val(&facts) {
        return Err(Errno::NODATA);
    }
    Ok(facts[DROPS_AT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn drops_of_a_full_socket_are_counted() {
        let full = UdpSocket::bind("127.0.0.1:0").expect("bound");
        rustix::net::sockopt::set_socket_recv_buffer_size(&full, 4_096).expect("set");
        assert_eq!(dropped(&full), Ok(0));
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = full.local_addr().expect("bound");
        for _ in 0..1_000 {
            sender.send_to(&[0; 512], to).expect("sent");
        }
        full.set_nonblocking(true).expect("set");
        let mut received = 0;
        while full.recv(&mut [0; 512]).is_ok() {
            received += 1;
        }
        assert!(0 < received && received < 1_000, "{received}");
        assert_eq!(dropped(&full), Ok(1_000 - received));
    }
}
