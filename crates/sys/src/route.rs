//! Route lookup: `RTM_GETROUTE` of rtnetlink(7).

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags};

use super::netlink::{self, Attribute, Batch, HEADER_BYTES, MESSAGE_ERROR, read_error};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
/// Offset of `rtm_type` in `struct rtmsg`.
const KIND_AT: usize = HEADER_BYTES + 7;
/// Maximum answers to earlier, failed requests that are skipped.
const STALE_MAX: usize = 16;

/// Type of a route (`RTN_…` of linux/rtnetlink.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    Unicast,
    /// An address of this network namespace.
    Local,
    Broadcast,
    Other(u8),
}

/// A socket for route lookups.
#[derive(Debug)]
pub struct Routes {
    socket: OwnedFd,
    /// `nlmsg_seq` of the last request.
    sequence: u32,
}

impl Routes {
    /// Opens a socket for the network namespace of the calling process (socket(2)).
    pub fn open() -> Result<Self, Errno> {
        Ok(Self {
            socket: netlink::open(None)?,
            sequence: 0,
        })
    }

    /// Looks up the type of the route to `address`.
    ///
    /// # Errors
    /// ENETUNREACH, EHOSTUNREACH, EACCES or EINVAL if no route exists or it is forbidden; EPROTO
    /// for a malformed answer; the errno of sendto(2) or recvfrom(2).
    pub fn kind(&mut self, address: IpAddr) -> Result<RouteKind, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = encode_request(address, self.sequence)?;
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut buffer = [0; 1_024];
        for _ in 0..STALE_MAX {
            let (received, _) = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT)?;
            let answer = buffer.get(..received).unwrap_or(&buffer);
            if let Some(kind) = read_answer(answer, self.sequence)? {
                return Ok(kind);
            }
        }
        Err(Errno::PROTO)
    }
}

fn encode_request(address: IpAddr, sequence: u32) -> Result<Vec<u8>, Errno> {
    let (family, bits, octets) = match address {
        IpAddr::V4(address) => (AF_INET, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, 128, address.octets().to_vec()),
    };
    let mut fixed = [0; 12];
    fixed[..2].copy_from_slice(&[family, bits]);
    let mut batch = Batch::default();
    batch.push(
        RTM_GETROUTE,
        0,
        &fixed,
        &[Attribute::Bytes(RTA_DST, octets)],
    )?;
    let mut message = batch.bytes().to_vec();
    // `nlmsg_seq`
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    Ok(message)
}

/// `None`: the answer belongs to another request.
fn read_answer(answer: &[u8], sequence: u32) -> Result<Option<RouteKind>, Errno> {
    let header = answer.first_chunk::<HEADER_BYTES>().ok_or(Errno::PROTO)?;
    let [_, _, _, _, k0, k1, _, _, n0, n1, n2, n3, ..] = *header;
    if u32::from_ne_bytes([n0, n1, n2, n3]) != sequence {
        return Ok(None);
    }
    match u16::from_ne_bytes([k0, k1]) {
        RTM_NEWROUTE => match answer.get(KIND_AT) {
            Some(1) => Ok(Some(RouteKind::Unicast)),
            Some(2) => Ok(Some(RouteKind::Local)),
            Some(3) => Ok(Some(RouteKind::Broadcast)),
            Some(other) => Ok(Some(RouteKind::Other(*other))),
            None => Err(Errno::PROTO),
        },
        // An acknowledgement, which was not requested.
        MESSAGE_ERROR => read_error(&answer[HEADER_BYTES..]).and(Err(Errno::PROTO)),
        _ => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_and_a_later_request_gets_its_own_answer() {
        let mut routes = Routes::open().expect("opened");
        for address in ["127.0.0.1", "127.1.2.3"] {
            let kind = routes.kind(address.parse().expect("one"));
            assert_eq!(kind, Ok(RouteKind::Local), "{address}");
        }
        let broadcast = routes.kind("255.255.255.255".parse().expect("one"));
        assert_ne!(broadcast, Ok(RouteKind::Unicast));
        let again = routes.kind("127.0.0.1".parse().expect("one"));
        assert_eq!(again, Ok(RouteKind::Local));
    }

    #[test]
    fn routes_errors_and_malformed_answers_are_read() {
        let mut answer = vec![0; 28];
        answer[4..6].copy_from_slice(&RTM_NEWROUTE.to_ne_bytes());
        answer[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        answer[KIND_AT] = 1;
        assert_eq!(read_answer(&answer, 7), Ok(Some(RouteKind::Unicast)));
        assert_eq!(read_answer(&answer, 8), Ok(None));
        assert_eq!(read_answer(&answer[..KIND_AT], 7), Err(Errno::PROTO));
        assert_eq!(read_answer(&answer[..3], 7), Err(Errno::PROTO));
        answer[4..6].copy_from_slice(&MESSAGE_ERROR.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-101_i32).to_ne_bytes());
        assert_eq!(read_answer(&answer, 7), Err(Errno::NETUNREACH));
        assert_eq!(read_answer(&answer[..18], 7), Err(Errno::PROTO));
        answer[16..20].copy_from_slice(&(-4096_i32).to_ne_bytes());
        assert_eq!(read_answer(&answer, 7), Err(Errno::PROTO));
    }
}
