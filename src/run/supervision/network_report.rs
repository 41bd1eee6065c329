//! The network part of the report: reached hosts, and denials with their reasons.

use egress::advice::{RunSettings, hint, object};
use egress::denials::Attempt;
use egress::dialler::NetworkFailure;
use egress::outcome::Outcome;
use spec::egress_report::{EgressCapture, EgressReport};
use spec::merged::Occurrences;
use spec::network::Capture;
use spec::observation::KindObservation;
use spec::report::Denial;

/// The rule that denies all outgoing traffic.
const RULE: &str = "network.egress";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::run) struct NetworkReport {
    /// Without the allowed entries, which are known before the run.
    pub(in crate::run) egress: EgressReport,
    pub(in crate::run) denials: Vec<Denial>,
    pub(in crate::run) failures: Vec<NetworkFailure>,
}

/// Builds the report at the relay's end. `capture`: how connections were captured, `None` without a
/// network.
pub(super) fn build(
    capture: Option<Capture>,
    outcome: Outcome,
    settings: RunSettings<'_>,
) -> NetworkReport {
    let denials = outcome.denials.distinct();
    let denials = denials.map(|(attempt, equal)| denial(attempt, *equal, settings));
    let denials = denials.collect();
    let capture = match capture {
        Some(Capture::Tproxy) => EgressCapture::Tproxy,
        Some(Capture::AnyIp) => EgressCapture::AnyIp,
        None => EgressCapture::None,
    };
    NetworkReport {
        egress: EgressReport {
            capture,
            ..outcome.report
        },
        denials,
        failures: Vec::new(),
    }
}

/// Whether denials of the network were observed.
pub(in crate::run) fn observation(egress: &EgressReport) -> KindObservation {
    match egress.capture {
        EgressCapture::Tproxy | EgressCapture::AnyIp => {
            KindObservation::complete(egress.denials_beyond)
        }
        EgressCapture::None => KindObservation::none("the body has no network"),
    }
}

fn denial(attempt: &Attempt, equal: Occurrences, settings: RunSettings<'_>) -> Denial {
    Denial {
        kind: "net".to_owned(),
        object: object(attempt),
        operation: None,
        rule: RULE.to_owned(),
        errno: None,
        reason: Some(attempt.reason),
        protocol: Some(attempt.protocol.to_string()),
        host: attempt.host.clone(),
        ip: attempt.address.map(|address| address.to_string()),
        port: attempt.port,
        hint: Some(hint(attempt, settings)),
        certainty: None,
        count: equal.count,
        first_ms: Some(equal.first_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress::allowlist::EgressPlan;
    use egress::denials::{Denials, Protocol};
    use spec::denial_reason::DenialReason;
    use spec::egress_report::{HostTraffic, PublishedReport, UnreachableCause, UnreachableHost};
    use spec::sources_policy::EgressPolicy;

    #[test]
    fn the_report_contains_the_outcome_of_the_relay() {
        let mut denials = Denials::default();
        for (port, now_ms) in [(443, 5), (80, 7), (443, 9)] {
            let attempt = Attempt {
                protocol: Protocol::Tcp,
                host: Some("evil.com".to_owned()),
                address: None,
                port: Some(port),
                reason: DenialReason::NameNotAllowed,
            };
            denials.add(attempt, now_ms);
        }
        let report = EgressReport {
            hosts: vec![HostTraffic {
                host: "a.com".to_owned(),
                ports: vec![443],
                connections: 2,
                sent_bytes: 10,
                received_bytes: 20,
            }],
            unreachable: vec![UnreachableHost {
                host: "down.com".to_owned(),
                port: 443,
                cause: UnreachableCause::Refused,
                count: 3,
            }],
            unreachable_beyond: 1,
            lost_questions: 4,
            lost_datagrams: 5,
            published: vec![PublishedReport {
                host_port: 8080,
                body_port: 80,
                connections: 6,
            }],
            ..EgressReport::default()
        };
        let outcome = Outcome { denials, report };
        let (plan, policy) = (EgressPlan::default(), EgressPolicy::default());
        let settings = RunSettings {
            plan: &plan,
            policy: &policy,
        };
        let report = build(Some(Capture::AnyIp), outcome, settings);
        assert_eq!(
            serde_json::to_value(&report.egress).expect("JSON"),
            serde_json::json!({
                "capture": "anyip",
                "allowed": [],
                "hosts": [
                    {
                        "host": "a.com", "ports": [443], "connections": 2,
                        "sent_bytes": 10, "received_bytes": 20,
                    },
                ],
                "unreachable": [{
                    "host": "down.com", "port": 443, "cause": "refused", "count": 3,
                }],
                "unreachable_beyond": 1,
                "denials_beyond": 0,
                "lost_questions": 4,
                "lost_datagrams": 5,
                "published": [{"host_port": 8080, "body_port": 80, "connections": 6}],
            })
        );
        let denials = serde_json::to_value(&report.denials).expect("JSON");
        assert_eq!(
            denials[0],
            serde_json::json!({
                "kind": "net",
                "object": "evil.com:443",
                "operation": null,
                "rule": "network.egress",
                "errno": null,
                "reason": "name-not-allowed",
                "protocol": "tcp",
                "host": "evil.com",
                "ip": null,
                "port": 443,
                "hint": "--allow-net evil.com:443, or evil.com:443 in network.egress",
                "certainty": null,
                "count": 2,
                "first_ms": 5,
            })
        );
        assert_eq!(denials[1]["object"], "evil.com:80");
    }
}
