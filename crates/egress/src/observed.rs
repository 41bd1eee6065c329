//! Parses packets that no listener receives, as the kernel reports them. Pure; a body may have written the
//! bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::denials::Protocol;
use spec::parse_permit::ParsePermit;

// Protocol numbers of IP headers (linux/in.h).
pub(crate) const IPPROTO_TCP: u8 = 6;
pub(crate) const IPPROTO_UDP: u8 = 17;
const IPPROTO_ICMP: u8 = 1;
const IPPROTO_IGMP: u8 = 2;
const IPPROTO_ICMPV6: u8 = 58;
const IPPROTO_SCTP: u8 = 132;
const IPPROTO_UDPLITE: u8 = 136;
/// Bytes of `struct nlmsghdr`.
const MESSAGE_HEADER_BYTES: usize = 16;
/// Bytes of `struct nfgenmsg`.
const FAMILY_HEADER_BYTES: usize = 4;
/// `NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET`.
const LOG_PACKET: u16 = 4 << 8;
const ATTRIBUTE_PAYLOAD: u16 = 9;
const ATTRIBUTE_SEQUENCE: u16 = 12;
/// The two high bits of an attribute's type are flags.
const ATTRIBUTE_KIND_MASK: u16 = 0x3fff;

/// A packet of an NFLOG message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedPacket<'message> {
    /// The sequence number of the message in its NFLOG group.
    pub sequence: Option<u32>,
    /// The start of the packet, from its IP header on.
    pub packet: &'message [u8],
}

/// The attempt to communicate that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketAttempt {
    pub protocol: Protocol,
    pub destination: IpAddr,
    /// The destination port, if the protocol has ports.
    pub port: Option<u16>,
}

/// The packets of one read from an NFLOG socket. Skips other messages.
pub fn logged_packets(mut bytes: &[u8]) -> impl Iterator<Item = LoggedPacket<'_>> {
    std::iter::from_fn(move || {
        loop {
            let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
            let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
            let message = bytes.get(MESSAGE_HEADER_BYTES..length)?;
            bytes = bytes
                .get(length.checked_next_multiple_of(4)?..)
                .unwrap_or_default();
            if kind == LOG_PACKET
                && let Some(packet) = message.get(FAMILY_HEADER_BYTES..).and_then(read_attributes)
            {
                return Some(packet);
            }
        }
    })
}

fn read_attributes(mut bytes: &[u8]) -> Option<LoggedPacket<'_>> {
    let mut sequence = None;
    let mut packet = None;
    while let Some((header, _)) = bytes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_KIND_MASK;
        let value = bytes.get(4..length)?;
        match kind {
            ATTRIBUTE_PAYLOAD => packet = Some(value),
            ATTRIBUTE_SEQUENCE => {
                sequence = value
                    .first_chunk::<4>()
                    .map(|number| u32::from_be_bytes(*number));
            }
            _ => (),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(LoggedPacket {
        sequence,
        packet: packet?,
    })
}

/// Parses a packet that starts with its IP header. `None` for packets that are no attempt of the body:
/// packets of the kernel itself (ICMP errors, group memberships), malformed packets, later fragments.
#[must_use]
pub fn parse_packet(_permit: &ParsePermit, bytes: &[u8]) -> Option<PacketAttempt> {
    let (number, destination, payload) = match bytes.first()? >> 4 {
        4 => read_v4(bytes)?,
        6 => read_v6(bytes)?,
        _ => return None,
    };
    let destination = destination.to_canonical();
    let port = || {
        let port = payload.get(2..)?.first_chunk()?;
        Some(u16::from_be_bytes(*port))
    };
    let (protocol, port) = match number {
        IPPROTO_TCP => {
            // Only packets that open a connection: SYN without ACK.
            let flags = payload.get(13)?;
            if flags & 0x12 != 0x02 {
                return None;
            }
            (Protocol::Tcp, port())
        }
        IPPROTO_UDP => (Protocol::Udp, port()),
        IPPROTO_SCTP => (Protocol::Sctp, port()),
        IPPROTO_UDPLITE => (Protocol::UdpLite, port()),
        // Only echo requests: a body without capabilities can open no other ICMP socket.
        IPPROTO_ICMP => (*payload.first()? == 8).then_some((Protocol::Icmp, None))?,
        IPPROTO_ICMPV6 => (*payload.first()? == 128).then_some((Protocol::Icmp, None))?,
        // Sent by the kernel itself.
        IPPROTO_IGMP => return None,
        other => (Protocol::Other(other), None),
    };
    Some(PacketAttempt {
        protocol,
        destination,
        port,
    })
}

fn read_v4(bytes: &[u8]) -> Option<(u8, IpAddr, &[u8])> {
    let header = bytes.first_chunk::<20>()?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    if header_bytes < header.len() || offset != 0 {
        return None;
    }
    let octets: [u8; 4] = *bytes.get(16..)?.first_chunk()?;
    let payload = bytes.get(header_bytes..).unwrap_or_default();
    Some((header[9], Ipv4Addr::from(octets).into(), payload))
}

/// Skips the extension headers before the payload (RFC 8200, 4).
fn read_v6(bytes: &[u8]) -> Option<(u8, IpAddr, &[u8])> {
    let (header, mut rest) = bytes.split_first_chunk::<40>()?;
    let octets: [u8; 16] = *header.get(24..)?.first_chunk()?;
    let destination = IpAddr::from(Ipv6Addr::from(octets));
    let mut number = header[6];
    // Each iteration consumes at least 8 bytes.
    loop {
        let length = match number {
            // Hop-by-hop, routing, destination options.
            0 | 43 | 60 => 8 + usize::from(*rest.get(1)?) * 8,
            44 => {
                let offset = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]) >> 3;
                if offset != 0 {
                    return None;
                }
                8
            }
            51 => (usize::from(*rest.get(1)?) + 2) * 4,
            _ => return Some((number, destination, rest)),
        };
        number = *rest.first()?;
        rest = rest.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[16..].copy_from_slice(&[8, 8, 8, 8]);
        packet.extend_from_slice(payload);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = next;
        packet[24..40].copy_from_slice(&Ipv6Addr::new(0x2001, 0x4860, 0, 0, 0, 0, 0, 1).octets());
        packet.extend_from_slice(payload);
        packet
    }

    fn parsed(packet: &[u8]) -> Option<(Protocol, String, Option<u16>)> {
        parse_packet(&PERMIT, packet).map(|attempt| {
            (
                attempt.protocol,
                attempt.destination.to_string(),
                attempt.port,
            )
        })
    }

    #[test]
    fn an_attempt_has_a_protocol_an_address_and_a_port() {
        let to_443 = [0x80, 0, 1, 187, 0, 8, 0, 0];
        let v4_at = |protocol, port| Some((protocol, "8.8.8.8".to_owned(), port));
        let v6_at = |protocol, port| Some((protocol, "2001:4860::1".to_owned(), port));
        assert_eq!(parsed(&v4(17, &to_443)), v4_at(Protocol::Udp, Some(443)));
        assert_eq!(parsed(&v4(132, &to_443)), v4_at(Protocol::Sctp, Some(443)));
        assert_eq!(
            parsed(&v4(136, &to_443)),
            v4_at(Protocol::UdpLite, Some(443))
        );
        assert_eq!(parsed(&v4(1, &[8, 0])), v4_at(Protocol::Icmp, None));
        assert_eq!(parsed(&v6(58, &[128, 0])), v6_at(Protocol::Icmp, None));
        assert_eq!(parsed(&v4(47, &[])), v4_at(Protocol::Other(47), None));
        assert_eq!(parsed(&v6(17, &to_443)), v6_at(Protocol::Udp, Some(443)));
        let mut syn = [0; 20];
        syn[3] = 22;
        syn[13] = 0x02;
        assert_eq!(parsed(&v4(6, &syn)), v4_at(Protocol::Tcp, Some(22)));
        let behind_options = [&[17, 0, 0, 0, 0, 0, 0, 0][..], &to_443].concat();
        assert_eq!(
            parsed(&v6(0, &behind_options)),
            v6_at(Protocol::Udp, Some(443))
        );
        // A truncated header: the known fields are reported.
        assert_eq!(parsed(&v4(17, &to_443[..3])), v4_at(Protocol::Udp, None));
    }

    #[test]
    fn packets_of_the_kernel_are_no_attempts() {
        let mut answer = [0; 20];
        answer[13] = 0x12;
        let mut later = v4(17, &[0; 8]);
        later[7] = 5;
        for (what, packet) in [
            ("port unreachable", v4(1, &[3, 3])),
            ("an echo reply", v4(1, &[0, 0])),
            ("port unreachable, v6", v6(58, &[1, 4])),
            ("a membership", v4(2, &[0x16])),
            ("a membership, v6", v6(58, &[143, 0])),
            ("the answer to a SYN", v4(6, &answer)),
            ("a later fragment", later),
            ("nothing", Vec::new()),
            ("another version", vec![0x50; 40]),
            ("half a header", v4(17, &[])[..19].to_vec()),
        ] {
            assert_eq!(parsed(&packet), None, "{what}");
        }
    }

    fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE_HEADER_BYTES + FAMILY_HEADER_BYTES];
        for (kind, value) in attributes {
            let length = u16::try_from(value.len() + 4).expect("short");
            bytes.extend_from_slice(&length.to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let length = u32::try_from(bytes.len()).expect("short");
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    #[test]
    fn packets_are_found_with_their_sequence_numbers() {
        let one = message(
            LOG_PACKET,
            &[(1, &[0; 4]), (12, &[0, 0, 0, 7]), (9, b"\x45abc!")],
        );
        let foreign = message(3, &[(9, b"done")]);
        let without = message(LOG_PACKET, &[(12, &[0, 0, 0, 8])]);
        let bytes = [one, foreign, without, message(LOG_PACKET, &[(9, b"x")])].concat();
        let found: Vec<LoggedPacket<'_>> = logged_packets(&bytes).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].sequence, found[0].packet),
            (Some(7), &b"\x45abc!"[..])
        );
        assert_eq!((found[1].sequence, found[1].packet), (None, &b"x"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>, version in 0..3_usize, next: u8) {
            let start = [&[][..], &v4(next, &[]), &v6(next, &[])][version].to_vec();
            let bytes = [start, bytes].concat();
            let _attempt = parse_packet(&PERMIT, &bytes);
            prop_assert!(logged_packets(&bytes).count() <= bytes.len());
            let inside = message(LOG_PACKET, &[(9, &bytes)]);
            let found: Vec<&[u8]> = logged_packets(&inside).map(|logged| logged.packet).collect();
            prop_assert_eq!(found, [bytes.as_slice()]);
        }
    }
}
