//! Connections from outside to a published port of the body, until the socket inside is connected.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::host::Host;
use crate::relay::connection::{Connection, Next, Origin, Stage, Step, reset};
use crate::relay::shared::Shared;
use crate::relay::slots::{Key, Side, Token};
use crate::socket::{EDGE, is_connected};

/// How long the port inside may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Connection {
    pub(super) fn published(
        near: OwnedFd,
        own_end: SocketAddr,
        port: u16,
        shared: &mut Shared,
        now: Instant,
    ) -> Self {
        let destination = (Host::Address(own_end.ip()), port);
        let stage = Stage::SocketRequest {
            id: shared.request_socket(port, false),
            is_v6: false,
        };
        let deadline = now + CONNECT_TIMEOUT;
        Self::new(near, Origin::Published(port), destination, stage, deadline)
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.origin, Origin::Published(_))
    }

    pub(super) fn pending_request(&self) -> Option<i32> {
        match self.stage {
            Stage::SocketRequest { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Takes the socket inside, if there is one; the caller steps the connection afterwards.
    pub(super) fn take_socket(&mut self, socket: Option<OwnedFd>, shared: &mut Shared, key: Key) {
        let Stage::SocketRequest { is_v6, .. } = self.stage else {
            return;
        };
        let far = Token::Connection(key, Side::Far);
        let watched = socket.ok_or(Errno::CONNREFUSED).and_then(|socket| {
            rustix::io::ioctl_fionbio(&socket, true)?;
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            shared.watch(far).add(socket.as_fd(), EDGE)?;
            Ok(socket)
        });
        self.stage = match watched {
            Ok(socket) => Stage::ConnectInside { socket, is_v6 },
            Err(_) => self.retry_with_ipv6(is_v6, shared),
        };
    }

    /// Retries over IPv6 after IPv4: the body may listen on ::1 only.
    fn retry_with_ipv6(&mut self, is_v6: bool, shared: &mut Shared) -> Stage {
        match self.origin {
            Origin::Published(port) if !is_v6 => Stage::SocketRequest {
                id: shared.request_socket(port, true),
                is_v6: true,
            },
            _ => {
                reset(&self.near);
                Stage::Closed
            }
        }
    }

    pub(super) fn connect_inside(
        &mut self,
        socket: OwnedFd,
        is_v6: bool,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        match is_connected(&socket) {
            Ok(true) => self.start_flow(socket),
            Ok(false) if self.is_late(now) => Next::Reset,
            Ok(false) => Next::Stay(Stage::ConnectInside { socket, is_v6 }, Step::Wait),
            Err(_) => Next::Go(self.retry_with_ipv6(is_v6, shared)),
        }
    }
}
