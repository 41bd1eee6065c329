//! The hosts that the body may reach, the packages to install, and the secrets.

use crate::cli::plan_text::{Page, granted};
use spec::plan_report::{DEFAULT, PlanReport, PlannedHost, PlannedNetwork};

impl Page<'_> {
    pub(super) fn installs(&mut self, document: &PlanReport) {
        for preparation in &document.plan.preparation {
            let or_default = |list: &[String], default: &str| match list {
                [] => default.to_owned(),
                list => list.join(", "),
            };
            let packages = or_default(&preparation.needs, "what the bundle lists");
            let from = or_default(&preparation.from, "the image's own lists");
            let text = format!(
                "{} {packages}, from {from}; reaches {}",
                preparation.kind,
                preparation.allowed.join(", ")
            );
            self.row("installs", &text);
        }
    }

    pub(super) fn reaches(&mut self, document: &PlanReport) {
        let network = &document.network;
        let is_empty = document.egress.is_empty()
            && document.secrets.is_empty()
            && network.published.is_empty();
        if document.program.is_none() && is_empty {
            return;
        }
        self.title("What it may reach");
        if network.allowed.is_empty() {
            self.row("network", "its own loopback only");
        }
        for host in &document.egress {
            self.row(&host.host, &describe_host(host));
        }
        self.network(network);
        for secret in &document.secrets {
            let mut parts = vec![];
            if let Some(by) = &secret.asked_by {
                let reference = secret.reference.as_deref();
                let reference = reference.map(|reference| format!(": {reference}"));
                parts.push(format!("asked by {by}{}", reference.unwrap_or_default()));
            }
            parts.push(granted(secret.granted_by.as_deref()));
            parts.push(match &secret.provider {
                Some(provider) => format!("value from {provider}"),
                None => "no provider has its value".to_owned(),
            });
            self.row(&format!("${}", secret.variable), &parts.join("; "));
        }
        if !document.grants.is_empty() {
            let grants = document.grants.iter();
            let grants: Vec<String> = grants
                .map(|grant| format!("{} ({})", grant.grant, grant.granted_by))
                .collect();
            self.row("grants", &grants.join(", "));
        }
    }

    fn network(&mut self, network: &PlannedNetwork) {
        for added in &network.added_hosts {
            let text = format!("has the address {} (--add-host)", added.address);
            self.row(&added.host, &text);
        }
        if network.capture != "none" {
            self.row("capture", &describe_capture(network));
            self.row("guard", &describe_guard(network));
        }
        for ports in &network.published {
            let address = match ports.host_port {
                0 => "a free port of 127.0.0.1".to_owned(),
                port => format!("127.0.0.1:{port}"),
            };
            let body_port = ports.body_port;
            let text =
                format!("{address} of this host leads to port {body_port} of the body (--publish)");
            self.row("published", &text);
        }
    }
}

fn describe_host(host: &PlannedHost) -> String {
    let asked = host.asked_by.join(", ");
    let granted = granted(host.granted_by.as_deref());
    let left = match host.host_policy_leaves.as_slice() {
        [] => "; the host policy (egress.allow) leaves nothing of it".to_owned(),
        [only] if *only == host.host => String::new(),
        some => format!("; the host policy leaves {}", some.join(", ")),
    };
    format!("asked by {asked}; {granted}{left}")
}

fn describe_capture(network: &PlannedNetwork) -> String {
    let how = match network.capture.as_str() {
        "tproxy" => "every TCP port, by nf_tables",
        "anyip" => "TCP ports 80, 443 and the listed ones, by listeners",
        _ => "every TCP port if nf_tables works, else 80, 443 and the listed ones",
    };
    match network.capture_by.as_str() {
        DEFAULT => how.to_owned(),
        by => format!("{how} ({by})"),
    }
}

fn describe_guard(network: &PlannedNetwork) -> String {
    let mut text = "only the names above; TLS on 443 and the first HTTP head on 80 must name the \
                    same host; only public addresses are dialled"
        .to_owned();
    if !network.private_ranges.is_empty() {
        let ranges = network.private_ranges.join(", ");
        text.push_str(&format!(", and {ranges} (egress.private_ranges)"));
    }
    if network.refuse_ech {
        let by = &network.refuse_ech_by;
        text.push_str(&format!("; encrypted TLS hellos are refused ({by})"));
    }
    text
}
