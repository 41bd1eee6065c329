//! The egress decision by name and port. Pure.

use std::net::IpAddr;

use crate::host::Host;
use spec::denial_reason::DenialReason;
use spec::egress::{EgressHost, EgressRule};
use spec::host_name::HostName;

/// The granted rules as one list.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    rules: Vec<EgressRule>,
    /// Every name is allowed at every port, no address.
    every_name: bool,
}

/// How the list matches a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameMatch<'list> {
    /// The list contains the name itself.
    Exact,
    /// Only `*.parent` allows the name; holds the parent.
    Wildcard(&'list HostName),
    None,
}

impl Allowlist {
    /// Creates a list of these rules. An empty list allows nothing.
    #[must_use]
    pub const fn new(rules: Vec<EgressRule>) -> Self {
        Self {
            rules,
            every_name: false,
        }
    }

    /// Creates a list of these rules that also allows every name, for runs that are learned from.
    #[must_use]
    pub(crate) const fn with_every_name(rules: Vec<EgressRule>) -> Self {
        Self {
            rules,
            every_name: true,
        }
    }

    /// Whether nothing is allowed.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.every_name
    }

    /// Number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether the list contains an address, at any port.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.host == EgressHost::Address(address))
    }

    /// How the list matches a name at any port: a DNS query has no port.
    #[must_use]
    pub fn match_name(&self, name: &HostName) -> NameMatch<'_> {
        if self.every_name {
            return NameMatch::Exact;
        }
        let mut closest: Option<&HostName> = None;
        for rule in &self.rules {
            match &rule.host {
                EgressHost::Name(allowed) if allowed == name => return NameMatch::Exact,
                // The closest parent wins, regardless of order.
                EgressHost::Below(parent)
                    if name.is_below(parent)
                        && closest.is_none_or(|other| parent.is_below(other)) =>
                {
                    closest = Some(parent);
                }
                _ => (),
            }
        }
        closest.map_or(NameMatch::None, NameMatch::Wildcard)
    }

    /// Why `host` may not be reached at `port`; `None` if the list allows it.
    #[must_use]
    pub fn denial(&self, host: &Host, port: u16) -> Option<DenialReason> {
        if self.every_name && matches!(host, Host::Name(_)) {
            return None;
        }
        let mut has_host = false;
        for rule in &self.rules {
            let matches = match host {
                Host::Name(name) => rule.names(name),
                Host::Address(address) => rule.host == EgressHost::Address(*address),
            };
            if matches && rule.port.is_none_or(|allowed| allowed == port) {
                return None;
            }
            has_host |= matches;
        }
        Some(match host {
            _ if has_host => DenialReason::PortNotAllowed,
            Host::Name(_) => DenialReason::NameNotAllowed,
            Host::Address(_) => DenialReason::IpLiteral,
        })
    }

    /// The ports of the rules, and 80 and 443. Where connections cannot be captured, the relay listens at
    /// these ports.
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
    fn a_rule_allows_whole_names_at_its_port() {
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
            let denial = allowed.denial(&Host::Name(name(host)), port);
            assert_eq!(denial.is_none(), allows, "{host}:{port}");
        }
        let host = Host::Name(name("api.openai.com"));
        assert_eq!(
            list(&[]).denial(&host, 443),
            Some(DenialReason::NameNotAllowed)
        );
    }

    #[test]
    fn to_learn_hosts_every_name_is_allowed_and_no_address() {
        let allowed = Allowlist::with_every_name(Vec::new());
        assert!(!allowed.is_empty());
        let host = name("a.example");
        assert_eq!(allowed.match_name(&host), NameMatch::Exact);
        assert_eq!(allowed.denial(&Host::Name(host), 9), None);
        let address = Host::Address([93, 184, 216, 34].into());
        assert_eq!(allowed.denial(&address, 443), Some(DenialReason::IpLiteral));
    }

    #[test]
    fn an_exact_rule_wins_over_a_wildcard_and_the_closest_wildcard_wins() {
        let allowed = list(&["*.b.com", "a.b.com"]);
        assert_eq!(allowed.match_name(&name("a.b.com")), NameMatch::Exact);
        let parent = name("b.com");
        assert_eq!(
            allowed.match_name(&name("c.b.com")),
            NameMatch::Wildcard(&parent)
        );
        assert_eq!(allowed.match_name(&parent), NameMatch::None);
        for nested in [["*.b.com", "*.c.b.com"], ["*.c.b.com", "*.b.com"]] {
            let closest = name("c.b.com");
            let list = list(&nested);
            let found = list.match_name(&name("d.c.b.com"));
            assert_eq!(found, NameMatch::Wildcard(&closest), "{nested:?}");
        }
    }

    #[test]
    fn an_address_is_allowed_only_by_a_rule_for_that_address() {
        let allowed = list(&["93.184.216.34:443", "a.com"]);
        for (address, port, denial) in [
            ("93.184.216.34", 443, None),
            ("93.184.216.34", 80, Some(DenialReason::PortNotAllowed)),
            ("93.184.216.35", 443, Some(DenialReason::IpLiteral)),
        ] {
            let host = Host::Address(address.parse().expect(address));
            assert_eq!(allowed.denial(&host, port), denial, "{address}:{port}");
        }
        assert_eq!(allowed.ports().collect::<Vec<_>>(), [80, 443]);
    }
}
