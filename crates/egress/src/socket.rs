//! Non-blocking sockets and their registration with epoll.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Level-triggered readability.
pub(crate) const LEVEL: epoll::EventFlags = epoll::EventFlags::IN;
/// Edge-triggered: for sockets that are used until a call would block.
pub(crate) const EDGE: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// The epoll instance of a socket, and the number that its events carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch<'epoll> {
    pub(crate) epoll: &'epoll OwnedFd,
    pub(crate) number: u64,
}

impl Watch<'_> {
    pub(crate) fn add(self, socket: BorrowedFd<'_>, when: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(self.epoll, socket, self.data(), when)
    }

    pub(crate) fn change(
        self,
        socket: BorrowedFd<'_>,
        when: epoll::EventFlags,
    ) -> Result<(), Errno> {
        epoll::modify(self.epoll, socket, self.data(), when)
    }

    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(self.number)
    }
}

/// Waits until the descriptor is readable, for ever or until `deadline`.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<(), Errno> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    match poll(&mut polled, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether a non-blocking connect has completed.
///
/// # Errors
/// The errno of the failed connect.
pub(crate) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    rustix::net::sockopt::socket_error(socket)??;
    match rustix::net::getpeername(socket) {
        Ok(peer) => Ok(peer.is_some()),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Starts a TCP connection and registers it with epoll.
pub(crate) fn connect(to: SocketAddr, watch: Watch<'_>) -> Result<OwnedFd, Errno> {
    let socket = socket_for(to, SocketType::STREAM)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => (),
        Err(errno) => return Err(errno),
    }
    watch.add(socket.as_fd(), EDGE)?;
    Ok(socket)
}

/// A non-blocking socket of the address family of `to`.
pub(crate) fn socket_for(to: SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, kind, flags, None)
}
