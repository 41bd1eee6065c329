//! The relay during the watch: its events, its requests to init, and its end.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::control::CLIENT_ID;
use crate::launch::Launched;
use egress::dialler::Dialler;

/// Maximum pending requests to init: their answers, each with a descriptor, must fit into the link.
const PENDING_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Relaying<'run> {
    relay: Option<&'run mut Dialler>,
    pending: Vec<i32>,
    is_init_serving: bool,
    /// When the wait for remaining data ends.
    drain_deadline: Option<Instant>,
}

impl<'run> Relaying<'run> {
    pub(super) fn new(relay: Option<&'run mut Dialler>) -> Self {
        Self {
            relay,
            pending: Vec::new(),
            is_init_serving: true,
            drain_deadline: None,
        }
    }

    /// Readable when [`Relaying::turn`] has work.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.relay.as_ref().map(|relay| relay.as_fd())
    }

    /// When [`Relaying::turn`] has timed work or ends the wait.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let of_relay = self.relay.as_ref().and_then(|relay| relay.deadline());
        [of_relay, self.drain_deadline].into_iter().flatten().min()
    }

    /// Handles events (epoll_wait(2), sendmsg(2)). `is_ready`: the descriptor is readable.
    pub(super) fn turn(
        &mut self,
        is_ready: bool,
        launched: &Launched,
        now: Instant,
    ) -> Result<(), Errno> {
        let Some(relay) = &mut self.relay else {
            return Ok(());
        };
        if is_ready || relay.deadline().is_some_and(|at| at <= now) {
            relay.turn(now)?;
        }
        self.forward_requests(launched)?;
        if self.drain_deadline.is_some_and(|at| at <= now) {
            self.close();
        }
        Ok(())
    }

    fn forward_requests(&mut self, launched: &Launched) -> Result<(), Errno> {
        let Some(relay) = &mut self.relay else {
            return Ok(());
        };
        while self.pending.len() < PENDING_MAX
            && let Some(request) = relay.next_connect_request()
        {
            // A relay that was taken over may use the id of a client.
            let is_sent = self.is_init_serving
                && request.id != CLIENT_ID
                && launched.connect(request.id, request.is_v6, request.port)?;
            if is_sent {
                self.pending.push(request.id);
            } else {
                relay.take_socket(request.id, Err(Errno::CONNREFUSED));
            }
        }
        Ok(())
    }

    pub(super) fn answered(&mut self, id: i32, socket: Result<OwnedFd, Errno>) {
        self.pending.retain(|pending| *pending != id);
        if let Some(relay) = &mut self.relay {
            relay.take_socket(id, socket);
        }
    }

    /// Forwards remaining data of the ended body for at most `patience`.
    pub(super) fn body_has_ended(&mut self, now: Instant, patience: Duration) {
        self.is_init_serving = false;
        self.drain_deadline = Some(now + patience);
        self.pending.clear();
        if let Some(relay) = &mut self.relay {
            relay.body_has_ended();
        }
    }

    pub(super) fn close(&mut self) {
        self.relay = None;
        self.drain_deadline = None;
    }

    /// Whether the relay has finished. Call it after the body has ended.
    pub(super) fn is_over(&self) -> bool {
        self.relay.as_ref().is_none_or(|relay| relay.is_drained())
    }
}
