//! Datagrams with their destination address, so that a server bound to all addresses answers from
//! the address that the client sent to.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use super::process::last_errno;

/// Holds one `in6_pktinfo` or `in_pktinfo` with its header, aligned for `cmsghdr`.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Source and destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub from: SocketAddr,
    pub to: IpAddr,
}

/// Receives one datagram. Returns its length, at most that of `buffer`, and its addresses.
///
/// The socket needs `set_packet_info_v4` or `_v6` of [`crate::socket`]. Fails with EAGAIN if no
/// datagram is waiting, EPROTO if the kernel did not report the addresses.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<(usize, Ends), Errno> {
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut message = empty_message();
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = length_of::<libc::sockaddr_storage>();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: every pointer in `message` refers to a local that lives across the call and has the
    // given length.
    let received = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT,
        )
    };
    let received = usize::try_from(received).map_err(|_negative| last_errno())?;
    let used = message.msg_controllen.min(control.0.len());
    let to = destination(&control.0[..used]).ok_or(Errno::PROTO)?;
    // SAFETY: zeroes are a valid `sockaddr_storage`, and the kernel writes valid data.
    let name = unsafe { name.assume_init() };
    let from = address(&name).ok_or(Errno::PROTO)?;
    Ok((received, Ends { from, to }))
}

/// Sends an answer from the destination of a datagram to its source (sendmsg(2)). Fails with EAGAIN
/// if the socket buffer is full.
pub fn answer(socket: impl AsFd, bytes: &[u8], ends: Ends) -> Result<(), Errno> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut message = empty_message();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_controllen = write_source(&mut control.0, ends.to);
    message.msg_control = control.0.as_mut_ptr().cast();
    let to: rustix::net::SocketAddrAny = match ends.from {
        SocketAddr::V4(v4) => v4.into(),
        SocketAddr::V6(v6) => v6.into(),
    };
    message.msg_name = to.as_ptr().cast_mut().cast();
    message.msg_namelen = to.addr_len();
    // SAFETY: every pointer in `message` refers to a local or to `bytes`, which live across the
    // call and have the given lengths; the kernel only reads them.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_fd().as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent)
        .map(|_bytes| ())
        .map_err(|_negative| last_errno())
}

fn empty_message() -> libc::msghdr {
    // SAFETY: a `msghdr` of zeroes is valid: null pointers with lengths of 0.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

const CONTROL_HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

fn destination(control: &[u8]) -> Option<IpAddr> {
    let length = usize::from_ne_bytes(*control.first_chunk()?);
    let level = i32::from_ne_bytes(*control.get(8..)?.first_chunk()?);
    let kind = i32::from_ne_bytes(*control.get(12..)?.first_chunk()?);
    let data = control.get(CONTROL_HEADER_BYTES..length)?;
    match (level, kind) {
        // `in_pktinfo`: the device, the local address, the destination in the header.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let octets: [u8; 4] = *data.get(8..)?.first_chunk()?;
            Some(IpAddr::V4(Ipv4Addr::from(octets)))
        }
        // `in6_pktinfo`: the destination, the device.
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let octets: [u8; 16] = *data.first_chunk()?;
            Some(IpAddr::V6(Ipv6Addr::from(octets)))
        }
        _ => None,
    }
}

/// Encodes the control message for the source and returns its length.
fn write_source(control: &mut [u8; 64], source: IpAddr) -> usize {
    let (level, kind, bytes) = match source {
        IpAddr::V4(address) => {
            // `ipi_spec_dst` is the source; the device follows from the route.
            control[CONTROL_HEADER_BYTES + 4..][..4].copy_from_slice(&address.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        IpAddr::V6(address) => {
            control[CONTROL_HEADER_BYTES..][..16].copy_from_slice(&address.octets());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    let length = CONTROL_HEADER_BYTES + bytes;
    control[..8].copy_from_slice(&length.to_ne_bytes());
    control[8..12].copy_from_slice(&level.to_ne_bytes());
    control[12..16].copy_from_slice(&kind.to_ne_bytes());
    length.next_multiple_of(8)
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the bytes are a `sockaddr_in`, which is smaller than the
            // storage and needs no stricter alignment.
            let v4 = unsafe { std::ptr::from_ref(name).cast::<libc::sockaddr_in>().read() };
            let octets = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(octets, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for `sockaddr_in6`.
            let v6 = unsafe { std::ptr::from_ref(name).cast::<libc::sockaddr_in6>().read() };
            let octets = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(octets, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{set_packet_info_v4, set_packet_info_v6};
    use std::net::UdpSocket;

    #[test]
    fn an_answer_comes_from_the_address_that_the_query_was_sent_to() {
        for (any, queried) in [("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "::1")] {
            let service = UdpSocket::bind(any).expect("bound");
            match service.local_addr().expect("bound") {
                SocketAddr::V4(_) => set_packet_info_v4(&service).expect("set"),
                SocketAddr::V6(_) => set_packet_info_v6(&service).expect("set"),
            }
            let port = service.local_addr().expect("bound").port();
            let queried: IpAddr = queried.parse().expect("an address");
            let body = UdpSocket::bind(any).expect("bound");
            body.connect((queried, port)).expect("connected");
            assert_eq!(receive(&service, &mut [0; 8]), Err(Errno::AGAIN));
            body.send(b"question").expect("sent");
            let mut buffer = [0; 4];
            let (bytes, ends) = receive(&service, &mut buffer).expect("received");
            assert_eq!((bytes, &buffer), (4, b"ques"));
            assert_eq!(ends.to, queried);
            answer(&service, b"answer", ends).expect("sent");
            let mut buffer = [0; 8];
            // A connected socket takes datagrams from that address only.
            assert_eq!(body.recv(&mut buffer).expect("received"), 6);
        }
    }
}
