//! The line between a caller and one supervisor: one request with its descriptors, one report.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::resident::wire::{Wire, framed};

/// Most descriptors that go with one message.
const DESCRIPTORS_MAX: usize = 3;
/// The length in front of each message.
const HEAD_BYTES: usize = size_of::<u64>();
/// Longest message: a report holds both captured streams and the structured output.
const MESSAGE_BYTES_MAX: u64 = 1 << 32;

/// The bytes of a message, and the descriptors that came with it.
pub(super) type Heard = (Vec<u8>, Vec<OwnedFd>);

/// Why a line gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// The other side ended before anything came.
    Ended,
    /// A system call failed, or the other side ended in the middle.
    Failed(Errno),
}

/// A connected pair, close-on-exec: bytes in order.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// A connected pair, close-on-exec: messages, each taken by one reader as a whole.
pub(super) fn message_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends a value, with descriptors at its start.
///
/// # Errors
/// The errno of sendmsg(2): EPIPE where nobody reads.
pub(super) fn say<T: Wire>(
    line: BorrowedFd<'_>,
    value: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = framed(value);
    let mut sent = say_once(line, bytes.bytes(), descriptors)?;
    while sent < bytes.bytes().len() {
        sent += say_once(line, &bytes.bytes()[sent..], &[])?;
    }
    Ok(())
}

/// One sendmsg(2); how many bytes it took.
pub(super) fn say_once(
    line: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    send(line, bytes, descriptors, SendFlags::NOSIGNAL)
}

fn send(
    line: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(line, &[IoSlice::new(bytes)], &mut ancillary, flags)
    })
}

/// One sendmsg(2) that does not wait: EAGAIN where there is no room.
pub(super) fn say_if_room(
    line: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    send(
        line,
        bytes,
        descriptors,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )
}

/// One recvmsg(2) into `bytes`; how many came, and the descriptors that came with them.
pub(super) fn hear_once(
    line: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let answer = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(bytes)];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(line, &mut parts, &mut ancillary, flags)
    })?;
    let mut received = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    match answer.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        true => Err(Errno::MFILE),
        false => Ok((answer.bytes, received)),
    }
}

/// Receives the bytes of one message, and its descriptors.
pub(super) fn hear(line: BorrowedFd<'_>) -> Result<Heard, Silence> {
    let mut head = [0; HEAD_BYTES];
    let (count, descriptors) =
        hear_once(line, &mut head, RecvFlags::empty()).map_err(Silence::Failed)?;
    if count == 0 {
        return Err(Silence::Ended);
    }
    fill(line, &mut head[count..]).map_err(Silence::Failed)?;
    let length = u64::from_ne_bytes(head);
    if MESSAGE_BYTES_MAX < length {
        return Err(Silence::Failed(Errno::MSGSIZE));
    }
    let length = usize::try_from(length).map_err(|_wide| Silence::Failed(Errno::MSGSIZE))?;
    let mut bytes = vec![0; length];
    fill(line, &mut bytes).map_err(Silence::Failed)?;
    Ok((bytes, descriptors))
}

fn fill(line: BorrowedFd<'_>, mut rest: &mut [u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(line.as_fd(), &mut *rest))?;
        if count == 0 {
            return Err(Errno::CONNRESET);
        }
        rest = &mut rest[count..];
    }
    Ok(())
}
