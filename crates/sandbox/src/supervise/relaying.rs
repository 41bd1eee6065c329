//! The relay in the watch: its events, requests to init, and end.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::launch::Launched;
use egress::relay::Relay;

/// Maximum pending requests to init: their answers, each with a descriptor, must fit into the link.
const UNANSWERED_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Relaying<'run> {
    relay: Option<&'run mut Relay>,
    /// Ids of pending requests to init.
    unanswered: Vec<i32>,
    init_listens: bool,
    /// End of the wait for remaining data.
    over_at: Option<Instant>,
}

impl<'run> Relaying<'run> {
    pub(super) fn new(relay: Option<&'run mut Relay>) -> Self {
        Self {
            relay,
            unanswered: Vec::new(),
            init_listens: true,
            over_at: None,
        }
    }

    /// Readable when [`Relaying::turn`] has work.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.relay.as_ref().map(|relay| relay.as_fd())
    }

    /// When [`Relaying::turn`] has timed work, or the wait ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let of_relay = self.relay.as_ref().and_then(|relay| relay.deadline());
        [of_relay, self.over_at].into_iter().flatten().min()
    }

    /// Handles events. `is_ready`: the descriptor is readable.
    ///
    /// # Errors
    /// The errno of epoll_wait(2) or sendmsg(2).
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
        self.pass_questions(launched, now)?;
        if self.over_at.is_some_and(|at| at <= now) {
            self.give_up();
        }
        Ok(())
    }

    fn pass_questions(&mut self, launched: &Launched, now: Instant) -> Result<(), Errno> {
        let Some(relay) = &mut self.relay else {
            return Ok(());
        };
        while self.unanswered.len() < UNANSWERED_MAX
            && let Some(request) = relay.next_connect_request()
        {
            let is_sent =
                self.init_listens && launched.connect(request.id, request.is_v6, request.port)?;
            if is_sent {
                self.unanswered.push(request.id);
            } else {
                relay.take_socket(request.id, Err(Errno::CONNREFUSED), now);
            }
        }
        Ok(())
    }

    pub(super) fn answered(&mut self, id: i32, socket: Result<OwnedFd, Errno>, now: Instant) {
        self.unanswered.retain(|known| *known != id);
        if let Some(relay) = &mut self.relay {
            relay.take_socket(id, socket, now);
        }
    }

    /// Forwards remaining data of the ended body for at most `patience`.
    pub(super) fn body_has_ended(&mut self, now: Instant, patience: Duration) {
        self.init_listens = false;
        self.over_at = Some(now + patience);
        if let Some(relay) = &mut self.relay {
            for id in self.unanswered.drain(..) {
                relay.take_socket(id, Err(Errno::CONNREFUSED), now);
            }
            relay.body_has_ended(now);
        }
    }

    pub(super) fn give_up(&mut self) {
        self.relay = None;
        self.over_at = None;
    }

    /// Whether the wait is over; called after the body has ended.
    pub(super) fn is_over(&self) -> bool {
        self.relay.as_ref().is_none_or(|relay| relay.is_drained())
    }
}
