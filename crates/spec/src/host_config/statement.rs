//! The keys of a configuration file.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::history::AuditPolicy;
use crate::host_config::external::{
    Slug, WrittenCache, WrittenEgress, WrittenFlags, WrittenGitHub, WrittenOci, WrittenSecrets,
};
use crate::host_config::preparation::WrittenPreparation;
use crate::host_config::scalars::{AbsolutePath, Count, Size, Time, stated};
use crate::host_policy::{GRANT_WORDS, UidRange, grants_named};
use crate::image::ImageTemplate;
use crate::request::Grants;
use crate::syscall_policy::SyscallPolicyName;

/// The overflow uid (user_namespaces(7)).
const OVERFLOW_UID: u32 = 65_534;

/// The contents of one file. Keys that it does not state are `None`, empty or false.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Statement {
    /// The name of the file, for messages.
    #[serde(skip)]
    pub origin: String,
    /// Maxima for the caller's flags and for manifests. Without this key the built-in maxima apply,
    /// only to the manifest of a bundle. Of several files the smallest value counts.
    pub maxima: WrittenMaxima,
    /// Grants for the manifest of every bundle. Several files add up, except grants that an earlier
    /// file denies.
    #[serde(deserialize_with = "grants")]
    #[cfg_attr(test, schemars(with = "Vec<WrittenGrant>"))]
    pub grants: Grants,
    /// Grants that no later file and no flag may give. Several files add up.
    #[serde(deserialize_with = "grants")]
    #[cfg_attr(test, schemars(with = "Vec<WrittenGrant>"))]
    pub deny_grants: Grants,
    /// Uids of bodies, one for each concurrent run of root. Not allowed: 0, 65534 and 4294967295.
    /// Default: 1879048192 to 1879113727. The last file counts.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<WrittenUidRange>"))]
    pub uid_range: Option<UidRange>,
    /// The parent cgroup of runs, such as /runner. Default: found by the runner. The last file
    /// counts.
    #[serde(deserialize_with = "stated")]
    pub cgroup_parent: Option<AbsolutePath>,
    /// Directories besides the system directories whose programs may be made visible. Several files
    /// add up.
    pub interpreters: Vec<AbsolutePath>,
    /// Limits on the size of a bundle. Of several files the smallest value counts.
    pub unpack: WrittenUnpack,
    /// Directory of the run records. Default: /run/runner for root, else `runner` in
    /// $XDG_RUNTIME_DIR or /tmp/runner-UID. The last file counts.
    #[serde(deserialize_with = "stated")]
    pub runtime_directory: Option<AbsolutePath>,
    /// The network of every run.
    pub egress: WrittenEgress,
    /// The source of secret values. The last file counts, unless an earlier file denies the grant
    /// `secrets`.
    pub secrets: WrittenSecrets,
    /// Files that registry slugs resolve to. The last file counts for each slug, unless an earlier
    /// file denies the grant `sources`.
    pub refs: BTreeMap<Slug, AbsolutePath>,
    /// Image templates besides the built-in ones. Several files add up; each id may appear once.
    pub images: Vec<ImageTemplate>,
    /// The cache of fetched sources. The last file counts.
    pub cache: WrittenCache,
    /// The service of `github` sources. The last file counts, unless an earlier file denies the
    /// grant `sources`.
    pub github: WrittenGitHub,
    /// Images and workspace sources from registries. Of several files the last directory and the
    /// smallest limit count.
    pub oci: WrittenOci,
    /// Refuse references to branches and tags. True if any file sets it.
    pub require_pin: bool,
    /// Sources of packages for `needs` of `engine: sandbox`. A preparation run installs them before
    /// the body starts. Packages of a kind without a key are not installed. For `apt`, `npm`, `pip`
    /// and `ca_file` the last file counts, unless an earlier file denies the grant `sources` or
    /// `egress`. `egress` of an earlier file limits the hosts of a later file.
    pub preparation: WrittenPreparation,
    /// Whether runs are kept in the history of their user (`runner ps`): `off`, `on`, or `required`, which
    /// refuses a run that cannot be recorded. Of several files the strictest counts. Default: `on`.
    #[serde(deserialize_with = "stated")]
    pub audit: Option<AuditPolicy>,
    /// The loosest system call policy of any run. Of several files the strictest counts. Default:
    /// `default`.
    #[serde(deserialize_with = "stated")]
    pub syscalls: Option<SyscallPolicyName>,
    /// Flags of every run, as if they were typed. `runner learn` writes them. Several files add up.
    pub flags: WrittenFlags,
}

/// The key `maxima`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenMaxima {
    /// Memory of all processes. Default: 4g.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<Size>"))]
    pub memory: Option<AtLine<Size>>,
    /// Wall time. Default: 1h.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<Time>"))]
    pub timeout: Option<AtLine<Time>>,
    /// Processes and threads at once. Default: 4096.
    #[serde(deserialize_with = "stated")]
    #[cfg_attr(test, schemars(with = "Option<Count>"))]
    pub processes: Option<AtLine<Count>>,
}

/// The key `unpack`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenUnpack {
    /// Size of the archive. Default: 100m.
    #[serde(deserialize_with = "stated")]
    pub archive: Option<Size>,
    /// Size of all files. Default: 1g.
    #[serde(deserialize_with = "stated")]
    pub unpacked: Option<Size>,
    /// Files, directories and links. Default: 100000.
    #[serde(deserialize_with = "stated")]
    pub entries: Option<Count>,
}

/// The key `uid_range`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("anyOf" = serde_json::json!([
    {"properties": {"last": {"maximum": 65533}}},
    {"properties": {"first": {"minimum": 65535}}},
]))))]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenUidRange {
    /// The lowest uid.
    #[cfg_attr(test, schemars(range(min = 1, max = 4_294_967_294_u32)))]
    first: u32,
    /// The highest uid.
    #[cfg_attr(test, schemars(range(min = 1, max = 4_294_967_294_u32)))]
    last: u32,
}

impl TryFrom<WrittenUidRange> for UidRange {
    type Error = String;

    fn try_from(WrittenUidRange { first, last }: WrittenUidRange) -> Result<Self, String> {
        let range = first..=last;
        if range.is_empty() {
            return Err(format!("the first uid {first} is above the last {last}"));
        }
        for uid in [0, OVERFLOW_UID, u32::MAX] {
            if range.contains(&uid) {
                return Err(format!("the range has uid {uid}, which is reserved"));
            }
        }
        Ok(Self { first, last })
    }
}

/// A permission that a manifest may request; `all` means every permission.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Grant", with = "String", extend("enum" = GRANT_WORDS)))]
struct WrittenGrant(Grants);

impl<'de> Deserialize<'de> for WrittenGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let grants = grants_named(&word);
        grants
            .map(Self)
            .ok_or_else(|| D::Error::unknown_variant(&word, &GRANT_WORDS))
    }
}

fn grants<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Grants, D::Error> {
    let written = Vec::<WrittenGrant>::deserialize(deserializer)?;
    Ok(written.iter().flat_map(|grant| grant.0.iter()).collect())
}

/// A value and its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtLine<T> {
    pub value: T,
    pub line: u64,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AtLine<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            value: spanned.value,
        })
    }
}
