//! A configuration file as it is written: its keys and their shapes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::cli::config::elsewhere::{
    Slug, WrittenCache, WrittenEgress, WrittenGitHub, WrittenOci, WrittenSecrets,
};
use crate::cli::config::preparation::WrittenPreparation;
use crate::cli::config::scalars::{AbsolutePath, Count, Size, Time, stated};
use spec::host_policy::{AtLine, Statement, UidRange, grants_named, union};
use spec::image::ImageTemplate;
use spec::request::Grants;
use spec::syscall_policy::SyscallPolicyName;
use sys::credentials::OVERFLOW_UID;

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Written {
    maxima: WrittenMaxima,
    grants: Vec<Grant>,
    deny_grants: Vec<Grant>,
    #[serde(deserialize_with = "stated")]
    uid_range: Option<Uids>,
    #[serde(deserialize_with = "stated")]
    cgroup_parent: Option<AbsolutePath>,
    interpreters: Vec<AbsolutePath>,
    unpack: WrittenUnpack,
    #[serde(deserialize_with = "stated")]
    runtime_directory: Option<AbsolutePath>,
    egress: WrittenEgress,
    secrets: WrittenSecrets,
    refs: BTreeMap<Slug, AbsolutePath>,
    images: Vec<ImageTemplate>,
    cache: WrittenCache,
    github: WrittenGitHub,
    oci: WrittenOci,
    require_pin: bool,
    preparation: WrittenPreparation,
    #[serde(deserialize_with = "stated")]
    syscalls: Option<SyscallPolicyName>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenMaxima {
    #[serde(deserialize_with = "stated")]
    memory: Option<Spanned<Size>>,
    #[serde(deserialize_with = "stated")]
    timeout: Option<Spanned<Time>>,
    #[serde(deserialize_with = "stated")]
    processes: Option<Spanned<Count>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenUnpack {
    #[serde(deserialize_with = "stated")]
    archive: Option<Size>,
    #[serde(deserialize_with = "stated")]
    unpacked: Option<Size>,
    #[serde(deserialize_with = "stated")]
    entries: Option<Count>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUidRange {
    first: u32,
    last: u32,
}

#[derive(Deserialize)]
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

#[derive(Clone, Copy, Deserialize)]
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
