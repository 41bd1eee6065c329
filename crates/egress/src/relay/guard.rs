//! Decides which addresses may be dialled. Called for each address immediately before the dial.

use std::net::IpAddr;

use rustix::io::Errno;

use crate::address::is_public;
use spec::sources_policy::IpRange;
use sys::route::{RouteKind, Routes};

/// The decision about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The address is a reachable, permitted address of another host.
    Dial,
    /// The address is not public, or belongs to the host itself, and no range opens it.
    Private,
    /// There is no route to the address.
    NoRoute,
}

/// Holds the opened ranges, and queries the kernel for routes.
#[derive(Debug)]
pub(super) struct Guard {
    opened: Vec<IpRange>,
    routes: Routes,
}

impl Guard {
    pub(super) fn new(opened: Vec<IpRange>) -> Result<Self, Errno> {
        let routes = Routes::open()?;
        Ok(Self { opened, routes })
    }

    /// `address` must be in canonical form: IPv4-mapped addresses as IPv4.
    pub(super) fn judge(&mut self, address: IpAddr) -> Verdict {
        let mut opened = self.opened.iter();
        if !is_public(address) && !opened.any(|range| range.contains(address)) {
            return Verdict::Private;
        }
        if self.opened.iter().any(|range| range.is_exactly(address)) {
            return Verdict::Dial;
        }
        match self.routes.kind(address) {
            Ok(RouteKind::Unicast) => Verdict::Dial,
            Ok(RouteKind::Local | RouteKind::Broadcast | RouteKind::Other(_)) => Verdict::Private,
            Err(_) => Verdict::NoRoute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_address_is_opened_only_by_an_entry_that_is_exactly_this_address() {
        let judge = |ranges: &[&str], address: &str| {
            let ranges = ranges
                .iter()
                .map(|range| IpRange::parse(range).expect(range));
            let mut guard = Guard::new(ranges.collect()).expect("a guard");
            guard.judge(address.parse().expect("an address"))
        };
        assert_eq!(judge(&[], "127.0.0.1"), Verdict::Private);
        assert_eq!(judge(&["127.0.0.0/8"], "127.0.0.1"), Verdict::Private);
        assert_eq!(judge(&["127.0.0.1/32"], "127.0.0.1"), Verdict::Dial);
        assert_eq!(judge(&["127.0.0.1/32"], "127.0.0.2"), Verdict::Private);
        assert_eq!(judge(&["::1/128"], "::1"), Verdict::Dial);
        assert_eq!(judge(&["10.0.0.0/8"], "192.168.0.1"), Verdict::Private);
    }
}
