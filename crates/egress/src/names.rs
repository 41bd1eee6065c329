//! One synthetic address for each name that a body looks up, so that a connection to an address maps to a
//! name. Pure.
//!
//! 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so a program that dials one of its addresses got
//! it from the relay. The address of a name is stable during a run and never reused for a second name.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use spec::host_name::HostName;

/// Most names in one run.
pub const NAMES_MAX: usize = 4_096;
/// Maximum number of distinct names under one `*.parent`: otherwise a body could leak data in names to a
/// server that answers for all of them.
pub(crate) const NAMES_UNDER_WILDCARD_MAX: usize = 64;
/// 198.18.0.16: the first address that is assigned. The relay uses the addresses before it.
const FIRST: u32 = 0xc612_0010;

/// The names of a run and their addresses.
#[derive(Debug, Default)]
pub struct Names {
    by_name: HashMap<HostName, Ipv4Addr>,
    in_order: Vec<HostName>,
    under_wildcard: HashMap<HostName, usize>,
}

/// The limit that one more name would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamesFull {
    /// [`NAMES_MAX`].
    Run,
    /// `NAMES_UNDER_WILDCARD_MAX`.
    Wildcard,
}

impl Names {
    /// The address of `name`, assigned now if it has none. `wildcard` is the parent of the `*.parent`
    /// rule if no other rule allows the name.
    ///
    /// # Errors
    /// [`NamesFull`]: a new name would exceed a limit.
    pub fn address_of(
        &mut self,
        name: &HostName,
        wildcard: Option<&HostName>,
    ) -> Result<Ipv4Addr, NamesFull> {
        if let Some(address) = self.by_name.get(name) {
            return Ok(*address);
        }
        let number = self.in_order.len();
        let offset = u32::try_from(number).unwrap_or(u32::MAX);
        if NAMES_MAX <= number {
            return Err(NamesFull::Run);
        }
        if let Some(parent) = wildcard {
            let count = self.under_wildcard.entry(parent.clone()).or_default();
            if NAMES_UNDER_WILDCARD_MAX <= *count {
                return Err(NamesFull::Wildcard);
            }
            *count += 1;
        }
        let address = Ipv4Addr::from_bits(FIRST + offset);
        self.by_name.insert(name.clone(), address);
        self.in_order.push(name.clone());
        Ok(address)
    }

    /// The name to which this address is assigned.
    #[must_use]
    pub fn name_of(&self, address: Ipv4Addr) -> Option<&HostName> {
        let number = address.to_bits().checked_sub(FIRST)?;
        self.in_order.get(usize::try_from(number).ok()?)
    }
}

/// The synthetic address whose name `name` looks up: `4.3.2.1.in-addr.arpa` looks up 1.2.3.4 (RFC 1035,
/// 3.5). `None` for other names and for addresses outside 198.18.0.0/15.
#[must_use]
pub(crate) fn own_address_asked_by(name: &HostName) -> Option<Ipv4Addr> {
    let written = name.as_str().strip_suffix(".in-addr.arpa")?;
    let address: Ipv4Addr = written.parse().ok()?;
    let [last, third, second, first] = address.octets();
    Some(Ipv4Addr::new(first, second, third, last)).filter(|address| is_synthetic(*address))
}

/// Whether an address is in 198.18.0.0/15, assigned or not.
#[must_use]
pub(crate) fn is_synthetic(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [198, 18 | 19, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn an_address_is_stable_and_belongs_to_one_name() {
        let mut names = Names::default();
        let first = names.address_of(&name("a.com"), None).expect("room");
        let second = names.address_of(&name("b.com"), None).expect("room");
        assert_eq!(names.address_of(&name("A.com"), None), Ok(first));
        assert_ne!(first, second);
        assert_eq!(names.name_of(second), Some(&name("b.com")));
        for never in [
            "198.18.0.1",
            "198.18.0.15",
            "198.18.0.18",
            "198.17.255.255",
            "8.8.8.8",
        ] {
            assert_eq!(names.name_of(never.parse().expect(never)), None, "{never}");
        }
    }

    #[test]
    fn the_name_of_an_own_address_is_asked_for_backwards() {
        for (asked, address) in [
            ("16.0.18.198.in-addr.arpa", Some("198.18.0.16")),
            ("1.2.19.198.in-addr.arpa", Some("198.19.2.1")),
            ("8.8.8.8.in-addr.arpa", None),
            ("0.18.198.in-addr.arpa", None),
            ("x.16.0.18.198.in-addr.arpa", None),
            ("016.0.18.198.in-addr.arpa", None),
            ("16.0.18.198.in-addr.arpa.evil.com", None),
            ("16.0.18.198.ip6.arpa", None),
        ] {
            let address = address.map(|text| text.parse().expect(text));
            assert_eq!(own_address_asked_by(&name(asked)), address, "{asked}");
        }
    }

    #[test]
    fn names_under_a_wildcard_and_names_at_all_are_capped() {
        let mut names = Names::default();
        let parent = name("b.com");
        for number in 0..NAMES_UNDER_WILDCARD_MAX {
            let below = name(&format!("n{number}.b.com"));
            names.address_of(&below, Some(&parent)).expect("room");
        }
        let next = names.address_of(&name("next.b.com"), Some(&parent));
        assert_eq!(next, Err(NamesFull::Wildcard));
        assert!(names.address_of(&name("n0.b.com"), Some(&parent)).is_ok());
        for number in NAMES_UNDER_WILDCARD_MAX..NAMES_MAX {
            names
                .address_of(&name(&format!("n{number}.c.com")), None)
                .expect("room");
        }
        assert_eq!(names.address_of(&name("d.com"), None), Err(NamesFull::Run));
        let last = names.address_of(&name("n4095.c.com"), None).expect("known");
        assert_eq!(last, Ipv4Addr::new(198, 18, 16, 15));
    }
}
