//! A connection from outside to a published port of the body, until the inner socket is connected.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::relay::connection::{Connection, Next, Stage, Stepped, Way, reset};
use crate::relay::dial::is_connected;
use crate::relay::judge::Wanted;
use crate::relay::shared::Shared;
use crate::relay::slots::{EDGE, Key, Side, Token};

/// How long the inner port may take to accept.
const INSIDE_PATIENCE: Duration = Duration::from_secs(10);

impl Connection {
    /// A connection from outside to `port` of the body.
    pub(super) fn published(
        near: OwnedFd,
        own_end: SocketAddr,
        port: u16,
        shared: &mut Shared,
        now: Instant,
    ) -> Self {
        Self {
            near,
            way: Way::Published(port),
            wanted: Wanted::Address(own_end.ip()),
            port,
            stage: Stage::Inside {
                id: shared.ask(port, false),
                is_v6: false,
            },
            deadline: Some(now + INSIDE_PATIENCE),
            is_queued: false,
        }
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.way, Way::Published(_))
    }

    /// The id of the pending request for an inner socket.
    pub(super) fn waits_for(&self) -> Option<i32> {
        match self.stage {
            Stage::Inside { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Takes the inner socket or the error; the caller steps the connection afterwards.
    pub(super) fn let_in(&mut self, socket: Result<OwnedFd, Errno>, shared: &mut Shared, key: Key) {
        let Stage::Inside { is_v6, .. } = self.stage else {
            return;
        };
        let far = Token::Connection(key, Side::Far);
        let watched = socket.and_then(|socket| {
            rustix::io::ioctl_fionbio(&socket, true)?;
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            shared.watch(far).add(socket.as_fd(), EDGE)?;
            Ok(socket)
        });
        self.stage = match watched {
            Ok(socket) => Stage::Entering { socket, is_v6 },
            Err(_) => self.other_family(is_v6, shared),
        };
    }

    /// Retries with the other family: the body may listen on ::1 only.
    fn other_family(&mut self, is_v6: bool, shared: &mut Shared) -> Stage {
        match self.way {
            Way::Published(port) if !is_v6 => Stage::Inside {
                id: shared.ask(port, true),
                is_v6: true,
            },
            _ => {
                reset(&self.near);
                Stage::Over
            }
        }
    }

    pub(super) fn enter(
        &mut self,
        socket: OwnedFd,
        is_v6: bool,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        match is_connected(&socket) {
            Ok(true) => self.begin_flow(socket, Vec::new(), None),
            Ok(false) if self.is_late(now) => Next::Reset,
            Ok(false) => Next::Stay(Stage::Entering { socket, is_v6 }, Stepped::Waits),
            Err(_) => Next::Go(self.other_family(is_v6, shared)),
        }
    }
}
