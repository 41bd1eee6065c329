//! The effective egress list: the requests of manifest and caller, restricted by the host policy.
//!
//! The keys of the manifest (`network`, `sandbox.network`, the legacy `runtime.network`, and inherited
//! keys) and `--allow-net` are merged; the host policy's list restricts the result. A missing list, an
//! empty list and a list with no remaining entry are equivalent: no destination is allowed.

use core::net::IpAddr;
use std::collections::HashMap;

use crate::address::may_be_dialled;
use crate::allow::Allowlist;
use crate::host::Host;
use spec::egress::{EgressHost, EgressRule, intersect};
use spec::host_name::HostName;
use spec::manifest::EgressRequest;
use spec::network::AddedHost;
use spec::report::WarningReport;
use spec::sources_policy::EgressPolicy;
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
    pub granted: Vec<EgressRule>,
}

/// The destinations that the body may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPlan {
    /// All requested entries without duplicates, those of the manifest first.
    pub requested: Vec<RequestedHost>,
    pub allowed: Vec<EgressRule>,
    /// Whether a TLS ClientHello with an encrypted inner ClientHello is refused.
    pub refuse_ech: bool,
    /// Every public name is allowed, to learn which ones are used.
    pub learns: bool,
}

/// The rules without those that another rule for the same host covers. A name below an allowed `*.`
/// stays: it does not count towards the limit of names under the wildcard.
fn without_covered<'rules>(rules: impl Iterator<Item = &'rules EgressRule>) -> Vec<EgressRule> {
    let mut all: Vec<Option<EgressRule>> = Vec::new();
    let mut by_host: HashMap<&EgressHost, Vec<usize>> = HashMap::new();
    for rule in rules {
        let indexes = by_host.entry(&rule.host).or_default();
        let mut others = indexes.iter().filter_map(|at| all[*at].as_ref());
        if others.any(|other| other.covers(rule)) {
            continue;
        }
        indexes.retain(|at| {
            let covered = all[*at].take_if(|other| rule.covers(other));
            covered.is_none()
        });
        indexes.push(all.len());
        all.push(Some(rule.clone()));
    }
    all.into_iter().flatten().collect()
}

impl EgressPlan {
    /// Merges the requests and applies the host policy.
    #[must_use]
    pub fn new(manifest: &[EgressRequest], flags: &[EgressRule], policy: &EgressPolicy) -> Self {
        let mut requested: Vec<RequestedHost> = Vec::new();
        let mut indexes: HashMap<&EgressRule, usize> = HashMap::new();
        let of_manifest = manifest
            .iter()
            .enumerate()
            .map(|(index, request)| (&request.rule, Some(index)));
        for (rule, entry) in of_manifest.chain(flags.iter().map(|rule| (rule, None))) {
            let at = *indexes.entry(rule).or_insert_with(|| {
                requested.push(RequestedHost {
                    rule: rule.clone(),
                    entries: Vec::new(),
                    by_flag: false,
                    granted: match &policy.allow {
                        Some(allowed) => intersect(std::slice::from_ref(rule), allowed),
                        None => vec![rule.clone()],
                    },
                });
                requested.len() - 1
            });
            match entry {
                Some(index) => requested[at].entries.push(index),
                None => requested[at].by_flag = true,
            }
        }
        Self {
            allowed: without_covered(requested.iter().flat_map(|entry| &entry.granted)),
            requested,
            refuse_ech: policy.refuse_ech,
            learns: false,
        }
    }

    /// The list that the relay uses.
    #[must_use]
    pub fn allowlist(&self) -> Allowlist {
        let rules = self.allowed.clone();
        if self.learns {
            Allowlist::with_every_name(rules)
        } else {
            Allowlist::new(rules)
        }
    }

    /// Whether no host is allowed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.allowed.is_empty() && !self.learns
    }

    /// The registry from which `npx` can fetch a package: the one that the body's `environment` sets. No
    /// default is assumed.
    #[must_use]
    pub fn npm_registry(&self, environment: &[(Vec<u8>, Vec<u8>)]) -> NpmRegistry {
        let variable = environment
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(NPM_REGISTRY));
        let Some((host, port)) = variable.and_then(|(_, url)| host_of_url(url)) else {
            return NpmRegistry::Unnamed;
        };
        let refused = NpmRegistry::Refused(format!("{host}:{port}"));
        let denial = Allowlist::new(self.allowed.clone()).denial(&Host::Name(host), port);
        denial.map_or(NpmRegistry::Allowed, |_denial| refused)
    }

    /// A warning for each requested entry and each added host without effect. The run continues; `--strict`
    /// refuses.
    #[must_use]
    pub fn warnings(
        &self,
        manifest: &[EgressRequest],
        added: &[AddedHost],
        policy: &EgressPolicy,
    ) -> Vec<WarningReport> {
        let requested = self.requested.iter();
        requested
            .filter_map(|requested| requested.warning(manifest, policy))
            .chain(
                added
                    .iter()
                    .filter_map(|added| self.added_host_warning(added, policy)),
            )
            .collect()
    }

    fn added_host_warning(
        &self,
        added: &AddedHost,
        policy: &EgressPolicy,
    ) -> Option<WarningReport> {
        if !self.allowed.iter().any(|rule| rule.names(&added.name)) {
            return Some(WarningReport::new(
                "add_host_not_allowed",
                format!(
                    "--add-host {added}: the name is not allowed; it needs an entry as well, such \
                     as --allow-net {}",
                    added.name
                ),
            ));
        }
        private_address_warning(&format!("--add-host {added}"), added.address, policy)
    }
}

impl RequestedHost {
    /// The keys and flags that request the entry, without duplicates.
    fn requested_by<'manifest>(&self, manifest: &'manifest [EgressRequest]) -> Vec<&'manifest str> {
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

    /// Why the entry has no effect.
    fn warning(&self, manifest: &[EgressRequest], policy: &EgressPolicy) -> Option<WarningReport> {
        let entry = format!(
            "{} (requested by {})",
            self.rule,
            self.requested_by(manifest).join(", ")
        );
        let is_loopback = match &self.rule.host {
            EgressHost::Address(address) => address.is_loopback(),
            EgressHost::Name(name) => name.as_str() == "localhost",
            EgressHost::Below(_) => false,
        };
        if is_loopback {
            return Some(WarningReport::new(
                "egress_loopback",
                format!(
                    "{entry}: this is the body's own loopback, which needs no entry; for a service \
                     of the host, name it with --add-host, allow that name, and add its address to \
                     egress.private_ranges of the host policy"
                ),
            ));
        }
        if self.granted.is_empty() {
            return Some(WarningReport::new(
                "egress_policy_forbids",
                format!("{entry}: denied by the host policy; add it to egress.allow there"),
            ));
        }
        match self.rule.host {
            EgressHost::Address(address) => private_address_warning(&entry, address, policy),
            EgressHost::Name(_) | EgressHost::Below(_) => None,
        }
    }
}

fn private_address_warning(
    entry: &str,
    address: IpAddr,
    policy: &EgressPolicy,
) -> Option<WarningReport> {
    if may_be_dialled(address, &policy.private_ranges) {
        return None;
    }
    Some(WarningReport::new(
        "egress_address_private",
        format!(
            "{entry}: the address is not public and is not dialled; to allow it, set `{}` in the \
             host policy",
            private_ranges(address)
        ),
    ))
}

/// The flag that allows `rule`, quoted for a shell.
#[must_use]
pub fn flag(rule: &EgressRule) -> String {
    let text = rule.to_string();
    if text.contains(['*', '[']) {
        format!("{ALLOW_NET} '{text}'")
    } else {
        format!("{ALLOW_NET} {text}")
    }
}

/// Host and port of an http or https URL whose host is a name.
fn host_of_url(url: &[u8]) -> Option<(HostName, u16)> {
    let url = str::from_utf8(url).ok()?;
    let (rest, default_port) = match url.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (url.strip_prefix("http://")?, 80),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, default_port),
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

#[cfg(test)]
mod tests {
    use super::*;
    use spec::sources_policy::IpRange;

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
    fn requests_are_merged_and_the_host_policy_restricts_them() {
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
            let plan = EgressPlan::new(&manifest(keys), &rules(flags), &policy(allow, &[]));
            assert_eq!(
                texts(&plan.allowed),
                allowed,
                "{keys:?} {flags:?} {allow:?}"
            );
        }
    }

    #[test]
    fn a_flag_is_quoted_if_a_shell_would_expand_it() {
        for (entry, pasted) in [
            ("a.com:443", "--allow-net a.com:443"),
            ("*.a.com", "--allow-net '*.a.com'"),
            ("[::1]:80", "--allow-net '[::1]:80'"),
        ] {
            assert_eq!(flag(&rules(&[entry])[0]), pasted);
        }
    }

    #[test]
    fn npx_can_fetch_only_from_an_allowed_registry_that_the_environment_sets() {
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
                Some(host) => NpmRegistry::Refused(host.to_owned()),
            };
            let plan = EgressPlan::new(&[], &rules(&[flag]), &policy(None, &[]));
            let named = [(b"NPM_CONFIG_REGISTRY".to_vec(), registry.into())];
            assert_eq!(plan.npm_registry(&named), expected, "{registry}");
            assert_eq!(plan.npm_registry(&[]), NpmRegistry::Unnamed);
        }
    }

    #[test]
    fn an_entry_is_listed_once_with_all_its_sources() {
        let keys = manifest(&BOTH);
        let plan = EgressPlan::new(&keys, &rules(&["a.com"]), &policy(None, &[]));
        let requested: Vec<(String, Vec<&str>)> = plan
            .requested
            .iter()
            .map(|entry| (entry.rule.to_string(), entry.requested_by(&keys)))
            .collect();
        assert_eq!(
            requested,
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
            let plan = EgressPlan::new(&[], &rules(flags), &policy);
            let added = AddedHost::parse(added).expect(added);
            let found: Vec<WarningReport> = plan
                .added_host_warning(&added, &policy)
                .into_iter()
                .collect();
            let codes: Vec<&str> = found.iter().map(|warning| warning.code.as_str()).collect();
            assert_eq!(codes, code.into_iter().collect::<Vec<_>>(), "{added}");
            for warning in &found {
                assert!(!warning.message.contains("  "), "{}", warning.message);
            }
        }
    }

    #[test]
    fn an_entry_without_effect_has_a_warning_that_says_what_to_change() {
        for (flag, allow, ranges, warning) in [
            ("a.com", None, &[][..], None),
            ("a.com", Some(&["a.com:443"][..]), &[], None),
            (
                "a.com",
                Some(&["b.com"]),
                &[],
                Some(("egress_policy_forbids", "add it to egress.allow")),
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
            let plan = EgressPlan::new(&[], &rules(&[flag]), &policy);
            let found = plan.warnings(&[], &[], &policy);
            let Some((code, text)) = warning else {
                assert_eq!(found, [], "{flag}");
                continue;
            };
            assert_eq!(found.len(), 1, "{flag}");
            assert_eq!(found[0].code, code, "{flag}");
            assert!(found[0].message.contains(text), "{}", found[0].message);
            assert!(found[0].message.contains("--allow-net"), "{flag}");
        }
    }
}
