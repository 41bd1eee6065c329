//! A client of the compatibility proxy: its request, and the final answer if the request is refused.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::http_head::HEAD_BYTES_MAX;
use crate::relay::connection::{
    Connection, FIRST_BYTES_PATIENCE, Next, READS_A_STEP, Read, Stage, Stepped, Way, reset,
};
use crate::relay::judge::{HTTPS_PORT, Wanted};
use crate::relay::proxy::{self, Heard, Speech, Wish};
use crate::relay::shared::Shared;
use crate::relay::slots::Key;
use spec::denial_reason::DenialReason;

/// How long a client may take to read the final answer.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);

impl Connection {
    /// A connection to the proxy.
    pub(super) fn of_proxy(near: OwnedFd, dialled: SocketAddr, now: Instant) -> Self {
        Self {
            near,
            way: Way::Proxy,
            wanted: Wanted::Address(dialled.ip()),
            port: dialled.port(),
            stage: Stage::Greeting {
                received: Vec::new(),
                greeted: false,
            },
            deadline: Some(now + FIRST_BYTES_PATIENCE),
            is_queued: false,
        }
    }

    /// Reads the request of a client of the proxy.
    pub(super) fn greeting(
        &mut self,
        mut received: Vec<u8>,
        mut greeted: bool,
        shared: &mut Shared,
        key: Key,
        now: Instant,
    ) -> Next {
        let Ok(read) = self.read_more(&mut received, HEAD_BYTES_MAX) else {
            return Next::Closed;
        };
        loop {
            match proxy::hear(&received, greeted) {
                Heard::More if read != Read::Blocked || self.is_late(now) => return Next::Reset,
                Heard::More => {
                    return Next::Stay(Stage::Greeting { received, greeted }, Stepped::Waits);
                }
                Heard::Greeting(used) => {
                    received.drain(..used);
                    greeted = true;
                    if !self.say(&proxy::SOCKS_METHOD) {
                        return Next::Reset;
                    }
                }
                Heard::Refused(answer) => return Next::Go(self.say_farewell(&answer, now)),
                Heard::Wish(wish) => return self.wish(wish, shared, key, now),
            }
        }
    }

    fn wish(&mut self, wish: Wish, shared: &mut Shared, key: Key, now: Instant) -> Next {
        let Wish {
            speech,
            wanted,
            port,
            first,
            limit,
        } = wish;
        self.way = Way::Asked(speech);
        self.port = port;
        let refused = match wanted {
            Ok(Wanted::Address(address)) => {
                self.wanted = Wanted::at(address, &shared.names);
                None
            }
            Ok(wanted) => {
                self.wanted = wanted;
                None
            }
            Err(bytes) => Some((proxy::shown(&bytes), DenialReason::NameNotAllowed)),
        };
        let refused = match refused {
            Some(refused) => Some(refused),
            None => match self.wanted.refusal(port, &shared.settings.allowed) {
                Some(reason) => return Next::Denied(reason),
                // Treated as a transparent connection to port 443 that does not speak TLS.
                None if speech == Speech::Request && port == HTTPS_PORT => {
                    return Next::Denied(DenialReason::NotTls);
                }
                None => shared.admit(&self.wanted).err(),
            },
        };
        if let Some((host, reason)) = refused {
            let answer = proxy::denied(speech, &host, port, reason);
            self.deny_as(Some(host), None, shared, reason, now);
            return Next::Go(self.say_farewell(&answer, now));
        }
        self.begin_reach(first, limit, shared, key, now)
    }

    /// Sends the final answer. Further input is read and discarded: closing with unread input would reset
    /// the connection before the client reads the answer.
    pub(super) fn say_farewell(&mut self, answer: &[u8], now: Instant) -> Stage {
        let said = self.say(answer)
            && matches!(
                rustix::net::shutdown(&self.near, Shutdown::Write),
                Ok(()) | Err(Errno::NOTCONN)
            );
        if !said {
            reset(&self.near);
            return Stage::Over;
        }
        self.deadline = Some(now + FAREWELL_PATIENCE);
        Stage::Farewell
    }

    pub(super) fn farewell(&mut self, shared: &mut Shared, now: Instant) -> Next {
        if self.is_late(now) {
            return Next::Closed;
        }
        for _ in 0..READS_A_STEP {
            match rustix::io::read(&self.near, &mut *shared.buffers.scratch) {
                Ok(0) => return Next::Closed,
                Ok(_) | Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => return Next::Stay(Stage::Farewell, Stepped::Waits),
                Err(_) => return Next::Closed,
            }
        }
        Next::Stay(Stage::Farewell, Stepped::Again)
    }
}
