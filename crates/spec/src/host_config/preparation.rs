//! `preparation`: where `needs` of `engine: sandbox` are installed from.

use serde::Deserialize;

use crate::host_config::elsewhere::{Range, Rule};
use crate::host_config::scalars::{AbsolutePath, Size, Time, stated};
use crate::preparation::{AptSource, IndexUrl, PreparationStatement};

/// The key `preparation`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenPreparation {
    /// Debian packages.
    #[serde(deserialize_with = "stated")]
    apt: Option<WrittenApt>,
    /// npm packages.
    #[serde(deserialize_with = "stated")]
    npm: Option<WrittenNpm>,
    /// Python packages.
    #[serde(deserialize_with = "stated")]
    pip: Option<WrittenPip>,
    /// Hosts that an installation may reach. Default: the hosts of the indexes. Several files: only
    /// what all of them allow.
    #[serde(deserialize_with = "stated")]
    allow: Option<Vec<Rule>>,
    /// Private addresses that these names may resolve to. Default: none. Several files: only what
    /// all of them allow.
    #[serde(deserialize_with = "stated")]
    allow_private: Option<Vec<Range>>,
    /// PEM file of certificates for the indexes, instead of the image's.
    #[serde(deserialize_with = "stated")]
    ca_file: Option<AbsolutePath>,
    /// Limits of one installation. The smallest of several files counts.
    limits: WrittenLimits,
}

/// The key `preparation.apt`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct WrittenApt {
    /// Default: the lists of the image; `allow` has to name their hosts then.
    sources: Vec<Source>,
    /// Keys that sign the sources, as exported by gpg. Default: the keys of the image.
    #[serde(deserialize_with = "stated")]
    trusted_keys: Option<AbsolutePath>,
}

/// The key `preparation.npm`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WrittenNpm {
    /// The registry.
    registry: Index,
}

/// The key `preparation.pip`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WrittenPip {
    /// The index (PEP 503), such as …/simple/.
    index: Index,
}

/// The key `preparation.limits`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct WrittenLimits {
    /// Memory of all processes, including written files. Default: 2g.
    #[serde(deserialize_with = "stated")]
    memory: Option<Size>,
    /// Wall time. Default: 10m.
    #[serde(deserialize_with = "stated")]
    timeout: Option<Time>,
    /// Size of written files. Default: 1g.
    #[serde(deserialize_with = "stated")]
    disk: Option<Size>,
}

/// An http or https URL without a user.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^https?://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:[/?#][!-\[\]-~]*)?$")))]
#[serde(try_from = "String")]
struct Index(IndexUrl);

impl TryFrom<String> for Index {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // A URL with a user may have a secret in it.
        IndexUrl::parse(&text)
            .map(Self)
            .map_err(|error| format!("the URL {error}"))
    }
}

/// A line of sources.list(5): `deb [OPTIONS] URL SUITE [COMPONENT…]`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^deb +(?:\[[ -\\^-~]*\] *)?https?://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:[/?#][!-\[\]-~]*)? +[!-~][ -~]*$")))]
#[serde(try_from = "String")]
struct Source(AptSource);

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        AptSource::parse(&text)
            .map(Self)
            .map_err(|error| format!("the source {error}"))
    }
}

impl WrittenPreparation {
    pub(super) fn statement(self) -> PreparationStatement {
        let list = |rules: Vec<Rule>| rules.into_iter().map(|rule| rule.0).collect();
        let ranges = |ranges: Vec<Range>| ranges.into_iter().map(|range| range.0).collect();
        PreparationStatement {
            apt: self.apt.map(|apt| {
                let sources = apt.sources.into_iter().map(|source| source.0).collect();
                (sources, apt.trusted_keys.map(Into::into))
            }),
            npm: self.npm.map(|npm| npm.registry.0),
            pip: self.pip.map(|pip| pip.index.0),
            allow: self.allow.map(list),
            allow_private: self.allow_private.map(ranges),
            ca_file: self.ca_file.map(Into::into),
            memory_bytes: self.limits.memory.map(|size| size.0),
            wall_time: self.limits.timeout.map(|time| time.0),
            disk_bytes: self.limits.disk.map(|size| size.0),
        }
    }
}
