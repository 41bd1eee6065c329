//! Hints for denied attempts. Pure.
//!
//! Each hint contains text to paste (a flag, a list entry, a key of the host policy) or, where no list
//! entry helps, what the program must do instead.

use std::net::IpAddr;

use crate::address::is_public;
use crate::allowlist::{EgressPlan, flag, private_ranges};
use crate::denials::{Attempt, Protocol};
use crate::names::is_synthetic;
use spec::denial_reason::DenialReason;
use spec::egress::{EgressHost, EgressRule};
use spec::host_name::HostName;
use spec::sources_policy::EgressPolicy;

/// Settings that were in effect during the run.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'run> {
    /// The requested entries and the effective list.
    pub plan: &'run EgressPlan,
    /// The host policy.
    pub policy: &'run EgressPolicy,
}

/// The destination of an attempt: `evil.com:443`, `evil.com`, `udp 8.8.8.8:443`.
#[must_use]
pub fn object(attempt: &Attempt) -> String {
    let whom = match (&attempt.host, attempt.address, attempt.port) {
        (Some(host), _, _) => host.clone(),
        (None, Some(IpAddr::V6(address)), Some(_)) => format!("[{address}]"),
        (None, Some(address), _) => address.to_string(),
        (None, None, _) => "what is not a host name".to_owned(),
    };
    let whom = match attempt.port {
        Some(port) => format!("{whom}:{port}"),
        None => whom,
    };
    match attempt.protocol {
        Protocol::Dns | Protocol::Tcp => whom,
        Protocol::Other(number) => format!("protocol {number} {whom}"),
        other => format!("{other} {whom}"),
    }
}

/// The change that makes the attempt succeed.
#[must_use]
pub fn hint(attempt: &Attempt, around: Circumstances<'_>) -> String {
    let host = attempt.host.as_deref().unwrap_or("the host");
    match attempt.reason {
        DenialReason::NameNotAllowed | DenialReason::PortNotAllowed => listing(attempt, around),
        DenialReason::IpLiteral => address(attempt, around),
        DenialReason::ResolvesToPrivate => match attempt.address {
            Some(address) => opening(address),
            None => format!(
                "host policy: egress.private_ranges has to hold the address that {host} has; \
                 --add-host {host}:IP says another one"
            ),
        },
        DenialReason::SniMismatch => format!(
            "on port 443 the TLS name has to be {host} itself; allow the other name, and connect \
             to that"
        ),
        DenialReason::NoSni => {
            format!("on port 443 the program has to send {host} as TLS name (SNI)")
        }
        DenialReason::NotTls => format!(
            "port 443 takes TLS only; what {host} serves without TLS is reached at another port"
        ),
        DenialReason::HostMismatch => format!(
            "on port 80 the Host header has to be {host} itself; allow the other name, and \
             connect to that"
        ),
        DenialReason::Limit => limit(attempt),
        DenialReason::Protocol => {
            "only TCP leaves the sandbox: use the service over TCP (HTTP/2 in the \
                             place of QUIC)"
                .to_owned()
        }
        DenialReason::PortNotCaptured => uncaught(attempt),
        DenialReason::Ech => {
            "turn Encrypted ClientHello off in the program; --strict and the host \
                        policy (egress.refuse_ech) refuse it"
                .to_owned()
        }
    }
}

/// `--allow-net RULE`, and what prevents it from taking effect.
fn listing(attempt: &Attempt, around: Circumstances<'_>) -> String {
    let Some(wanted) = rule(attempt) else {
        return "only host names of letters, digits, `-` and `_` can be allowed".to_owned();
    };
    let mut asked = around.plan.asked.iter();
    if asked.any(|one| one.rule.covers(&wanted)) {
        return format!("host policy: egress.allow has to list {}", quoted(&wanted));
    }
    let mut hint = format!(
        "{}, or {} in network.egress",
        flag(&wanted),
        quoted(&wanted)
    );
    if let Some(allowed) = &around.policy.allow
        && !allowed.iter().any(|rule| rule.covers(&wanted))
    {
        hint.push_str("; the host policy (egress.allow) has to list it too");
    } else if let EgressHost::Name(name) = &wanted.host
        && let Some(star) = apex(name, around.plan)
    {
        hint.push_str(&format!("; {star} is only what is below it"));
    }
    hint
}

fn apex<'plan>(name: &HostName, plan: &'plan EgressPlan) -> Option<&'plan EgressRule> {
    let is_apex = |rule: &&EgressRule| matches!(&rule.host, EgressHost::Below(of) if of == name);
    plan.allowed.iter().find(is_apex)
}

fn address(attempt: &Attempt, around: Circumstances<'_>) -> String {
    let Some(address) = attempt.address else {
        return listing(attempt, around);
    };
    if matches!(address, IpAddr::V4(address) if is_synthetic(address)) {
        return "addresses of 198.18.0.0/15 stand for names that were asked for in this run: ask \
                for the name again"
            .to_owned();
    }
    let entry = listing(attempt, around);
    match is_public(address) || is_open(address, around.policy) {
        true => format!("use the host's name in the place of its address; or {entry}"),
        false => format!("{entry}; and {}", opening(address)),
    }
}

fn is_open(address: IpAddr, policy: &EgressPolicy) -> bool {
    let mut ranges = policy.private_ranges.iter();
    // A wider range does not open the host's own loopback.
    match address.is_loopback() {
        true => ranges.any(|range| range.is_exactly(address)),
        false => ranges.any(|range| range.contains(address)),
    }
}

fn opening(address: IpAddr) -> String {
    let opened = format!("host policy: {}", private_ranges(address));
    match is_metadata(address) {
        true => format!("{opened} opens a service that may hand out the host's credentials"),
        false => opened,
    }
}

/// Addresses at which clouds serve instance credentials.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.octets() == [168, 63, 129, 16],
        IpAddr::V6(address) => address.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    }
}

fn limit(attempt: &Attempt) -> String {
    match (attempt.protocol, &attempt.host) {
        (Protocol::Dns, Some(host)) if host.starts_with("*.") => {
            format!("only so many names count below {host}: list the names themselves")
        }
        (Protocol::Dns, _) => "ask for names less often, and keep the answers".to_owned(),
        _ => "open fewer connections at once, and use them again".to_owned(),
    }
}

fn uncaught(attempt: &Attempt) -> String {
    let doctor = "`runner doctor` says how to have nf_tables";
    match rule(attempt) {
        Some(rule) if rule.port.is_some() => {
            format!("{} adds a listener for that port; {doctor}", flag(&rule))
        }
        _ => format!("write HOST:PORT in network.egress; {doctor}"),
    }
}

/// The entry that allows an attempt.
fn rule(attempt: &Attempt) -> Option<EgressRule> {
    let host = match (&attempt.host, attempt.address) {
        (Some(host), _) => match HostName::parse(host.as_bytes()) {
            // `parse` may drop a trailing dot: an entry is suggested only if the name is unchanged.
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
    use crate::allowlist::settle;
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
    fn told(attempt: &Attempt, flags: &[&str], policy: &EgressPolicy) -> String {
        let plan = settle(&[], &rules(flags), policy);
        hint(
            attempt,
            Circumstances {
                plan: &plan,
                policy,
            },
        )
    }

    #[test]
    fn an_object_is_written_as_an_entry_would_be() {
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
            (Protocol::Dns, None, None, None, "what is not a host name"),
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
    fn a_name_s_hint_says_what_to_paste() {
        let open = EgressPolicy::default();
        let closed = EgressPolicy {
            allow: Some(rules(&["a.com", "b.com:80"])),
            ..EgressPolicy::default()
        };
        let tcp =
            |host, address, port, reason| attempt(Protocol::Tcp, host, address, Some(port), reason);
        let dns = |host, reason| attempt(Protocol::Dns, host, None, None, reason);
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
                "--allow-net b.com, or b.com in network.egress; *.b.com is only what is below it",
            ),
            (
                dns(Some("evil.com"), DenialReason::NameNotAllowed),
                &["a.com", "evil.com"],
                &closed,
                "host policy: egress.allow has to list evil.com",
            ),
            (
                dns(Some("evil.com"), DenialReason::NameNotAllowed),
                &["a.com"],
                &closed,
                "--allow-net evil.com, or evil.com in network.egress; the host policy \
                 (egress.allow) has to list it too",
            ),
            (
                tcp(Some("b.com"), None, 443, DenialReason::PortNotAllowed),
                &["b.com"],
                &closed,
                "host policy: egress.allow has to list b.com:443",
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
            assert_eq!(told(&attempt, flags, policy), expected);
        }
    }

    #[test]
    fn an_address_and_what_no_list_helps_with_have_hints_too() {
        let open = EgressPolicy::default();
        for (attempt, flag, expected) in [
            (
                tcp(None, Some("93.184.216.34"), 443, DenialReason::IpLiteral),
                "a.com",
                "use the host's name in the place of its address; or --allow-net \
                 93.184.216.34:443, or '93.184.216.34:443' in network.egress",
            ),
            (
                tcp(None, Some("10.1.2.3"), 80, DenialReason::IpLiteral),
                "a.com",
                "--allow-net 10.1.2.3:80, or '10.1.2.3:80' in network.egress; and host policy: \
                 egress: {private_ranges: [10.1.2.3/32]}",
            ),
            (
                tcp(None, Some("198.18.7.7"), 80, DenialReason::IpLiteral),
                "a.com",
                "addresses of 198.18.0.0/15 stand for names that were asked for in this run: ask \
                 for the name again",
            ),
            (
                tcp(None, Some("fd00::1"), 80, DenialReason::ResolvesToPrivate),
                "[fd00::1]:80",
                "host policy: egress: {private_ranges: ['fd00::1/128']}",
            ),
            (
                tcp(
                    Some("a.com"),
                    Some("169.254.169.254"),
                    80,
                    DenialReason::ResolvesToPrivate,
                ),
                "a.com",
                "host policy: egress: {private_ranges: [169.254.169.254/32]} opens a service that \
                 may hand out the host's credentials",
            ),
            (
                tcp(Some("a.com"), None, 80, DenialReason::ResolvesToPrivate),
                "a.com",
                "host policy: egress.private_ranges has to hold the address that a.com has; \
                 --add-host a.com:IP says another one",
            ),
            (
                tcp(Some("a.com"), None, 443, DenialReason::NoSni),
                "a.com",
                "on port 443 the program has to send a.com as TLS name (SNI)",
            ),
            (
                dns(Some("*.a.com"), DenialReason::Limit),
                "*.a.com",
                "only so many names count below *.a.com: list the names themselves",
            ),
            (
                tcp(Some("a.com"), None, 8443, DenialReason::PortNotCaptured),
                "a.com",
                "--allow-net a.com:8443 adds a listener for that port; `runner doctor` says how \
                 to have nf_tables",
            ),
        ] {
            assert_eq!(told(&attempt, &[flag], &open), expected);
        }
        let opened = EgressPolicy {
            private_ranges: vec![IpRange::parse("10.0.0.0/8").expect("a range")],
            ..EgressPolicy::default()
        };
        let literal = tcp(None, Some("10.1.2.3"), 80, DenialReason::IpLiteral);
        assert!(told(&literal, &[], &opened).starts_with("use the host's name"));
    }

    #[test]
    fn every_reason_has_a_hint_of_its_own() {
        for reason in DenialReason::ALL {
            for (host, address) in [(Some("a.com"), None), (None, Some("8.8.8.8")), (None, None)] {
                for protocol in [Protocol::Dns, Protocol::Tcp, Protocol::Udp] {
                    let attempt = attempt(protocol, host, address, Some(1), reason);
                    let told = told(&attempt, &[], &EgressPolicy::default());
                    assert!(20 < told.len() && !told.contains('\n'), "{told}");
                }
            }
        }
    }
}
