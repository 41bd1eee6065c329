//! Hosts: the list of allowed hosts, addresses, and how connections are captured.

use std::net::IpAddr;

use crate::run::dry_run::why::Planned;
use egress::address::may_be_dialled;
use egress::advice::{RunSettings, hint};
use egress::denials::Protocol;
use egress::host::Host;
use spec::denial_reason::DenialReason;
use spec::egress::{EgressHost, EgressRule};
use spec::network::CaptureChoice;
use spec::plan_report::{DEFAULT, FIXED, HOST_POLICY};
use spec::why_report::{Answer, State, Verdict};

/// The port of a question without one.
const PORT: u16 = 443;

impl Planned<'_> {
    /// `rule` is a name or an address, not `*.name`.
    pub(super) fn host(&self, rule: &EgressRule) -> Answer {
        let port = rule.port.unwrap_or(PORT);
        let asked = EgressRule {
            host: rule.host.clone(),
            port: Some(port),
        };
        let host = match &rule.host {
            EgressHost::Name(name) | EgressHost::Below(name) => Host::Name(name.clone()),
            EgressHost::Address(address) => Host::Address(*address),
        };
        let mut answer = Answer {
            asked: format!("connect to {asked}"),
            verdict: Verdict::Denied,
            errno: None,
            state: State::Closed,
            found: "no network is set up: the body has its own loopback only".to_owned(),
            rule: "no host is allowed".to_owned(),
            decided_by: DEFAULT.to_owned(),
            change: None,
        };
        let egress = &self.resolved.egress;
        let list = egress.allowlist();
        let address = self.known_address(&host);
        let reason = list.denial(&host, port);
        if is_loopback(&host) {
            answer.state = State::Loopback;
            answer.found = "the body's own loopback, not that of the host".to_owned();
            answer.rule = "the body has a network namespace of its own".to_owned();
            answer.decided_by = FIXED.to_owned();
            answer.change = Some(
                "for a service of the host: --add-host NAME:ADDRESS, --allow-net NAME, and the \
                 address in egress.private_ranges of the host policy"
                    .to_owned(),
            );
        } else if let Some(reason) = reason {
            if !egress.allowed.is_empty() {
                answer.state = State::NotListed;
                answer.found = "the relay refuses the name and the connection".to_owned();
                answer.rule = reason.row().words.to_owned();
            }
            if egress
                .requested
                .iter()
                .any(|entry| entry.rule.covers(&asked))
            {
                answer.rule = "egress.allow of the host policy does not list it".to_owned();
                answer.decided_by = HOST_POLICY.to_owned();
            }
            answer.change = Some(self.advice(&host, port, reason));
        } else if let Some(address) =
            address.filter(|address| !may_be_dialled(*address, &self.policy.egress.private_ranges))
        {
            answer.state = State::NotPublic;
            answer.found = format!("the relay does not dial {address}");
            answer.rule = DenialReason::ResolvesToPrivate.row().words.to_owned();
            answer.change = Some(self.advice(
                &Host::Address(address),
                port,
                DenialReason::ResolvesToPrivate,
            ));
        } else {
            let is_captured = list.ports().any(|own| own == port);
            if self.request.network.capture == CaptureChoice::AnyIp && !is_captured {
                let reason = DenialReason::PortNotCaptured;
                answer.state = State::NotCaptured;
                answer.found = "no listener for this port".to_owned();
                answer.rule = reason.row().words.to_owned();
                answer.decided_by = "--egress-capture".to_owned();
                answer.change = Some(self.advice(&host, port, reason));
            } else {
                self.allow(&mut answer, &asked, is_captured, address);
            }
        }
        answer
    }

    fn allow(
        &self,
        answer: &mut Answer,
        asked: &EgressRule,
        is_captured: bool,
        address: Option<IpAddr>,
    ) {
        answer.verdict = Verdict::Allowed;
        answer.state = State::Listed;
        let mut found = match (address, asked.port) {
            (Some(address), _) => format!("the relay dials {address}"),
            (None, _) => {
                "the relay dials its public addresses, looked up during the run".to_owned()
            }
        };
        found.push_str(match asked.port {
            Some(443) => "; TLS must name this host",
            Some(80) => "; the Host header must name this host",
            _ => "",
        });
        if !is_captured && self.request.network.capture == CaptureChoice::Auto {
            found.push_str("; needs nf_tables (`runner doctor`) or an entry with this port");
        }
        answer.found = found;
        let requested = self.resolved.egress.requested.iter();
        // The plan has one row for each requested entry, in the same order.
        let mut rows = requested.zip(&self.document.egress).filter(|(entry, _)| {
            let mut granted = entry.granted.iter();
            granted.any(|rule| rule.covers(asked))
        });
        if let Some((entry, row)) = rows.next() {
            answer.rule = format!("{} is allowed", entry.rule);
            answer.decided_by = match &row.granted_by {
                Some(by) if !row.asked_by.contains(by) => {
                    format!("{}, granted by {by}", row.asked_by.join(", "))
                }
                _ => row.asked_by.join(", "),
            };
        }
    }

    /// The address that is dialled, if no look-up is needed.
    fn known_address(&self, host: &Host) -> Option<IpAddr> {
        match host {
            Host::Address(address) => Some(*address),
            Host::Name(name) => {
                let mut added = self.request.network.added_hosts.iter();
                added
                    .find(|added| added.name == *name)
                    .map(|added| added.address)
            }
        }
    }

    fn advice(&self, host: &Host, port: u16, reason: DenialReason) -> String {
        let attempt = host.attempt(Protocol::Tcp, Some(port), reason);
        let settings = RunSettings {
            plan: &self.resolved.egress,
            policy: &self.policy.egress,
        };
        hint(&attempt, settings)
    }
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Name(name) => name.as_str() == "localhost",
        Host::Address(address) => address.is_loopback(),
    }
}
