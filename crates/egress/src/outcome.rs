//! The outcome of a run's connections, and its message from the relay.

use serde::{Deserialize, Serialize};

use crate::allow::{Allowlist, NameMatch};
use crate::denials::{Attempt, Denials};
use crate::host::Host;
use crate::names::NAMES_MAX;
use spec::egress_report::{
    EgressReport, HostTraffic, PublishedReport, TRAFFIC_PORTS_MAX, UnreachableHost,
};
use spec::host_name::HostName;
use spec::merged::{DISTINCT_MAX, Occurrences};

/// Maximum number of distinct entries of [`EgressReport::unreachable`].
pub(crate) const UNREACHABLE_MAX: usize = 1_000;
/// Maximum length of the message: about three times what the longest names fill.
pub(crate) const OUTCOME_BYTES_MAX: usize = 8 << 20;
/// Maximum length of the destination of a denial: a name of 255 bytes, each escaped.
const TEXT_BYTES_MAX: usize = 4 * 255;

/// The outcome of a run's connections.
#[derive(Debug, Default)]
pub struct Outcome {
    pub denials: Denials,
    /// Without [`EgressReport::capture`] and [`EgressReport::allowed`].
    pub report: EgressReport,
}

/// The message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    denials: Vec<(Attempt, Occurrences)>,
    unlisted: u64,
    hosts: Vec<HostTraffic>,
    unreachable: Vec<UnreachableHost>,
    unreachable_beyond: u64,
    lost_questions: u64,
    lost_datagrams: u64,
    /// Connections to each published port.
    published: Vec<u64>,
}

impl Outcome {
    pub(crate) fn write(self) -> Vec<u8> {
        let Self { denials, report } = self;
        let message = Message {
            denials: denials.distinct().cloned().collect(),
            unlisted: denials.unlisted(),
            hosts: report.hosts,
            unreachable: report.unreachable,
            unreachable_beyond: report.unreachable_beyond,
            lost_questions: report.lost_questions,
            lost_datagrams: report.lost_datagrams,
            published: report
                .published
                .iter()
                .map(|port| port.connections)
                .collect(),
        };
        serde_json::to_vec(&message).unwrap_or_default()
    }

    /// Reads a message that may be forged. `published` are the ports of the run. `None`: no relay with
    /// `allowed` writes it.
    #[must_use]
    pub fn read(bytes: &[u8], allowed: &Allowlist, published: &[PublishedReport]) -> Option<Self> {
        let message: Message = serde_json::from_slice(bytes).ok()?;
        let is_plain = |text: &str| {
            text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let mut hosts = message
            .denials
            .iter()
            .filter_map(|(attempt, _)| attempt.host.as_deref());
        let is_reached = |traffic: &HostTraffic| {
            let Some(host) = host(&traffic.host) else {
                return false;
            };
            let is_allowed = match &host {
                Host::Name(name) => allowed.match_name(name) != NameMatch::None,
                Host::Address(address) => allowed.has_address(*address),
            };
            let ports = &traffic.ports;
            is_allowed
                && ports.len() <= TRAFFIC_PORTS_MAX
                && ports.is_sorted_by(|a, b| a < b)
                && ports
                    .iter()
                    .all(|port| allowed.denial(&host, *port).is_none())
        };
        let is_tried = |tried: &UnreachableHost| {
            let host = host(&tried.host);
            host.is_some_and(|host| allowed.denial(&host, tried.port).is_none())
        };
        let is_genuine = message.denials.len() <= DISTINCT_MAX
            && hosts.all(is_plain)
            && message.hosts.len() <= NAMES_MAX.saturating_add(allowed.len())
            && message.hosts.iter().all(is_reached)
            && message.unreachable.len() <= UNREACHABLE_MAX
            && message.unreachable.iter().all(is_tried)
            && message.published.len() == published.len();
        let denials = Denials::restore(message.denials, message.unlisted)?;
        is_genuine.then(|| Self {
            report: EgressReport {
                hosts: message.hosts,
                unreachable: message.unreachable,
                unreachable_beyond: message.unreachable_beyond,
                denials_beyond: message.unlisted,
                lost_questions: message.lost_questions,
                lost_datagrams: message.lost_datagrams,
                published: published
                    .iter()
                    .zip(message.published)
                    .map(|(port, connections)| PublishedReport {
                        connections,
                        ..port.clone()
                    })
                    .collect(),
                ..EgressReport::default()
            },
            denials,
        })
    }
}

/// The host that [`Host`] writes as `text`.
fn host(text: &str) -> Option<Host> {
    let host = match text.parse() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(HostName::parse(text.as_bytes()).ok()?),
    };
    Some(host).filter(|host| host.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::denials::Protocol;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use spec::denial_reason::DenialReason;
    use spec::egress::EgressRule;

    fn allowed() -> Allowlist {
        let rules = ["a.com:443", "*.b.com", "93.184.216.34"];
        Allowlist::new(
            rules
                .map(|rule| EgressRule::parse(rule).expect(rule))
                .into(),
        )
    }

    fn ports() -> [PublishedReport; 1] {
        [PublishedReport {
            host_port: 8_000,
            body_port: 80,
            connections: 0,
        }]
    }

    fn genuine() -> Outcome {
        let mut outcome = Outcome::default();
        for (host, address) in [
            (Some("evil.com"), None),
            (Some("\\x1b[31m"), None),
            (None, Some("8.8.8.8".parse().expect("an address"))),
        ] {
            let attempt = Attempt {
                protocol: Protocol::Other(89),
                host: host.map(str::to_owned),
                address,
                port: Some(443),
                reason: DenialReason::Protocol,
            };
            outcome.denials.add(attempt, 5);
        }
        let report = &mut outcome.report;
        for host in ["a.com", "x.b.com", "93.184.216.34"] {
            report.hosts.push(HostTraffic {
                host: host.to_owned(),
                ports: vec![443],
                connections: 1,
                sent_bytes: 2,
                received_bytes: 3,
            });
        }
        report.unreachable.push(UnreachableHost {
            host: "a.com".to_owned(),
            port: 443,
            cause: spec::egress_report::UnreachableCause::Refused,
            count: 1,
        });
        (report.unreachable_beyond, report.lost_questions) = (4, 5);
        report.lost_datagrams = 6;
        report.published = ports().into();
        report.published[0].connections = 7;
        outcome
    }

    #[test]
    fn what_the_relay_writes_is_read_back() {
        let found = Outcome::read(&genuine().write(), &allowed(), &ports()).expect("genuine");
        assert_eq!(found.report, genuine().report);
        let denials: Vec<_> = found.denials.distinct().cloned().collect();
        assert_eq!(
            denials,
            genuine().denials.distinct().cloned().collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_a_relay_cannot_have_written_is_refused() {
        let written: Value = serde_json::from_slice(&genuine().write()).expect("JSON");
        let denial = &written["denials"][0];
        let host = |name: &str| json!([{"host": name, "connections": 1, "sent_bytes": 2, "received_bytes": 3}]);
        let at_ports = |name: &str, ports: &[u16]| {
            let mut hosts = host(name);
            hosts[0]["ports"] = json!(ports);
            hosts
        };
        let tried = |name: &str, port: u16| json!([{"host": name, "port": port, "cause": "refused", "count": 1}]);
        for (key, value) in [
            ("denials", json!(vec![denial; 2])),
            ("denials", json!([[denial[0], {"first_ms": 1, "count": 0}]])),
            ("denials", json!(1)),
            ("unlisted", json!(-1)),
            ("unlisted", json!(1e30)),
            ("hosts", host("evil.com")),
            ("hosts", host("A.com")),
            ("hosts", host("8.8.8.8")),
            ("hosts", host("a.com\u{1b}[31m")),
            ("hosts", at_ports("a.com", &[80])),
            ("hosts", at_ports("x.b.com", &[443, 80])),
            ("hosts", at_ports("x.b.com", &[443, 443])),
            ("hosts", at_ports("x.b.com", &[1; 17])),
            (
                "hosts",
                json!(vec![host("a.com")[0].clone(); NAMES_MAX + 4]),
            ),
            ("unreachable", tried("evil.com", 443)),
            ("unreachable", tried("a.com", 80)),
            (
                "unreachable",
                json!(vec![tried("a.com", 443)[0].clone(); UNREACHABLE_MAX + 1]),
            ),
            ("published", json!([])),
            ("published", json!([1, 2])),
            ("more", json!(1)),
        ] {
            let mut forged = written.clone();
            forged[key] = value;
            let bytes = serde_json::to_vec(&forged).expect("JSON");
            assert!(
                Outcome::read(&bytes, &allowed(), &ports()).is_none(),
                "{forged:#}"
            );
        }
        for text in ["\u{1b}[31m", "ä", "a\nb", &"x".repeat(TEXT_BYTES_MAX + 1)] {
            let mut forged = written.clone();
            forged["denials"][0][0]["host"] = json!(text);
            let bytes = serde_json::to_vec(&forged).expect("JSON");
            assert!(
                Outcome::read(&bytes, &allowed(), &ports()).is_none(),
                "{text:?}"
            );
        }
        let many: Vec<Value> = (0..=DISTINCT_MAX)
            .map(|number| {
                let mut other = denial.clone();
                other[0]["host"] = json!(number.to_string());
                other
            })
            .collect();
        let mut forged = written;
        forged["denials"] = json!(many);
        let bytes = serde_json::to_vec(&forged).expect("JSON");
        assert!(Outcome::read(&bytes, &allowed(), &ports()).is_none());
        assert!(Outcome::read(b"", &allowed(), &ports()).is_none());
    }

    proptest! {
        #[test]
        fn no_message_panics(at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = genuine().write();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            drop(Outcome::read(&bytes, &allowed(), &ports()));
            drop(Outcome::read(&bytes[..at], &allowed(), &ports()));
        }
    }
}
