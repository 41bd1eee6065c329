//! The host policy, merged from its files: the host's, the user's, then `--policy`. See [`merge`] for
//! the rules.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::egress;
use crate::history::AuditPolicy;
use crate::host_config::{Statement, WrittenFlags, WrittenUidRange};
use crate::image::ImageTemplate;
use crate::oci_policy::OciPolicy;
use crate::preparation::{self, PreparationPolicy};
use crate::request::{Grant, Grants};
use crate::sources_policy::{
    BundleCachePolicy, CachePolicy, EgressPolicy, GitHubPolicy, SecretsPolicy, intersect_ranges,
};
use crate::syscall_policy::SyscallPolicyName;

/// The merged policy for every run on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPolicy {
    pub maxima: Maxima,
    pub grants: Grants,
    /// Grants that neither a flag nor a later file may give.
    pub deny_grants: Grants,
    /// Uids of bodies, one for each concurrent run of root. Nothing else on the host uses them.
    pub uid_range: UidRange,
    /// Parent cgroup of the runs; `None`: selected by the supervisor.
    pub cgroup_parent: Option<String>,
    /// Absolute directories besides the system directories whose programs may be bound.
    pub interpreters: Vec<PathBuf>,
    pub unpack: UnpackCaps,
    pub runtime_directory: Option<PathBuf>,
    pub egress: EgressPolicy,
    pub secrets: SecretsPolicy,
    /// Files that registry slugs (`@owner/name`) resolve to, absolute.
    pub refs: BTreeMap<String, PathBuf>,
    /// Templates added to the built-in ones, in the order of the files.
    pub images: Vec<ImageTemplate>,
    pub cache: CachePolicy,
    pub github: GitHubPolicy,
    pub oci: OciPolicy,
    /// Whether to refuse references to branches and tags.
    pub require_pin: bool,
    pub preparation: PreparationPolicy,
    /// The loosest system call policy that a run may have.
    pub syscalls: SyscallPolicyName,
    pub audit: AuditPolicy,
    /// Added to the flags of every run.
    pub flags: WrittenFlags,
}

/// Upper bounds. A built-in bound applies only to a bundle's own manifest. A bound from a
/// configuration file applies to the caller's flags too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maxima {
    pub memory_bytes: Maximum<u64>,
    pub wall_time: Maximum<Duration>,
    pub processes: Maximum<u64>,
}

/// One upper bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maximum<T> {
    pub value: T,
    /// `FILE:LINE`; `None`: built in.
    pub stated_at: Option<String>,
}

/// A range of uids of the host, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenUidRange")]
pub struct UidRange {
    pub first: u32,
    pub last: u32,
}

/// Limits on reading a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackCaps {
    pub archive_bytes: u64,
    pub unpacked_bytes: u64,
    pub entries: u64,
}

impl Default for HostPolicy {
    fn default() -> Self {
        merge(&[]).0
    }
}

/// A key or grant that an earlier file forbids. It has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForbiddenGrant {
    pub origin: String,
    /// A grant as `--grant` names it, or a key such as `secrets.provider`.
    pub grant: &'static str,
    pub forbidden_by: String,
}

/// An image template id that is stated twice, and the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateImage {
    pub id: String,
    pub first: String,
    pub again: String,
}

/// Checks that no image template id is stated twice, in one file or in two.
///
/// # Errors
/// [`DuplicateImage`].
pub fn check_images(statements: &[Statement]) -> Result<(), DuplicateImage> {
    let mut origins: BTreeMap<&str, &str> = BTreeMap::new();
    for statement in statements {
        for image in &statement.images {
            if let Some(first) = origins.insert(&image.id, &statement.origin) {
                return Err(DuplicateImage {
                    id: image.id.clone(),
                    first: first.to_owned(),
                    again: statement.origin.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Merges the files, earliest first, into one policy. Also returns the keys and grants that have no
/// effect.
///
/// - Maxima and limits: the smallest stated value, else the default.
/// - System call policy, audit: the strictest.
/// - Denied grants, interpreters and images: the union. Grants: the union without all denied ones.
///   Grants that an earlier file denies are also returned.
/// - Uid range, cgroup parent, runtime directory and cache: the last value.
/// - Network: the intersection of all stated lists, see [`egress::intersect`] and
///   `intersect_ranges`.
/// - `require_pin`, `egress.refuse_ech`, `cache.bundles.off`, `cache.bundles.copy`, `oci.copy` and
///   `oci.root_read_only`: true once a file states it.
/// - Provider and inventory of secrets: the last value, unless an earlier file denies the grant
///   `secrets`.
/// - References, the service of `github` sources, CA certificates of registries and the default
///   registry (the last value), and registries without TLS (the union): unless an earlier file denies
///   the grant `sources`.
/// - A token belongs to the base URL of its own file: a later file with another base URL and no
///   token drops it.
/// - `preparation`: see `preparation::merge`.
#[must_use]
pub fn merge(statements: &[Statement]) -> (HostPolicy, Vec<ForbiddenGrant>) {
    let mut grants = Vec::new();
    let mut forbidden = Vec::new();
    for (index, file) in statements.iter().enumerate() {
        let so_far = &statements[..=index];
        grants.extend(
            file.grants.iter().filter(|grant| {
                is_permitted(file, so_far, grant.name(), &[*grant], &mut forbidden)
            }),
        );
    }
    let denied = statements.iter().flat_map(|file| file.deny_grants.iter());
    let deny_grants: Grants = denied.collect();
    grants.retain(|grant| !deny_grants.has(*grant));
    let external = merge_external(statements, &mut forbidden);
    let policy = HostPolicy {
        maxima: merge_maxima(statements),
        grants: Grants::from_iter(grants),
        deny_grants,
        uid_range: last(statements, |file| file.uid_range.as_ref()).unwrap_or(UidRange {
            first: 0x7000_0000,
            last: 0x7000_ffff,
        }),
        cgroup_parent: last(statements, |file| file.cgroup_parent.as_ref()).map(|path| path.0),
        interpreters: statements
            .iter()
            .flat_map(|file| file.interpreters.iter().cloned().map(PathBuf::from))
            .collect(),
        unpack: UnpackCaps {
            archive_bytes: smallest(statements, |file| Some(file.unpack.archive?.0), 100 << 20),
            unpacked_bytes: smallest(statements, |file| Some(file.unpack.unpacked?.0), 1 << 30),
            entries: smallest(statements, |file| Some(file.unpack.entries?.0), 100_000),
        },
        runtime_directory: last(statements, |file| file.runtime_directory.as_ref())
            .map(PathBuf::from),
        egress: merge_egress(statements),
        secrets: external.secrets,
        refs: external.refs,
        images: statements
            .iter()
            .flat_map(|file| file.images.iter().cloned())
            .collect(),
        cache: merge_cache(statements),
        github: external.github,
        oci: external.oci,
        require_pin: statements.iter().any(|file| file.require_pin),
        preparation: preparation::merge(statements, &mut forbidden),
        syscalls: strictest(statements),
        audit: statements
            .iter()
            .filter_map(|file| file.audit)
            .max()
            .unwrap_or_default(),
        flags: merge_flags(statements),
    };
    (policy, forbidden)
}

fn merge_flags(statements: &[Statement]) -> WrittenFlags {
    let mut flags = WrittenFlags::default();
    for file in statements {
        flags.extend(&file.flags);
    }
    flags
}

pub(super) fn smallest<T: Ord + Copy>(
    statements: &[Statement],
    key: impl Fn(&Statement) -> Option<T>,
    default: T,
) -> T {
    statements.iter().filter_map(key).min().unwrap_or(default)
}

fn last<T: Clone>(statements: &[Statement], key: impl Fn(&Statement) -> Option<&T>) -> Option<T> {
    statements.iter().rev().find_map(key).cloned()
}

fn merge_maxima(statements: &[Statement]) -> Maxima {
    Maxima {
        memory_bytes: maximum(
            statements,
            |file| file.maxima.memory.map(|at| (at.value.0, at.line)),
            4 << 30,
        ),
        wall_time: maximum(
            statements,
            |file| file.maxima.timeout.map(|at| (at.value.0, at.line)),
            Duration::from_secs(3_600),
        ),
        processes: maximum(
            statements,
            |file| file.maxima.processes.map(|at| (at.value.0, at.line)),
            4_096,
        ),
    }
}

/// The smallest stated bound with its location, else the built-in one. `key` returns the bound and its
/// line.
fn maximum<T: Ord + Copy>(
    statements: &[Statement],
    key: impl Fn(&Statement) -> Option<(T, u64)>,
    built_in: T,
) -> Maximum<T> {
    let stated = statements
        .iter()
        .filter_map(|file| key(file).map(|(value, line)| (value, line, &file.origin)))
        .min_by_key(|(value, ..)| *value);
    match stated {
        Some((value, line, origin)) => Maximum {
            value,
            stated_at: Some(format!("{origin}:{line}")),
        },
        None => Maximum {
            value: built_in,
            stated_at: None,
        },
    }
}

fn strictest(statements: &[Statement]) -> SyscallPolicyName {
    let stated = statements.iter().filter_map(|file| file.syscalls);
    stated.max().unwrap_or_default()
}

/// The intersection of all stated lists; `None`: no list is stated.
pub(super) fn common<T: Clone>(
    statements: &[Statement],
    key: impl Fn(&Statement) -> Option<&[T]>,
    intersect: impl Fn(&[T], &[T]) -> Vec<T>,
) -> Option<Vec<T>> {
    statements
        .iter()
        .filter_map(key)
        .map(<[T]>::to_vec)
        .reduce(|left, right| intersect(&left, &right))
}

fn merge_egress(statements: &[Statement]) -> EgressPolicy {
    EgressPolicy {
        allow: common(
            statements,
            |file| file.egress.allow.as_deref(),
            egress::intersect,
        ),
        private_ranges: common(
            statements,
            |file| file.egress.private_ranges.as_deref(),
            intersect_ranges,
        )
        .unwrap_or_default(),
        refuse_ech: statements.iter().any(|file| file.egress.refuse_ech),
    }
}

fn merge_cache(statements: &[Statement]) -> CachePolicy {
    CachePolicy {
        directory: last(statements, |file| file.cache.directory.as_ref()).map(PathBuf::from),
        size_bytes: last(statements, |file| file.cache.size.as_ref())
            .map_or(CachePolicy::default().size_bytes, |size| size.0),
        bundles: BundleCachePolicy {
            directory: last(statements, |file| file.cache.bundles.directory.as_ref())
                .map(PathBuf::from),
            size_bytes: last(statements, |file| file.cache.bundles.size.as_ref())
                .map(|size| size.0),
            off: statements.iter().any(|file| file.cache.bundles.off),
            copy: statements.iter().any(|file| file.cache.bundles.copy),
        },
    }
}

/// Whether `file` may state `key`: no file of `earlier` denies one of `grants`. Otherwise `key` is
/// added to `forbidden`.
pub(super) fn is_permitted(
    file: &Statement,
    earlier: &[Statement],
    key: &'static str,
    grants: &[Grant],
    forbidden: &mut Vec<ForbiddenGrant>,
) -> bool {
    let denies = |other: &&Statement| grants.iter().any(|grant| other.deny_grants.has(*grant));
    let denier = earlier.iter().find(denies);
    if let Some(denier) = denier {
        forbidden.push(ForbiddenGrant {
            origin: file.origin.clone(),
            grant: key,
            forbidden_by: denier.origin.clone(),
        });
    }
    denier.is_none()
}

#[derive(Default)]
struct ExternalPolicies {
    secrets: SecretsPolicy,
    refs: BTreeMap<String, PathBuf>,
    github: GitHubPolicy,
    oci: OciPolicy,
}

/// Takes the last value of each key that no earlier file denies. Denied keys are added to
/// `forbidden`.
fn merge_external(
    statements: &[Statement],
    forbidden: &mut Vec<ForbiddenGrant>,
) -> ExternalPolicies {
    let mut merged = ExternalPolicies::default();
    let mut trusted = Vec::with_capacity(statements.len());
    for (index, file) in statements.iter().enumerate() {
        let mut permits =
            |key, grant| is_permitted(file, &statements[..index], key, &[grant], forbidden);
        if file.secrets.provider.is_some() && permits("secrets.provider", Grant::Secrets) {
            merged.secrets.provider.clone_from(&file.secrets.provider);
        }
        if file.secrets.inventory.is_some() && permits("secrets.inventory", Grant::Secrets) {
            merged.secrets.inventory = file.secrets.inventory.clone().map(PathBuf::from);
        }
        if !file.refs.is_empty() && permits("refs", Grant::Sources) {
            let refs = file.refs.clone().into_iter();
            merged
                .refs
                .extend(refs.map(|(slug, path)| (slug.0, path.into())));
        }
        let states_service = file.github.base_url.is_some() || file.github.token.is_some();
        if states_service && permits("github", Grant::Sources) {
            if let Some(base_url) = &file.github.base_url
                && base_url.0 != merged.github.base_url
            {
                merged.github = GitHubPolicy {
                    base_url: base_url.0.clone(),
                    token: None,
                };
            }
            if let Some(token) = &file.github.token {
                merged.github.token = Some(token.0.clone());
            }
        }
        trusted.push(file.oci.states_trust() && permits("oci", Grant::Sources));
    }
    merged.oci = OciPolicy::merge(statements, &trusted);
    merged
}

/// The words of `--grant`, `grants` and `deny_grants`: the names of the grants, and `all`.
pub const GRANT_WORDS: [&str; Grant::ALL.len() + 1] = {
    let mut words = ["all"; Grant::ALL.len() + 1];
    let mut index = 0;
    while index < Grant::ALL.len() {
        words[index] = Grant::ALL[index].name();
        index += 1;
    }
    words
};

/// Returns the grants of one of [`GRANT_WORDS`].
#[must_use]
pub fn grants_named(word: &str) -> Option<Grants> {
    if word == "all" {
        return Some(Grants::from_iter(Grant::ALL));
    }
    let grant = Grant::ALL.into_iter().find(|grant| grant.name() == word)?;
    Some(Grants::from_iter([grant]))
}

/// The names of the grants that are set.
pub fn names(grants: Grants) -> impl Iterator<Item = &'static str> {
    grants.iter().map(Grant::name)
}

/// The union of two sets.
#[must_use]
pub fn union(left: Grants, right: Grants) -> Grants {
    left.iter().chain(right.iter()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::EgressRule;
    use crate::host_config::{
        AbsolutePath, AtLine, BaseUrl, Count, RegistryHost, Size, Slug, Token, WrittenOci,
    };
    use crate::sources_policy::{IpRange, SecretsProvider};

    fn path(text: &str) -> AbsolutePath {
        AbsolutePath(text.to_owned())
    }

    fn stating(origin: &str, state: impl Fn(&mut Statement)) -> Statement {
        let mut statement = Statement {
            origin: origin.to_owned(),
            ..Statement::default()
        };
        state(&mut statement);
        statement
    }

    #[test]
    fn the_strictest_audit_counts() {
        for (stated, expected) in [
            (&[][..], AuditPolicy::On),
            (&["off"], AuditPolicy::Off),
            (&["off", "on"], AuditPolicy::On),
            (&["required", "off"], AuditPolicy::Required),
        ] {
            let files = stated.iter().map(|word| format!("audit: {word}\n"));
            let read = |text: String| crate::host_config::parse("f", text.as_bytes());
            let statements: Vec<Statement> =
                files.map(|text| read(text).expect("well formed")).collect();
            assert_eq!(merge(&statements).0.audit, expected, "{stated:?}");
        }
    }

    #[test]
    fn without_any_file_the_documented_defaults_hold() {
        let policy = HostPolicy::default();
        assert_eq!(policy.maxima.memory_bytes.value, 4_294_967_296);
        assert_eq!(policy.maxima.memory_bytes.stated_at, None);
        assert_eq!(policy.maxima.wall_time.value, Duration::from_secs(3_600));
        assert_eq!(policy.maxima.processes.value, 4_096);
        assert_eq!(policy.grants, Grants::default());
        assert_eq!(policy.uid_range.first, 1_879_048_192);
        assert_eq!(policy.unpack.entries, 100_000);
    }

    #[test]
    fn a_later_file_tightens_maxima_and_cannot_loosen_them() {
        for (stated, effective) in [
            (&[][..], 4 << 30),
            (&[16 << 30], 16 << 30),
            (&[1 << 30, 2 << 30], 1 << 30),
            (&[2 << 30, 1 << 30], 1 << 30),
            (&[3, 1, 2], 1),
        ] {
            let files: Vec<Statement> = stated
                .iter()
                .map(|bytes| {
                    stating("a file", |file| {
                        file.maxima.memory = Some(AtLine {
                            value: Size(*bytes),
                            line: 1,
                        })
                    })
                })
                .collect();
            assert_eq!(
                merge(&files).0.maxima.memory_bytes.value,
                effective,
                "{stated:?}"
            );
        }
    }

    #[test]
    fn a_grant_counts_unless_an_earlier_file_denies_it() {
        let deny = |origin: &str| {
            stating(origin, |file| {
                file.deny_grants = Grants::from_iter([Grant::Egress])
            })
        };
        let grant = |origin: &str| {
            stating(origin, |file| {
                file.grants = Grants::from_iter([Grant::Egress])
            })
        };
        let both = stating("both", |file| {
            file.grants = Grants::from_iter([Grant::Egress]);
            file.deny_grants = Grants::from_iter([Grant::Egress]);
        });
        for (files, granted, forbidden_by) in [
            (vec![grant("user")], true, None),
            (vec![deny("host"), grant("user")], false, Some("host")),
            (vec![grant("host"), deny("user")], false, None),
            (vec![both], false, Some("both")),
            (
                vec![deny("host"), stating("user", |_| ()), grant("flag")],
                false,
                Some("host"),
            ),
        ] {
            let (policy, forbidden) = merge(&files);
            assert_eq!(policy.grants.egress, granted, "{files:?}");
            assert_eq!(
                forbidden.first().map(|found| found.forbidden_by.as_str()),
                forbidden_by,
                "{files:?}"
            );
            assert!(!policy.grants.secrets);
        }
    }

    #[test]
    fn directories_are_replaced_and_interpreters_add_up() {
        let (policy, _) = merge(&[
            stating("host", |file| {
                file.interpreters = vec![path("/opt/a")];
                file.cgroup_parent = Some(path("/one"));
                file.runtime_directory = Some(path("/run/a"));
            }),
            stating("user", |file| {
                file.interpreters = vec![path("/opt/b")];
                file.cgroup_parent = Some(path("/two"));
            }),
        ]);
        assert_eq!(
            policy.interpreters,
            [PathBuf::from("/opt/a"), PathBuf::from("/opt/b")]
        );
        assert_eq!(policy.cgroup_parent.as_deref(), Some("/two"));
        assert_eq!(policy.runtime_directory, Some(PathBuf::from("/run/a")));
    }

    #[test]
    fn network_lists_are_intersected() {
        let rules = |texts: &[&str]| -> Vec<EgressRule> {
            texts
                .iter()
                .map(|text| EgressRule::parse(text).expect(text))
                .collect()
        };
        let ranges = |texts: &[&str]| -> Vec<IpRange> {
            texts
                .iter()
                .map(|text| IpRange::parse(text).expect(text))
                .collect()
        };
        assert_eq!(HostPolicy::default().egress, EgressPolicy::default());
        let files = [
            stating("host", |file| {
                file.egress.allow = Some(rules(&["*.a.com", "b.com"]));
            }),
            stating("user", |file| {
                file.egress.private_ranges = Some(ranges(&["10.0.0.0/8"]));
                file.egress.refuse_ech = true;
            }),
            stating("flag", |file| {
                file.egress.allow = Some(rules(&["x.a.com:443", "c.com"]));
                file.egress.private_ranges = Some(ranges(&["10.1.0.0/16", "192.168.0.0/16"]));
            }),
        ];
        let (policy, forbidden) = merge(&files);
        assert!(policy.egress.refuse_ech);
        assert_eq!(policy.egress.allow, Some(rules(&["x.a.com:443"])));
        assert_eq!(policy.egress.private_ranges, ranges(&["10.1.0.0/16"]));
        assert!(forbidden.is_empty());
        let nothing = stating("host", |file| {
            file.egress.allow = Some(Vec::new());
            file.egress.private_ranges = Some(Vec::new());
        });
        let (policy, _) = merge(&[nothing, files[2].clone()]);
        assert_eq!(policy.egress.allow, Some(Vec::new()));
        assert_eq!(policy.egress.private_ranges, []);
    }

    #[test]
    fn the_last_file_decides_external_resources_unless_an_earlier_one_denies() {
        let requests = |origin: &str| {
            stating(origin, |file| {
                file.secrets.provider = Some(SecretsProvider::Directory(origin.into()));
                file.secrets.inventory = Some(path(origin));
                file.refs = [(Slug("@a/b".to_owned()), path(origin))].into();
                file.github.base_url = Some(BaseUrl(format!("https://{origin}")));
                file.cache.directory = Some(path(origin));
                file.oci = WrittenOci {
                    directory: Some(path(origin)),
                    entries: Some(Count(if origin == "one" { 9 } else { 7 })),
                    ca_file: Some(path(origin)),
                    insecure: vec![RegistryHost(format!("{origin}.test"))],
                    default_registry: Some(RegistryHost(format!("{origin}.test"))),
                    copy: origin == "one",
                    ..WrittenOci::default()
                };
                file.require_pin = origin == "one";
                file.syscalls = Some(SyscallPolicyName::ALL[usize::from(origin == "one")]);
            })
        };
        let (policy, forbidden) = merge(&[requests("one"), requests("two")]);
        let two = PathBuf::from("two");
        assert_eq!(
            policy.secrets.provider,
            Some(SecretsProvider::Directory(two.clone()))
        );
        assert_eq!(policy.secrets.inventory, Some(two.clone()));
        assert_eq!(policy.refs["@a/b"], two);
        assert_eq!(policy.github.base_url, "https://two");
        assert_eq!(policy.cache.directory, Some(two.clone()));
        assert_eq!(policy.oci.directory, Some(two.clone()));
        assert_eq!(policy.oci.ca_file, Some(two));
        assert_eq!(policy.oci.insecure, ["one.test", "two.test"]);
        assert_eq!(policy.oci.default_registry.as_deref(), Some("two.test"));
        assert_eq!(policy.oci.entries, 7);
        assert!(policy.oci.copy, "true once stated");
        assert_eq!(policy.oci.archive_bytes, 4 << 30);
        assert!(policy.require_pin, "true once stated");
        assert_eq!(policy.syscalls, SyscallPolicyName::Strict);
        assert!(forbidden.is_empty());

        let mut denying = requests("one");
        denying.deny_grants = Grants::from_iter([Grant::Secrets, Grant::Sources]);
        let (policy, forbidden) = merge(&[denying, requests("two")]);
        let one = PathBuf::from("one");
        assert_eq!(
            policy.secrets.provider,
            Some(SecretsProvider::Directory(one.clone()))
        );
        assert_eq!(policy.secrets.inventory, Some(one.clone()));
        assert_eq!(policy.refs["@a/b"], one);
        assert_eq!(policy.github.base_url, "https://one");
        assert_eq!(policy.cache.directory, Some(PathBuf::from("two")));
        assert_eq!(policy.oci.directory, Some(PathBuf::from("two")));
        assert_eq!(policy.oci.ca_file, Some(one));
        assert_eq!(policy.oci.insecure, ["one.test"]);
        assert_eq!(policy.oci.default_registry.as_deref(), Some("one.test"));
        let keys: Vec<&str> = forbidden.iter().map(|found| found.grant).collect();
        assert_eq!(
            keys,
            [
                "secrets.provider",
                "secrets.inventory",
                "refs",
                "github",
                "oci"
            ]
        );
        assert!(forbidden.iter().all(|found| found.forbidden_by == "one"));
    }

    #[test]
    fn a_token_goes_only_to_the_service_that_it_was_stated_for() {
        let file = |url: Option<&str>, token: Option<&str>| {
            stating("a file", |file| {
                file.github.base_url = url.map(|url| BaseUrl(url.to_owned()));
                file.github.token = token.map(|token| Token(token.to_owned()));
            })
        };
        for (files, url, token) in [
            (
                vec![file(None, Some("env:A"))],
                "https://api.github.com",
                Some("env:A"),
            ),
            (
                vec![
                    file(Some("https://one"), Some("env:A")),
                    file(Some("https://two"), None),
                ],
                "https://two",
                None,
            ),
            (
                vec![
                    file(Some("https://one"), Some("env:A")),
                    file(Some("https://one"), None),
                ],
                "https://one",
                Some("env:A"),
            ),
            (
                vec![file(Some("https://one"), None), file(None, Some("env:A"))],
                "https://one",
                Some("env:A"),
            ),
            (
                vec![
                    file(Some("https://one"), Some("env:A")),
                    file(Some("https://two"), Some("env:B")),
                ],
                "https://two",
                Some("env:B"),
            ),
        ] {
            let github = merge(&files).0.github;
            assert_eq!(github.base_url, url, "{files:?}");
            assert_eq!(github.token.as_deref(), token, "{files:?}");
        }
    }

    #[test]
    fn an_image_is_stated_once() {
        let file = |origin: &str, ids: &[&str]| {
            stating(origin, |file| {
                file.images = ids
                    .iter()
                    .map(|id| ImageTemplate {
                        id: (*id).to_owned(),
                        languages: Vec::new(),
                        native: Vec::new(),
                        npm: Vec::new(),
                        pip: Vec::new(),
                        cost_tier: 0,
                        source: None,
                    })
                    .collect();
            })
        };
        let files = [file("host", &["a", "b"]), file("user", &["c"])];
        assert_eq!(check_images(&files), Ok(()));
        let ids: Vec<String> = merge(&files)
            .0
            .images
            .into_iter()
            .map(|image| image.id)
            .collect();
        assert_eq!(ids, ["a", "b", "c"]);
        for (files, first, again) in [
            (vec![file("host", &["a", "a"])], "host", "host"),
            (
                vec![file("host", &["a"]), file("user", &["a"])],
                "host",
                "user",
            ),
        ] {
            assert_eq!(
                check_images(&files),
                Err(DuplicateImage {
                    id: "a".to_owned(),
                    first: first.to_owned(),
                    again: again.to_owned(),
                })
            );
        }
    }

    #[test]
    fn every_grant_has_a_name_and_all_means_every_grant() {
        let words: Vec<_> = Grant::ALL
            .into_iter()
            .map(Grant::name)
            .chain(["all"])
            .collect();
        assert_eq!(words, GRANT_WORDS);
        for grant in Grant::ALL {
            let set = grants_named(grant.name()).expect("a name");
            assert_eq!(set.iter().collect::<Vec<_>>(), [grant]);
        }
        let all = grants_named("all").expect("a name");
        assert_eq!(all.iter().collect::<Vec<_>>(), Grant::ALL);
        assert_eq!(grants_named("everything"), None);
    }
}
