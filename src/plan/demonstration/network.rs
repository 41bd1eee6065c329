//! The scene of the network: a host that is on the list, and hosts that are not.
//!
//! Nothing leaves this host: the one on the list is a listener of the demonstration's own on
//! 127.0.0.1, which a name and a policy for this scene alone lead to.

use core::net::{IpAddr, Ipv4Addr};

use crate::plan::demonstration::{answer_of, held};
use spec::demonstration::{Held, Part, Row};
use spec::egress::{EgressHost, EgressRule};
use spec::host_name::HostName;
use spec::host_policy::HostPolicy;
use spec::network::{AddedHost, NetworkOptions};
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::Report;
use spec::sources_policy::{EgressPolicy, IpRange};

/// What the body says to the host on the list.
pub const GREETING: &[u8] = b"hello\n";
/// The name on the list.
pub(super) const LISTED: &str = "listed.example";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Name, what was tried, the reason by which it has to be denied.
const DENIED: [(&str, &str, &str); 3] = [
    (
        "other_host",
        "find a host not on the list",
        "name-not-allowed",
    ),
    ("by_address", "dial a host by its address", "ip-literal"),
    ("other_port", "dial it at another port", "port-not-allowed"),
];

/// The list: one name at one port. Empty where the name is none, which it is not.
pub(super) fn options(port: u16) -> NetworkOptions {
    let Ok(name) = HostName::parse(LISTED.as_bytes()) else {
        return NetworkOptions::default();
    };
    NetworkOptions {
        allow: vec![EgressRule {
            host: EgressHost::Name(name.clone()),
            port: Some(port),
        }],
        added_hosts: vec![AddedHost {
            name,
            address: HERE,
        }],
        ..NetworkOptions::default()
    }
}

/// The host's policy, but for the network: there only the listener may be dialled.
#[must_use]
pub fn policy(of_host: &HostPolicy) -> HostPolicy {
    HostPolicy {
        egress: EgressPolicy {
            allow: None,
            private_ranges: vec![IpRange {
                address: HERE,
                prefix_bits: 32,
            }],
            refuse_ech: true,
        },
        ..of_host.clone()
    }
}

/// What the report shows, and what the listener `heard`.
pub(super) fn rows(report: &Report, heard: &[u8]) -> Vec<Row> {
    let mut rows = vec![greeting(report, heard)];
    rows.extend(DENIED.map(|(name, what, reason)| denied(report, name, what, reason)));
    rows
}

fn greeting(report: &Report, heard: &[u8]) -> Row {
    let said = answer_of(report, "listed_host");
    let came = report.outcome == Outcome::Exited && heard == GREETING;
    let answer = match said {
        Some(("yes", _)) if came => "it heard the greeting".to_owned(),
        Some(("yes", _)) => "it heard nothing".to_owned(),
        Some((_, answer)) => escape(answer.as_bytes()),
        None => "no answer".to_owned(),
    };
    Row {
        part: Part::Allowed,
        held: held(came && said.is_some_and(|(said, _)| said == "yes")),
        what: "greet a host on the list",
        answer,
        mechanism: "relay".to_owned(),
    }
}

/// Held where the body says that it failed, and the report says why.
fn denied(report: &Report, name: &str, what: &'static str, reason: &str) -> Row {
    let mut denials = report.denials.iter();
    let told = denials.any(|denial| denial.reason.as_deref() == Some(reason));
    let (held, answer) = match answer_of(report, name) {
        Some((said, answer)) => (held(said == "no" && told), escape(answer.as_bytes())),
        None => (Held::Broken, "no answer".to_owned()),
    };
    Row {
        part: Part::Denied,
        held,
        what,
        answer,
        mechanism: match told {
            true => reason.to_owned(),
            false => "relay".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::demonstration::ATTEMPTS;
    use spec::report::Denial;

    fn report(text: &str, reasons: &[&str]) -> Report {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.stdout.captured = Some(text.as_bytes().to_vec());
        report.denials = reasons
            .iter()
            .map(|reason| Denial {
                kind: "net".to_owned(),
                object: "o".to_owned(),
                rule: "network.egress".to_owned(),
                reason: Some((*reason).to_owned()),
                protocol: None,
                host: None,
                ip: None,
                port: None,
                hint: None,
                count: 1,
                first_ms: 0,
            })
            .collect();
        report
    }

    const SAID: &str = "listed_host\tyes\tit worked\nother_host\tno\tno such host\n\
                        by_address\tno\treset\nother_port\tyes\tit worked\n";

    #[test]
    fn a_host_on_the_list_is_reached_only_where_it_heard_the_body() {
        for (heard, text, expected) in [
            (GREETING, SAID, Held::AsPromised),
            (b"", SAID, Held::Broken),
            (b"hell", SAID, Held::Broken),
            (GREETING, "listed_host\tno\trefused\n", Held::Broken),
            (GREETING, "", Held::Broken),
        ] {
            assert_eq!(rows(&report(text, &[]), heard)[0].held, expected, "{text}");
        }
    }

    #[test]
    fn a_host_that_is_not_on_the_list_is_held_off_only_where_the_report_says_why() {
        let all = ["name-not-allowed", "ip-literal", "port-not-allowed"];
        let held = |reasons: &[&str]| -> Vec<Held> {
            let rows = rows(&report(SAID, reasons), GREETING);
            rows[1..].iter().map(|row| row.held).collect()
        };
        assert_eq!(
            held(&all),
            [Held::AsPromised, Held::AsPromised, Held::Broken]
        );
        assert_eq!(
            held(&all[..1]),
            [Held::AsPromised, Held::Broken, Held::Broken]
        );
        assert_eq!(held(&[]), [Held::Broken; 3]);
    }

    #[test]
    fn the_body_tries_what_the_table_says_by_the_name_that_is_listed() {
        for (name, ..) in DENIED {
            assert!(ATTEMPTS.contains(&format!(" {name} ")), "{name}");
        }
        assert!(ATTEMPTS.contains(" listed_host "));
        assert!(ATTEMPTS.contains(LISTED));
        let options = options(7);
        assert_eq!(options.allow[0].to_string(), "listed.example:7");
        let policy = policy(&HostPolicy::default());
        assert_eq!(policy.egress.private_ranges[0].to_string(), "127.0.0.1/32");
    }
}
