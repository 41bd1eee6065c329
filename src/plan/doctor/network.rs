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
    pub ipv6: bool,
    /// The name servers of /etc/resolv.conf.
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
            "tproxy: an allowed host is reached at every TCP port".to_owned(),
            "",
        ),
        (Err(error), Some(Ok(()))) => (
            Weaker,
            format!(
                "anyip: an allowed host is reached at 80, 443 and the ports that the list \
                 states; no nf_tables: {}",
                error.message
            ),
            MEND_TABLES,
        ),
        (Err(error), None) | (Err(_), Some(Err(error))) => (
            Absent,
            format!(
                "runs with an egress list cannot be started: {}",
                error.message
            ),
            error.hint.as_deref().unwrap_or(MEND_TABLES),
        ),
    };
    item("egress_capture", Need::Convenience, state, effect, mend)
}

fn log(facts: &NetworkFacts) -> Item {
    let found = match (&facts.tproxy, &facts.any_ip) {
        (Ok(()), _) => Ok("traffic other than TCP is denied and reported, through NFLOG"),
        (Err(_), Some(Ok(()))) => Ok(
            "traffic other than TCP is denied and reported, through a tap on the body's loopback",
        ),
        (Err(_), _) => Err("what a body tries to reach is not reported"),
    };
    let found = found.map(str::to_owned).map_err(str::to_owned);
    check("egress_log", Need::Convenience, found, MEND_TABLES)
}

fn ipv6(facts: &NetworkFacts) -> Item {
    let effect = if facts.ipv6 {
        "hosts are also reached at IPv6 addresses"
    } else {
        "hosts that have only IPv6 addresses cannot be reached"
    };
    let mend = "sysctl -w net.ipv6.conf.all.disable_ipv6=0 # or boot without ipv6.disable=1";
    let found = has(facts.ipv6, effect);
    check("egress_ipv6", Need::Convenience, found, mend)
}

fn names(facts: &NetworkFacts) -> Item {
    let found = if facts.name_servers.is_empty() {
        Err(
            "/etc/resolv.conf names no server: allowed names are resolved by the hosts file, then by \
             127.0.0.1"
                .to_owned(),
        )
    } else {
        Ok(format!(
            "allowed names are resolved by the hosts file, then by {}",
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
            code: "child_failed".to_owned(),
            message: "cannot set rules: ENOENT".to_owned(),
            hint: hint.map(str::to_owned),
        }
    }

    #[test]
    fn each_way_of_catching_connections_is_told_with_why_it_is_not_the_better_one() {
        type Breakage = fn(&mut NetworkFacts);
        let cases: [(Breakage, EnforcementState, &str, Option<&str>); 4] = [
            (|_| (), EnforcementState::Enforced, "every TCP port", None),
            (
                |facts| {
                    facts.tproxy = Err(error(None));
                    facts.any_ip = Some(Ok(()));
                },
                EnforcementState::Weaker,
                "no nf_tables: cannot set rules: ENOENT",
                Some("modprobe -a nft_tproxy"),
            ),
            (
                |facts| {
                    facts.tproxy = Err(error(None));
                    facts.any_ip = Some(Err(error(Some("do y"))));
                },
                EnforcementState::Absent,
                "cannot be started",
                Some("do y"),
            ),
            (
                |facts| facts.tproxy = Err(error(None)),
                EnforcementState::Absent,
                "cannot be started",
                Some("modprobe"),
            ),
        ];
        for (breakage, state, says, mend) in cases {
            let mut facts = full();
            breakage(&mut facts);
            let found = capture(&facts);
            assert_eq!(found.state, state);
            assert!(found.effect.contains(says), "{}", found.effect);
            let told = found.mend.as_deref();
            assert_eq!(told.is_some(), mend.is_some());
            assert!(
                told.unwrap_or_default()
                    .starts_with(mend.unwrap_or_default())
            );
        }
    }

    #[test]
    fn nothing_of_the_network_is_needed_by_a_run_that_reaches_nobody() {
        let bare = NetworkFacts {
            tproxy: Err(error(None)),
            any_ip: Some(Err(error(None))),
            ipv6: false,
            name_servers: Vec::new(),
        };
        let found = items(&bare);
        assert!(
            found
                .iter()
                .all(|one| one.state == EnforcementState::Absent)
        );
        assert!(found.iter().all(|one| one.needed_for == Need::Convenience));
        assert!(found.iter().all(|one| one.mend.is_some()));
        let found = items(&full());
        assert!(found.iter().all(|one| one.mend.is_none()), "{found:?}");
    }
}
