//! Connections of clients to ports of the sandbox's loopback, which init makes.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;

use super::requester::{Client, Task};
use super::server::Commands;
use super::{Refusal, answer};
use crate::launch::Launched;

/// The id of a request to init for a client. One client is served at a time, and the relay may use no such id.
pub(crate) const CLIENT_ID: i32 = -1;

/// Most clients that have a connection, or wait for the end of the sandbox.
const CONNECTED_MAX: usize = 128;

impl Commands {
    fn held(&self) -> usize {
        let tasks = self.clients.iter().map(|client| client.task);
        tasks
            .filter(|task| matches!(task, Task::Connected | Task::Staying))
            .count()
    }

    /// Whether a client has a connection, or gets one.
    pub(super) fn has_connections(&self) -> bool {
        let mut tasks = self.clients.iter().map(|client| client.task);
        tasks.any(|task| matches!(task, Task::Connecting | Task::Connected))
    }

    /// Asks init to connect to a port of the loopback for a client. `value` is the port.
    ///
    /// # Errors
    /// Those of init's link.
    pub(super) fn begin_connecting(
        &mut self,
        number: usize,
        value: i32,
        is_v6: bool,
        launched: &Launched,
    ) -> Result<(), Errno> {
        let port = u16::try_from(value).ok().filter(|port| *port > 0);
        let refusal = match port {
            None => Refusal::Malformed,
            Some(_) if self.held() >= CONNECTED_MAX => Refusal::Connections,
            Some(port) => {
                self.last_use = self.clock.elapsed(Instant::now());
                if launched.connect(CLIENT_ID, is_v6, port)? {
                    self.clients[number].task = Task::Connecting;
                    return Ok(());
                }
                Refusal::Ending
            }
        };
        self.clients[number].refuse(refusal);
        Ok(())
    }

    /// Init has made the connection, or not. The client has it until it leaves.
    pub(crate) fn connected(&mut self, socket: Result<OwnedFd, Errno>) {
        let is_connecting = |client: &&mut Client| client.task == Task::Connecting;
        let Some(client) = self.clients.iter_mut().find(is_connecting) else {
            return;
        };
        match socket {
            Ok(socket) => {
                client.answer_with(answer::DONE, [0; 3], &[socket.as_fd()]);
                client.task = match client.link {
                    Some(_) => Task::Connected,
                    None => Task::Done,
                };
            }
            Err(errno) => client.finish(answer::NOT_CONNECTED, [errno.raw_os_error(), 0, 0]),
        }
    }

    /// Lets a client wait for the end of the sandbox.
    pub(super) fn begin_waiting(&mut self, number: usize) {
        match self.held() < CONNECTED_MAX {
            true => {
                self.clients[number].task = Task::Staying;
                self.clients[number].answer(answer::DONE, [0; 3]);
            }
            false => self.clients[number].refuse(Refusal::Connections),
        }
    }
}
