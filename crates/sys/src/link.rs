//! A SOCK_SEQPACKET pair that carries fixed messages and descriptors between two processes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Maximum descriptors of one message (SCM_MAX_FD, unix(7)).
pub const DESCRIPTORS_MAX: usize = 253;

/// One message: a kind and three values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    pub kind: u32,
    pub values: [i32; 3],
}

const MESSAGE_BYTES: usize = 16;
/// A traced body's filter lets these messages pass, which init sends under it.
const UNSEEN: SendFlags = SendFlags::from_bits_retain(filter::UNSEEN_MESSAGE);

impl Message {
    /// A message without values.
    #[must_use]
    pub const fn of(kind: u32) -> Self {
        Self::with(kind, [0; 3])
    }

    /// A message with values.
    #[must_use]
    pub const fn with(kind: u32, values: [i32; 3]) -> Self {
        Self { kind, values }
    }

    fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_ne_bytes());
        for (chunk, value) in bytes[4..].chunks_exact_mut(4).zip(self.values) {
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; MESSAGE_BYTES]) -> Self {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        Self {
            kind: u32::from_ne_bytes(word(0)),
            values: [4, 8, 12].map(|at| i32::from_ne_bytes(word(at))),
        }
    }
}

/// Converts an errno of the peer, which may be compromised: an invalid number becomes EPROTO.
#[must_use]
pub fn errno_from_peer(number: i32) -> Errno {
    // `from_raw_os_error` panics for any other number.
    match number {
        1..=4095 => Errno::from_raw_os_error(number),
        _ => Errno::PROTO,
    }
}

/// Descriptors of a message, in the order of sending.
pub type Received = [Option<OwnedFd>; DESCRIPTORS_MAX];

/// Creates a connected pair, close-on-exec (socketpair(2)).
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends a message with up to [`DESCRIPTORS_MAX`] descriptors. Allocates nothing. Fails with EPIPE
/// if the peer has closed its end, E2BIG for too many descriptors.
pub fn send(
    link: BorrowedFd<'_>,
    message: Message,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let bytes = message.to_bytes();
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            link,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL | UNSEEN,
        )
    })?;
    if sent == MESSAGE_BYTES {
        Ok(())
    } else {
        Err(Errno::IO)
    }
}

/// Waits for a message; `None` if the peer has closed its end. Allocates nothing.
///
/// # Errors
/// The errno of recvmsg(2); EBADMSG for a message of another length, or for too many or lost
/// descriptors.
pub fn receive(link: BorrowedFd<'_>) -> Result<Option<(Message, Received)>, Errno> {
    match receive_lossy(link)? {
        Some((_, _, true)) => Err(Errno::BADMSG),
        Some((message, received, false)) => Ok(Some((message, received))),
        None => Ok(None),
    }
}

/// Waits for a message. Also returns whether descriptors were lost because this process is at
/// RLIMIT_NOFILE (recvmsg(2)). Fails with EBADMSG for a message of another length or too many
/// descriptors.
pub fn receive_lossy(link: BorrowedFd<'_>) -> Result<Option<(Message, Received, bool)>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut bytes = [0; MESSAGE_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let result = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(
            link.as_fd(),
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    if result.bytes == 0 {
        return Ok(None);
    }
    let mut received: Received = [const { None }; DESCRIPTORS_MAX];
    let mut free = received.iter_mut();
    for message in ancillary.drain() {
        let RecvAncillaryMessage::ScmRights(descriptors) = message else {
            return Err(Errno::BADMSG);
        };
        for descriptor in descriptors {
            *free.next().ok_or(Errno::BADMSG)? = Some(descriptor);
        }
    }
    // recvmsg(2) truncates a longer message.
    let is_longer = result.flags.contains(rustix::net::ReturnFlags::TRUNC);
    if is_longer || result.bytes != MESSAGE_BYTES {
        return Err(Errno::BADMSG);
    }
    let has_lost = result.flags.contains(rustix::net::ReturnFlags::CTRUNC);
    Ok(Some((Message::from_bytes(bytes), received, has_lost)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors_and_then_the_end() {
        let (here, there) = pair().expect("made");
        let message = Message {
            kind: 7,
            values: [1, -2, i32::MAX],
        };
        send(here.as_fd(), message, &[here.as_fd(), there.as_fd()]).expect("sent");
        let (got, descriptors) = receive(there.as_fd())
            .expect("received")
            .expect("a message");
        assert_eq!(got, message);
        assert_eq!(descriptors.iter().flatten().count(), 2);
        drop((here, descriptors));
        assert!(receive(there.as_fd()).expect("received").is_none());
    }

    #[test]
    fn an_invalid_errno_is_replaced_without_a_panic() {
        for number in [i32::MIN, -1, 0, 4096, 65_536 + 13, i32::MAX] {
            assert_eq!(errno_from_peer(number), Errno::PROTO);
        }
        assert_eq!(errno_from_peer(13), Errno::ACCESS);
        assert_eq!(errno_from_peer(4095).raw_os_error(), 4095);
    }
}
