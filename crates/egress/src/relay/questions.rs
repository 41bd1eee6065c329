//! Questions for names, over datagrams and over connections.

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

/// Most questions for allowed names in one second.
pub(super) const QUESTIONS_A_SECOND: u32 = 200;
/// Datagrams that are answered in one turn.
const DATAGRAMS_A_TURN: usize = 256;

/// How fast something comes: so many times a second at most.
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

    /// Whether one more may be asked now.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        if self.next() <= now {
            *self = Self::new(self.most, now);
        }
        self.asked = self.asked.saturating_add(1);
        self.asked <= self.most
    }

    /// When it is time again for those that came too fast.
    pub(super) fn next(&self) -> Instant {
        self.second + Duration::from_secs(1)
    }
}

impl Relay {
    /// Whether there may be more.
    pub(super) fn answer_questions(&mut self, index: u32, now: Instant) -> bool {
        let mut buffer = [0; dns::QUERY_BYTES_MAX];
        let Some(socket) = self.sockets.questions.get(index as usize) else {
            return false;
        };
        for _ in 0..DATAGRAMS_A_TURN {
            let (bytes, ends) = match datagram::receive(socket, &mut buffer) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return false,
                // That one is gone; the next may be there.
                Err(_) => continue,
            };
            let message = buffer.get(..bytes).unwrap_or(&buffer);
            if let Some(answer) = self.shared.answer(message, now) {
                // No room, or nobody there any longer: as any datagram that is lost on its way.
                datagram::answer(socket, &answer, ends).unwrap_or_default();
            }
        }
        true
    }
}

impl Connection {
    /// Messages with their length in two bytes before each (RFC 7766).
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
                    // Answers are short and the body asked: a full buffer is its own doing.
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
    /// What is answered to these bytes; `None`: nothing.
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
        // Many a program asks for the name of whom it is connected to. Nothing outside is meant.
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
