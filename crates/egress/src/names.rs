//! Maps each name that a body looks up to one synthetic address, and back. Pure.
//!
//! 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so a program that dials one of its addresses got
//! it from the relay. The address of a name is stable during a run and never reused for a second name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::host::Host;
use spec::host_name::HostName;

/// Maximum number of names in one run.
pub const NAMES_MAX: usize = 4_096;
/// Maximum number of distinct names under one `*.parent`: otherwise a body could leak data in names to a
/// server that answers for all of them.
pub(crate) const NAMES_UNDER_WILDCARD_MAX: usize = 64;
/// 198.18.0.16: the first address that is assigned. The relay uses the addresses before it.
const FIRST_ADDRESS: u32 = 0xc612_0010;

/// The names of a run and their addresses.
#[derive(Debug, Default)]
pub struct Names {
    by_name: HashMap<HostName, Ipv4Addr>,
    in_order: Vec<HostName>,
    under_wildcard: HashMap<HostName, usize>,
}

/// One more name would exceed [`NAMES_MAX`] or `NAMES_UNDER_WILDCARD_MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamesFull;

impl Names {
    /// The address of `name`, assigned now if it has none. `wildcard` is the parent of the `*.parent`
    /// rule if no other rule allows the name.
    ///
    /// # Errors
    /// [`NamesFull`]: a new name would exceed a limit.
    pub(crate) fn assign_address(
        &mut self,
        name: &HostName,
        wildcard: Option<&HostName>,
    ) -> Result<Ipv4Addr, NamesFull> {
        if let Some(address) = self.by_name.get(name) {
            return Ok(*address);
        }
        let number = self.in_order.len();
        let offset = u32::try_from(number).unwrap_or(u32::MAX);
        if number >= NAMES_MAX {
            return Err(NamesFull);
        }
        if let Some(parent) = wildcard {
            let count = self.under_wildcard.entry(parent.clone()).or_default();
            if *count >= NAMES_UNDER_WILDCARD_MAX {
                return Err(NamesFull);
            }
            *count += 1;
        }
        let address = Ipv4Addr::from_bits(FIRST_ADDRESS + offset);
        self.by_name.insert(name.clone(), address);
        self.in_order.push(name.clone());
        Ok(address)
    }

    /// The host that a dialled address stands for: a name if the address was assigned to one.
    #[must_use]
    pub(crate) fn host_at(&self, address: IpAddr) -> Host {
        let address = address.to_canonical();
        let name = match address {
            IpAddr::V4(synthetic) => self.name_of(synthetic),
            IpAddr::V6(_) => None,
        };
        name.map_or(Host::Address(address), |name| Host::Name(name.clone()))
    }

    /// The name to which this address is assigned.
    #[must_use]
    pub fn name_of(&self, address: Ipv4Addr) -> Option<&HostName> {
        let number = address.to_bits().checked_sub(FIRST_ADDRESS)?;
        self.in_order.get(usize::try_from(number).ok()?)
    }
}

/// The synthetic address that a reverse look-up of `name` asks for: `4.3.2.1.in-addr.arpa` asks for 1.2.3.4
/// (RFC 1035, 3.5). `None` for other names and for addresses outside 198.18.0.0/15.
#[must_use]
pub(crate) fn reverse_lookup(name: &HostName) -> Option<Ipv4Addr> {
    let reversed = name.as_str().strip_suffix(".in-addr.arpa")?;
    let address: Ipv4Addr = reversed.parse().ok()?;
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
        let first = names.assign_address(&name("a.com"), None).expect("room");
        let second = names.assign_address(&name("b.com"), None).expect("room");
        assert_eq!(names.assign_address(&name("A.com"), None), Ok(first));
        assert_ne!(first, second);
        assert_eq!(names.name_of(second), Some(&name("b.com")));
        for unassigned in [
            "198.18.0.1",
            "198.18.0.15",
            "198.18.0.18",
            "198.17.255.255",
            "8.8.8.8",
        ] {
            assert_eq!(
                names.name_of(unassigned.parse().expect(unassigned)),
                None,
                "{unassigned}"
            );
        }
    }

    #[test]
    fn a_reverse_look_up_asks_for_a_synthetic_address() {
        for (text, address) in [
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
            assert_eq!(reverse_lookup(&name(text)), address, "{text}");
        }
    }

    #[test]
    fn names_of_a_wildcard_and_of_a_run_are_limited() {
        let mut names = Names::default();
        let parent = name("b.com");
        for number in 0..NAMES_UNDER_WILDCARD_MAX {
            let below = name(&format!("n{number}.b.com"));
            names.assign_address(&below, Some(&parent)).expect("room");
        }
        let next = names.assign_address(&name("next.b.com"), Some(&parent));
        assert_eq!(next, Err(NamesFull));
        assert!(
            names
                .assign_address(&name("n0.b.com"), Some(&parent))
                .is_ok()
        );
        for number in NAMES_UNDER_WILDCARD_MAX..NAMES_MAX {
            names
                .assign_address(&name(&format!("n{number}.c.com")), None)
                .expect("room");
        }
        assert_eq!(names.assign_address(&name("d.com"), None), Err(NamesFull));
        let last = names
            .assign_address(&name("n4095.c.com"), None)
            .expect("known");
        assert_eq!(last, Ipv4Addr::new(198, 18, 16, 15));
    }
}
