//! State that all connections of a run share.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use crate::allow::NameMatch;
use crate::host::Host;
use crate::link::{Link, Request};
use crate::names::{Names, NamesFull};
use crate::rate_limit::RateLimit;
use crate::relay::dns_queries::QUERIES_PER_SECOND;
use crate::relay::flow::Buffers;
use crate::relay::interface::Rules;
use crate::relay::ledger::Ledger;
use crate::relay::slots::Token;
use crate::socket::Watch;
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) permit: ParsePermit,
    pub(super) epoll: OwnedFd,
    pub(super) rules: Rules,
    pub(super) names: Names,
    pub(super) ledger: Ledger,
    pub(super) query_rate: RateLimit,
    pub(super) buffers: Buffers,
    pub(super) link: Link,
    /// Whether the supervisor has closed the link.
    pub(super) is_ending: bool,
    last_request_id: i32,
}

impl Shared {
    /// # Errors
    /// The errno of epoll_create1(2) or epoll_ctl(2).
    pub(super) fn new(
        permit: ParsePermit,
        rules: Rules,
        link: OwnedFd,
        now: Instant,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = Watch {
            epoll: &epoll,
            number: Token::Link.number(),
        };
        Ok(Self {
            link: Link::new(link, watch)?,
            is_ending: false,
            permit,
            epoll,
            rules,
            names: Names::default(),
            ledger: Ledger::new(now),
            query_rate: RateLimit::new(QUERIES_PER_SECOND, now),
            buffers: Buffers::new(),
            last_request_id: 0,
        })
    }

    pub(super) fn watch(&self, token: Token) -> Watch<'_> {
        Watch {
            epoll: &self.epoll,
            number: token.number(),
        }
    }

    /// Counts a name that arrived without a DNS query towards the limits of the run.
    ///
    /// # Errors
    /// The report entry of the denial if a limit is reached.
    pub(super) fn count_name(&mut self, host: &Host) -> Result<(), String> {
        let Host::Name(name) = host else {
            return Ok(());
        };
        let wildcard = match self.rules.allowed.match_name(name) {
            NameMatch::Wildcard(parent) => Some(parent),
            NameMatch::Exact | NameMatch::None => None,
        };
        match self.names.assign_address(name, wildcard) {
            Ok(_address) => Ok(()),
            Err(NamesFull) => Err(merged_name(name, wildcard)),
        }
    }

    /// Requests a connection outside; returns the id of the request.
    pub(super) fn request_dial(&mut self, host: &Host, port: u16) -> i32 {
        let host = host.clone();
        self.request(|id| Request::Dial { id, host, port })
    }

    /// Requests a socket inside; returns the id of the request.
    pub(super) fn request_socket(&mut self, port: u16, is_v6: bool) -> i32 {
        self.request(|id| Request::Inside { id, is_v6, port })
    }

    fn request(&mut self, request: impl FnOnce(i32) -> Request) -> i32 {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        self.send(&request(self.last_request_id));
        self.last_request_id
    }

    pub(super) fn send(&mut self, request: &Request) {
        let watch = Watch {
            epoll: &self.epoll,
            number: Token::Link.number(),
        };
        self.is_ending |= self.link.send(request, None, watch).is_err();
    }

    pub(super) fn flush(&mut self) {
        let watch = Watch {
            epoll: &self.epoll,
            number: Token::Link.number(),
        };
        self.is_ending |= self.link.flush(watch).is_err();
    }
}

/// One report entry for all names beyond a limit: a body could use the names to leak data.
pub(super) fn merged_name(name: &HostName, wildcard: Option<&HostName>) -> String {
    match wildcard {
        Some(parent) => format!("*.{parent}"),
        None => name.to_string(),
    }
}
