//! The host policy: what this host grants and at most allows, merged from its files.
//!
//! Each file states some keys. A later file (the host's, then the user's, then `--policy`) can
//! only tighten what an earlier one forbids to loosen: see [`merge`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::spec::image::ImageTemplate;
use crate::spec::request::Grants;
use crate::spec::sources_policy::{CachePolicy, EgressPolicy, GitHubPolicy, SecretsPolicy};

/// What holds for every run on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPolicy {
    /// What a bundle's own manifest gets at most without any grant.
    pub maxima: Maxima,
    /// What every bundle's manifest may have without asking the caller.
    pub grants: Grants,
    /// What no flag and no later file may grant.
    pub deny_grants: Grants,
    /// Uids of the host, one for each concurrent run of root; unused by anybody else.
    pub uid_range: UidRange,
    /// The cgroup below which runs get theirs; `None`: found by the supervisor.
    pub cgroup_parent: Option<String>,
    /// Prefixes outside the system directories whose programs may be bound, absolute.
    pub interpreters: Vec<PathBuf>,
    /// How big a bundle may be.
    pub unpack: UnpackCaps,
    /// Where records of runs lie, absolute; `None`: the default of the caller's uid.
    pub runtime_directory: Option<PathBuf>,
    /// What egress lists may reach at most.
    pub egress: EgressPolicy,
    /// Where the values of secrets come from.
    pub secrets: SecretsPolicy,
    /// Files that registry slugs (`@owner/name`) stand for, absolute.
    pub refs: BTreeMap<String, PathBuf>,
    /// Templates beside the built-in ones, in the order of the files.
    pub images: Vec<ImageTemplate>,
    /// Where fetched sources are kept.
    pub cache: CachePolicy,
    /// The service that `github` sources are fetched from.
    pub github: GitHubPolicy,
    /// Whether references to branches and tags are refused.
    pub require_pin: bool,
}

/// Upper bounds for what a bundle's own manifest may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxima {
    /// Memory of the whole tree.
    pub memory_bytes: u64,
    /// Wall time.
    pub wall_time: Duration,
    /// Processes and threads at once.
    pub processes: u64,
}

/// A range of uids of the host, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

/// Caps that hold while a bundle is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackCaps {
    /// The archive as it is read.
    pub archive_bytes: u64,
    /// All files together.
    pub unpacked_bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

impl Default for HostPolicy {
    fn default() -> Self {
        merge(&[]).0
    }
}

/// What one file states; `None` and empty where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statement {
    /// Where it was read, for messages.
    pub origin: String,
    /// `maxima.memory`.
    pub memory_bytes: Option<u64>,
    /// `maxima.timeout`.
    pub wall_time: Option<Duration>,
    /// `maxima.processes`.
    pub processes: Option<u64>,
    /// `grants`.
    pub grants: Grants,
    /// `deny_grants`.
    pub deny_grants: Grants,
    /// `uid_range`.
    pub uid_range: Option<UidRange>,
    /// `cgroup_parent`.
    pub cgroup_parent: Option<String>,
    /// `interpreters`.
    pub interpreters: Vec<PathBuf>,
    /// `unpack.archive`.
    pub archive_bytes: Option<u64>,
    /// `unpack.unpacked`.
    pub unpacked_bytes: Option<u64>,
    /// `unpack.entries`.
    pub entries: Option<u64>,
    /// `runtime_directory`.
    pub runtime_directory: Option<PathBuf>,
}

/// A grant of one file that an earlier file forbids: it does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForbiddenGrant {
    /// The file that grants.
    pub origin: String,
    /// What it grants, as `--grant` names it.
    pub grant: &'static str,
    /// The file that forbids.
    pub forbidden_by: String,
}

/// Merges what the files state, earliest first, into one policy.
///
/// Maxima and caps: the smallest that was stated, the default where nobody stated one. Denied
/// grants add up. Grants add up, except those that an earlier file denies: they are returned. A
/// file that grants and denies the same denies it. Interpreters add up. Of the uid range, the
/// cgroup parent and the runtime directory, which say where and not how much, the last counts.
#[must_use]
pub fn merge(statements: &[Statement]) -> (HostPolicy, Vec<ForbiddenGrant>) {
    fn smallest<T: Ord + Copy>(
        statements: &[Statement],
        key: impl Fn(&Statement) -> Option<T>,
        default: T,
    ) -> T {
        statements.iter().filter_map(key).min().unwrap_or(default)
    }
    fn last<T: Clone>(
        statements: &[Statement],
        key: impl Fn(&Statement) -> Option<&T>,
    ) -> Option<T> {
        statements.iter().rev().find_map(key).cloned()
    }
    let mut grants = Grants::default();
    let mut deny_grants = Grants::default();
    let mut forbidden = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        deny_grants = union(deny_grants, statement.deny_grants);
        for name in names(statement.grants) {
            let denier = statements[..=index]
                .iter()
                .find(|earlier| has(earlier.deny_grants, name));
            match denier {
                Some(denier) => forbidden.push(ForbiddenGrant {
                    origin: statement.origin.clone(),
                    grant: name,
                    forbidden_by: denier.origin.clone(),
                }),
                None => grants = union(grants, only(name)),
            }
        }
    }
    let policy = HostPolicy {
        maxima: Maxima {
            memory_bytes: smallest(statements, |file| file.memory_bytes, 4 << 30),
            wall_time: smallest(
                statements,
                |file| file.wall_time,
                Duration::from_secs(3_600),
            ),
            processes: smallest(statements, |file| file.processes, 4_096),
        },
        // A later file may deny what an earlier one granted: that tightens.
        grants: minus(grants, deny_grants),
        deny_grants,
        uid_range: last(statements, |file| file.uid_range.as_ref()).unwrap_or(UidRange {
            first: 0x7000_0000,
            last: 0x7000_ffff,
        }),
        cgroup_parent: last(statements, |file| file.cgroup_parent.as_ref()),
        interpreters: statements
            .iter()
            .flat_map(|file| file.interpreters.iter().cloned())
            .collect(),
        unpack: UnpackCaps {
            archive_bytes: smallest(statements, |file| file.archive_bytes, 100 << 20),
            unpacked_bytes: smallest(statements, |file| file.unpacked_bytes, 1 << 30),
            entries: smallest(statements, |file| file.entries, 100_000),
        },
        runtime_directory: last(statements, |file| file.runtime_directory.as_ref()),
        egress: EgressPolicy::default(),
        secrets: SecretsPolicy::default(),
        refs: BTreeMap::new(),
        images: Vec::new(),
        cache: CachePolicy::default(),
        github: GitHubPolicy::default(),
        require_pin: false,
    };
    (policy, forbidden)
}

/// Each grant by the name that `--grant`, `grants` and `deny_grants` use.
pub const GRANT_NAMES: [&str; 7] = [
    "egress", "secrets", "env", "mounts", "sources", "outputs", "policy",
];

/// The grants named by `name`: one of [`GRANT_NAMES`], or `all`.
#[must_use]
pub fn grants_named(name: &str) -> Option<Grants> {
    if name == "all" {
        return Some(
            GRANT_NAMES
                .iter()
                .fold(Grants::default(), |sum, one| union(sum, only(one))),
        );
    }
    GRANT_NAMES.contains(&name).then(|| only(name))
}

/// The names of those grants that are given.
pub fn names(grants: Grants) -> impl Iterator<Item = &'static str> {
    GRANT_NAMES
        .into_iter()
        .filter(move |name| has(grants, name))
}

/// What either of two sets grants.
#[must_use]
pub fn union(one: Grants, other: Grants) -> Grants {
    Grants {
        egress: one.egress || other.egress,
        secrets: one.secrets || other.secrets,
        env: one.env || other.env,
        mounts: one.mounts || other.mounts,
        sources: one.sources || other.sources,
        outputs: one.outputs || other.outputs,
        policy: one.policy || other.policy,
    }
}

/// What the first set grants and the second does not name.
#[must_use]
pub fn minus(from: Grants, taken: Grants) -> Grants {
    Grants {
        egress: from.egress && !taken.egress,
        secrets: from.secrets && !taken.secrets,
        env: from.env && !taken.env,
        mounts: from.mounts && !taken.mounts,
        sources: from.sources && !taken.sources,
        outputs: from.outputs && !taken.outputs,
        policy: from.policy && !taken.policy,
    }
}

fn only(name: &str) -> Grants {
    Grants {
        egress: name == "egress",
        secrets: name == "secrets",
        env: name == "env",
        mounts: name == "mounts",
        sources: name == "sources",
        outputs: name == "outputs",
        policy: name == "policy",
    }
}

fn has(grants: Grants, name: &str) -> bool {
    minus(only(name), grants) == Grants::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stating(origin: &str, state: impl Fn(&mut Statement)) -> Statement {
        let mut statement = Statement {
            origin: origin.to_owned(),
            ..Statement::default()
        };
        state(&mut statement);
        statement
    }

    #[test]
    fn without_any_file_the_documented_defaults_hold() {
        let policy = HostPolicy::default();
        assert_eq!(policy.maxima.memory_bytes, 4_294_967_296);
        assert_eq!(policy.maxima.wall_time, Duration::from_secs(3_600));
        assert_eq!(policy.maxima.processes, 4_096);
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
                .map(|bytes| stating("a file", |file| file.memory_bytes = Some(*bytes)))
                .collect();
            assert_eq!(merge(&files).0.maxima.memory_bytes, effective, "{stated:?}");
        }
    }

    #[test]
    fn a_grant_counts_unless_an_earlier_file_denies_it() {
        let deny = |origin: &str| stating(origin, |file| file.deny_grants = only("egress"));
        let grant = |origin: &str| stating(origin, |file| file.grants = only("egress"));
        let both = stating("both", |file| {
            file.grants = only("egress");
            file.deny_grants = only("egress");
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
    fn places_are_replaced_and_interpreters_add_up() {
        let (policy, _) = merge(&[
            stating("host", |file| {
                file.interpreters = vec![PathBuf::from("/opt/a")];
                file.cgroup_parent = Some("/one".to_owned());
                file.runtime_directory = Some(PathBuf::from("/run/a"));
            }),
            stating("user", |file| {
                file.interpreters = vec![PathBuf::from("/opt/b")];
                file.cgroup_parent = Some("/two".to_owned());
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
    fn every_grant_has_one_name_and_all_names_them_all() {
        for name in GRANT_NAMES {
            let one = grants_named(name).expect("a name");
            assert_eq!(names(one).collect::<Vec<_>>(), [name]);
        }
        let all = grants_named("all").expect("a name");
        assert_eq!(names(all).collect::<Vec<_>>(), GRANT_NAMES);
        assert_eq!(grants_named("everything"), None);
    }
}
