//! The supervisor's link to the relay or the resolver: a SOCK_SEQPACKET pair. Each packet is a message in
//! JSON, with at most one descriptor.
//!
//! Neither side blocks: messages that the peer has no room for wait here.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::resolver::ADDRESSES_MAX;
use crate::socket::{LEVEL, Watch};
use spec::egress_report::UnreachableCause;
use spec::host_name::HostName;

/// Maximum length of a message. The longest have a name, or the addresses of one.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// From the relay. An id is unique among the requests without a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Request {
    /// A connection to an allowed host.
    Dial { id: i32, host: Host, port: u16 },
    /// A socket of the body's namespace, connected or connecting to a published port on the loopback.
    Inside { id: i32, is_v6: bool, port: u16 },
    /// All data of the ended body is forwarded.
    Drained,
}

/// To the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// To [`Request::Dial`].
    Dialled {
        id: i32,
        result: DialReply,
    },
    /// To [`Request::Inside`], with the socket if it is one.
    Inside {
        id: i32,
    },
    BodyHasEnded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DialReply {
    /// The message has the socket.
    Connected,
    /// The limit of open files is reached.
    NoDescriptor,
    /// No address may be dialled; holds the first one.
    Private(IpAddr),
    Unreachable(UnreachableCause),
}

/// To the resolver. The id is never used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Query {
    pub(crate) id: u64,
    pub(crate) name: HostName,
}

/// From the resolver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resolved {
    pub(crate) id: u64,
    /// The first is dialled first. `None`: no server answered.
    pub(crate) addresses: Option<Vec<IpAddr>>,
}

impl Resolved {
    /// Whether a resolver sends as many addresses.
    pub(crate) fn is_genuine(&self) -> bool {
        self.addresses.as_ref().map_or(0, Vec::len) <= ADDRESSES_MAX
    }
}

/// The next message, if there is one.
#[derive(Debug)]
pub(crate) enum Received<T> {
    Message(T, Option<OwnedFd>),
    Nothing,
    /// The peer has closed its end or ended.
    End,
    Malformed,
}

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    unsent: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    /// Whether epoll reports when the peer has room.
    is_waiting: bool,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd, watch: Watch<'_>) -> Result<Self, Errno> {
        watch.add(socket.as_fd(), LEVEL)?;
        Ok(Self {
            socket,
            unsent: VecDeque::new(),
            is_waiting: false,
        })
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends a message, at once or with [`Link::flush`].
    ///
    /// # Errors
    /// The errno of sendmsg(2): EPIPE if the peer has ended.
    pub(crate) fn send(
        &mut self,
        message: &impl Serialize,
        descriptor: Option<OwnedFd>,
        watch: Watch<'_>,
    ) -> Result<(), Errno> {
        let bytes = serde_json::to_vec(message).map_err(|_unsupported| Errno::INVAL)?;
        self.unsent.push_back((bytes, descriptor));
        self.flush(watch)
    }

    /// Sends messages for which the peer has room. Call it for each event of the link.
    pub(crate) fn flush(&mut self, watch: Watch<'_>) -> Result<(), Errno> {
        while let Some((bytes, descriptor)) = self.unsent.front() {
            match send(&self.socket, bytes, descriptor.as_ref()) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Errno::INTR) => (),
                // ETOOMANYREFS: the peer has to take the descriptors of earlier messages.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => break,
                Err(errno) => return Err(errno),
            }
        }
        if self.is_waiting != self.has_unsent() {
            self.is_waiting = self.has_unsent();
            let room = if self.is_waiting {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            watch.change(self.socket.as_fd(), LEVEL | room)?;
        }
        Ok(())
    }

    /// Receives a message from a peer that may be taken over: descriptors are not taken.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Received<T> {
        self.receive_into(&mut [])
    }

    pub(crate) fn receive_with_descriptor<T: DeserializeOwned>(&self) -> Received<T> {
        self.receive_into(&mut [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))])
    }

    fn receive_into<T: DeserializeOwned>(&self, space: &mut [MaybeUninit<u8>]) -> Received<T> {
        let mut bytes = [0; MESSAGE_BYTES_MAX + 1];
        let mut ancillary = RecvAncillaryBuffer::new(space);
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, flags)
        });
        let length = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN) => return Received::Nothing,
            Err(_) => return Received::End,
        };
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match bytes.get(..length) {
            Some([]) => Received::End,
            Some(message) => match parse(message) {
                Some(message) => Received::Message(message, descriptor),
                None => Received::Malformed,
            },
            None => Received::Malformed,
        }
    }
}

/// Parses a message, which may be forged.
pub(crate) fn parse<T: DeserializeOwned>(message: &[u8]) -> Option<T> {
    if message.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(message).ok()
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptor: Option<&OwnedFd>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed = descriptor.map(|descriptor| [descriptor.as_fd()]);
    if let Some(passed) = &passed
        && !ancillary.push(SendAncillaryMessage::ScmRights(passed))
    {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    Ok(())
}
