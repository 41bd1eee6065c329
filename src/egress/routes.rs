//! What is laid out in the body's network namespace: routes that make every address the body's
//! own, and rules that lead every connection to the relay. Messages for the kernel, made before
//! the child needs them.
//!
//! `local default dev lo`: whatever the body dials is delivered to its own namespace, and nothing
//! can leave, since there is no other device. The rules only choose which socket gets it. TPROXY
//! and not REDIRECT: no connection tracking, and getsockname(2) names the address that was dialled.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;

use crate::kernel::netlink::{ACKNOWLEDGE, APPEND, Attribute, Batch, CREATE, EXCLUSIVE};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTM_NEWROUTE: u16 = 24;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_OIF: u16 = 4;
/// The loopback device is the first of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

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
/// Before anything that filters.
const PRIORITY_MANGLE: i32 = -150;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const DNS_PORT: u16 = 53;
/// The group of NFLOG that tells of what was dropped.
pub const LOG_GROUP: u16 = 1;

/// The routes of both families.
///
/// # Errors
/// None in practice: EMSGSIZE for a message beyond 64 KiB.
pub fn routes() -> Result<Batch, Errno> {
    let mut batch = Batch::default();
    for family in [AF_INET, AF_INET6] {
        let mut fixed = [0; 12];
        fixed[..8].copy_from_slice(&[
            family,
            0,
            0,
            0,
            RT_TABLE_LOCAL,
            RTPROT_BOOT,
            RT_SCOPE_HOST,
            RTN_LOCAL,
        ]);
        let device = Attribute::Bytes(RTA_OIF, LOOPBACK_INDEX.to_ne_bytes().to_vec());
        batch.push(
            RTM_NEWROUTE,
            ACKNOWLEDGE | CREATE | EXCLUSIVE,
            &fixed,
            &[device],
        )?;
    }
    Ok(batch)
}

/// The rules, as one batch that is applied whole or not at all.
///
/// # Errors
/// None in practice: EMSGSIZE for a message beyond 64 KiB.
pub fn capture_rules(relay_port: u16) -> Result<Batch, Errno> {
    let mut rules = Rules::begin()?;
    rules.chain("prerouting", HOOK_PREROUTING, PRIORITY_MANGLE)?;
    for own in own_loopback() {
        rules.rule("prerouting", [own, vec![verdict(true)]].concat())?;
    }
    let to_relay = vec![
        immediate_port(relay_port),
        expression(
            "tproxy",
            vec![Attribute::number(1, 0), Attribute::number(3, 1)],
        ),
        verdict(true),
    ];
    rules.rule("prerouting", [is_protocol(IPPROTO_TCP), to_relay].concat())?;
    rules.chain("output", HOOK_OUTPUT, 0)?;
    for own in own_loopback() {
        rules.rule("output", [own, vec![verdict(true)]].concat())?;
    }
    rules.rule(
        "output",
        [is_protocol(IPPROTO_TCP), vec![verdict(true)]].concat(),
    )?;
    for offset in [0, 2] {
        let udp = [is_protocol(IPPROTO_UDP), is_port(offset, DNS_PORT)].concat();
        rules.rule("output", [udp, vec![verdict(true)]].concat())?;
    }
    rules.rule("output", vec![log(), verdict(false)])?;
    rules.end()
}

struct Rules(Batch);

impl Rules {
    fn begin() -> Result<Self, Errno> {
        let mut rules = Self(Batch::default());
        rules.0.push(BATCH_BEGIN, 0, &batch_header(), &[])?;
        let name = Attribute::text(1, TABLE);
        rules.push(NEW_TABLE, &[name])?;
        Ok(rules)
    }

    fn push(&mut self, kind: u16, attributes: &[Attribute]) -> Result<(), Errno> {
        let flags = ACKNOWLEDGE | CREATE | if kind == NEW_RULE { APPEND } else { EXCLUSIVE };
        self.0
            .push(kind, flags, &[FAMILY_INET, 0, 0, 0], attributes)
    }

    fn chain(&mut self, name: &str, hook: u32, priority: i32) -> Result<(), Errno> {
        let hook = vec![
            Attribute::number(1, hook),
            Attribute::Bytes(2, priority.to_be_bytes().to_vec()),
        ];
        let attributes = [
            Attribute::text(1, TABLE),
            Attribute::text(3, name),
            Attribute::Nested(4, hook),
            Attribute::number(5, 1),
            Attribute::text(7, "filter"),
        ];
        self.push(NEW_CHAIN, &attributes)
    }

    fn rule(&mut self, chain: &str, expressions: Vec<Attribute>) -> Result<(), Errno> {
        let attributes = [
            Attribute::text(1, TABLE),
            Attribute::text(2, chain),
            Attribute::Nested(4, expressions),
        ];
        self.push(NEW_RULE, &attributes)
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

/// Matches what goes to the body's own loopback: 127.0.0.0/8 and ::1.
fn own_loopback() -> [Vec<Attribute>; 2] {
    let v4 = vec![
        meta(Meta::Family),
        equals(&[AF_INET]),
        payload(Header::Network, 16, 1),
        equals(&Ipv4Addr::LOCALHOST.octets()[..1]),
    ];
    let v6 = vec![
        meta(Meta::Family),
        equals(&[AF_INET6]),
        payload(Header::Network, 24, 16),
        equals(&Ipv6Addr::LOCALHOST.octets()),
    ];
    [v4, v6]
}

fn is_protocol(number: u8) -> Vec<Attribute> {
    vec![meta(Meta::Protocol), equals(&[number])]
}

/// Matches a port: the source's at offset 0 of the transport header, the destination's at 2.
fn is_port(offset: u32, port: u16) -> Vec<Attribute> {
    vec![
        payload(Header::Transport, offset, 2),
        equals(&port.to_be_bytes()),
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

/// Loads a fact of the packet into register 1.
fn meta(key: Meta) -> Attribute {
    expression(
        "meta",
        vec![Attribute::number(1, 1), Attribute::number(2, key as u32)],
    )
}

/// Loads bytes of a header into register 1.
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

/// Goes on with the rule where register 1 holds these bytes.
fn equals(bytes: &[u8]) -> Attribute {
    let value = Attribute::Nested(3, vec![Attribute::Bytes(1, bytes.to_vec())]);
    expression(
        "cmp",
        vec![Attribute::number(1, 1), Attribute::number(2, 0), value],
    )
}

fn immediate_port(port: u16) -> Attribute {
    let value = Attribute::Nested(2, vec![Attribute::Bytes(1, port.to_be_bytes().to_vec())]);
    expression("immediate", vec![Attribute::number(1, 1), value])
}

fn verdict(accept: bool) -> Attribute {
    let code = Attribute::Nested(2, vec![Attribute::number(1, u32::from(accept))]);
    let value = Attribute::Nested(2, vec![code]);
    expression("immediate", vec![Attribute::number(1, 0), value])
}

/// Tells NFLOG, one packet a message.
fn log() -> Attribute {
    expression(
        "log",
        vec![
            Attribute::Bytes(1, LOG_GROUP.to_be_bytes().to_vec()),
            Attribute::number(3, 128),
            Attribute::Bytes(4, 1_u16.to_be_bytes().to_vec()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::namespace::loopback_up;
    use crate::kernel::netlink::exchange;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    /// Runs this very test again in a user and a network namespace of its own.
    fn in_a_network_of_its_own(test: &str) -> bool {
        if std::env::var_os("RUNNER_TESTS_INSIDE").is_some() {
            return true;
        }
        let program = std::env::current_exe().expect("our own path");
        let output = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--"])
            .arg(program)
            .args(["--exact", test, "--nocapture"])
            .env("RUNNER_TESTS_INSIDE", "1")
            .output()
            .expect("unshare is there");
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        false
    }

    fn netfilter() -> Option<rustix::net::Protocol> {
        Some(rustix::net::netlink::NETFILTER)
    }

    #[test]
    fn whatever_is_dialled_arrives_at_the_relay_and_names_its_destination() {
        let name = "egress::routes::tests::\
            whatever_is_dialled_arrives_at_the_relay_and_names_its_destination";
        if !in_a_network_of_its_own(name) {
            return;
        }
        loopback_up().expect("lo comes up");
        let routes = routes().expect("laid out");
        exchange(None, routes.bytes(), routes.acknowledged()).expect("routes");
        let relay = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .expect("a socket");
        crate::kernel::socket::set_transparent_v4(&relay).expect("transparent");
        let at: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        rustix::net::bind(&relay, &at).expect("bound");
        rustix::net::listen(&relay, 16).expect("listening");
        let relay = TcpListener::from(relay);
        let port = relay.local_addr().expect("bound").port();
        let rules = capture_rules(port).expect("laid out");
        exchange(netfilter(), rules.bytes(), rules.acknowledged()).expect("rules");
        for dialled in ["8.8.8.8:8443", "198.18.0.1:80", "10.0.0.1:1"] {
            let mut body = TcpStream::connect(dialled).expect(dialled);
            let (mut here, _) = relay.accept().expect("accepted");
            assert_eq!(here.local_addr().expect("known").to_string(), dialled);
            here.write_all(b"x").expect("written");
            let mut byte = [0];
            body.read_exact(&mut byte).expect("read");
        }
        // The body's own loopback is its own.
        let own = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = own.local_addr().expect("bound");
        drop(TcpStream::connect(address).expect("connected"));
        own.accept().expect("it came here");
        let dropped = std::net::UdpSocket::bind("0.0.0.0:0").expect("bound");
        let refused = dropped.send_to(b"x", "8.8.8.8:443");
        assert_eq!(
            refused.expect_err("dropped").raw_os_error(),
            Some(Errno::PERM.raw_os_error())
        );
        dropped.send_to(b"x", "8.8.8.8:53").expect("asks for names");
    }
}
