//! The key `preparation`: the sources of packages for `needs` of `engine: sandbox`.

use serde::Deserialize;

use crate::egress::EgressRule;
use crate::host_config::scalars::{AbsolutePath, Size, Time, stated};
use crate::preparation::{AptSource, IndexUrl};
use crate::sources_policy::IpRange;

/// The key `preparation`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenPreparation {
    /// Debian packages.
    #[serde(deserialize_with = "stated")]
    pub apt: Option<WrittenApt>,
    /// npm packages.
    #[serde(deserialize_with = "stated")]
    pub npm: Option<WrittenNpm>,
    /// Python packages.
    #[serde(deserialize_with = "stated")]
    pub pip: Option<WrittenPip>,
    /// Hosts that an installation may reach. Default: the hosts of the indexes. Of several files only
    /// the hosts that all of them allow count.
    #[serde(deserialize_with = "stated")]
    pub allow: Option<Vec<EgressRule>>,
    /// Private addresses that these names may resolve to. Default: none. Of several files only the
    /// addresses that all of them allow count.
    #[serde(deserialize_with = "stated")]
    pub allow_private: Option<Vec<IpRange>>,
    /// PEM file of certificates for the indexes, instead of those of the image.
    #[serde(deserialize_with = "stated")]
    pub ca_file: Option<AbsolutePath>,
    /// Limits of one installation. Of several files the smallest value counts.
    pub limits: WrittenLimits,
}

/// The key `preparation.apt`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenApt {
    /// Default: the lists of the image; then `allow` must have their hosts.
    pub sources: Vec<AptSource>,
    /// Keys that sign the sources, as exported by gpg. Default: the keys of the image.
    #[serde(deserialize_with = "stated")]
    pub trusted_keys: Option<AbsolutePath>,
}

/// The key `preparation.npm`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WrittenNpm {
    /// The registry.
    pub registry: IndexUrl,
}

/// The key `preparation.pip`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WrittenPip {
    /// The index (PEP 503), such as …/simple/.
    pub index: IndexUrl,
}

/// The key `preparation.limits`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenLimits {
    /// Memory of all processes, including written files. Default: 2g.
    #[serde(deserialize_with = "stated")]
    pub memory: Option<Size>,
    /// Wall time. Default: 10m.
    #[serde(deserialize_with = "stated")]
    pub timeout: Option<Time>,
    /// Size of written files. Default: 1g.
    #[serde(deserialize_with = "stated")]
    pub disk: Option<Size>,
}

impl TryFrom<String> for IndexUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // A URL with a user may have a secret in it.
        Self::parse(&text).map_err(|error| format!("the URL {error}"))
    }
}

impl TryFrom<String> for AptSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|error| format!("the source {error}"))
    }
}
