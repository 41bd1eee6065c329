//! Packets that no listener receives: NFLOG messages, and packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::PERMIT;
use egress::observed::{self, PacketAttempt};

/// Checks the bytes as NFLOG messages with packets, and as a packet.
pub(crate) fn check(bytes: &[u8]) {
    let mut shown = 0;
    for logged in observed::logged_packets(bytes) {
        shown += logged.packet.len() + 24;
        // A header, a family, an attribute: messages do not overlap.
        assert!(shown <= bytes.len() + 3);
        check_packet(logged.packet);
    }
    check_packet(bytes);
}

/// The fields at their places in the header (RFC 791, RFC 8200).
fn check_packet(packet: &[u8]) {
    let Some(PacketAttempt {
        destination, port, ..
    }) = observed::parse_packet(&PERMIT, packet)
    else {
        return;
    };
    let (theirs, header_bytes) = match packet[0] >> 4 {
        4 => {
            let octets: [u8; 4] = packet[16..20].try_into().expect("four");
            let header_bytes = usize::from(packet[0] & 0x0f) * 4;
            (IpAddr::from(Ipv4Addr::from(octets)), header_bytes)
        }
        version => {
            assert_eq!(version, 6);
            let octets: [u8; 16] = packet[24..40].try_into().expect("sixteen");
            (IpAddr::from(Ipv6Addr::from(octets)), 40)
        }
    };
    assert_eq!(destination, theirs.to_canonical());
    assert!(
        20 <= header_bytes,
        "a header that is shorter than the shortest"
    );
    let Some(port) = port else {
        return;
    };
    let places = packet.get(header_bytes + 2..).unwrap_or_default();
    let mut pairs = places.windows(2).map(|two| two == port.to_be_bytes());
    // Behind extension headers of IPv6 it may be anywhere.
    let is_extended = header_bytes == 40 && [0, 43, 44, 51, 60].contains(&packet[6]);
    let is_there = if is_extended && theirs.is_ipv6() {
        pairs.any(|same| same)
    } else {
        pairs.next() == Some(true)
    };
    assert!(is_there, "{port} out of nowhere");
}
