//! What a host can do for runs that may reach somebody.

use crate::plan::doctor::{check, has};
use spec::diagnosis::{Item, Need};
use spec::report::{EnforcementState, ErrorReport};

/// What was found out about the network beyond the sandbox.
#[derive(Debug, Clone)]
pub struct NetworkFacts {
    /// Whether one real run had its connections caught by nf_tables, else why not.
    pub tproxy: Result<(), ErrorReport>,
    /// The same without nf_tables; tried only where that failed.
    pub any_ip: Option<Result<(), ErrorReport>>,
    /// Whether this host has IPv6.
    pub ipv6: bool,
    /// The name servers that are asked outside; empty where none is named.
    pub name_servers: Vec<String>,
}

/// What the facts mean. None of it is needed by runs that reach nobody.
pub(super) fn items(facts: &NetworkFacts) -> Vec<Item> {
    vec![capture(facts), log(facts), ipv6(facts), names(facts)]
}

const MEND_TABLES: &str = "modprobe -a nft_tproxy nfnetlink_log # CONFIG_NFT_TPROXY, \
                           CONFIG_NETFILTER_NETLINK_LOG; Linux 4.19 or later";

fn capture(facts: &NetworkFacts) -> Item {
    let of = |found, mend: &str| check("egress_capture", Need::Convenience, found, mend.to_owned());
    match (&facts.tproxy, &facts.any_ip) {
        (Ok(()), _) => of(
            Ok("tproxy: an allowed host is reached at every TCP port".to_owned()),
            "",
        ),
        (Err(error), Some(Ok(()))) => Item {
            state: EnforcementState::Weaker,
            ..of(
                Err(format!(
                    "anyip: an allowed host is reached at 80, 443 and the ports that the list \
                     states; no nf_tables: {}",
                    error.message
                )),
                MEND_TABLES,
            )
        },
        (Err(error), None) | (Err(_), Some(Err(error))) => of(
            Err(format!(
                "runs with an egress list cannot be started: {}",
                error.message
            )),
            error.hint.as_deref().unwrap_or(MEND_TABLES),
        ),
    }
}

fn log(facts: &NetworkFacts) -> Item {
    let found = match (&facts.tproxy, &facts.any_ip) {
        (Ok(()), _) => has(true, "what is no TCP is denied and reported, through NFLOG"),
        (Err(_), Some(Ok(()))) => has(
            true,
            "what is no TCP is denied and reported, through a tap on the body's loopback",
        ),
        (Err(_), _) => has(false, "what a body tries to reach is not reported"),
    };
    check(
        "egress_log",
        Need::Convenience,
        found,
        MEND_TABLES.to_owned(),
    )
}

fn ipv6(facts: &NetworkFacts) -> Item {
    let found = match facts.ipv6 {
        true => has(
            true,
            "hosts that have IPv6 addresses are dialled there as well",
        ),
        false => has(
            false,
            "hosts that have IPv6 addresses only cannot be reached",
        ),
    };
    let mend = "sysctl -w net.ipv6.conf.all.disable_ipv6=0 # or boot without ipv6.disable=1";
    check("egress_ipv6", Need::Convenience, found, mend.to_owned())
}

fn names(facts: &NetworkFacts) -> Item {
    let found = match facts.name_servers.is_empty() {
        false => Ok(format!(
            "allowed names are asked of {}, after the hosts file",
            facts.name_servers.join(", ")
        )),
        true => Err(
            "/etc/resolv.conf names no server: 127.0.0.1 is asked, after the hosts file".to_owned(),
        ),
    };
    let mend = "echo 'nameserver ADDRESS' >>/etc/resolv.conf";
    check("name_servers", Need::Convenience, found, mend.to_owned())
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
