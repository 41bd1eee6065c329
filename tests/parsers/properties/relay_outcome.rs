//! What the relay says at its end about the connections of a run.

use std::collections::HashSet;

use egress::allow::Allowlist;
use egress::outcome::Outcome;
use spec::egress::EgressRule;
use spec::egress_report::PublishedReport;

/// What is accepted names no host that is not allowed, and may be shown.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let rules = ["a.com:443", "*.b.com", "93.184.216.34"];
    let rules = rules.map(|rule| EgressRule::parse(rule).expect(rule));
    let published = [PublishedReport {
        host_port: 8_000,
        body_port: 80,
        connections: 0,
    }];
    let Some(outcome) = Outcome::read(bytes, &Allowlist::new(rules.into()), &published) else {
        return false;
    };
    let report = &outcome.report;
    let is_listed = |host: &str| {
        let is_below = host.ends_with(".b.com") && host == host.to_ascii_lowercase();
        ["a.com", "93.184.216.34"].contains(&host) || is_below
    };
    for traffic in &report.hosts {
        assert!(is_listed(&traffic.host), "{traffic:?}");
    }
    for tried in &report.unreachable {
        assert!(is_listed(&tried.host), "{tried:?}");
        assert!(tried.port == 443 || tried.host != "a.com");
    }
    let known = |port: &PublishedReport| (port.host_port, port.body_port);
    let ports: Vec<(u16, u16)> = report.published.iter().map(known).collect();
    assert_eq!(ports, [(8_000, 80)]);
    let mut attempts = HashSet::new();
    for (attempt, occurrences) in outcome.denials.distinct() {
        super::assert_plain(attempt.host.as_deref().unwrap_or_default());
        assert!(0 < occurrences.count);
        assert!(attempts.insert(attempt), "{attempt:?} twice");
    }
    assert_eq!(outcome.denials.unlisted(), report.denials_beyond);
    true
}
