//! The classic BPF filter of a packet socket on the body's loopback device, for hosts where not all
//! connections can be captured. It selects attempts that no listener of the relay receives. Pure.

use std::net::Ipv4Addr;

use crate::observed::{IPPROTO_TCP, IPPROTO_UDP};
use crate::routes::LOG_BYTES;
use filter::bpf::{AND, Instruction, JUMP, JUMP_EQUAL, LOAD, RETURN};
use spec::body_network::{BODY_V4, QUESTION_PORT};

/// A = 16 bits at `k` (`BPF_LD | BPF_H | BPF_ABS`).
const LOAD_HALF: u16 = 0x28;
/// A = the byte at `k` (`BPF_LD | BPF_B | BPF_ABS`).
const LOAD_BYTE: u16 = 0x30;
/// A = 16 bits at X + `k` (`BPF_LD | BPF_H | BPF_IND`).
const LOAD_HALF_AT_X: u16 = 0x48;
/// A = the byte at X + `k` (`BPF_LD | BPF_B | BPF_IND`).
const LOAD_BYTE_AT_X: u16 = 0x50;
/// X = 4 × (the low four bits of the byte at `k`) (`BPF_LDX | BPF_B | BPF_MSH`).
const LOAD_HEADER_LENGTH: u16 = 0xb1;
/// X = `k` (`BPF_LDX | BPF_IMM`).
const LOAD_X: u16 = 0x01;
/// Offset of the packet metadata (`SKF_AD_OFF`, linux/filter.h).
const METADATA: u32 = 0xffff_f000;
/// `SKF_AD_PROTOCOL`.
const METADATA_PROTOCOL: u32 = METADATA;
/// `SKF_AD_PKTTYPE`.
const METADATA_DIRECTION: u32 = METADATA + 4;
/// `PACKET_OUTGOING`: on the loopback device every packet is also seen as incoming.
const OUTGOING: u32 = 4;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
const SYN: u32 = 0x02;
const SYN_AND_ACK: u32 = 0x12;

/// Instructions that either report a packet or ignore it.
#[derive(Default)]
struct Program {
    instructions: Vec<Instruction>,
    /// Jumps to the last instruction, which ignores the packet.
    jumps_to_ignore: Vec<usize>,
}

impl Program {
    fn push(&mut self, code: u16, k: u32) {
        self.instructions.push(Instruction::new(code, 0, 0, k));
    }

    /// Continues if A equals `k`, otherwise ignores the packet.
    fn require(&mut self, k: u32) {
        self.instructions
            .push(Instruction::new(JUMP_EQUAL, 1, 0, k));
        self.ignore();
    }

    /// Continues if A differs from `k`, otherwise ignores the packet.
    fn exclude(&mut self, k: u32) {
        self.instructions
            .push(Instruction::new(JUMP_EQUAL, 0, 1, k));
        self.ignore();
    }

    /// A separate jump: conditional jumps reach only 255 instructions.
    fn ignore(&mut self) {
        self.jumps_to_ignore.push(self.instructions.len());
        self.push(JUMP, 0);
    }

    fn end(mut self) -> Vec<Instruction> {
        self.push(RETURN, LOG_BYTES);
        let ignore = self.instructions.len();
        self.push(RETURN, 0);
        for at in self.jumps_to_ignore {
            self.instructions[at].k = count(ignore - at - 1);
        }
        self.instructions
    }
}

fn count(instructions: usize) -> u32 {
    u32::try_from(instructions).unwrap_or(u32::MAX)
}

/// The filter. Of packets to outside addresses, it selects the first packet of each TCP connection to a
/// port without a listener of the relay (`ports` have listeners), and all datagrams except DNS queries.
///
/// Packets must start at their network header.
#[must_use]
pub fn filter(ports: &[u16]) -> Vec<Instruction> {
    let v4 = ipv4_program(ports);
    let v6 = ipv6_program(ports);
    let mut instructions = vec![
        Instruction::new(LOAD, 0, 0, METADATA_DIRECTION),
        Instruction::new(JUMP_EQUAL, 0, 1, OUTGOING),
        Instruction::new(RETURN, 0, 0, 0),
        Instruction::new(LOAD, 0, 0, METADATA_PROTOCOL),
        Instruction::new(JUMP_EQUAL, 1, 0, ETHERTYPE_IPV4),
        Instruction::new(JUMP, 0, 0, count(v4.len())),
    ];
    instructions.extend(v4);
    instructions.extend([
        Instruction::new(JUMP_EQUAL, 1, 0, ETHERTYPE_IPV6),
        Instruction::new(RETURN, 0, 0, 0),
    ]);
    instructions.extend(v6);
    instructions
}

fn ipv4_program(ports: &[u16]) -> Vec<Instruction> {
    let mut program = Program::default();
    program.push(LOAD_BYTE, 16);
    program.exclude(Ipv4Addr::LOCALHOST.octets()[0].into());
    program.push(LOAD, 16);
    program.exclude(BODY_V4.to_bits());
    // Only the first fragment has ports.
    program.push(LOAD_HALF, 6);
    program.push(AND, 0x1fff);
    program.require(0);
    program.push(LOAD_HEADER_LENGTH, 0);
    program.push(LOAD_BYTE, 9);
    add_transport(&mut program, ports);
    program.end()
}

fn ipv6_program(ports: &[u16]) -> Vec<Instruction> {
    let mut program = Program::default();
    // Each word of ::1; the first difference jumps past the last comparison.
    for (offset, rest) in [(24, 7), (28, 5), (32, 3)] {
        program.push(LOAD, offset);
        let differs = Instruction::new(JUMP_EQUAL, 0, rest, 0);
        program.instructions.push(differs);
    }
    program.push(LOAD, 36);
    program.exclude(1);
    // Extension headers need CAP_NET_RAW, which the body does not have.
    program.push(LOAD_X, 40);
    program.push(LOAD_BYTE, 6);
    add_transport(&mut program, ports);
    program.end()
}

/// Adds the checks of the transport header. A is the protocol, X the offset of its header.
fn add_transport(program: &mut Program, ports: &[u16]) {
    const UDP_INSTRUCTIONS: u8 = 9;
    let to_tcp = Instruction::new(JUMP_EQUAL, UDP_INSTRUCTIONS, 0, IPPROTO_TCP.into());
    program.instructions.push(to_tcp);
    let start = program.instructions.len();
    program.require(IPPROTO_UDP.into());
    for offset in [2, 0] {
        program.push(LOAD_HALF_AT_X, offset);
        program.exclude(QUESTION_PORT.into());
    }
    program.push(RETURN, LOG_BYTES);
    debug_assert_eq!(
        program.instructions.len() - start,
        usize::from(UDP_INSTRUCTIONS)
    );
    program.push(LOAD_BYTE_AT_X, 13);
    program.push(AND, SYN_AND_ACK);
    program.require(SYN);
    program.push(LOAD_HALF_AT_X, 2);
    for port in ports {
        program.exclude((*port).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::FAMILIES;
    use crate::routes::routes;
    use crate::test_network::{run_in_own_network, send};
    use rustix::io::Errno;
    use rustix::net::RecvFlags;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use sys::namespace::loopback_up;
    use sys::packet;

    #[test]
    fn the_tap_reports_only_packets_that_no_listener_receives() {
        let name = "tap::tests::the_tap_reports_only_packets_that_no_listener_receives";
        if !run_in_own_network(name) {
            return;
        }
        loopback_up().expect("lo comes up");
        send(None, &routes(&FAMILIES).expect("built"));
        let tap = packet::tap(1, &filter(&[53, 80, 443])).expect("tapped");
        let reported = || {
            let mut packet = [0_u8; 256];
            match rustix::net::recv(&tap, &mut packet, RecvFlags::empty()) {
                Ok((bytes, _)) => Some(packet[..bytes].to_vec()),
                Err(Errno::AGAIN) => None,
                Err(errno) => panic!("{errno}"),
            }
        };
        let listener = TcpListener::bind("0.0.0.0:443").expect("bound");
        let from = UdpSocket::bind("0.0.0.0:0").expect("bound");
        let from_v6 = UdpSocket::bind("[::]:0").expect("bound");
        drop(TcpStream::connect("8.8.8.8:443").expect("connected"));
        drop(listener.accept().expect("accepted"));
        for own in ["127.0.0.1:8443", "198.18.0.2:1", "[::1]:8443", "8.8.8.8:80"] {
            TcpStream::connect(own).expect_err("connection refused");
        }
        from.send_to(b"x", "8.8.8.8:53").expect("sent");
        from.send_to(b"x", "127.0.0.1:123").expect("sent");
        from_v6.send_to(b"x", "[::1]:123").expect("sent");
        from_v6.send_to(b"x", "[2001:db8::1]:53").expect("sent");
        assert_eq!(reported(), None);
        for (outside, version, transport) in
            [("8.8.8.8:8443", 4, 20), ("[2001:db8::1]:8443", 6, 40)]
        {
            TcpStream::connect(outside).expect_err("connection refused");
            let packet = reported().expect("the first packet");
            assert_eq!((packet[0] >> 4, packet[transport + 13]), (version, 2));
            assert_eq!(packet[transport + 2..transport + 4], 8443_u16.to_be_bytes());
            assert_eq!(reported(), None);
        }
        from.send_to(&[7; 500], "8.8.8.8:443").expect("sent");
        from_v6.send_to(b"x", "[2001:db8::1]:443").expect("sent");
        let packet = reported().expect("a datagram");
        assert_eq!(
            (packet.len(), packet[9], &packet[16..20]),
            (128, 17, &[8; 4][..])
        );
        assert_eq!(reported().expect("a datagram")[6], 17);
        assert_eq!(reported(), None);
    }
}
