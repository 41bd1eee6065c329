//! Netlink: prepared messages, and an exchange with the kernel that allocates nothing.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::link::errno_from_peer;

pub(super) const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// `NLMSG_ERROR`; with errno 0 an acknowledgement.
pub(super) const MESSAGE_ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`.
pub const ACKNOWLEDGE: u16 = 0x4;
/// `NLM_F_EXCL`.
pub const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_CREATE`.
pub const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;

/// An attribute of a message.
#[derive(Debug, Clone)]
pub enum Attribute {
    Bytes(u16, Vec<u8>),
    Nested(u16, Vec<Self>),
}

impl Attribute {
    /// Creates a number in network byte order, as nf_tables requires.
    #[must_use]
    pub fn number(kind: u16, value: u32) -> Self {
        Self::Bytes(kind, value.to_be_bytes().to_vec())
    }

    /// Creates a NUL-terminated string.
    #[must_use]
    pub fn text(kind: u16, text: &str) -> Self {
        Self::Bytes(kind, [text.as_bytes(), &[0]].concat())
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Errno> {
        let start = out.len();
        let kind = match self {
            Self::Bytes(kind, _) => *kind,
            Self::Nested(kind, _) => *kind | NESTED,
        };
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&kind.to_ne_bytes());
        match self {
            Self::Bytes(_, bytes) => out.extend_from_slice(bytes),
            Self::Nested(_, inner) => {
                for attribute in inner {
                    attribute.write(out)?;
                }
            }
        }
        let length = u16::try_from(out.len() - start).map_err(|_too_long| Errno::MSGSIZE)?;
        out[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        debug_assert!(ATTRIBUTE_HEADER_BYTES <= usize::from(length));
        pad(out);
        Ok(())
    }
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Messages that are sent together, and the number of acknowledgements that they request.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    messages: u32,
    acknowledged: u32,
}

impl Batch {
    /// Appends a message: type, flags besides NLM_F_REQUEST, fixed part, attributes. Fails with
    /// EMSGSIZE for an attribute of 64 KiB or more with its header.
    pub fn push(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: &[Attribute],
    ) -> Result<(), Errno> {
        let start = self.bytes.len();
        self.messages += 1;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.messages.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        debug_assert_eq!(self.bytes.len() - start, HEADER_BYTES);
        self.bytes.extend_from_slice(fixed);
        pad(&mut self.bytes);
        for attribute in attributes {
            attribute.write(&mut self.bytes)?;
        }
        let length = u32::try_from(self.bytes.len() - start).map_err(|_too_long| Errno::MSGSIZE)?;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        if flags & ACKNOWLEDGE != 0 {
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// The encoded messages.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of messages with [`ACKNOWLEDGE`].
    #[must_use]
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged
    }
}

/// Opens a close-on-exec netlink socket of `protocol`; `None` is NETLINK_ROUTE (socket(2)). Fails
/// with EPROTONOSUPPORT if the kernel does not have the protocol.
pub fn open(protocol: Option<Protocol>) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)
}

/// Sends `batch` and waits for `acknowledged` acknowledgements. Allocates nothing.
///
/// # Errors
/// The errno of sendto(2) or recvfrom(2); the kernel's error for the first refused message; EPROTO
/// for a malformed answer.
pub fn exchange(socket: &OwnedFd, batch: &[u8], acknowledged: u32) -> Result<(), Errno> {
    let kernel = SocketAddrNetlink::new(0, 0);
    let sent = rustix::net::sendto(socket, batch, SendFlags::empty(), &kernel)?;
    if sent != batch.len() {
        return Err(Errno::MSGSIZE);
    }
    let mut missing = acknowledged;
    let mut buffer = [0_u8; 4_096];
    while missing > 0 {
        let (received, _) = rustix::net::recv(socket, &mut buffer, RecvFlags::empty())?;
        let mut rest = &buffer[..received];
        if rest.is_empty() {
            return Err(Errno::PROTO);
        }
        while missing > 0 && !rest.is_empty() {
            rest = read_acknowledgement(rest)?;
            missing -= 1;
        }
    }
    Ok(())
}

fn read_acknowledgement(bytes: &[u8]) -> Result<&[u8], Errno> {
    let Some((header, after)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Errno::PROTO);
    };
    let [l0, l1, l2, l3, k0, k1, ..] = *header;
    let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
    if u16::from_ne_bytes([k0, k1]) != MESSAGE_ERROR || length < HEADER_BYTES {
        return Err(Errno::PROTO);
    }
    read_error(after)?;
    Ok(bytes.get(length.next_multiple_of(4)..).unwrap_or_default())
}

/// Reads the payload of `NLMSG_ERROR`: 0 or a negative errno. Fails with EPROTO for any other number.
pub(super) fn read_error(payload: &[u8]) -> Result<(), Errno> {
    match payload.first_chunk().copied().map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(errno_from_peer(code.wrapping_neg())),
        None => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_include_headers_and_everything_is_padded_to_four_bytes() {
        let mut batch = Batch::default();
        let inner = vec![Attribute::text(1, "ab"), Attribute::number(2, 1)];
        batch
            .push(7, ACKNOWLEDGE, &[9], &[Attribute::Nested(3, inner)])
            .expect("short");
        let length = batch.bytes().len();
        assert_eq!(length % 4, 0);
        // Header, one padded byte, nested header, text (4 + 3 + 1), number (4 + 4).
        assert_eq!(length, 16 + 4 + 4 + 8 + 8);
        assert_eq!(batch.bytes()[..4], 40_u32.to_ne_bytes());
        assert_eq!(batch.bytes()[20..22], 20_u16.to_ne_bytes());
        assert_eq!(batch.bytes()[22..24], 0x8003_u16.to_ne_bytes());
        assert_eq!(batch.bytes()[24..26], 7_u16.to_ne_bytes());
        assert_eq!(batch.acknowledged(), 1);
    }

    #[test]
    fn a_malformed_error_code_is_refused_without_a_panic() {
        let answer = |code: i32| {
            let header = [20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            [&header[..], &code.to_ne_bytes()].concat()
        };
        assert_eq!(read_acknowledgement(&answer(0)), Ok(&[][..]));
        assert_eq!(read_acknowledgement(&answer(-13)), Err(Errno::ACCESS));
        for code in [1, -4096, i32::MIN, i32::MAX] {
            assert_eq!(read_acknowledgement(&answer(code)), Err(Errno::PROTO));
        }
        let short = &answer(0)[..18];
        assert_eq!(read_acknowledgement(short), Err(Errno::PROTO));
    }

    #[test]
    fn the_kernel_s_refusal_is_an_errno() {
        let mut batch = Batch::default();
        // RTM_NEWROUTE with a fixed part that is too short.
        batch.push(24, ACKNOWLEDGE, &[2], &[]).expect("short");
        let socket = open(None).expect("made");
        let refused = exchange(&socket, batch.bytes(), batch.acknowledged());
        assert!(
            matches!(refused, Err(Errno::INVAL | Errno::PERM)),
            "{refused:?}"
        );
    }
}
