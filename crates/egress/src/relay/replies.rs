//! Takes messages of the supervisor.

use std::time::Instant;

use crate::link::{Received, Reply};
use crate::relay::Relay;

/// Maximum number of replies taken in one round.
const REPLIES_PER_ROUND: usize = 64;

impl Relay {
    /// If more are available, the next round reports the link again.
    pub(super) fn take_replies(&mut self, now: Instant) {
        self.shared.flush();
        for _ in 0..REPLIES_PER_ROUND {
            let (reply, socket) = match self.shared.link.receive_with_descriptor::<Reply>() {
                Received::Message(reply, socket) => (reply, socket),
                Received::Nothing => return,
                Received::End | Received::Malformed => {
                    self.shared.is_ending = true;
                    return;
                }
            };
            let id = match reply {
                Reply::BodyHasEnded => {
                    self.body_has_ended(now);
                    continue;
                }
                Reply::Dialled { id, .. } | Reply::Inside { id } => id,
            };
            let waiting = self.keys(|connection| connection.awaits(id));
            // No match: the client has disconnected or timed out, and the socket is closed.
            if let Some(key) = waiting.first()
                && let Some(connection) = self.slots.get(*key)
            {
                let shared = &mut self.shared;
                match reply {
                    Reply::Dialled { result, .. } => {
                        connection.take_reply(result, socket, shared, *key);
                    }
                    Reply::Inside { .. } => connection.take_socket(socket, shared, *key),
                    Reply::BodyHasEnded => (),
                }
                self.step(*key, now);
            }
        }
    }
}
