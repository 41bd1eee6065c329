//! The host's policy for preparation runs: package indexes, network access and limits.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::egress::{EgressRule, intersect};
use crate::host_config::{Size, Statement, WrittenApt, WrittenLimits, WrittenPreparation};
use crate::host_policy::{ForbiddenGrant, common, is_permitted, smallest};
use crate::request::Grant;
use crate::sources_policy::{IpRange, intersect_ranges};

/// The policy for preparation runs. Packages of a kind without an index cannot be installed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PreparationPolicy {
    pub apt: Option<AptPolicy>,
    pub npm: Option<IndexPolicy>,
    pub pip: Option<IndexPolicy>,
    pub allow_private: Vec<IpRange>,
    /// Absolute path of CA certificates for the indexes, instead of those of the image.
    pub ca_file: Option<PathBuf>,
    pub limits: PreparationLimits,
}

/// Source of native packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AptPolicy {
    /// Lines as in sources.list(5); empty: the lists of the image.
    pub sources: Vec<AptSource>,
    /// Absolute path of the signing keys of the sources, instead of those of the image.
    pub trusted_keys: Option<PathBuf>,
    pub reach: Vec<EgressRule>,
}

/// A package index that installations may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPolicy {
    pub url: IndexUrl,
    pub reach: Vec<EgressRule>,
}

/// Limits of one preparation run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparationLimits {
    /// Memory of all processes, written files included.
    pub memory_bytes: u64,
    pub wall_time: Duration,
    /// Bytes of written files. They count as memory too, so less than `memory_bytes` is usable.
    pub disk_bytes: u64,
}

/// About twice the memory that the kernel uses for an inode.
const BYTES_PER_INODE: u64 = 2048;

impl PreparationLimits {
    /// Maximum number of files and directories: limited by the memory and by `entries_max`, the limit
    /// of the resulting layer.
    #[must_use]
    pub fn inodes(&self, entries_max: u64) -> u64 {
        (self.memory_bytes / BYTES_PER_INODE).min(entries_max)
    }
}

impl Default for PreparationLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            wall_time: Duration::from_secs(600),
            disk_bytes: 1 << 30,
        }
    }
}

/// Why a text is not an index. Completes "`TEXT` …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("is not an https:// or http:// URL of a host")]
    Url,
    #[error("has a user in it, which the scripts of every package could read")]
    User,
    /// White space, control characters, `\` or non-ASCII bytes.
    #[error("has a character that is not allowed in URLs")]
    Character,
    #[error("is not a line such as `deb https://deb.example.org/debian trixie main`")]
    Line,
}

/// An http or https URL without a user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Index", with = "String", extend("pattern" = r"^https?://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:[/?#][!-\[\]-~]*)?$")))]
#[serde(try_from = "String")]
pub struct IndexUrl {
    pub text: String,
    pub rule: EgressRule,
}

impl IndexUrl {
    /// Parses an http or https URL without a user.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn parse(text: &str) -> Result<Self, IndexError> {
        let (rest, port) = match text.split_once("://") {
            Some(("https", rest)) => (rest, 443),
            Some(("http", rest)) => (rest, 80),
            _ => return Err(IndexError::Url),
        };
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        {
            return Err(IndexError::Character);
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(IndexError::User);
        }
        let mut rule = EgressRule::parse(authority).map_err(|_no_rule| IndexError::Url)?;
        if authority.starts_with('*') {
            return Err(IndexError::Url);
        }
        rule.port = rule.port.or(Some(port));
        Ok(Self {
            text: text.to_owned(),
            rule,
        })
    }

    /// Whether the URL is plain HTTP, without TLS.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.text.starts_with("http:")
    }

    /// The host of the URL, without the port.
    #[must_use]
    pub fn host(&self) -> String {
        let rule = EgressRule {
            host: self.rule.host.clone(),
            port: None,
        };
        rule.to_string()
    }
}

/// A line of sources.list(5): `deb [OPTIONS] URL SUITE [COMPONENT…]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Source", with = "String", extend("pattern" = r"^deb +(?:\[[ -\\^-~]*\] *)?https?://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:[/?#][!-\[\]-~]*)? +[!-~][ -~]*$")))]
#[serde(try_from = "String")]
pub struct AptSource {
    pub line: String,
    pub url: IndexUrl,
}

impl AptSource {
    /// Parses `deb [OPTIONS] URL SUITE [COMPONENT…]`.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn parse(line: &str) -> Result<Self, IndexError> {
        if line.bytes().any(|byte| byte.is_ascii_control()) || !line.is_ascii() {
            return Err(IndexError::Character);
        }
        let rest = line.strip_prefix("deb ").ok_or(IndexError::Line)?;
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']').ok_or(IndexError::Line)?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        let url = IndexUrl::parse(words.next().ok_or(IndexError::Line)?)?;
        if words.next().is_none() {
            return Err(IndexError::Line);
        }
        Ok(Self {
            line: line.to_owned(),
            url,
        })
    }
}

/// Merges the files, earliest first.
///
/// - Indexes, keys and certificates: the last value, unless an earlier file denies the grant
///   `sources` or `egress`. Such values are added to `forbidden`. The same applies to the first
///   `allow` and `allow_private`, because they widen access.
/// - `allow` and `allow_private`: the intersection of all stated lists. Without `allow` a run
///   reaches the hosts of its own indexes.
/// - `egress` of an earlier file limits the values of later files.
/// - Limits: the smallest value.
pub(super) fn merge(
    statements: &[Statement],
    forbidden: &mut Vec<ForbiddenGrant>,
) -> PreparationPolicy {
    let mut merging = Merging::default();
    for (index, file) in statements.iter().enumerate() {
        merging.add(file, &statements[..index], forbidden);
    }
    let default = PreparationLimits::default();
    let bytes = |key: fn(&WrittenLimits) -> Option<Size>, default| {
        smallest(
            statements,
            |file| Some(key(&file.preparation.limits)?.0),
            default,
        )
    };
    merging.policy(PreparationLimits {
        memory_bytes: bytes(|limits| limits.memory, default.memory_bytes),
        wall_time: smallest(
            statements,
            |file| Some(file.preparation.limits.timeout?.0),
            default.wall_time,
        ),
        disk_bytes: bytes(|limits| limits.disk, default.disk_bytes),
    })
}

/// A value with the egress rules that limit it.
type Bounded<T> = (T, Option<Vec<EgressRule>>);

#[derive(Default)]
struct Merging {
    apt: Option<Bounded<WrittenApt>>,
    npm: Option<Bounded<IndexUrl>>,
    pip: Option<Bounded<IndexUrl>>,
    allow: Option<Vec<EgressRule>>,
    allow_private: Option<Vec<IpRange>>,
    ca_file: Option<PathBuf>,
}

impl Merging {
    fn add(
        &mut self,
        file: &Statement,
        earlier: &[Statement],
        forbidden: &mut Vec<ForbiddenGrant>,
    ) {
        let WrittenPreparation {
            apt,
            npm,
            pip,
            allow,
            allow_private,
            ca_file,
            limits: _,
        } = &file.preparation;
        let mut permits = |key| {
            let grants = [Grant::Sources, Grant::Egress];
            is_permitted(file, earlier, key, &grants, forbidden)
        };
        let bound = || common(earlier, |file| file.egress.allow.as_deref(), intersect);
        if let Some(apt) = apt
            && permits("preparation.apt")
        {
            self.apt = Some((apt.clone(), bound()));
        }
        if let Some(npm) = npm
            && permits("preparation.npm")
        {
            self.npm = Some((npm.registry.clone(), bound()));
        }
        if let Some(pip) = pip
            && permits("preparation.pip")
        {
            self.pip = Some((pip.index.clone(), bound()));
        }
        if let Some(ca_file) = ca_file
            && permits("preparation.ca_file")
        {
            self.ca_file = Some(ca_file.clone().into());
        }
        // The first list widens: without it only the hosts of the indexes are reachable.
        if let Some(allow) = allow
            && (self.allow.is_some() || permits("preparation.allow"))
        {
            let allow = within(allow, bound().as_deref());
            self.allow = Some(within(&allow, self.allow.as_deref()));
        }
        if let Some(ranges) = allow_private
            && (self.allow_private.is_some()
                || ranges.is_empty()
                || permits("preparation.allow_private"))
        {
            let mut ranges = ranges.clone();
            let bounds = earlier
                .iter()
                .filter_map(|file| file.egress.private_ranges.as_deref());
            for bound in bounds.chain(self.allow_private.as_deref()) {
                ranges = intersect_ranges(&ranges, bound);
            }
            self.allow_private = Some(ranges);
        }
    }

    fn policy(self, limits: PreparationLimits) -> PreparationPolicy {
        let allow = self.allow;
        let reach = |hosts: Vec<EgressRule>, bound: Option<Vec<EgressRule>>| {
            within(allow.as_deref().unwrap_or(&hosts), bound.as_deref())
        };
        let index = |(url, bound): Bounded<IndexUrl>| IndexPolicy {
            reach: reach(vec![url.rule.clone()], bound),
            url,
        };
        PreparationPolicy {
            apt: self.apt.map(|(apt, bound)| {
                let hosts = apt.sources.iter().map(|source| source.url.rule.clone());
                AptPolicy {
                    reach: reach(hosts.collect(), bound),
                    sources: apt.sources,
                    trusted_keys: apt.trusted_keys.map(PathBuf::from),
                }
            }),
            npm: self.npm.map(index),
            pip: self.pip.map(index),
            allow_private: self.allow_private.unwrap_or_default(),
            ca_file: self.ca_file,
            limits,
        }
    }
}

fn within(rules: &[EgressRule], bound: Option<&[EgressRule]>) -> Vec<EgressRule> {
    match bound {
        Some(bound) => intersect(rules, bound),
        None => rules.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_config::{AbsolutePath, Time, WrittenNpm, WrittenPip};
    use crate::host_policy::{self, grants_named};

    fn rule(text: &str) -> EgressRule {
        EgressRule::parse(text).expect(text)
    }

    fn file(origin: &str, state: impl Fn(&mut Statement)) -> Statement {
        let mut statement = Statement {
            origin: origin.to_owned(),
            ..Statement::default()
        };
        state(&mut statement);
        statement
    }

    fn npm(url: &str) -> impl Fn(&mut Statement) {
        move |file| {
            let registry = IndexUrl::parse(url).expect(url);
            file.preparation.npm = Some(WrittenNpm { registry });
        }
    }

    #[test]
    fn the_url_of_an_index_is_parsed_into_host_and_port() {
        for (text, reach) in [
            ("https://registry.example.org/", "registry.example.org:443"),
            ("http://registry.example.org", "registry.example.org:80"),
            (
                "https://Registry.example.org:8443/npm/?x#y",
                "registry.example.org:8443",
            ),
            ("http://127.0.0.1:4873/", "127.0.0.1:4873"),
        ] {
            let url = IndexUrl::parse(text).expect(text);
            assert_eq!(url.rule, rule(reach), "{text}");
            assert_eq!(url.text, text);
        }
        for (text, error) in [
            ("", IndexError::Url),
            ("registry.example.org", IndexError::Url),
            ("ftp://registry.example.org/", IndexError::Url),
            ("file:///srv/npm", IndexError::Url),
            ("https://", IndexError::Url),
            ("https://*.example.org/", IndexError::Url),
            ("https://a b/", IndexError::Character),
            (
                "https://a.example.org\\@b.example.org/",
                IndexError::Character,
            ),
            ("https://user:word@a.example.org/", IndexError::User),
        ] {
            assert_eq!(IndexUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_source_is_one_line_of_type_deb() {
        for line in [
            "deb https://deb.example.org/debian trixie main",
            "deb [arch=amd64 trusted=yes] http://deb.example.org/debian ./",
        ] {
            let source = AptSource::parse(line).expect(line);
            assert_eq!(source.url.host(), "deb.example.org");
            assert_eq!(source.line, line);
        }
        for (line, error) in [
            ("", IndexError::Line),
            ("deb", IndexError::Line),
            (
                "deb-src https://deb.example.org/debian trixie main",
                IndexError::Line,
            ),
            ("deb https://deb.example.org/debian", IndexError::Line),
            (
                "deb [arch=amd64 https://deb.example.org/debian trixie",
                IndexError::Line,
            ),
            ("deb cdrom:x trixie main", IndexError::Url),
            (
                "deb http://a.example.org/ ./\ndeb http://b.example.org/ ./",
                IndexError::Character,
            ),
        ] {
            assert_eq!(AptSource::parse(line), Err(error), "{line}");
        }
    }

    #[test]
    fn without_a_list_a_run_reaches_the_hosts_of_its_indexes() {
        let url = "https://registry.example.org/";
        let (policy, _) = host_policy::merge(&[file("host", npm(url))]);
        let npm_policy = policy.preparation.npm.expect("stated");
        assert_eq!(npm_policy.reach, [rule("registry.example.org:443")]);
        assert_eq!(policy.preparation.pip, None);
        let listed = file("user", |file| {
            file.preparation.allow = Some(vec![rule("files.example.org")]);
        });
        let (policy, _) = host_policy::merge(&[file("host", npm(url)), listed]);
        let npm_policy = policy.preparation.npm.expect("stated");
        assert_eq!(npm_policy.reach, [rule("files.example.org")]);
    }

    #[test]
    fn egress_of_an_earlier_file_limits_the_indexes_of_a_later_file() {
        let bound = file("host", |file| {
            file.egress.allow = Some(vec![rule("*.example.org")]);
            file.egress.private_ranges = Some(vec![IpRange::parse("10.0.0.0/8").expect("a range")]);
        });
        let later = |url: &'static str| {
            file("user", move |file| {
                npm(url)(file);
                let ranges = ["10.1.0.0/16", "192.168.0.0/16"];
                let ranges = ranges.map(|text| IpRange::parse(text).expect(text));
                file.preparation.allow_private = Some(ranges.to_vec());
            })
        };
        for (url, reach) in [
            (
                "https://registry.example.org/",
                vec![rule("registry.example.org:443")],
            ),
            ("https://registry.example.com/", Vec::new()),
        ] {
            let (policy, _) = host_policy::merge(&[bound.clone(), later(url)]);
            assert_eq!(
                policy.preparation.npm.expect("stated").reach,
                reach,
                "{url}"
            );
            let ranges: Vec<String> = policy
                .preparation
                .allow_private
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(ranges, ["10.1.0.0/16"]);
            // `egress` of the same file does not limit the preparation.
            let mut both = later(url);
            both.egress.allow = Some(Vec::new());
            let (policy, _) = host_policy::merge(&[both]);
            assert_eq!(policy.preparation.npm.expect("stated").reach.len(), 1);
        }
    }

    #[test]
    fn indexes_after_a_file_that_denies_have_no_effect() {
        for grant in ["sources", "egress"] {
            let denying = file("host", |file| {
                npm("https://one.example.org/")(file);
                file.deny_grants = grants_named(grant).expect("a grant");
            });
            let asking = file("user", |file| {
                npm("https://two.example.org/")(file);
                file.preparation.ca_file = Some(AbsolutePath("/two.pem".to_owned()));
                file.preparation.apt = Some(WrittenApt::default());
                let index = IndexUrl::parse("https://two.example.org/").expect("a URL");
                file.preparation.pip = Some(WrittenPip { index });
            });
            let (policy, forbidden) = host_policy::merge(&[denying, asking]);
            let found = policy.preparation;
            assert_eq!(found.npm.expect("stated").url.host(), "one.example.org");
            assert_eq!((found.apt, found.pip, found.ca_file), (None, None, None));
            let keys: Vec<&str> = forbidden.iter().map(|one| one.grant).collect();
            assert_eq!(
                keys,
                ["apt", "npm", "pip", "ca_file"].map(|key| format!("preparation.{key}"))
            );
        }
    }

    #[test]
    fn lists_after_a_file_that_denies_widen_nothing() {
        let ranges = || Some(vec![IpRange::parse("10.0.0.0/8").expect("a range")]);
        for grant in ["sources", "egress"] {
            let denying = |listing: bool| {
                file("host", move |file| {
                    npm("https://one.example.org/")(file);
                    file.deny_grants = grants_named(grant).expect("a grant");
                    if listing {
                        file.preparation.allow =
                            Some(vec![rule("one.example.org:443"), rule("two")]);
                        file.preparation.allow_private = ranges();
                    }
                })
            };
            let asking = || {
                file("user", |file| {
                    file.preparation.allow = Some(vec![rule("*.example.org")]);
                    file.preparation.allow_private = ranges();
                })
            };
            let (policy, forbidden) = host_policy::merge(&[denying(false), asking()]);
            let found = policy.preparation;
            assert_eq!(
                found.npm.expect("stated").reach,
                [rule("one.example.org:443")]
            );
            assert_eq!(found.allow_private, []);
            let keys: Vec<&str> = forbidden.iter().map(|one| one.grant).collect();
            assert_eq!(keys, ["preparation.allow", "preparation.allow_private"]);
            // A later list only shortens an earlier one.
            let (policy, forbidden) = host_policy::merge(&[denying(true), asking()]);
            assert_eq!(forbidden.len(), 0);
            let reach = policy.preparation.npm.expect("stated").reach;
            assert_eq!(reach, [rule("one.example.org:443")]);
        }
    }

    #[test]
    fn the_smallest_limits_count_and_lists_only_shrink() {
        let stating = |bytes: u64, seconds: u64, hosts: &[&str]| {
            file("a file", |file| {
                file.preparation.limits = WrittenLimits {
                    memory: Some(Size(bytes)),
                    timeout: Some(Time(Duration::from_secs(seconds))),
                    disk: None,
                };
                file.preparation.allow = Some(hosts.iter().map(|host| rule(host)).collect());
                npm("https://a.example.org/")(file);
            })
        };
        let files = [
            stating(5, 7, &["a.example.org", "b.example.org"]),
            stating(9, 3, &["a.example.org", "c.example.org"]),
        ];
        let policy = host_policy::merge(&files).0.preparation;
        assert_eq!(policy.limits.memory_bytes, 5);
        assert_eq!(policy.limits.wall_time, Duration::from_secs(3));
        assert_eq!(policy.limits.disk_bytes, 1 << 30);
        assert_eq!(policy.npm.expect("stated").reach, [rule("a.example.org")]);
    }
}
