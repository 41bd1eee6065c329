//! Network configuration of the body's namespace: routes that make every address local, and rules that
//! direct every connection to the relay. Builds the netlink messages before the child needs them.
//!
//! `local default dev lo`: packets to any address are delivered in the namespace itself, and none can
//! leave it, since it has no other device. The rules only select the receiving socket. TPROXY instead of
//! REDIRECT: it needs no connection tracking, and getsockname(2) returns the dialled address.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;

use crate::address::Family;
use crate::observed::{IPPROTO_TCP, IPPROTO_UDP};
use spec::body_network::{ADDRESS_V4, ADDRESS_V6, BODY_V4, QUESTION_PORT, RELAY_PORT};
use sys::namespace::LOOPBACK_INDEX;
use sys::netlink::{ACKNOWLEDGE, APPEND, Attribute, Batch, CREATE, EXCLUSIVE};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFA_LOCAL: u16 = 2;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;

/// Create a new object and request an acknowledgement.
const NEW: u16 = ACKNOWLEDGE | CREATE | EXCLUSIVE;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const FAMILY_INET: u8 = 1;
const TABLE: &str = "runner";
const HOOK_PREROUTING: u32 = 0;
const HOOK_OUTPUT: u32 = 3;
/// Verdicts (`NF_DROP`, `NF_ACCEPT`).
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// Before all filter chains.
const PRIORITY_MANGLE: i32 = -150;
/// Offsets of the ports in a TCP or UDP header.
const SOURCE_OFFSET: u32 = 0;
const DESTINATION_OFFSET: u32 = 2;
/// Offset of the flags in a TCP header.
const TCP_FLAGS_OFFSET: u32 = 13;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
/// The NFLOG group that reports dropped packets.
pub(crate) const LOG_GROUP: u16 = 1;
/// Bytes of each packet that are reported: the headers.
pub const LOG_BYTES: u32 = 128;

/// The routes of these families; for IPv4, also an address for the body.
///
/// # Errors
/// None in practice: EMSGSIZE for a message beyond 64 KiB.
pub fn routes(families: &[Family]) -> Result<Batch, Errno> {
    let mut batch = Batch::default();
    for family in families {
        let device = Attribute::Bytes(RTA_OIF, LOOPBACK_INDEX.to_ne_bytes().to_vec());
        let (number, attributes) = match family {
            Family::V4 => {
                add_body_address(&mut batch)?;
                // If the source equalled the destination, a connection could connect to itself.
                let source = Ipv4Addr::LOCALHOST.octets().to_vec();
                let source = Attribute::Bytes(RTA_PREFSRC, source);
                (AF_INET, vec![device, source])
            }
            Family::V6 => (AF_INET6, vec![device]),
        };
        let mut fixed = [0; 12];
        fixed[0] = number;
        fixed[4..8].copy_from_slice(&[RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL]);
        batch.push(RTM_NEWROUTE, NEW, &fixed, &attributes)?;
    }
    Ok(batch)
}

fn add_body_address(batch: &mut Batch) -> Result<(), Errno> {
    const PREFIX_BITS: u8 = 32;
    let [i0, i1, i2, i3] = LOOPBACK_INDEX.to_ne_bytes();
    let fixed = [AF_INET, PREFIX_BITS, 0, RT_SCOPE_HOST, i0, i1, i2, i3];
    let address = Attribute::Bytes(IFA_LOCAL, BODY_V4.octets().to_vec());
    batch.push(RTM_NEWADDR, NEW, &fixed, &[address])
}

/// The rules as one atomic batch.
///
/// Only the first packet of a connection is redirected: later packets match the socket by address and
/// port.
///
/// # Errors
/// None in practice: EMSGSIZE for a message beyond 64 KiB.
pub fn capture_rules(families: &[Family]) -> Result<Batch, Errno> {
    let mut rules = Rules::begin()?;
    rules.chain("prerouting", HOOK_PREROUTING, PRIORITY_MANGLE)?;
    for family in families {
        let redirected = [
            is_protocol(IPPROTO_TCP),
            is_first_packet(),
            is_outside(*family),
            redirect_to_relay(*family),
            vec![verdict(ACCEPT)],
        ];
        rules.rule("prerouting", redirected.concat(), 0)?;
    }
    rules.chain("output", HOOK_OUTPUT, 0)?;
    for (index, family) in families.iter().enumerate() {
        let mut dropped = [is_protocol(IPPROTO_UDP), is_outside(*family)].concat();
        // Queries and their answers: only the relay can send from that port.
        dropped.extend(is_other_port(DESTINATION_OFFSET, QUESTION_PORT));
        dropped.extend(is_other_port(SOURCE_OFFSET, QUESTION_PORT));
        dropped.extend([log(), verdict(DROP)]);
        // Only the last message requests an acknowledgement: errors are always reported.
        let is_last = index + 1 == families.len();
        let flags = if is_last { ACKNOWLEDGE } else { 0 };
        rules.rule("output", dropped, flags)?;
    }
    rules.end()
}

/// Subscribes to logged packets: [`LOG_BYTES`] of each packet, one message per packet without delay, with
/// sequence numbers.
///
/// # Errors
/// None in practice: EMSGSIZE for a message beyond 64 KiB.
pub fn log_subscription() -> Result<Batch, Errno> {
    const CONFIGURE: u16 = 4 << 8 | 1;
    const BIND: u8 = 1;
    const COPY_PACKET: u8 = 2;
    const NUMBERED: u16 = 1;
    let mut batch = Batch::default();
    let [high, low] = LOG_GROUP.to_be_bytes();
    let [b0, b1, b2, b3] = LOG_BYTES.to_be_bytes();
    let attributes = [
        Attribute::Bytes(1, vec![BIND]),
        Attribute::Bytes(2, vec![b0, b1, b2, b3, COPY_PACKET, 0]),
        Attribute::number(5, 1),
        Attribute::Bytes(6, NUMBERED.to_be_bytes().to_vec()),
    ];
    batch.push(CONFIGURE, ACKNOWLEDGE, &[0, 0, high, low], &attributes)?;
    Ok(batch)
}

struct Rules(Batch);

impl Rules {
    fn begin() -> Result<Self, Errno> {
        let mut rules = Self(Batch::default());
        rules.0.push(BATCH_BEGIN, 0, &batch_header(), &[])?;
        let name = Attribute::text(1, TABLE);
        rules.push(NEW_TABLE, 0, &[name])?;
        Ok(rules)
    }

    fn push(&mut self, kind: u16, flags: u16, attributes: &[Attribute]) -> Result<(), Errno> {
        let flags = flags | CREATE | if kind == NEW_RULE { APPEND } else { EXCLUSIVE };
        self.0
            .push(kind, flags, &[FAMILY_INET, 0, 0, 0], attributes)
    }

    /// A chain whose default policy is accept.
    fn chain(&mut self, name: &str, hook: u32, priority: i32) -> Result<(), Errno> {
        let hook = vec![
            Attribute::number(1, hook),
            Attribute::Bytes(2, priority.to_be_bytes().to_vec()),
        ];
        let attributes = [
            Attribute::text(1, TABLE),
            Attribute::text(3, name),
            Attribute::Nested(4, hook),
            Attribute::number(5, ACCEPT),
            Attribute::text(7, "filter"),
        ];
        self.push(NEW_CHAIN, 0, &attributes)
    }

    fn rule(&mut self, chain: &str, expressions: Vec<Attribute>, flags: u16) -> Result<(), Errno> {
        let attributes = [
            Attribute::text(1, TABLE),
            Attribute::text(2, chain),
            Attribute::Nested(4, expressions),
        ];
        self.push(NEW_RULE, flags, &attributes)
    }

    fn end(mut self) -> Result<Batch, Errno> {
        self.0.push(BATCH_END, 0, &batch_header(), &[])?;
        Ok(self.0)
    }
}

fn batch_header() -> [u8; 4] {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    [0, 0, high, low]
}

/// Matches packets of a family that do not go to the body's own addresses: 127.0.0.0/8, its assigned
/// address, ::1.
fn is_outside(family: Family) -> Vec<Attribute> {
    let network = |offset, length| payload(Header::Network, offset, length);
    let loopback_v4 = Ipv4Addr::LOCALHOST.octets();
    match family {
        Family::V4 => [
            is_family(family),
            vec![network(16, 1), differs(&loopback_v4[..1])],
            vec![network(16, 4), differs(&BODY_V4.octets())],
        ]
        .concat(),
        Family::V6 => [
            is_family(family),
            vec![network(24, 16), differs(&Ipv6Addr::LOCALHOST.octets())],
        ]
        .concat(),
    }
}

fn is_family(family: Family) -> Vec<Attribute> {
    let number = match family {
        Family::V4 => AF_INET,
        Family::V6 => AF_INET6,
    };
    vec![meta(Meta::Family), equals(&[number])]
}

fn is_protocol(number: u8) -> Vec<Attribute> {
    vec![meta(Meta::Protocol), equals(&[number])]
}

/// Matches TCP packets that open a connection.
fn is_first_packet() -> Vec<Attribute> {
    let flags = expression(
        "bitwise",
        vec![
            Attribute::number(1, 1),
            Attribute::number(2, 1),
            Attribute::number(3, 1),
            Attribute::Nested(4, vec![Attribute::Bytes(1, vec![TCP_SYN | TCP_ACK])]),
            Attribute::Nested(5, vec![Attribute::Bytes(1, vec![0])]),
        ],
    );
    vec![
        payload(Header::Transport, TCP_FLAGS_OFFSET, 1),
        flags,
        equals(&[TCP_SYN]),
    ]
}

/// Redirects packets of a family to the relay's listener.
fn redirect_to_relay(family: Family) -> Vec<Attribute> {
    let (number, address) = match family {
        Family::V4 => (AF_INET, ADDRESS_V4.octets().to_vec()),
        Family::V6 => (AF_INET6, ADDRESS_V6.octets().to_vec()),
    };
    let redirect = expression(
        "tproxy",
        vec![
            Attribute::number(1, number.into()),
            Attribute::number(2, 1),
            Attribute::number(3, 2),
        ],
    );
    vec![
        immediate(1, address),
        immediate(2, RELAY_PORT.to_be_bytes().to_vec()),
        redirect,
    ]
}

/// Matches all ports except this one.
fn is_other_port(offset: u32, port: u16) -> [Attribute; 2] {
    [
        payload(Header::Transport, offset, 2),
        differs(&port.to_be_bytes()),
    ]
}

#[derive(Clone, Copy)]
enum Meta {
    Family = 15,
    Protocol = 16,
}

#[derive(Clone, Copy)]
enum Header {
    Network = 1,
    Transport = 2,
}

fn expression(name: &str, data: Vec<Attribute>) -> Attribute {
    Attribute::Nested(
        1,
        vec![Attribute::text(1, name), Attribute::Nested(2, data)],
    )
}

/// Loads packet metadata into register 1.
fn meta(key: Meta) -> Attribute {
    expression(
        "meta",
        vec![Attribute::number(1, 1), Attribute::number(2, key as u32)],
    )
}

/// Loads header bytes into register 1.
fn payload(header: Header, offset: u32, length: u32) -> Attribute {
    expression(
        "payload",
        vec![
            Attribute::number(1, 1),
            Attribute::number(2, header as u32),
            Attribute::number(3, offset),
            Attribute::number(4, length),
        ],
    )
}

/// Continues the rule if register 1 equals these bytes.
fn equals(bytes: &[u8]) -> Attribute {
    compare(0, bytes)
}

/// Continues the rule if register 1 differs from these bytes.
fn differs(bytes: &[u8]) -> Attribute {
    compare(1, bytes)
}

fn compare(operation: u32, bytes: &[u8]) -> Attribute {
    let value = Attribute::Nested(3, vec![Attribute::Bytes(1, bytes.to_vec())]);
    let operation = Attribute::number(2, operation);
    expression("cmp", vec![Attribute::number(1, 1), operation, value])
}

/// Loads constant bytes into a register.
fn immediate(register: u32, bytes: Vec<u8>) -> Attribute {
    let value = Attribute::Nested(2, vec![Attribute::Bytes(1, bytes)]);
    expression("immediate", vec![Attribute::number(1, register), value])
}

/// Sets the verdict that ends the chain: register 0.
fn verdict(code: u32) -> Attribute {
    let code = Attribute::Nested(2, vec![Attribute::number(1, code)]);
    let value = Attribute::Nested(2, vec![code]);
    expression("immediate", vec![Attribute::number(1, 0), value])
}

/// Logs to NFLOG, one packet per message.
fn log() -> Attribute {
    expression(
        "log",
        vec![
            Attribute::Bytes(1, LOG_GROUP.to_be_bytes().to_vec()),
            Attribute::number(3, LOG_BYTES),
            Attribute::Bytes(4, 1_u16.to_be_bytes().to_vec()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::FAMILIES;
    use crate::test_network::{run_in_own_network, send};
    use rustix::net::RecvFlags;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use sys::namespace::loopback_up;
    use sys::netlink::{self, exchange};
    use sys::socket::{set_transparent_v4, set_transparent_v6};

    fn transparent(address: SocketAddr) -> TcpListener {
        let family = match address {
            SocketAddr::V4(_) => rustix::net::AddressFamily::INET,
            SocketAddr::V6(_) => rustix::net::AddressFamily::INET6,
        };
        let stream = rustix::net::SocketType::STREAM;
        let relay = rustix::net::socket(family, stream, None).expect("a socket");
        match address {
            SocketAddr::V4(_) => set_transparent_v4(&relay).expect("transparent"),
            SocketAddr::V6(_) => set_transparent_v6(&relay).expect("transparent"),
        }
        rustix::net::bind(&relay, &address).expect("bound");
        rustix::net::listen(&relay, 16).expect("listening");
        relay.into()
    }

    #[test]
    fn each_connection_reaches_the_relay_with_its_destination_address() {
        let name = "routes::tests::\
            each_connection_reaches_the_relay_with_its_destination_address";
        if !run_in_own_network(name) {
            return;
        }
        loopback_up().expect("lo comes up");
        send(None, &routes(&FAMILIES).expect("built"));
        let v4 = transparent(SocketAddr::from((ADDRESS_V4, RELAY_PORT)));
        let v6 = transparent(SocketAddr::from((ADDRESS_V6, RELAY_PORT)));
        let netfilter = Some(rustix::net::netlink::NETFILTER);
        let log = netlink::open(netfilter).expect("made");
        let subscription = log_subscription().expect("built");
        exchange(&log, subscription.bytes(), subscription.acknowledged()).expect("subscribed");
        rustix::io::ioctl_fionbio(&log, true).expect("set");
        let rules = capture_rules(&FAMILIES).expect("built");
        send(netfilter, &rules);
        for (dialled, relay) in [
            ("8.8.8.8:8443", &v4),
            ("198.18.0.1:80", &v4),
            ("198.18.0.1:1", &v4),
            ("10.0.0.1:1", &v4),
            ("[2001:db8::1]:443", &v6),
            ("[fd00:198:18::1]:1", &v6),
        ] {
            let mut body = TcpStream::connect(dialled).expect(dialled);
            let (mut relayed, _) = relay.accept().expect("accepted");
            assert_eq!(relayed.local_addr().expect("known").to_string(), dialled);
            assert!(body.local_addr().expect("known").ip().is_loopback());
            relayed.write_all(b"x").expect("written");
            let mut byte = [0];
            body.read_exact(&mut byte).expect("read");
        }
        // A listener of the body receives no connection to an outside address.
        let own_listener = TcpListener::bind("0.0.0.0:0").expect("bound");
        let port = own_listener.local_addr().expect("bound").port();
        drop(TcpStream::connect(("8.8.8.8", port)).expect("connected"));
        v4.accept().expect("a connection");
        // Connections to the body's own loopback reach its own listener.
        for own in ["127.0.0.1", "127.1.2.3", "198.18.0.2"] {
            drop(TcpStream::connect((own, port)).expect(own));
            own_listener.accept().expect("a connection");
        }
        let no_log = rustix::net::recv(&log, &mut [0_u8; 4_096], RecvFlags::empty());
        assert_eq!(no_log.expect_err("no packet was dropped"), Errno::AGAIN);
        let dropped = std::net::UdpSocket::bind("0.0.0.0:0").expect("bound");
        let refused = dropped.send_to(b"x", "8.8.8.8:443");
        assert_eq!(
            refused.expect_err("dropped").raw_os_error(),
            Some(Errno::PERM.raw_os_error())
        );
        let mut message = [0_u8; 4_096];
        let (bytes, _) =
            rustix::net::recv(&log, &mut message, RecvFlags::empty()).expect("a message");
        let destination = [8, 8, 8, 8];
        assert!(message[..bytes].windows(4).any(|four| four == destination));
        dropped
            .send_to(b"x", "8.8.8.8:53")
            .expect("a DNS query is sent");
    }
}
