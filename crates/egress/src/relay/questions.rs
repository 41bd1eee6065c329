//! DNS queries over UDP and TCP.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::allow::Standing;
use crate::denials::{Attempt, Protocol};
use crate::dns::{self, Answer, Malformed, QUERY_BYTES_MAX, Query, TYPE_A, TYPE_PTR};
use crate::names::own_address_asked_by;
use crate::relay::Relay;
use crate::relay::connection::{
    Connection, Next, QUESTIONS_PATIENCE, READS_A_STEP, Read, Stage, Stepped,
};
use crate::relay::shared::{Shared, merged_name};
use spec::denial_reason::DenialReason;
use sys::datagram;

/// Maximum number of queries for allowed names in one second.
pub(super) const QUESTIONS_A_SECOND: u32 = 200;
/// Maximum number of datagrams that are answered in one turn.
const DATAGRAMS_A_TURN: usize = 256;

/// A rate limit per second.
#[derive(Debug)]
pub(super) struct Pace {
    most: u32,
    second: Instant,
    asked: u32,
}

impl Pace {
    pub(super) const fn new(most: u32, now: Instant) -> Self {
        Self {
            most,
            second: now,
            asked: 0,
        }
    }

    /// Whether one more event is allowed now.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        if self.next() <= now {
            *self = Self::new(self.most, now);
        }
        self.asked = self.asked.saturating_add(1);
        self.asked <= self.most
    }

    /// When delayed events are allowed again.
    pub(super) fn next(&self) -> Instant {
        self.second + Duration::from_secs(1)
    }
}

impl Relay {
    /// Returns whether more queries may be available.
    pub(super) fn answer_questions(&mut self, index: u32, now: Instant) -> bool {
        let mut buffer = [0; dns::QUERY_BYTES_MAX];
        let Some(socket) = self.sockets.questions.get(index as usize) else {
            return false;
        };
        for _ in 0..DATAGRAMS_A_TURN {
            let (bytes, ends) = match datagram::receive(socket, &mut buffer) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return false,
                // This datagram is lost; the next one may be readable.
                Err(_) => continue,
            };
            let message = buffer.get(..bytes).unwrap_or(&buffer);
            if let Some(answer) = self.shared.answer(message, now) {
                // The buffer is full or the client has gone: the datagram is lost, as on any network.
                datagram::answer(socket, &answer, ends).unwrap_or_default();
            }
        }
        true
    }
}

impl Connection {
    /// Messages with a length prefix of two bytes (RFC 7766).
    pub(super) fn questions(
        &mut self,
        mut received: Vec<u8>,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        for _ in 0..READS_A_STEP {
            let Ok(read) = self.read_more(&mut received, 2 + QUERY_BYTES_MAX) else {
                return Next::Closed;
            };
            let mut rest = received.as_slice();
            while let Some((length, after)) = rest.split_first_chunk::<2>() {
                let length = usize::from(u16::from_be_bytes(*length));
                if QUERY_BYTES_MAX < length {
                    return Next::Reset;
                }
                let Some((message, after)) = after.split_at_checked(length) else {
                    break;
                };
                if let Some(answer) = shared.answer(message, now) {
                    let length = u16::try_from(answer.len()).unwrap_or(0);
                    let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
                    // Answers are short and requested by the body: a full buffer is the body's fault.
                    if !self.say(&framed) {
                        return Next::Reset;
                    }
                }
                rest = after;
                self.deadline = Some(now + QUESTIONS_PATIENCE);
            }
            received.drain(..received.len() - rest.len());
            match read {
                Read::Ended => return Next::Closed,
                Read::Blocked if self.is_late(now) => return Next::Closed,
                Read::Blocked => {
                    return Next::Stay(Stage::Questions { received }, Stepped::Waits);
                }
                Read::Full => (),
            }
        }
        Next::Stay(Stage::Questions { received }, Stepped::Again)
    }
}

impl Shared {
    /// The answer to a message; `None` if there is no answer.
    pub(super) fn answer(&mut self, message: &[u8], now: Instant) -> Option<Vec<u8>> {
        match dns::parse(message) {
            Ok(query) => {
                let answer = self.judge_question(&query, now);
                Some(query.answer(answer))
            }
            Err(Malformed::Answerable(answer)) => Some(answer),
            Err(Malformed::Silent) => None,
        }
    }

    fn judge_question(&mut self, query: &Query<'_>, now: Instant) -> Answer {
        let Some(name) = &query.name else {
            self.deny_question(query.written_name(), DenialReason::NameNotAllowed, now);
            return Answer::NoName;
        };
        // Many programs look up the name of their peer's address. This is not an attempt to reach the
        // outside.
        if let Some(address) = own_address_asked_by(name) {
            let known = self.names.name_of(address);
            return match known {
                Some(name) if query.kind == TYPE_PTR && query.is_internet => {
                    Answer::Name(name.clone())
                }
                Some(_) => Answer::NoData,
                None => Answer::NoName,
            };
        }
        let wildcard = match self.settings.allowed.standing(name) {
            Standing::Named => None,
            Standing::Below(parent) => Some(parent),
            Standing::Absent => {
                self.deny_question(name.to_string(), DenialReason::NameNotAllowed, now);
                return Answer::NoName;
            }
        };
        if !self.pace.allows(now) {
            let merged = merged_name(name, wildcard);
            self.deny_question(merged, DenialReason::Limit, now);
            return Answer::ServerFailure;
        }
        if query.kind != TYPE_A || !query.is_internet {
            return Answer::NoData;
        }
        match self.names.address_of(name, wildcard) {
            Ok(address) => Answer::Address(address),
            Err(_full) => {
                let merged = merged_name(name, wildcard);
                self.deny_question(merged, DenialReason::Limit, now);
                Answer::NoName
            }
        }
    }

    fn deny_question(&mut self, host: String, reason: DenialReason, now: Instant) {
        let attempt = Attempt {
            protocol: Protocol::Dns,
            host: Some(host),
            address: None,
            port: None,
            reason,
        };
        self.deny(attempt, now);
    }
}
