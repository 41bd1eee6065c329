//! The network part of the report: reached hosts, and denials with their reasons.

use egress::advice::{Circumstances, hint, object};
use egress::denials::{Attempt, Seen};
use egress::relay::Outcome;
use spec::egress_report::{
    EgressCapture, EgressReport, HostTraffic, PublishedReport, UnreachableHost,
};
use spec::network::Capture;
use spec::report::Denial;

/// The rule that denies all outgoing traffic.
const RULE: &str = "network.egress";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::run) struct NetworkReport {
    /// Without the allowed entries, which are known before the run.
    pub(in crate::run) egress: EgressReport,
    pub(in crate::run) denials: Vec<Denial>,
}

/// Builds the report at the relay's end. `capture`: how connections were captured, `None` without a
/// network.
pub(super) fn build(
    capture: Option<Capture>,
    outcome: Outcome,
    circumstances: Circumstances<'_>,
) -> NetworkReport {
    let denials = outcome.denials.kinds();
    let denials = denials.map(|(attempt, seen)| denial(attempt, *seen, circumstances));
    let denials = denials.collect();
    let hosts = outcome.traffic.into_iter().map(|host| HostTraffic {
        host: host.host,
        connections: host.connections,
        sent_bytes: host.sent_bytes,
        received_bytes: host.received_bytes,
    });
    let unreachable = outcome.unreachable.into_iter().map(|host| UnreachableHost {
        host: host.host,
        port: host.port,
        cause: host.cause,
        count: host.count,
    });
    let published = outcome.published.into_iter();
    let published = published.map(|(host_port, body_port, connections)| PublishedReport {
        host_port,
        body_port,
        connections,
    });
    NetworkReport {
        egress: EgressReport {
            capture: match capture {
                Some(Capture::Tproxy) => EgressCapture::Tproxy,
                Some(Capture::AnyIp) => EgressCapture::AnyIp,
                None => EgressCapture::None,
            },
            allowed: Vec::new(),
            hosts: hosts.collect(),
            unreachable: unreachable.collect(),
            unreachable_beyond: outcome.unreachable_beyond,
            denials_beyond: outcome.denials.others(),
            lost_questions: outcome.lost_questions,
            lost_datagrams: outcome.lost_datagrams,
            published: published.collect(),
        },
        denials,
    }
}

fn denial(attempt: &Attempt, seen: Seen, circumstances: Circumstances<'_>) -> Denial {
    Denial {
        kind: "net".to_owned(),
        object: object(attempt),
        rule: RULE.to_owned(),
        reason: Some(attempt.reason),
        protocol: Some(attempt.protocol.to_string()),
        host: attempt.host.clone(),
        ip: attempt.address.map(|address| address.to_string()),
        port: attempt.port,
        hint: Some(hint(attempt, circumstances)),
        count: seen.count,
        first_ms: seen.first_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress::allowlist::EgressPlan;
    use egress::denials::{Denials, Protocol};
    use egress::relay::{Traffic, Unreachable};
    use spec::denial_reason::DenialReason;
    use spec::egress_report::UnreachableCause;
    use spec::sources_policy::EgressPolicy;

    #[test]
    fn everything_that_the_relay_tells_is_in_the_report() {
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
        let outcome = Outcome {
            denials,
            unreachable: vec![Unreachable {
                host: "down.com".to_owned(),
                port: 443,
                cause: UnreachableCause::Refused,
                count: 3,
            }],
            unreachable_beyond: 1,
            traffic: vec![Traffic {
                host: "a.com".to_owned(),
                connections: 2,
                sent_bytes: 10,
                received_bytes: 20,
            }],
            lost_questions: 4,
            lost_datagrams: 5,
            published: vec![(8080, 80, 6)],
        };
        let (plan, policy) = (EgressPlan::default(), EgressPolicy::default());
        let circumstances = Circumstances {
            plan: &plan,
            policy: &policy,
        };
        let report = build(Some(Capture::AnyIp), outcome, circumstances);
        assert_eq!(
            serde_json::to_value(&report.egress).expect("JSON"),
            serde_json::json!({
                "capture": "anyip",
                "allowed": [],
                "hosts": [
                    {"host": "a.com", "connections": 2, "sent_bytes": 10, "received_bytes": 20},
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
                "rule": "network.egress",
                "reason": "name-not-allowed",
                "protocol": "tcp",
                "host": "evil.com",
                "ip": null,
                "port": 443,
                "hint": "--allow-net evil.com:443, or evil.com:443 in network.egress",
                "count": 2,
                "first_ms": 5,
            })
        );
        assert_eq!(denials[1]["object"], "evil.com:80");
    }
}
