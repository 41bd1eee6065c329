//! The network of runs with an egress list.

use crate::plan::doctor::{check, has, item};
use spec::diagnosis::{Item, Need};
use spec::report::{EnforcementState, ErrorReport};

/// Facts about the network of a host.
#[derive(Debug, Clone)]
pub struct NetworkFacts {
    /// One real run whose connections are captured by nf_tables.
    pub tproxy: Result<(), ErrorReport>,
    /// The same without nf_tables; tried only if `tproxy` failed.
    pub any_ip: Option<Result<(), ErrorReport>>,
    /// The host has an IPv6 loopback address.
    pub ipv6: bool,
    /// The usable name servers of /etc/resolv.conf.
    pub name_servers: Vec<String>,
}

/// Runs without an egress list need none of these items.
pub(super) fn items(facts: &NetworkFacts) -> Vec<Item> {
    vec![capture(facts), log(facts), ipv6(facts), names(facts)]
}

const MEND_TABLES: &str = "modprobe -a nft_tproxy nfnetlink_log # CONFIG_NFT_TPROXY, \
                           CONFIG_NETFILTER_NETLINK_LOG; Linux 4.19 or later";

fn capture(facts: &NetworkFacts) -> Item {
    use EnforcementState::{Absent, Enforced, Weaker};
    let (state, effect, mend) = match (&facts.tproxy, &facts.any_ip) {
        (Ok(()), _) => (
            Enforced,
            "an allowed host is reached at every TCP port (tproxy)".to_owned(),
            "",
        ),
        (Err(error), Some(Ok(()))) => (
            Weaker,
            format!(
                "an allowed host is reached at ports 80, 443 and those of the list (anyip); tproxy \
                 failed: {}",
                error.message
            ),
            error.hint.as_deref().unwrap_or(MEND_TABLES),
        ),
        // Modules for tproxy do not help: anyip needs none of them.
        (Err(error), None) | (Err(_), Some(Err(error))) => (
            Absent,
            format!("no run with an egress list starts: {}", error.message),
            error.hint.as_deref().unwrap_or_default(),
        ),
    };
    item("egress_capture", Need::Convenience, state, effect, mend)
}

fn log(facts: &NetworkFacts) -> Item {
    let (found, mend) = match (&facts.tproxy, &facts.any_ip) {
        (Ok(()), _) => (
            Ok("other traffic than TCP is denied and reported (NFLOG)"),
            "",
        ),
        (Err(_), Some(Ok(()))) => (
            Ok("other traffic than TCP is denied and reported (a tap on the body's loopback)"),
            "",
        ),
        (Err(error), None) | (Err(_), Some(Err(error))) => (
            Err("no run with --report-denials starts (see egress_capture)"),
            error.hint.as_deref().unwrap_or_default(),
        ),
    };
    let found = found.map(str::to_owned).map_err(str::to_owned);
    check("egress_log", Need::Convenience, found, mend)
}

fn ipv6(facts: &NetworkFacts) -> Item {
    let effect = if facts.ipv6 {
        "allowed hosts are reached at IPv6 addresses too, if this host has a route"
    } else {
        "hosts with IPv6 addresses only are not reached"
    };
    let mend = "sysctl -w net.ipv6.conf.all.disable_ipv6=0 # or boot without ipv6.disable=1";
    let found = has(facts.ipv6, effect);
    check("egress_ipv6", Need::Convenience, found, mend)
}

fn names(facts: &NetworkFacts) -> Item {
    let found = if facts.name_servers.is_empty() {
        Err(
            "/etc/resolv.conf has no usable name server: names are resolved by the hosts file, \
             then by 127.0.0.1"
                .to_owned(),
        )
    } else {
        Ok(format!(
            "names are resolved by the hosts file, then by {}",
            facts.name_servers.join(", ")
        ))
    };
    let mend = "echo 'nameserver ADDRESS' >>/etc/resolv.conf";
    check("name_servers", Need::Convenience, found, mend)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::plan::doctor) fn full() -> NetworkFacts {
        NetworkFacts {
            tproxy: Ok(()),
            any_ip: None,
            ipv6: true,
            name_servers: vec!["192.0.2.53:53".to_owned()],
        }
    }

    fn error(hint: Option<&str>) -> ErrorReport {
        ErrorReport {
            hint: hint.map(str::to_owned),
            ..ErrorReport::new("child_failed", "cannot set rules: ENOENT")
        }
    }

    #[test]
    fn each_way_to_capture_names_the_failure_of_the_better_one_and_its_fix() {
        const TAP: &str = "(a tap on the body's loopback)";
        let (bare, hinted) = (|| Err(error(None)), || Err(error(Some("do y"))));
        let cases = [
            (Ok(()), None, "every TCP port", None, "(NFLOG)"),
            (
                bare(),
                Some(Ok(())),
                "tproxy failed: cannot set rules: ENOENT",
                Some(MEND_TABLES),
                TAP,
            ),
            (
                hinted(),
                Some(Ok(())),
                "tproxy failed: cannot set rules: ENOENT",
                Some("do y"),
                TAP,
            ),
            (
                bare(),
                Some(hinted()),
                "starts: cannot set rules: ENOENT",
                Some("do y"),
                "no run with",
            ),
            // No module for tproxy mends a run without it.
            (
                bare(),
                Some(bare()),
                "starts: cannot set rules: ENOENT",
                None,
                "no run with",
            ),
        ];
        for (tproxy, any_ip, effect, mend, effect_of_log) in cases {
            let facts = NetworkFacts {
                tproxy,
                any_ip,
                ..full()
            };
            let (captured, logged) = (capture(&facts), log(&facts));
            assert!(captured.effect.contains(effect), "{captured:?}");
            assert_eq!(captured.mend.as_deref(), mend, "{captured:?}");
            assert!(logged.effect.contains(effect_of_log), "{logged:?}");
            let is_logged = logged.state == EnforcementState::Enforced;
            assert_eq!(is_logged, captured.state != EnforcementState::Absent);
            assert_eq!(logged.mend, captured.mend.filter(|_| !is_logged));
        }
    }

    #[test]
    fn nothing_of_the_network_is_needed_by_a_run_that_reaches_nobody() {
        let bare = NetworkFacts {
            tproxy: Err(error(None)),
            any_ip: Some(Err(error(Some("do y")))),
            ipv6: false,
            name_servers: Vec::new(),
        };
        let found = items(&bare);
        assert!(
            found
                .iter()
                .all(|item| item.state == EnforcementState::Absent)
        );
        assert!(
            found
                .iter()
                .all(|item| item.needed_for == Need::Convenience)
        );
        assert!(found.iter().all(|item| item.mend.is_some()));
        let found = items(&full());
        assert!(found.iter().all(|item| item.mend.is_none()), "{found:?}");
    }
}
