//! Decides whether an address may be dialled, immediately before the dial.

use std::net::IpAddr;

use rustix::io::Errno;

use crate::address::may_be_dialled;
use spec::sources_policy::IpRange;
use sys::route::{RouteKind, Routes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The address has a route, is permitted, and belongs to another host.
    Dial,
    /// The address is not public, or belongs to the host itself, and no range opens it.
    Private,
    NoRoute,
}

#[derive(Debug)]
pub(super) struct AddressChecker {
    private_ranges: Vec<IpRange>,
    routes: Routes,
}

impl AddressChecker {
    pub(super) fn new(private_ranges: Vec<IpRange>) -> Result<Self, Errno> {
        let routes = Routes::open()?;
        Ok(Self {
            private_ranges,
            routes,
        })
    }

    /// `address` must be in canonical form: IPv4-mapped addresses as IPv4.
    pub(super) fn check(&mut self, address: IpAddr) -> Verdict {
        if !may_be_dialled(address, &self.private_ranges) {
            return Verdict::Private;
        }
        // An entry for exactly this address also opens an address of the host itself.
        let mut ranges = self.private_ranges.iter();
        if ranges.any(|range| range.is_exactly(address)) {
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
    fn an_own_address_is_opened_only_by_an_entry_for_exactly_that_address() {
        let check = |ranges: &[&str], address: &str| {
            let ranges = ranges
                .iter()
                .map(|range| IpRange::parse(range).expect(range));
            let mut checker = AddressChecker::new(ranges.collect()).expect("a route socket");
            checker.check(address.parse().expect("an address"))
        };
        assert_eq!(check(&[], "127.0.0.1"), Verdict::Private);
        assert_eq!(check(&["127.0.0.0/8"], "127.0.0.1"), Verdict::Private);
        assert_eq!(check(&["127.0.0.1/32"], "127.0.0.1"), Verdict::Dial);
        assert_eq!(check(&["127.0.0.1/32"], "127.0.0.2"), Verdict::Private);
        assert_eq!(check(&["::1/128"], "::1"), Verdict::Dial);
        assert_eq!(check(&["10.0.0.0/8"], "192.168.0.1"), Verdict::Private);
    }
}
