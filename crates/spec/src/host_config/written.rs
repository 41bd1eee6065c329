//! A configuration file as it is written: its keys and their shapes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::host_config::elsewhere::{
    Slug, WrittenCache, WrittenEgress, WrittenGitHub, WrittenOci, WrittenSecrets,
};
use crate::host_config::preparation::WrittenPreparation;
use crate::host_config::scalars::{AbsolutePath, Count, Size, Time, stated};
use crate::host_policy::{AtLine, Statement, UidRange, grants_named, union};
use crate::image::ImageTemplate;
use crate::request::Grants;
use crate::syscall_policy::SyscallPolicyName;

/// The overflow uid (user_namespaces(7)).
const OVERFLOW_UID: u32 = 65_534;

#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Written {
    /// Maxima for the caller's flags and for manifests. Without this key they are built in and bind
    /// only the manifest of a bundle. The smallest of several files counts.
    maxima: WrittenMaxima,
    /// Grants for the manifest of every bundle. Several files add up, without what an earlier file
    /// denies.
    grants: Vec<Grant>,
    /// Grants that no later file and no flag may give. Several files add up.
    deny_grants: Vec<Grant>,
    /// Uids of bodies, one for each concurrent run of root. Not allowed: 0, 65534 and 4294967295.
    /// Default: 1879048192 to 1879113727. The last file counts.
    #[serde(deserialize_with = "stated")]
    uid_range: Option<Uids>,
    /// The parent cgroup of runs, such as /runner. Default: found by the runner. The last file
    /// counts.
    #[serde(deserialize_with = "stated")]
    cgroup_parent: Option<AbsolutePath>,
    /// Prefixes outside the system directories whose programs may be made visible. Several files
    /// add up.
    interpreters: Vec<AbsolutePath>,
    /// Limits on the size of a bundle. The smallest of several files counts.
    unpack: WrittenUnpack,
    /// Directory of the run records. Default: /run/runner for root, else `runner` in
    /// $XDG_RUNTIME_DIR or /tmp/runner-UID. The last file counts.
    #[serde(deserialize_with = "stated")]
    runtime_directory: Option<AbsolutePath>,
    /// The network of every run.
    egress: WrittenEgress,
    /// The source of secret values. The last file counts, unless an earlier file denies the grant
    /// `secrets`.
    secrets: WrittenSecrets,
    /// Files that registry slugs resolve to. The last file counts for each slug, unless an earlier
    /// file denies the grant `sources`.
    refs: BTreeMap<Slug, AbsolutePath>,
    /// Image templates besides the built-in ones. Several files add up; each id may appear once.
    images: Vec<ImageTemplate>,
    /// The cache of fetched sources. The last file counts.
    cache: WrittenCache,
    /// The service of `github` sources. The last file counts, unless an earlier file denies the
    /// grant `sources`.
    github: WrittenGitHub,
    /// Images and workspace sources from registries. The last file counts for directories, the
    /// smallest value for limits.
    oci: WrittenOci,
    /// Refuse references to branches and tags. True once a file says so.
    require_pin: bool,
    /// Where `needs` of `engine: sandbox` are installed from, in a run of its own before the
    /// body's. Packages of a kind without a key are not installed. For `apt`, `npm`, `pip` and
    /// `ca_file` the last file counts, unless an earlier file denies the grant `sources` or
    /// `egress`. `egress` of an earlier file limits what a later file can reach here.
    preparation: WrittenPreparation,
    /// The loosest system call policy of any run. The strictest of several files counts. Default:
    /// `default`.
    #[serde(deserialize_with = "stated")]
    syscalls: Option<SyscallPolicyName>,
}

/// The key `maxima`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct WrittenMaxima {
    /// Memory of all processes. Default: 4g.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<Size>"))]
    memory: Option<Spanned<Size>>,
    /// Wall time. Default: 1h.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<Time>"))]
    timeout: Option<Spanned<Time>>,
    /// Processes and threads at once. Default: 4096.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<Count>"))]
    processes: Option<Spanned<Count>>,
}

/// The key `unpack`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct WrittenUnpack {
    /// Size of the archive. Default: 100m.
    #[serde(deserialize_with = "stated")]
    archive: Option<Size>,
    /// Size of all files. Default: 1g.
    #[serde(deserialize_with = "stated")]
    unpacked: Option<Size>,
    /// Files, directories and links. Default: 100000.
    #[serde(deserialize_with = "stated")]
    entries: Option<Count>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("anyOf" = serde_json::json!([
    {"properties": {"last": {"maximum": 65533}}},
    {"properties": {"first": {"minimum": 65535}}},
]))))]
/// The key `uid_range`.
#[serde(deny_unknown_fields)]
struct WrittenUidRange {
    /// The lowest uid.
    #[cfg_attr(test, schemars(range(min = 1, max = 4_294_967_294_u32)))]
    first: u32,
    /// The highest uid.
    #[cfg_attr(test, schemars(range(min = 1, max = 4_294_967_294_u32)))]
    last: u32,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "WrittenUidRange"))]
#[serde(try_from = "WrittenUidRange")]
struct Uids(UidRange);

impl TryFrom<WrittenUidRange> for Uids {
    type Error = String;

    fn try_from(WrittenUidRange { first, last }: WrittenUidRange) -> Result<Self, String> {
        let range = first..=last;
        if range.is_empty() {
            return Err(format!("the first uid {first} is above the last {last}"));
        }
        for uid in [0, OVERFLOW_UID, u32::MAX] {
            if range.contains(&uid) {
                return Err(format!("the range holds uid {uid}, which no body may have"));
            }
        }
        Ok(Self(UidRange { first, last }))
    }
}

/// What a manifest may ask for; `all` is each of them.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Grant {
    Egress,
    Secrets,
    Env,
    Mounts,
    Sources,
    Outputs,
    Policy,
    All,
}

impl Grant {
    fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Secrets => "secrets",
            Self::Env => "env",
            Self::Mounts => "mounts",
            Self::Sources => "sources",
            Self::Outputs => "outputs",
            Self::Policy => "policy",
            Self::All => "all",
        }
    }
}

impl Written {
    /// What `file` states.
    pub(super) fn statement(self, file: &str) -> Statement {
        Statement {
            origin: file.to_owned(),
            memory_bytes: self.maxima.memory.map(|at| at_line(&at, at.value.0)),
            wall_time: self.maxima.timeout.map(|at| at_line(&at, at.value.0)),
            processes: self.maxima.processes.map(|at| at_line(&at, at.value.0)),
            grants: sum(&self.grants),
            deny_grants: sum(&self.deny_grants),
            uid_range: self.uid_range.map(|uids| uids.0),
            cgroup_parent: self.cgroup_parent.map(|path| path.0),
            interpreters: self.interpreters.into_iter().map(PathBuf::from).collect(),
            archive_bytes: self.unpack.archive.map(|size| size.0),
            unpacked_bytes: self.unpack.unpacked.map(|size| size.0),
            entries: self.unpack.entries.map(|count| count.0),
            runtime_directory: self.runtime_directory.map(PathBuf::from),
            egress_allow: self
                .egress
                .allow
                .map(|rules| rules.into_iter().map(|rule| rule.0).collect()),
            private_ranges: self
                .egress
                .private_ranges
                .map(|ranges| ranges.into_iter().map(|range| range.0).collect()),
            refuse_ech: self.egress.refuse_ech,
            secrets_provider: self.secrets.provider.map(|provider| provider.0),
            secrets_inventory: self.secrets.inventory.map(PathBuf::from),
            refs: self
                .refs
                .into_iter()
                .map(|(slug, path)| (slug.0, path.into()))
                .collect(),
            images: self.images,
            cache_directory: self.cache.directory.map(PathBuf::from),
            cache_bytes: self.cache.size.map(|size| size.0),
            bundle_cache: self.cache.bundles.into(),
            github_base_url: self.github.base_url.map(|url| url.0),
            github_token: self.github.token.map(|token| token.0),
            oci: self.oci.into(),
            require_pin: self.require_pin,
            preparation: self.preparation.statement(),
            syscalls: self.syscalls,
        }
    }
}

fn at_line<T, V>(written: &Spanned<T>, value: V) -> AtLine<V> {
    AtLine {
        value,
        line: written.referenced.line(),
    }
}

fn sum(grants: &[Grant]) -> Grants {
    grants
        .iter()
        .filter_map(|grant| grants_named(grant.name()))
        .fold(Grants::default(), union)
}
