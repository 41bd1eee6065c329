//! The audit of the host: whether it is on, and a socket with its records about Landlock (Linux 6.15). Changes
//! nothing of it.

use std::os::fd::{AsFd, OwnedFd};

use filter::bpf::{Instruction, JUMP_EQUAL, RETURN};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::netlink::{AUDIT, SocketAddrNetlink};
use rustix::net::{RecvFlags, SendFlags};

use super::netlink::{self, Batch, HEADER_BYTES, MESSAGE_ERROR};
use super::seccomp::as_sock_fprog;
use super::socket::set_option;

/// `AUDIT_LANDLOCK_ACCESS`.
pub const LANDLOCK_ACCESS: u16 = 1423;
/// `AUDIT_LANDLOCK_DOMAIN`.
pub const LANDLOCK_DOMAIN: u16 = 1424;
/// `AUDIT_GET`.
const GET: u16 = 1000;
/// `AUDIT_FAIL_PANIC`.
const PANIC: u32 = 2;
/// The mask for `AUDIT_NLGRP_READLOG`.
const READ_LOG: u32 = 1;
/// The kernel answers from a thread of its own, which it may fail to start.
const ANSWERS_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
const BUFFER_BYTES: usize = 1 << 20;
/// The longest message: `MAX_AUDIT_MESSAGE_LENGTH` and its header.
pub const MESSAGE_BYTES_MAX: usize = 8_970 + HEADER_BYTES;

/// Why the records cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditUnread {
    Off,
    /// A record that is lost stops the host (`auditctl -f 2`): nobody may be let to cause many.
    StopsHost,
    /// The kernel sends them to the first network namespace only.
    OtherNetwork,
    /// EPERM without CAP_AUDIT_CONTROL and CAP_AUDIT_READ or outside of the first pid namespace, ECONNREFUSED
    /// outside of the first user namespace, EPROTONOSUPPORT without audit.
    Call(Errno),
}

impl From<Errno> for AuditUnread {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// Opens a close-on-exec socket that receives the records about Landlock from now on, if audit is on. Only the
/// kernel and the host's root can send to it.
///
/// # Errors
/// Why there are none.
pub fn open() -> Result<OwnedFd, AuditUnread> {
    let socket = netlink::open(Some(AUDIT))?;
    let (enabled, failure) = status(&socket)?;
    check_status(enabled, failure)?;
    // Who gets an answer is in the first pid namespace, where kthreadd has the id 2.
    let network = |process: &str| rustix::fs::stat(format!("/proc/{process}/ns/net"));
    if network("self")?.st_ino != network("2")?.st_ino {
        return Err(AuditUnread::OtherNetwork);
    }
    // A smaller buffer loses records sooner, which is noticed.
    let _smaller = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    keep_landlock(&socket)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, READ_LOG))?;
    Ok(socket)
}

fn check_status(enabled: u32, failure: u32) -> Result<(), AuditUnread> {
    match (enabled, failure) {
        (0, _) => Err(AuditUnread::Off),
        (_, PANIC) => Err(AuditUnread::StopsHost),
        (_, _) => Ok(()),
    }
}

/// `enabled` and `failure` of `struct audit_status`.
fn status(socket: &OwnedFd) -> Result<(u32, u32), Errno> {
    let mut request = Batch::default();
    request.push(GET, 0, &[], &[])?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(socket, request.bytes(), SendFlags::empty(), &kernel)?;
    let mut waited = [PollFd::new(socket, PollFlags::IN)];
    if rustix::event::poll(&mut waited, Some(&ANSWERS_WITHIN))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    match receive(socket, &mut buffer)? {
        Some((GET, answer)) => match answer.first_chunk::<12>() {
            Some([_, _, _, _, a, b, c, d, e, f, g, h]) => Ok((
                u32::from_ne_bytes([*a, *b, *c, *d]),
                u32::from_ne_bytes([*e, *f, *g, *h]),
            )),
            None => Err(Errno::PROTO),
        },
        Some((MESSAGE_ERROR, answer)) => {
            netlink::read_error(answer)?;
            Err(Errno::PROTO)
        }
        Some(_) | None => Err(Errno::PROTO),
    }
}

/// Drops messages of other types before they wake this process: a host can have many.
fn keep_landlock(socket: impl AsFd) -> Result<(), Errno> {
    /// `BPF_LD | BPF_H | BPF_ABS`.
    const LOAD_HALF: u16 = 0x28;
    const TYPE_OFFSET: u32 = 4;
    // The load takes the bytes in network order.
    let equals = |kind: u16, jt| {
        let kind = u16::from_be_bytes(kind.to_ne_bytes());
        Instruction::new(JUMP_EQUAL, jt, 0, kind.into())
    };
    let program = [
        Instruction::new(LOAD_HALF, 0, 0, TYPE_OFFSET),
        equals(LANDLOCK_ACCESS, 2),
        equals(LANDLOCK_DOMAIN, 1),
        Instruction::new(RETURN, 0, 0, 0),
        Instruction::new(RETURN, 0, 0, u32::MAX),
    ];
    let program = as_sock_fprog(&program)?;
    // SAFETY: SO_ATTACH_FILTER takes a `sock_fprog`, whose instructions live across the call.
    unsafe { set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Receives one message, if one waits: its type and what follows the header. `buffer` has
/// [`MESSAGE_BYTES_MAX`] bytes.
///
/// # Errors
/// ENOBUFS: messages were lost. EMSGSIZE: this one is longer than `buffer`, EPROTO: shorter than its header.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Option<(u16, &[u8])>, Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let received = match rustix::net::recv(socket, &mut *buffer, flags) {
        Ok((_, received)) => received,
        Err(Errno::AGAIN) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    // Its own length is not looked at: of a record, the kernel does not always count the header.
    let message = buffer.get(..received).ok_or(Errno::MSGSIZE)?;
    match message.split_first_chunk::<HEADER_BYTES>() {
        Some(([_, _, _, _, a, b, ..], rest)) => Ok(Some((u16::from_ne_bytes([*a, *b]), rest))),
        None => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn message(kind: u16, text: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(text);
        message
    }

    #[test]
    fn only_whole_records_about_landlock_are_received() {
        let (kernel, reader) = socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        keep_landlock(&reader).expect("attached");
        let send = |message: &[u8]| rustix::net::send(&kernel, message, SendFlags::empty());
        for (kind, text) in [
            (1300, &b"arch=c000003e"[..]),
            (LANDLOCK_ACCESS, b"audit(1.2:3): a"),
            (LANDLOCK_ACCESS.swap_bytes(), b"b"),
            (LANDLOCK_DOMAIN, b"audit(1.2:3): c"),
            (LANDLOCK_DOMAIN, &[b'x'; MESSAGE_BYTES_MAX]),
            (LANDLOCK_DOMAIN + 1, b"d"),
            (LANDLOCK_DOMAIN, b""),
        ] {
            send(&message(kind, text)).expect("sent");
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let mut next = || {
            let received = receive(&reader, &mut buffer);
            received.map(|found| found.map(|(kind, text)| (kind, text.to_vec())))
        };
        let text = |text: &[u8]| text.to_vec();
        let expected = Ok(Some((LANDLOCK_ACCESS, text(b"audit(1.2:3): a"))));
        assert_eq!(next(), expected);
        let expected = Ok(Some((LANDLOCK_DOMAIN, text(b"audit(1.2:3): c"))));
        assert_eq!(next(), expected);
        assert_eq!(next(), Err(Errno::MSGSIZE));
        assert_eq!(next(), Ok(Some((LANDLOCK_DOMAIN, text(b"")))));
        assert_eq!(next(), Ok(None));
    }

    #[test]
    fn audit_that_is_off_or_stops_the_host_is_not_read() {
        for (enabled, failure, expected) in [
            (0, 1, Err(AuditUnread::Off)),
            (0, PANIC, Err(AuditUnread::Off)),
            (1, PANIC, Err(AuditUnread::StopsHost)),
            // Locked until the next boot.
            (2, PANIC, Err(AuditUnread::StopsHost)),
            (1, 0, Ok(())),
            (2, 1, Ok(())),
        ] {
            assert_eq!(check_status(enabled, failure), expected);
        }
    }

    /// This test needs no host with audit: asking changes nothing.
    #[test]
    fn the_kernel_says_whether_audit_is_on_or_refuses_to() {
        let socket = match netlink::open(Some(AUDIT)) {
            Ok(socket) => socket,
            Err(errno) => return assert_eq!(errno, Errno::PROTONOSUPPORT),
        };
        match status(&socket) {
            Ok((enabled, failure)) => assert!(enabled <= 2 && failure <= 2),
            Err(errno) => assert!(matches!(errno, Errno::PERM | Errno::CONNREFUSED), "{errno}"),
        }
    }
}
