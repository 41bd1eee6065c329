//! The effective egress list: the requests of manifest and caller, restricted by the host policy.
//!
//! The keys of the manifest (`network`, `sandbox.network`, the legacy `runtime.network`, and inherited
//! keys) and `--allow-net` are merged; the host policy's list restricts the result. A missing list, an
//! empty list and a list with no remaining entry are equivalent: no destination is allowed.

use core::net::IpAddr;
use std::collections::HashMap;

use spec::egress::{EgressHost, EgressRule, intersect};
use spec::host_name::HostName;
use spec::manifest::EgressRequest;
use spec::network::AddedHost;
use spec::report::WarningReport;
use spec::sources_policy::{EgressPolicy, IpRange};
use spec::typescript::NpmRegistry;

/// The flag.
pub const ALLOW_NET: &str = "--allow-net";

/// The variable that sets the registry of npm and npx (npm-config(7)).
const NPM_REGISTRY: &[u8] = b"npm_config_registry";

/// One requested entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedHost {
    pub rule: EgressRule,
    /// Indexes of all entries of the manifest's list that equal this rule.
    pub entries: Vec<usize>,
    /// Whether `--allow-net` also requests it.
    pub by_flag: bool,
    /// The rules that remain after the host policy is applied.
    pub left: Vec<EgressRule>,
}

/// The destinations that the body may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPlan {
    /// All requested entries without duplicates, those of the manifest first.
    pub asked: Vec<RequestedHost>,
    /// The effective list.
    pub allowed: Vec<EgressRule>,
    /// Whether a TLS ClientHello with an encrypted inner ClientHello is refused.
    pub refuse_ech: bool,
}

/// Computes the destinations that the body may reach.
#[must_use]
pub fn settle(
    manifest: &[EgressRequest],
    flags: &[EgressRule],
    policy: &EgressPolicy,
) -> EgressPlan {
    let mut asked: Vec<RequestedHost> = Vec::new();
    let mut places: HashMap<&EgressRule, usize> = HashMap::new();
    let of_manifest = manifest
        .iter()
        .enumerate()
        .map(|(index, request)| (&request.rule, Some(index)));
    for (rule, entry) in of_manifest.chain(flags.iter().map(|rule| (rule, None))) {
        let at = *places.entry(rule).or_insert_with(|| {
            asked.push(RequestedHost {
                rule: rule.clone(),
                entries: Vec::new(),
                by_flag: false,
                left: match &policy.allow {
                    Some(allowed) => intersect(std::slice::from_ref(rule), allowed),
                    None => vec![rule.clone()],
                },
            });
            asked.len() - 1
        });
        match entry {
            Some(index) => asked[at].entries.push(index),
            None => asked[at].by_flag = true,
        }
    }
    EgressPlan {
        allowed: without_covered(asked.iter().flat_map(|one| &one.left)),
        asked,
        refuse_ech: policy.refuse_ech,
    }
}

/// The rules without those that another rule for the same host covers. A name below an allowed `*.`
/// stays: it does not count towards the limit of names under the wildcard.
fn without_covered<'rules>(rules: impl Iterator<Item = &'rules EgressRule>) -> Vec<EgressRule> {
    let mut all: Vec<Option<EgressRule>> = Vec::new();
    let mut of_hosts: HashMap<&EgressHost, Vec<usize>> = HashMap::new();
    for rule in rules {
        let of_host = of_hosts.entry(&rule.host).or_default();
        let mut kept = of_host.iter().filter_map(|at| all[*at].as_ref());
        if kept.any(|kept| kept.covers(rule)) {
            continue;
        }
        of_host.retain(|at| {
            let covered = all[*at].take_if(|kept| rule.covers(kept));
            covered.is_none()
        });
        of_host.push(all.len());
        all.push(Some(rule.clone()));
    }
    all.into_iter().flatten().collect()
}

/// Why an entry of the list has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vain {
    /// The host policy allows no part of it.
    Policy,
    /// It is the body's own loopback.
    Loopback,
    /// The address is not public.
    Private(IpAddr),
}

impl EgressPlan {
    /// The registry from which `npx` can fetch a package: the one that the body's `environment` sets. No
    /// default is assumed.
    #[must_use]
    pub fn npm_registry(&self, environment: &[(Vec<u8>, Vec<u8>)]) -> NpmRegistry {
        let named = environment
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(NPM_REGISTRY));
        let Some((host, port)) = named.and_then(|(_, url)| host_of_url(url)) else {
            return NpmRegistry::Unnamed;
        };
        let allows = |rule: &EgressRule| {
            rule.names(&host) && rule.port.is_none_or(|allowed| allowed == port)
        };
        match self.allowed.iter().any(allows) {
            true => NpmRegistry::Allowed,
            false => NpmRegistry::Refused(format!("{host}:{port}")),
        }
    }

    /// A warning for each entry without effect. The run continues; `--strict` refuses.
    ///
    /// `is_public` returns whether an address belongs to the public network.
    #[must_use]
    pub fn vain(
        &self,
        manifest: &[EgressRequest],
        policy: &EgressPolicy,
        is_public: &dyn Fn(IpAddr) -> bool,
    ) -> Vec<WarningReport> {
        let mut warnings = Vec::new();
        for asked in &self.asked {
            let Some(vain) = judge(asked, policy, is_public) else {
                continue;
            };
            let rule = &asked.rule;
            let by = asked.asked_by(manifest).join(", ");
            warnings.push(match vain {
                Vain::Policy => WarningReport::new(
                    "egress_policy_forbids",
                    format!(
                        "{rule} (asked by {by}): the host policy leaves nothing of it; it has to \
                         stand in egress.allow"
                    ),
                ),
                Vain::Loopback => WarningReport::new(
                    "egress_loopback",
                    format!(
                        "{rule} (asked by {by}): inside, this is the body's own loopback, which \
                         needs no entry; for a service of the host give it a name with --add-host, \
                         allow that name, and its address in egress.private_ranges"
                    ),
                ),
                Vain::Private(address) => WarningReport::new(
                    "egress_address_private",
                    format!("{rule} (asked by {by}): {}", closed(address)),
                ),
            });
        }
        warnings
    }
}

impl EgressPlan {
    /// The same for `--add-host`.
    #[must_use]
    pub fn vain_hosts(
        &self,
        added: &[AddedHost],
        policy: &EgressPolicy,
        is_public: &dyn Fn(IpAddr) -> bool,
    ) -> Vec<WarningReport> {
        let mut warnings = Vec::new();
        for one in added {
            if !self.allowed.iter().any(|rule| rule.names(&one.name)) {
                warnings.push(WarningReport::new(
                    "add_host_not_allowed",
                    format!(
                        "--add-host {one}: the name is not allowed; it needs an entry as well, \
                         such as --allow-net {}",
                        one.name
                    ),
                ));
            } else if !is_open(one.address, policy, is_public) {
                warnings.push(WarningReport::new(
                    "egress_address_private",
                    format!("--add-host {one}: {}", closed(one.address)),
                ));
            }
        }
        warnings
    }
}

impl RequestedHost {
    /// The keys and flags that request the entry, without duplicates.
    #[must_use]
    pub fn asked_by<'asked>(&self, manifest: &'asked [EgressRequest]) -> Vec<&'asked str> {
        let mut names: Vec<&str> = Vec::new();
        let keys = self.entries.iter().filter_map(|index| manifest.get(*index));
        let keys = keys.map(|request| request.source.as_str());
        for name in keys.chain(self.by_flag.then_some(ALLOW_NET)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The flag that allows `rule`, quoted for a shell.
#[must_use]
pub fn flag(rule: &EgressRule) -> String {
    let text = rule.to_string();
    match text.contains(['*', '[']) {
        true => format!("{ALLOW_NET} '{text}'"),
        false => format!("{ALLOW_NET} {text}"),
    }
}

/// Host and port of an http or https URL whose host is a name.
fn host_of_url(url: &[u8]) -> Option<(HostName, u16)> {
    let url = str::from_utf8(url).ok()?;
    let (rest, usual) = match url.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (url.strip_prefix("http://")?, 80),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, usual),
    };
    Some((HostName::parse(host.as_bytes()).ok()?, port))
}

/// The host policy setting that opens exactly one address: `egress: {private_ranges: [10.1.2.3/32]}`.
#[must_use]
pub fn private_ranges(address: IpAddr) -> String {
    let block = match address {
        IpAddr::V4(address) => format!("{address}/32"),
        // YAML gives colons a special meaning.
        IpAddr::V6(address) => format!("'{address}/128'"),
    };
    format!("egress: {{private_ranges: [{block}]}}")
}

fn judge(
    asked: &RequestedHost,
    policy: &EgressPolicy,
    is_public: &dyn Fn(IpAddr) -> bool,
) -> Option<Vain> {
    let own = match &asked.rule.host {
        EgressHost::Address(address) => address.is_loopback(),
        EgressHost::Name(name) => name.as_str() == "localhost",
        EgressHost::Below(_) => false,
    };
    if own {
        return Some(Vain::Loopback);
    }
    if asked.left.is_empty() {
        return Some(Vain::Policy);
    }
    match asked.rule.host {
        EgressHost::Address(address) if !is_open(address, policy, is_public) => {
            Some(Vain::Private(address))
        }
        _ => None,
    }
}

/// Whether an address may be dialled, as far as is known in advance. Whether it is an address of the host
/// itself is checked with the kernel at each dial.
fn is_open(address: IpAddr, policy: &EgressPolicy, is_public: &dyn Fn(IpAddr) -> bool) -> bool {
    let opens = |range: &IpRange| match address.is_loopback() {
        // An address of the host itself: only an entry for exactly this address opens it.
        true => range.is_exactly(address),
        false => range.contains(address),
    };
    is_public(address) || policy.private_ranges.iter().any(opens)
}

fn closed(address: IpAddr) -> String {
    format!(
        "the address is not public and will not be dialled; the host policy has to say `{}`",
        private_ranges(address)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<EgressRule> {
        texts
            .iter()
            .map(|text| EgressRule::parse(text).expect(text))
            .collect()
    }

    fn manifest(entries: &[(&str, &str)]) -> Vec<EgressRequest> {
        entries
            .iter()
            .map(|(source, text)| EgressRequest {
                rule: EgressRule::parse(text).expect(text),
                source: (*source).to_owned(),
            })
            .collect()
    }

    fn policy(allow: Option<&[&str]>, private_ranges: &[&str]) -> EgressPolicy {
        EgressPolicy {
            allow: allow.map(rules),
            private_ranges: private_ranges
                .iter()
                .map(|text| IpRange::parse(text).expect(text))
                .collect(),
            ..EgressPolicy::default()
        }
    }

    fn texts(rules: &[EgressRule]) -> Vec<String> {
        rules.iter().map(ToString::to_string).collect()
    }

    const BOTH: [(&str, &str); 3] = [
        ("network.egress", "a.com"),
        ("sandbox.network.egress", "a.com"),
        ("network.egress", "*.b.com:443"),
    ];

    #[test]
    fn everybody_s_entries_add_up_and_the_host_policy_cuts() {
        for (keys, flags, allow, allowed) in [
            (&BOTH[..0], &[][..], None, &[][..]),
            (&BOTH[..0], &[], Some(&["*.com", "c.org"][1..]), &[]),
            (&BOTH, &[], None, &["a.com", "*.b.com:443"]),
            (
                &BOTH,
                &["a.com", "c.org"],
                None,
                &["a.com", "*.b.com:443", "c.org"],
            ),
            // The wider of two entries for one host is kept, regardless of its source.
            (&BOTH, &["*.b.com"], None, &["a.com", "*.b.com"]),
            (&BOTH[..1], &["a.com:443"], None, &["a.com"]),
            // A name is kept beside the wildcard above it.
            (
                &BOTH,
                &["x.b.com:443"],
                None,
                &["a.com", "*.b.com:443", "x.b.com:443"],
            ),
            (&BOTH, &["c.org"], Some(&[]), &[]),
            (&BOTH, &["c.org"], Some(&["c.org:80"]), &["c.org:80"]),
            (
                &BOTH,
                &["c.org"],
                Some(&["x.b.com", "*.y.b.com", "a.com:443"]),
                &["a.com:443", "x.b.com:443", "*.y.b.com:443"],
            ),
        ] {
            let plan = settle(&manifest(keys), &rules(flags), &policy(allow, &[]));
            assert_eq!(
                texts(&plan.allowed),
                allowed,
                "{keys:?} {flags:?} {allow:?}"
            );
        }
    }

    #[test]
    fn a_flag_to_paste_is_quoted_where_a_shell_would_read_it_otherwise() {
        for (entry, pasted) in [
            ("a.com:443", "--allow-net a.com:443"),
            ("*.a.com", "--allow-net '*.a.com'"),
            ("[::1]:80", "--allow-net '[::1]:80'"),
        ] {
            assert_eq!(flag(&rules(&[entry])[0]), pasted);
        }
    }

    #[test]
    fn npx_can_fetch_only_where_the_registry_that_was_named_is_allowed() {
        for (flag, registry, refused) in [
            ("packages.test", "https://packages.test/", None),
            (
                "*.packages.test:443",
                "https://user:word@npm.packages.test",
                None,
            ),
            ("packages.test:8080", "http://packages.test:8080/npm/", None),
            (
                "packages.test:80",
                "https://packages.test/",
                Some("packages.test:443"),
            ),
            (
                "packages.test",
                "https://packages.test.evil.test/",
                Some("packages.test.evil.test:443"),
            ),
            ("packages.test", "ftp://packages.test/", Some("")),
            ("packages.test", "", Some("")),
        ] {
            let expected = match refused {
                None => NpmRegistry::Allowed,
                Some("") => NpmRegistry::Unnamed,
                Some(place) => NpmRegistry::Refused(place.to_owned()),
            };
            let plan = settle(&[], &rules(&[flag]), &policy(None, &[]));
            let named = [(b"NPM_CONFIG_REGISTRY".to_vec(), registry.into())];
            assert_eq!(plan.npm_registry(&named), expected, "{registry}");
            assert_eq!(plan.npm_registry(&[]), NpmRegistry::Unnamed);
        }
    }

    #[test]
    fn each_entry_stands_once_with_everybody_who_asks_for_it() {
        let keys = manifest(&BOTH);
        let plan = settle(&keys, &rules(&["a.com"]), &policy(None, &[]));
        let asked: Vec<(String, Vec<&str>)> = plan
            .asked
            .iter()
            .map(|one| (one.rule.to_string(), one.asked_by(&keys)))
            .collect();
        assert_eq!(
            asked,
            [
                (
                    "a.com".to_owned(),
                    vec!["network.egress", "sandbox.network.egress", "--allow-net"]
                ),
                ("*.b.com:443".to_owned(), vec!["network.egress"]),
            ]
        );
    }

    #[test]
    fn an_added_host_needs_an_entry_and_an_address_that_may_be_dialled() {
        let public = |address: IpAddr| address.to_string().starts_with("93.");
        let none = &[][..];
        for (added, flags, ranges, code) in [
            ("a.com:93.184.216.34", &["a.com:443"][..], none, None),
            ("x.a.com:93.184.216.34", &["*.a.com"], none, None),
            (
                "a.com:93.184.216.34",
                &["*.a.com"],
                none,
                Some("add_host_not_allowed"),
            ),
            (
                "a.com:93.184.216.34",
                &[],
                none,
                Some("add_host_not_allowed"),
            ),
            (
                "a.com:10.1.2.3",
                &["a.com"],
                none,
                Some("egress_address_private"),
            ),
            ("a.com:10.1.2.3", &["a.com"], &["10.0.0.0/8"], None),
            (
                "a.com:127.0.0.1",
                &["a.com"],
                &["127.0.0.0/8"],
                Some("egress_address_private"),
            ),
            ("a.com:127.0.0.1", &["a.com"], &["127.0.0.1/32"], None),
            ("a.com:::1", &["a.com"], &["::1/128"], None),
        ] {
            let policy = policy(None, ranges);
            let plan = settle(&[], &rules(flags), &policy);
            let added = AddedHost::parse(added).expect(added);
            let found = plan.vain_hosts(std::slice::from_ref(&added), &policy, &public);
            let codes: Vec<&str> = found.iter().map(|one| one.code.as_str()).collect();
            assert_eq!(codes, code.into_iter().collect::<Vec<_>>(), "{added}");
            for warning in &found {
                assert!(!warning.message.contains("  "), "{}", warning.message);
            }
        }
    }

    #[test]
    fn an_entry_by_which_nothing_can_be_reached_is_told_with_what_to_change() {
        let public = |address: IpAddr| address.to_string().starts_with("93.");
        for (flag, allow, ranges, told) in [
            ("a.com", None, &[][..], None),
            ("a.com", Some(&["a.com:443"][..]), &[], None),
            (
                "a.com",
                Some(&["b.com"]),
                &[],
                Some(("egress_policy_forbids", "stand in egress.allow")),
            ),
            ("93.184.216.34", None, &[], None),
            (
                "10.1.2.3:80",
                None,
                &[],
                Some(("egress_address_private", "private_ranges: [10.1.2.3/32]")),
            ),
            (
                "10.1.2.3:80",
                None,
                &["10.2.0.0/16"],
                Some(("egress_address_private", "10.1.2.3/32")),
            ),
            ("10.1.2.3:80", None, &["10.1.0.0/16"], None),
            (
                "[fd00::1]:80",
                None,
                &[],
                Some(("egress_address_private", "['fd00::1/128']")),
            ),
            (
                "127.0.0.1:80",
                None,
                &["127.0.0.1/32"],
                Some(("egress_loopback", "--add-host")),
            ),
            ("::1", None, &[], Some(("egress_loopback", "--add-host"))),
            (
                "localhost:80",
                None,
                &[],
                Some(("egress_loopback", "own loopback")),
            ),
        ] {
            let policy = policy(allow, ranges);
            let plan = settle(&[], &rules(&[flag]), &policy);
            let found = plan.vain(&[], &policy, &public);
            let Some((code, says)) = told else {
                assert_eq!(found, [], "{flag}");
                continue;
            };
            assert_eq!(found.len(), 1, "{flag}");
            assert_eq!(found[0].code, code, "{flag}");
            assert!(found[0].message.contains(says), "{}", found[0].message);
            assert!(found[0].message.contains("--allow-net"), "{flag}");
        }
    }
}
