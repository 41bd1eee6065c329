//! Answers the body's DNS queries over UDP and TCP.

use std::time::Instant;

use rustix::io::Errno;

use crate::allow::NameMatch;
use crate::denials::{Attempt, Protocol};
use crate::dns::{self, Answer, Malformed, QUERY_BYTES_MAX, Query, TYPE_A, TYPE_PTR, with_length};
use crate::names::{NamesFull, reverse_lookup};
use crate::relay::Relay;
use crate::relay::connection::{
    Connection, DNS_IDLE_TIMEOUT, Next, READS_PER_STEP, Read, Stage, Step,
};
use crate::relay::shared::{Shared, merged_name};
use spec::denial_reason::DenialReason;
use sys::datagram;

/// Maximum number of queries for allowed names in one second.
pub(crate) const QUERIES_PER_SECOND: u32 = 200;
/// Maximum number of datagrams that are answered in one turn.
const DATAGRAMS_PER_TURN: usize = 256;

impl Relay {
    /// Answers datagrams. Returns whether more may be available.
    pub(super) fn answer_datagrams(&mut self, index: u32, now: Instant) -> bool {
        let mut buffer = [0; dns::QUERY_BYTES_MAX];
        let Some(socket) = self.sockets.dns.get(index as usize) else {
            return false;
        };
        for _ in 0..DATAGRAMS_PER_TURN {
            let (bytes, ends) = match datagram::receive(socket, &mut buffer) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return false,
                // This datagram is lost; the next one may be readable.
                Err(_) => continue,
            };
            let message = buffer.get(..bytes).unwrap_or(&buffer);
            if let Some(answer) = self.shared.answer_dns(message, now) {
                // The buffer is full or the client has gone: the datagram is lost, as on any network.
                datagram::answer(socket, &answer, ends).unwrap_or_default();
            }
        }
        true
    }
}

impl Connection {
    /// Over TCP, each message has a length prefix of two bytes (RFC 7766).
    pub(super) fn answer_dns_queries(&mut self, shared: &mut Shared, now: Instant) -> Next {
        for _ in 0..READS_PER_STEP {
            let Ok(read) = self.read_more(2 + QUERY_BYTES_MAX) else {
                return Next::Closed;
            };
            let mut received = std::mem::take(&mut self.received);
            let mut rest = received.as_slice();
            while let Some((length, after)) = rest.split_first_chunk::<2>() {
                let length = usize::from(u16::from_be_bytes(*length));
                if length > QUERY_BYTES_MAX {
                    return Next::Reset;
                }
                let Some((message, after)) = after.split_at_checked(length) else {
                    break;
                };
                // A full send buffer means that the body does not read its answers.
                if let Some(answer) = shared.answer_dns(message, now)
                    && !self.send(&with_length(&answer))
                {
                    return Next::Reset;
                }
                rest = after;
                self.deadline = Some(now + DNS_IDLE_TIMEOUT);
            }
            received.drain(..received.len() - rest.len());
            self.received = received;
            match read {
                Read::Ended => return Next::Closed,
                Read::Blocked if self.is_late(now) => return Next::Closed,
                Read::Blocked => {
                    return Next::Stay(Stage::DnsQueries, Step::Wait);
                }
                Read::Full => (),
            }
        }
        Next::Stay(Stage::DnsQueries, Step::Again)
    }
}

impl Shared {
    /// The answer to a message; `None` if there is no answer.
    fn answer_dns(&mut self, message: &[u8], now: Instant) -> Option<Vec<u8>> {
        #[cfg(feature = "planted-bugs")]
        confinement::planted::trigger("relay", message);
        match dns::parse(&self.permit, message) {
            Ok(query) => {
                let answer = self.decide_answer(&query, now);
                Some(query.answer(answer))
            }
            Err(Malformed::Answerable(answer)) => Some(answer),
            Err(Malformed::Silent) => None,
        }
    }

    fn decide_answer(&mut self, query: &Query<'_>, now: Instant) -> Answer {
        let Some(name) = &query.name else {
            self.deny_query(query.written_name(), DenialReason::NameNotAllowed, now);
            return Answer::NoName;
        };
        // Many programs look up the name of their peer's address, which reaches nothing outside.
        if let Some(address) = reverse_lookup(name) {
            return match self.names.name_of(address) {
                Some(name) if query.kind == TYPE_PTR && query.is_internet => {
                    Answer::Name(name.clone())
                }
                Some(_) => Answer::NoData,
                None => Answer::NoName,
            };
        }
        let wildcard = match self.rules.allowed.match_name(name) {
            NameMatch::Exact => None,
            NameMatch::Wildcard(parent) => Some(parent),
            NameMatch::None => {
                self.deny_query(name.to_string(), DenialReason::NameNotAllowed, now);
                return Answer::NoName;
            }
        };
        if !self.query_rate.allows(now) {
            self.deny_query(merged_name(name, wildcard), DenialReason::Limit, now);
            return Answer::ServerFailure;
        }
        if query.kind != TYPE_A || !query.is_internet {
            return Answer::NoData;
        }
        match self.names.assign_address(name, wildcard) {
            Ok(address) => Answer::Address(address),
            Err(NamesFull) => {
                let merged = merged_name(name, wildcard);
                self.deny_query(merged, DenialReason::Limit, now);
                Answer::NoName
            }
        }
    }

    fn deny_query(&mut self, host: String, reason: DenialReason, now: Instant) {
        let attempt = Attempt {
            protocol: Protocol::Dns,
            host: Some(host),
            address: None,
            port: None,
            reason,
        };
        self.ledger.add_denial(attempt, now);
    }
}
