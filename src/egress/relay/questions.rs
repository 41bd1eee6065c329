//! Questions for names, over datagrams and over connections.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::egress::allow::Standing;
use crate::egress::denials::{Attempt, Protocol, Reason};
use crate::egress::dns::{self, Answer, Malformed, Query, TYPE_A};
use crate::egress::relay::Relay;
use crate::egress::relay::connection::Look;
use crate::kernel::datagram;
use crate::spec::path::escape;

/// Most questions in one second.
const QUESTIONS_A_SECOND: u32 = 200;
/// Datagrams that are answered in one turn.
const DATAGRAMS_A_TURN: usize = 256;

/// How fast questions come.
#[derive(Debug)]
pub(super) struct Pace {
    second: Instant,
    asked: u32,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            second: now,
            asked: 0,
        }
    }

    /// Whether one more may be asked now.
    fn allows(&mut self, now: Instant) -> bool {
        if Duration::from_secs(1) <= now.saturating_duration_since(self.second) {
            *self = Self::new(now);
        }
        self.asked += 1;
        self.asked <= QUESTIONS_A_SECOND
    }
}

impl Relay {
    pub(super) fn answer_questions(&mut self, index: usize, now: Instant) {
        let mut buffer = [0; dns::QUERY_BYTES_MAX];
        for _ in 0..DATAGRAMS_A_TURN {
            let socket = &self.sockets.questions[index];
            let (bytes, ends) = match datagram::receive(socket, &mut buffer) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let mut look = Look {
                settings: &self.settings,
                names: &mut self.names,
                ledger: &mut self.ledger,
                pace: &mut self.pace,
            };
            let Some(answer) = look.answer(&buffer[..bytes], now) else {
                continue;
            };
            // A full buffer: the body asks again, as after any lost datagram.
            if datagram::answer(socket, &answer, ends).is_err() {
                return;
            }
        }
    }
}

impl Look<'_> {
    /// What is answered to these bytes; `None`: nothing.
    pub(super) fn answer(&mut self, message: &[u8], now: Instant) -> Option<Vec<u8>> {
        match dns::parse(message) {
            Ok(query) => {
                let answer = self.judge(&query, now);
                Some(query.answer(answer))
            }
            Err(Malformed::Answerable(answer)) => Some(answer),
            Err(Malformed::Silent) => None,
        }
    }

    fn judge(&mut self, query: &Query<'_>, now: Instant) -> Answer {
        let shown = || {
            query
                .name
                .as_ref()
                .map(|name| escape(name.as_str().as_bytes()))
        };
        if !self.pace.allows(now) {
            self.deny_question(shown(), Reason::Limit, now);
            return Answer::ServerFailure;
        }
        let Some(name) = &query.name else {
            self.deny_question(None, Reason::NameNotAllowed, now);
            return Answer::NoName;
        };
        let wildcard = match self.settings.allowed.standing(name) {
            Standing::Named => None,
            Standing::Below(parent) => Some(parent),
            Standing::Absent => {
                self.deny_question(shown(), Reason::NameNotAllowed, now);
                return Answer::NoName;
            }
        };
        if query.kind != TYPE_A || !query.is_internet {
            return Answer::NoData;
        }
        match self.names.address_of(name, wildcard) {
            Ok(address) => Answer::Address(address),
            Err(_full) => {
                // One entry for all of them: names beyond a cap are what a body would tell with.
                let merged = wildcard.map(|parent| format!("*.{parent}"));
                self.deny_question(merged, Reason::Limit, now);
                Answer::NoName
            }
        }
    }

    fn deny_question(&mut self, host: Option<String>, reason: Reason, now: Instant) {
        let attempt = Attempt {
            protocol: Protocol::Dns,
            host,
            address: None,
            port: None,
            reason,
        };
        self.ledger.deny(attempt, now);
    }
}
