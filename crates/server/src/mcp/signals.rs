//! The signals that end the server.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Received, SignalKind, signal};

#[derive(Debug)]
pub(super) struct Signals {
    terminate: Received,
    interrupt: Received,
    hang_up: Received,
}

impl Signals {
    /// From now on these signals do not end the process.
    ///
    /// # Errors
    /// Of sigaction(2).
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
