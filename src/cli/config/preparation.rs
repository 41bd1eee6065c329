//! `preparation`: where `needs` of `engine: sandbox` are installed from.

use serde::Deserialize;

use crate::cli::config::elsewhere::{Range, Rule};
use crate::cli::config::scalars::{AbsolutePath, Size, Time, stated};
use spec::preparation::{AptSource, IndexUrl, PreparationStatement};

/// `preparation`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenPreparation {
    #[serde(deserialize_with = "stated")]
    apt: Option<WrittenApt>,
    #[serde(deserialize_with = "stated")]
    npm: Option<WrittenNpm>,
    #[serde(deserialize_with = "stated")]
    pip: Option<WrittenPip>,
    #[serde(deserialize_with = "stated")]
    allow: Option<Vec<Rule>>,
    #[serde(deserialize_with = "stated")]
    allow_private: Option<Vec<Range>>,
    #[serde(deserialize_with = "stated")]
    ca_file: Option<AbsolutePath>,
    limits: WrittenLimits,
}

/// `preparation.apt`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenApt {
    sources: Vec<Source>,
    #[serde(deserialize_with = "stated")]
    trusted_keys: Option<AbsolutePath>,
}

/// `preparation.npm`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNpm {
    registry: Index,
}

/// `preparation.pip`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPip {
    index: Index,
}

/// `preparation.limits`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenLimits {
    #[serde(deserialize_with = "stated")]
    memory: Option<Size>,
    #[serde(deserialize_with = "stated")]
    timeout: Option<Time>,
    #[serde(deserialize_with = "stated")]
    disk: Option<Size>,
}

#[derive(Deserialize)]
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

#[derive(Deserialize)]
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
