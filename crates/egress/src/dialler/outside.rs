//! What all dials share: the settings, the limits, and the link to the resolver.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use crate::allow::NameMatch;
use crate::dialler::address_check::{AddressChecker, Verdict};
use crate::dialler::{RESOLVER, Settings};
use crate::host::Host;
use crate::link::{Link, Query, Received, Resolved};
use crate::names::Names;
use crate::rate_limit::RateLimit;
use crate::resolver::hosts;
use crate::socket::Watch;
use spec::host_name::HostName;

/// Maximum number of outside look-ups in one second, with two queries each; further look-ups wait. The
/// value exceeds the number of connections, so a body that opens all of them at once does not wait.
pub(super) const LOOKUPS_PER_SECOND: u32 = 500;

#[derive(Debug)]
pub(super) struct Outside {
    pub(super) epoll: OwnedFd,
    settings: Settings,
    /// The names that were dialled: a relay that is taken over could leak data in names.
    names: Names,
    /// A body can dial at a high rate, and the name servers belong to the host.
    pub(super) lookup_rate: RateLimit,
    /// `None`: the body may not dial.
    address_checker: Option<AddressChecker>,
    /// Cached results of look-ups in the `hosts` file, which may be long.
    static_addresses: HashMap<HostName, Vec<IpAddr>>,
    /// `None`: there is none, or it has ended.
    resolver: Option<Link>,
    pub(super) has_resolver_failed: bool,
}

impl Outside {
    /// # Errors
    /// The errno of epoll_create1(2), epoll_ctl(2), or of socket(2) for the route queries.
    pub(super) fn new(
        settings: Settings,
        resolver: Option<OwnedFd>,
        now: Instant,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let address_checker = match settings.allowed.is_empty() {
            true => None,
            false => Some(AddressChecker::new(settings.private_ranges.clone())?),
        };
        let watch = Watch {
            epoll: &epoll,
            number: RESOLVER,
        };
        let resolver = resolver.map(|link| Link::new(link, watch)).transpose()?;
        Ok(Self {
            epoll,
            settings,
            names: Names::default(),
            lookup_rate: RateLimit::new(LOOKUPS_PER_SECOND, now),
            address_checker,
            static_addresses: HashMap::new(),
            resolver,
            has_resolver_failed: false,
        })
    }

    pub(super) fn watch(&self, number: u64) -> Watch<'_> {
        Watch {
            epoll: &self.epoll,
            number,
        }
    }

    /// Whether the list and the limits of names allow a dial. The relay has decided the same before.
    pub(super) fn allows(&mut self, host: &Host, port: u16) -> bool {
        let allowed = &self.settings.allowed;
        if allowed.denial(host, port).is_some() {
            return false;
        }
        let Host::Name(name) = host else {
            return true;
        };
        let wildcard = match allowed.match_name(name) {
            NameMatch::Wildcard(parent) => Some(parent),
            NameMatch::Exact | NameMatch::None => None,
        };
        self.names.assign_address(name, wildcard).is_ok()
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

    /// Queries the resolver. Returns whether there is one.
    pub(super) fn look_up(&mut self, id: u64, name: HostName) -> bool {
        let watch = Watch {
            epoll: &self.epoll,
            number: RESOLVER,
        };
        let Some(resolver) = &mut self.resolver else {
            return false;
        };
        let is_sent = resolver.send(&Query { id, name }, None, watch).is_ok();
        if !is_sent {
            self.lose_resolver();
        }
        is_sent
    }

    /// The next answer of the resolver, which may be taken over.
    pub(super) fn next_resolved(&mut self) -> Option<Resolved> {
        let watch = Watch {
            epoll: &self.epoll,
            number: RESOLVER,
        };
        let resolver = self.resolver.as_mut()?;
        if resolver.flush(watch).is_ok() {
            match resolver.receive::<Resolved>() {
                Received::Message(resolved, _) if resolved.is_genuine() => return Some(resolved),
                Received::Nothing => return None,
                Received::Message(..) | Received::End | Received::Malformed => (),
            }
        }
        self.lose_resolver();
        None
    }

    fn lose_resolver(&mut self) {
        self.resolver = None;
        self.has_resolver_failed = true;
    }
}
