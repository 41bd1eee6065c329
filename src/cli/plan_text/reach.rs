//! Whom the body may reach, and what it may know.

use crate::cli::plan_text::Page;
use spec::plan_report::{DEFAULT, PlanReport, PlannedHost, PlannedNetwork};

impl Page<'_> {
    /// What would be installed, and from where: the host's word, beside the stranger's wish.
    pub(super) fn installs(&mut self, document: &PlanReport) {
        for one in &document.plan.preparation {
            let wanted = match one.needs.is_empty() {
                true => "what the bundle lists".to_owned(),
                false => one.needs.join(", "),
            };
            let from = match one.from.is_empty() {
                true => "the image's own lists".to_owned(),
                false => one.from.join(", "),
            };
            let told = format!(
                "{} {wanted}, from {from}; reaches {}",
                one.kind,
                one.allowed.join(", ")
            );
            self.row("installs", &told);
        }
    }

    pub(super) fn reaches(&mut self, document: &PlanReport) {
        let network = &document.network;
        let says_nothing = document.egress.is_empty()
            && document.secrets.is_empty()
            && network.published.is_empty();
        if document.program.is_none() && says_nothing {
            return;
        }
        self.title("What it may reach");
        if network.allowed.is_empty() {
            self.row("network", "its own loopback only");
        }
        for host in &document.egress {
            self.row(&host.host, &asked(host));
        }
        self.network(network);
        for secret in &document.secrets {
            let mut told = vec![];
            if let Some(by) = &secret.asked_by {
                let reference = secret.reference.as_deref();
                let reference = reference.map(|reference| format!(": {reference}"));
                told.push(format!("asked by {by}{}", reference.unwrap_or_default()));
            }
            told.push(match &secret.granted_by {
                Some(by) => format!("granted by {by}"),
                None => "granted by nobody".to_owned(),
            });
            told.push(match &secret.provider {
                Some(provider) => format!("value from {provider}"),
                None => "nobody knows its value".to_owned(),
            });
            self.row(&format!("${}", secret.variable), &told.join("; "));
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
            let told = format!("is dialled at {} (--add-host)", added.address);
            self.row(&added.host, &told);
        }
        if network.capture != "none" {
            self.row("capture", &captured(network));
            self.row("guard", &guard(network));
        }
        for ports in &network.published {
            let place = match ports.host_port {
                0 => "a free port of 127.0.0.1".to_owned(),
                port => format!("127.0.0.1:{port}"),
            };
            let body_port = ports.body_port;
            let told =
                format!("{place} of this host leads to port {body_port} of the body (--publish)");
            self.row("published", &told);
        }
    }
}

fn asked(host: &PlannedHost) -> String {
    let asked = host.asked_by.join(", ");
    let granted = match &host.granted_by {
        Some(by) => format!("granted by {by}"),
        None => "granted by nobody".to_owned(),
    };
    let left = match host.host_policy_leaves.as_slice() {
        [] => "; the host policy (egress.allow) leaves nothing of it".to_owned(),
        [only] if *only == host.host => String::new(),
        some => format!("; the host policy leaves {}", some.join(", ")),
    };
    format!("asked by {asked}; {granted}{left}")
}

fn captured(network: &PlannedNetwork) -> String {
    let how = match network.capture.as_str() {
        "tproxy" => "every TCP port, by nf_tables",
        "anyip" => "TCP ports 80, 443 and those that are listed, by listeners",
        _ => "every TCP port where nf_tables works, else 80, 443 and those that are listed",
    };
    match network.capture_by.as_str() {
        DEFAULT => how.to_owned(),
        by => format!("{how} ({by})"),
    }
}

fn guard(network: &PlannedNetwork) -> String {
    let mut told = "names only as they stand above; TLS on 443 and the first HTTP head on 80 have \
                    to name the same host; only public addresses are dialled"
        .to_owned();
    if !network.private_ranges.is_empty() {
        let ranges = network.private_ranges.join(", ");
        told.push_str(&format!(", and {ranges} (egress.private_ranges)"));
    }
    if network.refuse_ech {
        let by = &network.refuse_ech_by;
        told.push_str(&format!("; encrypted TLS hellos are refused ({by})"));
    }
    told
}
