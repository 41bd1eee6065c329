//! The egress decision by name and port. Pure.

use std::net::IpAddr;

use spec::egress::{EgressHost, EgressRule};
use spec::host_name::HostName;

/// The granted rules as one list.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    rules: Vec<EgressRule>,
}

/// How the list matches a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'list> {
    /// The list contains the name itself.
    Named,
    /// Only `*.parent` allows the name; holds the parent.
    Below(&'list HostName),
    Absent,
}

impl Allowlist {
    /// Creates a list of these rules. An empty list allows nothing.
    #[must_use]
    pub const fn new(rules: Vec<EgressRule>) -> Self {
        Self { rules }
    }

    /// Whether the list allows no destination.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// How the list matches a name at any port: a DNS query has no port.
    #[must_use]
    pub fn standing(&self, name: &HostName) -> Standing<'_> {
        let mut below: Option<&HostName> = None;
        for rule in &self.rules {
            match &rule.host {
                EgressHost::Name(allowed) if allowed == name => return Standing::Named,
                // The closest parent wins, regardless of order.
                EgressHost::Below(parent)
                    if name.is_below(parent)
                        && below.is_none_or(|other| parent.is_below(other)) =>
                {
                    below = Some(parent);
                }
                _ => (),
            }
        }
        below.map_or(Standing::Absent, Standing::Below)
    }

    /// Whether `name` may be reached at `port`.
    #[must_use]
    pub fn allows(&self, name: &HostName, port: u16) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.names(name) && rule.port.is_none_or(|allowed| allowed == port))
    }

    /// Whether the list contains this address, at any port.
    #[must_use]
    pub(crate) fn names_address(&self, address: IpAddr) -> bool {
        let wanted = EgressHost::Address(address);
        self.rules.iter().any(|rule| rule.host == wanted)
    }

    /// Whether the list contains this address for `port`.
    #[must_use]
    pub(crate) fn allows_address(&self, address: IpAddr, port: u16) -> bool {
        let wanted = EgressHost::Address(address);
        self.rules
            .iter()
            .any(|rule| rule.host == wanted && rule.port.is_none_or(|allowed| allowed == port))
    }

    /// The ports that rules state, and the two default ports of bare names: listeners are needed at these
    /// ports when connections cannot be captured.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let mut ports: Vec<u16> = self.rules.iter().filter_map(|rule| rule.port).collect();
        ports.extend([80, 443]);
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &[&str]) -> Allowlist {
        Allowlist::new(
            rules
                .iter()
                .map(|rule| EgressRule::parse(rule).expect(rule))
                .collect(),
        )
    }

    fn name(text: &str) -> HostName {
        HostName::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn names_are_allowed_whole_and_ports_narrow_them() {
        let allowed = list(&["api.openai.com", "*.anthropic.com", "db.example:5432"]);
        for (host, port, allows) in [
            ("api.openai.com", 443, true),
            ("API.openai.com", 8443, true),
            ("a.anthropic.com", 443, true),
            ("a.b.anthropic.com", 80, true),
            ("db.example", 5432, true),
            ("db.example", 5433, false),
            ("anthropic.com", 443, false),
            ("evilanthropic.com", 443, false),
            ("xapi.openai.com", 443, false),
            ("api.openai.com.evil.com", 443, false),
            ("openai.com", 443, false),
        ] {
            assert_eq!(allowed.allows(&name(host), port), allows, "{host}:{port}");
        }
        let empty = list(&[]);
        assert!(empty.is_empty() && !empty.allows(&name("api.openai.com"), 443));
    }

    #[test]
    fn a_name_that_stands_itself_is_not_counted_under_its_wildcard() {
        let allowed = list(&["*.b.com", "a.b.com"]);
        assert_eq!(allowed.standing(&name("a.b.com")), Standing::Named);
        let parent = name("b.com");
        assert_eq!(allowed.standing(&name("c.b.com")), Standing::Below(&parent));
        assert_eq!(allowed.standing(&parent), Standing::Absent);
        for nested in [["*.b.com", "*.c.b.com"], ["*.c.b.com", "*.b.com"]] {
            let closest = name("c.b.com");
            let standing = list(&nested).standing(&name("d.c.b.com")) == Standing::Below(&closest);
            assert!(standing, "{nested:?}");
        }
    }

    #[test]
    fn addresses_are_allowed_only_as_such() {
        let allowed = list(&["93.184.216.34:443", "a.com"]);
        let address: IpAddr = "93.184.216.34".parse().expect("one");
        assert!(allowed.allows_address(address, 443));
        assert!(!allowed.allows_address(address, 80) && allowed.names_address(address));
        assert!(!allowed.names_address("93.184.216.35".parse().expect("one")));
        assert_eq!(allowed.ports().collect::<Vec<_>>(), [80, 443]);
    }
}
