//! Hints for denied attempts. Pure.
//!
//! Each hint contains text to paste (a flag, a list entry, a key of the host policy) or, where no list
//! entry helps, what the program must do instead.

use std::net::IpAddr;

use crate::address::may_be_dialled;
use crate::allowlist::{EgressPlan, flag, private_ranges};
use crate::denials::{Attempt, Protocol};
use crate::names::{NAMES_UNDER_WILDCARD_MAX, is_synthetic};
use crate::relay::dns_queries::QUERIES_PER_SECOND;
use spec::denial_reason::DenialReason;
use spec::egress::{EgressHost, EgressRule};
use spec::host_name::HostName;
use spec::sources_policy::EgressPolicy;

/// Settings of the run that the advice depends on.
#[derive(Debug, Clone, Copy)]
pub struct RunSettings<'run> {
    /// The requested entries and the effective list.
    pub plan: &'run EgressPlan,
    pub policy: &'run EgressPolicy,
}

/// The destination of an attempt: `evil.com:443`, `evil.com`, `udp 8.8.8.8:443`.
#[must_use]
pub fn object(attempt: &Attempt) -> String {
    let host = match (&attempt.host, attempt.address, attempt.port) {
        (Some(host), _, _) => host.clone(),
        (None, Some(IpAddr::V6(address)), Some(_)) => format!("[{address}]"),
        (None, Some(address), _) => address.to_string(),
        (None, None, _) => "an unknown host".to_owned(),
    };
    let destination = match attempt.port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    };
    match attempt.protocol {
        Protocol::Dns | Protocol::Tcp => destination,
        Protocol::Other(number) => format!("protocol {number} {destination}"),
        other => format!("{other} {destination}"),
    }
}

/// The change that makes the attempt succeed.
#[must_use]
pub fn hint(attempt: &Attempt, settings: RunSettings<'_>) -> String {
    let host = attempt.host.as_deref().unwrap_or("the host");
    match attempt.reason {
        DenialReason::NameNotAllowed | DenialReason::PortNotAllowed => {
            hint_to_list(attempt, settings)
        }
        DenialReason::IpLiteral => hint_for_address(attempt, settings),
        DenialReason::ResolvesToPrivate => match attempt.address {
            Some(address) => hint_to_open(address),
            None => format!(
                "add the address of {host} to egress.private_ranges of the host policy, or set \
                 another address with --add-host {host}:IP"
            ),
        },
        DenialReason::SniMismatch => format!(
            "on port 443 the TLS server name (SNI) must be {host}; to reach the other host, allow \
             it and connect to it"
        ),
        DenialReason::NoSni => {
            format!("on port 443 the program must send {host} as TLS server name (SNI)")
        }
        DenialReason::NotTls => {
            "port 443 accepts only TLS: use another port for other protocols".to_owned()
        }
        DenialReason::HostMismatch => format!(
            "on port 80 the Host header must be {host}; to reach the other host, allow it and \
             connect to it"
        ),
        DenialReason::Limit => hint_for_limit(attempt),
        DenialReason::Protocol => {
            "only TCP leaves the sandbox: use the service over TCP (HTTP/2 instead of QUIC)"
                .to_owned()
        }
        DenialReason::PortNotCaptured => hint_for_port(attempt),
        DenialReason::Ech => "turn off Encrypted ClientHello in the program; --strict and \
                              egress.refuse_ech of the host policy refuse it"
            .to_owned(),
    }
}

/// `--allow-net RULE`, and what prevents it from taking effect.
fn hint_to_list(attempt: &Attempt, settings: RunSettings<'_>) -> String {
    let Some(rule) = rule_for(attempt) else {
        return "only host names of letters, digits, `-` and `_` can be allowed".to_owned();
    };
    let mut requested = settings.plan.requested.iter();
    if requested.any(|entry| entry.rule.covers(&rule)) {
        return format!("add {} to egress.allow of the host policy", quoted(&rule));
    }
    let mut hint = format!("{}, or {} in network.egress", flag(&rule), quoted(&rule));
    if let Some(allowed) = &settings.policy.allow
        && !allowed.iter().any(|allowed| allowed.covers(&rule))
    {
        hint.push_str("; egress.allow of the host policy must list it too");
    } else if let EgressHost::Name(name) = &rule.host
        && let Some(wildcard) = wildcard_below(name, settings.plan)
    {
        hint.push_str(&format!("; {wildcard} covers only its subdomains"));
    }
    hint
}

/// The rule that allows the subdomains of `name`.
fn wildcard_below<'plan>(name: &HostName, plan: &'plan EgressPlan) -> Option<&'plan EgressRule> {
    let is_below = |rule: &&EgressRule| matches!(&rule.host, EgressHost::Below(of) if of == name);
    plan.allowed.iter().find(is_below)
}

fn hint_for_address(attempt: &Attempt, settings: RunSettings<'_>) -> String {
    let Some(address) = attempt.address else {
        return hint_to_list(attempt, settings);
    };
    if matches!(address, IpAddr::V4(address) if is_synthetic(address)) {
        return "the relay assigns addresses of 198.18.0.0/15 to names, for one run: look the name \
                up again"
            .to_owned();
    }
    let entry = hint_to_list(attempt, settings);
    if may_be_dialled(address, &settings.policy.private_ranges) {
        format!("use the host name instead of its address, or {entry}")
    } else {
        format!("{entry}; and {}", hint_to_open(address))
    }
}

fn hint_to_open(address: IpAddr) -> String {
    let hint = format!("set `{}` in the host policy", private_ranges(address));
    if is_metadata(address) {
        format!("{hint}; this opens a service that may return credentials of the host")
    } else {
        hint
    }
}

/// Addresses at which clouds serve instance credentials.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.octets() == [168, 63, 129, 16],
        IpAddr::V6(address) => address.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    }
}

fn hint_for_limit(attempt: &Attempt) -> String {
    let parent = attempt
        .host
        .as_deref()
        .and_then(|host| host.strip_prefix("*."));
    match (attempt.protocol, parent) {
        (_, Some(parent)) => format!(
            "at most {NAMES_UNDER_WILDCARD_MAX} names below {parent} can be used, and \
             {QUERIES_PER_SECOND} queries a second: list the names themselves, or cache the answers"
        ),
        (Protocol::Dns, None) => "send fewer DNS queries, and cache the answers".to_owned(),
        _ => "open fewer connections at the same time, and reuse them".to_owned(),
    }
}

fn hint_for_port(attempt: &Attempt) -> String {
    let doctor = "`runner doctor` says how to enable nf_tables";
    match rule_for(attempt) {
        Some(rule) if rule.port.is_some() => {
            format!("{} adds a listener for that port; {doctor}", flag(&rule))
        }
        _ => format!("write HOST:PORT in network.egress; {doctor}"),
    }
}

fn rule_for(attempt: &Attempt) -> Option<EgressRule> {
    let host = match (&attempt.host, attempt.address) {
        (Some(host), _) => match HostName::parse(host.as_bytes()) {
            // `parse` may drop a trailing dot: a rule is suggested only if the name is unchanged.
            Ok(name) if name.as_str() == host => EgressHost::Name(name),
            _ => return None,
        },
        (None, Some(address)) => EgressHost::Address(address),
        (None, None) => return None,
    };
    Some(EgressRule {
        host,
        port: attempt.port,
    })
}

/// The rule as a YAML list entry.
fn quoted(rule: &EgressRule) -> String {
    match rule.host {
        EgressHost::Name(_) => rule.to_string(),
        EgressHost::Below(_) | EgressHost::Address(_) => format!("'{rule}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::sources_policy::IpRange;

    fn attempt(
        protocol: Protocol,
        host: Option<&str>,
        address: Option<&str>,
        port: Option<u16>,
        reason: DenialReason,
    ) -> Attempt {
        Attempt {
            protocol,
            host: host.map(str::to_owned),
            address: address.map(|text| text.parse().expect(text)),
            port,
            reason,
        }
    }

    fn rules(texts: &[&str]) -> Vec<EgressRule> {
        texts
            .iter()
            .map(|text| EgressRule::parse(text).expect(text))
            .collect()
    }

    /// The hint for a run with `flags` under a policy.
    fn hint_with(attempt: &Attempt, flags: &[&str], policy: &EgressPolicy) -> String {
        let plan = &EgressPlan::new(&[], &rules(flags), policy);
        hint(attempt, RunSettings { plan, policy })
    }

    #[test]
    fn an_object_has_the_form_of_an_entry() {
        for (protocol, host, address, port, written) in [
            (Protocol::Dns, Some("evil.com"), None, None, "evil.com"),
            (
                Protocol::Tcp,
                Some("evil.com"),
                None,
                Some(443),
                "evil.com:443",
            ),
            (Protocol::Tcp, None, Some("8.8.8.8"), Some(53), "8.8.8.8:53"),
            (
                Protocol::Tcp,
                None,
                Some("fd00::1"),
                Some(80),
                "[fd00::1]:80",
            ),
            (
                Protocol::Udp,
                None,
                Some("8.8.8.8"),
                Some(443),
                "udp 8.8.8.8:443",
            ),
            (Protocol::Icmp, None, Some("ff02::1"), None, "icmp ff02::1"),
            (
                Protocol::Other(89),
                None,
                Some("1.1.1.1"),
                None,
                "protocol 89 1.1.1.1",
            ),
            (Protocol::Dns, None, None, None, "an unknown host"),
        ] {
            let found = object(&attempt(protocol, host, address, port, DenialReason::Limit));
            assert_eq!(found, written);
        }
    }

    fn tcp(host: Option<&str>, address: Option<&str>, port: u16, reason: DenialReason) -> Attempt {
        attempt(Protocol::Tcp, host, address, Some(port), reason)
    }

    fn dns(host: Option<&str>, reason: DenialReason) -> Attempt {
        attempt(Protocol::Dns, host, None, None, reason)
    }

    #[test]
    fn the_hint_for_a_name_says_what_to_paste() {
        let open = EgressPolicy::default();
        let closed = EgressPolicy {
            allow: Some(rules(&["a.com", "b.com:80"])),
            ..EgressPolicy::default()
        };
        for (attempt, flags, policy, expected) in [
            (
                dns(Some("evil.com"), DenialReason::NameNotAllowed),
                &["a.com"][..],
                &open,
                "--allow-net evil.com, or evil.com in network.egress",
            ),
            (
                tcp(Some("evil.com"), None, 8443, DenialReason::NameNotAllowed),
                &["a.com"],
                &open,
                "--allow-net evil.com:8443, or evil.com:8443 in network.egress",
            ),
            (
                dns(Some("b.com"), DenialReason::NameNotAllowed),
                &["*.b.com"],
                &open,
                "--allow-net b.com, or b.com in network.egress; *.b.com covers only its subdomains",
            ),
            (
                dns(Some("evil.com"), DenialReason::NameNotAllowed),
                &["a.com", "evil.com"],
                &closed,
                "add evil.com to egress.allow of the host policy",
            ),
            (
                dns(Some("evil.com"), DenialReason::NameNotAllowed),
                &["a.com"],
                &closed,
                "--allow-net evil.com, or evil.com in network.egress; egress.allow of the \
                 host policy must list it too",
            ),
            (
                tcp(Some("b.com"), None, 443, DenialReason::PortNotAllowed),
                &["b.com"],
                &closed,
                "add b.com:443 to egress.allow of the host policy",
            ),
            (
                tcp(Some("db.a.com"), None, 5433, DenialReason::PortNotAllowed),
                &["db.a.com:5432"],
                &open,
                "--allow-net db.a.com:5433, or db.a.com:5433 in network.egress",
            ),
            (
                dns(Some("no name\\x00"), DenialReason::NameNotAllowed),
                &[],
                &open,
                "only host names of letters, digits, `-` and `_` can be allowed",
            ),
            (
                dns(None, DenialReason::NameNotAllowed),
                &[],
                &open,
                "only host names of letters, digits, `-` and `_` can be allowed",
            ),
        ] {
            assert_eq!(hint_with(&attempt, flags, policy), expected);
        }
    }

    #[test]
    fn hints_for_addresses_and_for_denials_that_no_list_entry_prevents() {
        let open = EgressPolicy::default();
        for (attempt, flag, expected) in [
            (
                tcp(None, Some("93.184.216.34"), 443, DenialReason::IpLiteral),
                "a.com",
                "use the host name instead of its address, or --allow-net 93.184.216.34:443, or \
                 '93.184.216.34:443' in network.egress",
            ),
            (
                tcp(None, Some("10.1.2.3"), 80, DenialReason::IpLiteral),
                "a.com",
                "--allow-net 10.1.2.3:80, or '10.1.2.3:80' in network.egress; and set \
                 `egress: {private_ranges: [10.1.2.3/32]}` in the host policy",
            ),
            (
                tcp(None, Some("198.18.7.7"), 80, DenialReason::IpLiteral),
                "a.com",
                "the relay assigns addresses of 198.18.0.0/15 to names, for one run: look the \
                 name up again",
            ),
            (
                tcp(None, Some("fd00::1"), 80, DenialReason::ResolvesToPrivate),
                "[fd00::1]:80",
                "set `egress: {private_ranges: ['fd00::1/128']}` in the host policy",
            ),
            (
                tcp(
                    Some("a.com"),
                    Some("169.254.169.254"),
                    80,
                    DenialReason::ResolvesToPrivate,
                ),
                "a.com",
                "set `egress: {private_ranges: [169.254.169.254/32]}` in the host policy; this \
                 opens a service that may return credentials of the host",
            ),
            (
                tcp(Some("a.com"), None, 80, DenialReason::ResolvesToPrivate),
                "a.com",
                "add the address of a.com to egress.private_ranges of the host policy, or set \
                 another address with --add-host a.com:IP",
            ),
            (
                tcp(Some("a.com"), None, 443, DenialReason::NoSni),
                "a.com",
                "on port 443 the program must send a.com as TLS server name (SNI)",
            ),
            (
                dns(Some("*.a.com"), DenialReason::Limit),
                "*.a.com",
                "at most 64 names below a.com can be used, and 200 queries a second: list the names \
                 themselves, or cache the answers",
            ),
            (
                tcp(Some("a.com"), None, 8443, DenialReason::PortNotCaptured),
                "a.com",
                "--allow-net a.com:8443 adds a listener for that port; `runner doctor` says how \
                 to enable nf_tables",
            ),
        ] {
            assert_eq!(hint_with(&attempt, &[flag], &open), expected);
        }
        let opened = EgressPolicy {
            private_ranges: vec![IpRange::parse("10.0.0.0/8").expect("a range")],
            ..EgressPolicy::default()
        };
        let literal = tcp(None, Some("10.1.2.3"), 80, DenialReason::IpLiteral);
        assert!(hint_with(&literal, &[], &opened).starts_with("use the host name"));
    }

    #[test]
    fn every_reason_has_a_hint() {
        for reason in DenialReason::ALL {
            for (host, address) in [(Some("a.com"), None), (None, Some("8.8.8.8")), (None, None)] {
                for protocol in [Protocol::Dns, Protocol::Tcp, Protocol::Udp] {
                    let attempt = attempt(protocol, host, address, Some(1), reason);
                    let hint = hint_with(&attempt, &[], &EgressPolicy::default());
                    assert!(hint.len() > 20 && !hint.contains('\n'), "{hint}");
                }
            }
        }
    }
}
