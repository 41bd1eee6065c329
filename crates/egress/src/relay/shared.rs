//! State that all connections of a run share.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use crate::allow::NameMatch;
use crate::host::Host;
use crate::names::{Names, NamesFull};
use crate::relay::address_check::{AddressChecker, Verdict};
use crate::relay::dns_queries::{QUERIES_PER_SECOND, RateLimit};
use crate::relay::flow::Buffers;
use crate::relay::interface::{ConnectRequest, Settings};
use crate::relay::ledger::Ledger;
use crate::relay::slots::{Token, Watch};
use crate::resolver::hosts;
use spec::host_name::HostName;

/// Maximum number of outside look-ups in one second, with two queries each; further look-ups wait. The
/// value exceeds the number of connections, so a body that opens all of them at once does not wait.
pub(super) const LOOKUPS_PER_SECOND: u32 = 500;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) epoll: OwnedFd,
    pub(super) settings: Settings,
    pub(super) names: Names,
    pub(super) ledger: Ledger,
    pub(super) query_rate: RateLimit,
    /// A body can dial at a high rate, and the name servers belong to the host.
    pub(super) lookup_rate: RateLimit,
    /// `None`: the body may not dial.
    address_checker: Option<AddressChecker>,
    pub(super) buffers: Buffers,
    pub(super) query_ids: QueryIds,
    pub(super) connect_requests: VecDeque<ConnectRequest>,
    last_request_id: i32,
    /// Cached results of look-ups in the `hosts` file, which may be long.
    static_addresses: HashMap<HostName, Vec<IpAddr>>,
}

impl Shared {
    /// # Errors
    /// The errno of epoll_create1(2).
    pub(super) fn new(
        settings: Settings,
        address_checker: Option<AddressChecker>,
        now: Instant,
    ) -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            query_ids: QueryIds::new(settings.seed),
            settings,
            names: Names::default(),
            ledger: Ledger::new(now),
            query_rate: RateLimit::new(QUERIES_PER_SECOND, now),
            lookup_rate: RateLimit::new(LOOKUPS_PER_SECOND, now),
            address_checker,
            buffers: Buffers::new(),
            connect_requests: VecDeque::new(),
            last_request_id: 0,
            static_addresses: HashMap::new(),
        })
    }

    pub(super) fn watch(&self, token: Token) -> Watch<'_> {
        Watch {
            epoll: &self.epoll,
            token,
        }
    }

    /// The addresses of a name from `--add-host` or the `hosts` file, which need no DNS query.
    pub(super) fn static_addresses(&mut self, name: &HostName) -> Vec<IpAddr> {
        if let Some(cached) = self.static_addresses.get(name) {
            return cached.clone();
        }
        let added = self.settings.added_hosts.iter();
        let mut addresses: Vec<IpAddr> = added
            .filter(|(of, _)| of == name)
            .map(|(_, address)| *address)
            .collect();
        if addresses.is_empty() {
            addresses = hosts::look_up(&self.settings.hosts, name);
        }
        // At most as many names as a run may look up.
        self.static_addresses
            .insert(name.clone(), addresses.clone());
        addresses
    }

    pub(super) fn check_address(&mut self, address: IpAddr) -> Verdict {
        match &mut self.address_checker {
            Some(checker) => checker.check(address),
            None => Verdict::Private,
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
        let wildcard = match self.settings.allowed.match_name(name) {
            NameMatch::Wildcard(parent) => Some(parent),
            NameMatch::Exact | NameMatch::None => None,
        };
        match self.names.assign_address(name, wildcard) {
            Ok(_address) => Ok(()),
            Err(NamesFull) => Err(merged_name(name, wildcard)),
        }
    }

    /// Requests a socket inside; returns the id of the request.
    pub(super) fn request_socket(&mut self, port: u16, is_v6: bool) -> i32 {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        let id = self.last_request_id;
        self.connect_requests
            .push_back(ConnectRequest { id, is_v6, port });
        id
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
pub(super) struct QueryIds {
    seed: [u8; 16],
    used: u64,
}

impl QueryIds {
    const fn new(seed: [u8; 16]) -> Self {
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
