//! State that all connections of a run share.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::allow::Standing;
use crate::names::{Names, NamesFull};
use crate::relay::flow::Buffers;
use crate::relay::guard::{Guard, Verdict};
use crate::relay::judge::Wanted;
use crate::relay::ledger::Ledger;
use crate::relay::questions::Pace;
use crate::relay::slots::{Token, Watch};
use crate::relay::terms::{Ask, Settings};
use crate::resolver::hosts;
use spec::denial_reason::DenialReason;
use spec::host_name::HostName;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) epoll: OwnedFd,
    pub(super) settings: Settings,
    pub(super) names: Names,
    pub(super) ledger: Ledger,
    pub(super) pace: Pace,
    /// Rate limit of look-ups outside: a body can dial at a high rate, and the name servers belong to the
    /// host.
    pub(super) lookups: Pace,
    /// `None`: the body may not dial.
    pub(super) guard: Option<Guard>,
    pub(super) buffers: Buffers,
    pub(super) ids: QuestionIds,
    pub(super) asks: VecDeque<Ask>,
    /// The id of the last request.
    pub(super) last_ask: i32,
    /// Cached results of look-ups in the `hosts` file, which may be long.
    pub(super) known: HashMap<HostName, Vec<IpAddr>>,
}

impl Shared {
    pub(super) fn watch(&self, token: Token) -> Watch<'_> {
        Watch {
            epoll: &self.epoll,
            token,
        }
    }

    /// The known addresses of a name, which need no DNS query.
    pub(super) fn known_addresses(&mut self, name: &HostName) -> Vec<IpAddr> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let added = self.settings.added_hosts.iter();
        let mut known: Vec<IpAddr> = added
            .filter(|(of, _)| of == name)
            .map(|(_, address)| *address)
            .collect();
        if known.is_empty() {
            known = hosts::look_up(&self.settings.hosts, name);
        }
        // At most as many names as a run may look up.
        self.known.insert(name.clone(), known.clone());
        known
    }

    pub(super) fn judge_address(&mut self, address: IpAddr) -> Verdict {
        match &mut self.guard {
            Some(guard) => guard.judge(address),
            None => Verdict::Private,
        }
    }

    /// Counts a name that arrived without a DNS query towards the limits of the run.
    pub(super) fn admit(&mut self, wanted: &Wanted) -> Result<(), (String, DenialReason)> {
        let Wanted::Name(name) = wanted else {
            return Ok(());
        };
        let wildcard = match self.settings.allowed.standing(name) {
            Standing::Below(parent) => Some(parent),
            Standing::Named | Standing::Absent => None,
        };
        match self.names.address_of(name, wildcard) {
            Ok(_address) => Ok(()),
            Err(NamesFull::Run | NamesFull::Wildcard) => {
                Err((merged_name(name, wildcard), DenialReason::Limit))
            }
        }
    }

    /// Requests an inner socket; returns the id that the answer will carry.
    pub(super) fn ask(&mut self, port: u16, is_v6: bool) -> i32 {
        self.last_ask = self.last_ask.wrapping_add(1);
        let id = self.last_ask;
        self.asks.push_back(Ask { id, is_v6, port });
        id
    }

    pub(super) fn deny(&mut self, attempt: crate::denials::Attempt, now: Instant) {
        self.ledger.deny(attempt, now);
    }
}

/// One report entry for all names beyond a limit: a body could use the names to leak data.
pub(super) fn merged_name(name: &HostName, wildcard: Option<&HostName>) -> String {
    match wildcard {
        Some(parent) => format!("*.{parent}"),
        None => name.to_string(),
    }
}

/// Unpredictable DNS query ids, derived from a seed and a counter.
#[derive(Debug)]
pub(super) struct QuestionIds {
    seed: [u8; 16],
    used: u64,
}

impl QuestionIds {
    pub(super) const fn new(seed: [u8; 16]) -> Self {
        Self { seed, used: 0 }
    }

    pub(super) fn next(&mut self) -> [u16; 2] {
        use sha2::Digest as _;
        self.used += 1;
        let digest = sha2::Sha256::new()
            .chain_update(self.seed)
            .chain_update(self.used.to_be_bytes())
            .finalize();
        [
            u16::from_be_bytes([digest[0], digest[1]]),
            u16::from_be_bytes([digest[2], digest[3]]),
        ]
    }
}
