//! The config of a source artifact: where its snapshot comes from (stax, workspace sources).
//!
//! Written as canonical JSON with every key. When reading, unknown keys are ignored and optional
//! keys may be missing.
#![forbid(unsafe_code)]

mod parse;

use serde::Serialize;

pub use parse::{SourceConfigError, SourceConfigProblem};

use crate::oci::canonical_json::canonical_json;

/// The version of the specification that is written.
pub const SPEC_VERSION: &str = "1.0.0";
/// Longest config, in bytes: the limit of every document.
pub const CONFIG_BYTES_MAX: usize = crate::document::TEXT_BYTES_MAX;
/// Longest text in a config, in bytes. Descriptions have [`DESCRIPTION_BYTES_MAX`].
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 65_536;
/// Longest name and version of an artifact, in bytes: the limit of a tag.
pub const NAME_BYTES_MAX: usize = 128;

/// What a source artifact says of its snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SourceConfig {
    /// `1.0.0`, or a later 1.x of whoever wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub spec_version: Option<String>,
    /// Always `source`.
    pub kind: SourceConfigKind,
    /// What the source is called.
    pub name: String,
    /// Which state of it this is.
    pub version: String,
    /// What the snapshot was made of.
    pub source_type: SourceType,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub description: Option<String>,
    /// Where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotFacts>,
}

/// The one kind of config that is one of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SourceConfigKind {
    /// A source.
    #[default]
    Source,
}

/// What a snapshot was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SourceType {
    /// A working tree of git.
    Git,
    /// An archive that was unpacked.
    Archive,
    /// A directory.
    Directory,
}

impl SourceType {
    /// The word in the config.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Archive => "archive",
            Self::Directory => "directory",
        }
    }
}

/// Where a source comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Origin {
    /// Address of the repository, without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub url: Option<String>,
    /// `owner/name` of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub repo: Option<String>,
    /// Branch or tag, such as `refs/heads/main`.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub reference: Option<String>,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub commit: Option<String>,
}

impl Origin {
    /// Whether every field is unset.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a snapshot was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotFacts {
    /// The directory that it was made of; this program writes its last name only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub prepared_from_path: Option<String>,
    /// What of the source is in it, where that is not the whole: paths, or the patterns of a sparse
    /// checkout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub sparse: Vec<String>,
    /// Whether the trees of submodules are in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submodules: Option<Submodules>,
    /// How many files are in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "integer")))]
    pub file_count: Option<u64>,
}

/// Whether the trees of submodules are in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Submodules {
    /// Their directories are not there.
    Excluded,
    /// Their files are files of the snapshot.
    Included,
}

impl SourceConfig {
    /// A config with the required keys only.
    #[must_use]
    pub fn new(name: String, version: String, source_type: SourceType) -> Self {
        Self {
            spec_version: Some(SPEC_VERSION.to_owned()),
            kind: SourceConfigKind::Source,
            name,
            version,
            source_type,
            description: None,
            origin: None,
            snapshot: None,
        }
    }

    /// Formats the config as canonical JSON: equal configs give equal bytes.
    ///
    /// # Errors
    /// Never for this type; passes on the error of serde_json.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        canonical_json(self)
    }
}

/// Whether `text` is a valid artifact name, the part before `:` in `NAME:VERSION`: letters, digits,
/// `.`, `_` and `-`, starting with a letter or digit.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && is_version(text)
}

/// Whether `text` is a valid artifact version, which must be a valid tag: letters, digits, `.`, `_`
/// and `-`, not starting with `.` or `-`, at most 128 bytes.
#[must_use]
pub fn is_version(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A config with every key.
    pub(super) fn full() -> SourceConfig {
        SourceConfig {
            description: Some("The backend, \"as it is\"".to_owned()),
            origin: Some(Origin {
                url: Some("https://git.example.org/acme/backend.git".to_owned()),
                repo: Some("acme/backend".to_owned()),
                reference: Some("refs/heads/main".to_owned()),
                commit: Some("4f3a2b1c".repeat(5)),
            }),
            snapshot: Some(SnapshotFacts {
                prepared_from_path: Some("backend".to_owned()),
                sparse: vec!["services/api".to_owned(), "packages/shared".to_owned()],
                submodules: Some(Submodules::Excluded),
                file_count: Some(1824),
            }),
            ..SourceConfig::new(
                "backend".to_owned(),
                "2026.03.10-4f3a2b1".to_owned(),
                SourceType::Git,
            )
        }
    }

    #[test]
    fn a_config_is_the_same_bytes_everywhere() {
        let text = String::from_utf8(full().to_json().expect("written")).expect("UTF-8");
        assert_eq!(
            text,
            r#"{"description":"The backend, \"as it is\"","kind":"source","name":"backend","origin":{"commit":"4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c","ref":"refs/heads/main","repo":"acme/backend","url":"https://git.example.org/acme/backend.git"},"snapshot":{"fileCount":1824,"preparedFromPath":"backend","sparse":["services/api","packages/shared"],"submodules":"excluded"},"sourceType":"git","specVersion":"1.0.0","version":"2026.03.10-4f3a2b1"}"#
        );
        let smallest = SourceConfig::new("a".to_owned(), "1".to_owned(), SourceType::Directory);
        assert_eq!(
            String::from_utf8(smallest.to_json().expect("written")).expect("UTF-8"),
            r#"{"kind":"source","name":"a","sourceType":"directory","specVersion":"1.0.0","version":"1"}"#
        );
    }

    #[test]
    fn a_name_is_one_word_and_a_version_is_a_tag() {
        for (text, name, version) in [
            ("backend", true, true),
            ("Back_End-1.2", true, true),
            ("_x", false, true),
            (".x", false, false),
            ("-x", false, false),
            ("", false, false),
            ("a b", false, false),
            ("a/b", false, false),
            ("a:b", false, false),
            ("a+b", false, false),
            ("é", false, false),
        ] {
            assert_eq!((is_name(text), is_version(text)), (name, version), "{text}");
        }
        let longest = "n".repeat(NAME_BYTES_MAX);
        assert!(is_name(&longest) && !is_name(&format!("{longest}n")));
    }
}
