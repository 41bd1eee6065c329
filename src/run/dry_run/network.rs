//! The network in a plan.

use egress::allowlist::EgressPlan;
use spec::host_policy::HostPolicy;
use spec::network::CaptureChoice;
use spec::plan_report::{DEFAULT, HOST_POLICY, PlannedAddress, PlannedNetwork, PlannedPort};
use spec::request::Request;

/// The network configuration, and the components that enforce it.
pub(super) fn plan_network(
    request: &Request,
    policy: &HostPolicy,
    egress: &EgressPlan,
) -> PlannedNetwork {
    let options = &request.network;
    let allows = !egress.allowed.is_empty();
    let has_network = allows || options.report_denials;
    let by = match (options.capture, allows) {
        (CaptureChoice::Tproxy | CaptureChoice::AnyIp, _) => "--egress-capture",
        (CaptureChoice::Auto, false) if options.report_denials => "--report-denials",
        (CaptureChoice::Auto, _) => DEFAULT,
    };
    PlannedNetwork {
        allowed: egress.allowed.iter().map(ToString::to_string).collect(),
        capture: if has_network {
            options.capture.name().to_owned()
        } else {
            "none".to_owned()
        },
        capture_by: if has_network {
            by.to_owned()
        } else {
            DEFAULT.to_owned()
        },
        published: options
            .publish
            .iter()
            .map(|ports| PlannedPort {
                host_port: ports.host_port,
                body_port: ports.body_port,
            })
            .collect(),
        added_hosts: options
            .added_hosts
            .iter()
            .map(|added| PlannedAddress {
                host: added.name.to_string(),
                address: added.address.to_string(),
            })
            .collect(),
        private_ranges: policy
            .egress
            .private_ranges
            .iter()
            .map(ToString::to_string)
            .collect(),
        refuse_ech: egress.refuse_ech,
        refuse_ech_by: if policy.egress.refuse_ech {
            HOST_POLICY
        } else if egress.refuse_ech {
            "--strict"
        } else {
            DEFAULT
        }
        .to_owned(),
    }
}

/// Facts that only a run knows.
pub(super) fn unchecked(request: &Request, network: &PlannedNetwork) -> Vec<String> {
    let mut list: Vec<String> = network
        .published
        .iter()
        .filter(|ports| ports.host_port != 0)
        .map(|ports| format!("port {} of 127.0.0.1: whether it is free", ports.host_port))
        .collect();
    if network.capture != "none" && request.network.capture == CaptureChoice::Tproxy {
        list.push("whether the kernel supports the nf_tables rules".to_owned());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::egress::EgressRule;
    use spec::network::{AddedHost, PublishedPort};
    use spec::request::{Caller, Subject};

    fn planned(change: impl Fn(&mut Request, &mut HostPolicy)) -> (PlannedNetwork, Vec<String>) {
        let subject = Subject::Command(vec![b"true".to_vec()]);
        let mut request = Request::captured(subject, Caller::default());
        let mut policy = HostPolicy::default();
        change(&mut request, &mut policy);
        let mut egress = EgressPlan::new(&[], &request.network.allow, &policy.egress);
        egress.refuse_ech |= request.strict;
        let network = plan_network(&request, &policy, &egress);
        let unchecked = unchecked(&request, &network);
        (network, unchecked)
    }

    #[test]
    fn a_network_is_planned_only_for_allowed_hosts_and_for_reported_denials() {
        let allow = || vec![EgressRule::parse("a.com").expect("an entry")];
        assert_eq!(planned(|_, _| ()), (PlannedNetwork::default(), Vec::new()));
        for (denials, allows, forbidden, capture, by) in [
            (false, false, false, "none", "default"),
            (true, false, false, "auto", "--report-denials"),
            (false, true, false, "auto", "default"),
            (true, true, false, "auto", "default"),
            // The host policy removes every entry: the same as an empty list.
            (false, true, true, "none", "default"),
        ] {
            let (network, _) = planned(|request, policy| {
                request.network.report_denials = denials;
                if allows {
                    request.network.allow = allow();
                }
                policy.egress.allow = forbidden.then(Vec::new);
            });
            let found = (network.capture.as_str(), network.capture_by.as_str());
            assert_eq!(found, (capture, by), "{denials} {allows} {forbidden}");
            assert_eq!(network.allowed.is_empty(), !allows || forbidden);
        }
    }

    #[test]
    fn each_network_setting_has_its_source() {
        let (network, unchecked) = planned(|request, _| {
            request.strict = true;
            request.network.report_denials = true;
            request.network.capture = CaptureChoice::Tproxy;
            request.network.publish = vec![PublishedPort::parse("8080:80").expect("ports")];
            request.network.added_hosts = vec![AddedHost::parse("a.com:::1").expect("a host")];
        });
        assert_eq!(
            (network.capture.as_str(), network.capture_by.as_str()),
            ("tproxy", "--egress-capture")
        );
        assert_eq!(network.published[0].body_port, 80);
        assert_eq!(network.added_hosts[0].address, "::1");
        assert_eq!(
            (network.refuse_ech, network.refuse_ech_by.as_str()),
            (true, "--strict")
        );
        assert_eq!(
            unchecked,
            [
                "port 8080 of 127.0.0.1: whether it is free",
                "whether the kernel supports the nf_tables rules"
            ]
        );
        let (network, _) = planned(|request, policy| {
            request.strict = true;
            policy.egress.refuse_ech = true;
        });
        assert_eq!(network.refuse_ech_by, HOST_POLICY);
    }
}
