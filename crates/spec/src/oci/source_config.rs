//! The config of a source artifact: the origin of its snapshot (stax, workspace sources).
//!
//! Written as canonical JSON with every key. When reading, unknown keys are ignored and optional
//! keys may be missing.

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::document::{self, DocumentError, Node, ReadError};
use crate::oci::canonical_json::canonical_json;

/// The version of the specification that this program writes.
pub const SPEC_VERSION: &str = "1.0.0";
/// The limit of every document.
pub const CONFIG_BYTES_MAX: usize = crate::document::TEXT_BYTES_MAX;
/// Maximum length of a text other than a description.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Maximum length of a description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 65_536;
/// Maximum length of a name and of a version: the limit of a tag.
pub const NAME_BYTES_MAX: usize = 128;

/// Describes the snapshot of a source artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SourceConfig {
    /// Version of the specification: `1.0.0`, or a later 1.x of another writer.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        deserialize_with = "spec_version"
    )]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub spec_version: Option<String>,
    /// Always `source`.
    pub kind: SourceConfigKind,
    /// Name of the source.
    #[serde(deserialize_with = "title")]
    pub name: String,
    /// Version of the source.
    #[serde(deserialize_with = "title")]
    pub version: String,
    /// What the snapshot was made from.
    pub source_type: SourceType,
    /// Description for people.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        deserialize_with = "description"
    )]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub description: Option<String>,
    /// Origin of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How the snapshot was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotFacts>,
}

/// The kind of a config; sources have one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SourceConfigKind {
    /// A source.
    #[default]
    Source,
}

/// What a snapshot was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SourceType {
    /// A working tree of git.
    Git,
    /// An unpacked archive.
    Archive,
    /// A directory.
    Directory,
}

impl SourceType {
    /// The value in the config.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Archive => "archive",
            Self::Directory => "directory",
        }
    }
}

/// Origin of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Origin {
    /// URL of the repository, without credentials.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub url: Option<String>,
    /// `owner/name` of the repository.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub repo: Option<String>,
    /// Branch or tag, such as `refs/heads/main`.
    #[serde(
        rename = "ref",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "text"
    )]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub reference: Option<String>,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text")]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotFacts {
    /// The directory that it was made from. This program writes only the last segment.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub prepared_from_path: Option<String>,
    /// The included parts, if it is not the whole source: paths, or the patterns of a sparse checkout.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "texts")]
    pub sparse: Vec<String>,
    /// Whether it contains the files of submodules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submodules: Option<Submodules>,
    /// Number of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "integer")))]
    pub file_count: Option<u64>,
}

/// Whether a snapshot contains the files of submodules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Submodules {
    /// The directories of submodules are left out.
    Excluded,
    /// The files of submodules are included.
    Included,
}

/// Why a config is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the config of the source artifact{}{error}", line(.error))]
pub struct SourceConfigError {
    error: ReadError,
}

const fn line(error: &ReadError) -> &'static str {
    match error.place {
        Some(_) => ", line ",
        None => ": ",
    }
}

impl SourceConfigError {
    /// Stable error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "source_config_invalid"
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        "rebuild the artifact: `runner source build DIR`".to_owned()
    }
}

fn bounded<'de, D: Deserializer<'de>>(
    deserializer: D,
    bytes_max: usize,
) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() <= bytes_max {
        return Ok(text);
    }
    let found = format!("text of {} bytes", text.len());
    let expected = format!("text of at most {bytes_max} bytes");
    Err(D::Error::invalid_value(
        Unexpected::Other(&found),
        &expected.as_str(),
    ))
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    bounded(deserializer, TEXT_BYTES_MAX).map(Some)
}

fn description<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    bounded(deserializer, DESCRIPTION_BYTES_MAX).map(Some)
}

/// The text of an item of a list.
#[derive(Deserialize)]
struct Item(#[serde(deserialize_with = "text")] Option<String>);

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let items = Vec::<Item>::deserialize(deserializer)?;
    Ok(items.into_iter().filter_map(|item| item.0).collect())
}

fn title<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match bounded(deserializer, TEXT_BYTES_MAX)? {
        text if text.is_empty() => {
            let expected = "text that is not empty";
            Err(D::Error::invalid_value(Unexpected::Str(&text), &expected))
        }
        text => Ok(text),
    }
}

fn spec_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = bounded(deserializer, TEXT_BYTES_MAX)?;
    if text == "1" || text.starts_with("1.") {
        return Ok(Some(text));
    }
    let expected = "a version 1.x of the specification";
    Err(D::Error::invalid_value(Unexpected::Str(&text), &expected))
}

impl SourceConfig {
    /// Reads a config from its parsed document. Unknown keys are ignored.
    ///
    /// # Errors
    /// [`SourceConfigError`]: the first error.
    pub fn read(document: Result<Node, DocumentError>) -> Result<Self, SourceConfigError> {
        let read = document.map_err(ReadError::from);
        read.and_then(|root| document::from_node(&root))
            .map_err(|error| SourceConfigError { error })
    }

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
    /// The error of serde_json, which does not occur for this type.
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
    use crate::document::Format;
    use crate::parse_permit::PERMIT;
    use proptest::prelude::*;

    /// A config with every key.
    fn full() -> SourceConfig {
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

    fn parse(text: &[u8]) -> Result<SourceConfig, SourceConfigError> {
        SourceConfig::read(document::parse(&PERMIT, text, Format::Json))
    }

    #[test]
    fn a_config_has_one_encoding() {
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

    const SMALLEST: &str = r#"{"kind":"source","name":"a","version":"1","sourceType":"directory"}"#;

    #[test]
    fn a_config_survives_encoding_and_parsing() {
        let config = full();
        assert_eq!(parse(&config.to_json().expect("written")), Ok(config));
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let text = r#"{
            "specVersion": "1.0.0", "kind": "source", "name": "backend",
            "version": "2026.03.10-abc1234", "sourceType": "git",
            "origin": {
                "url": "https://git.example.org/acme/backend.git",
                "ref": "refs/heads/main", "commit": "abc1234def5678"
            },
            "snapshot": {
                "sparse": ["services/api", "packages/shared"],
                "submodules": "excluded", "fileCount": 1824
            }
        }"#;
        let config = parse(text.as_bytes()).expect("read");
        assert_eq!(config.source_type, SourceType::Git);
        let snapshot = config.snapshot.expect("a snapshot");
        assert_eq!(snapshot.sparse, ["services/api", "packages/shared"]);
        assert_eq!(snapshot.file_count, Some(1824));
        let commit = config.origin.expect("an origin").commit;
        assert_eq!(commit.as_deref(), Some("abc1234def5678"));
    }

    #[test]
    fn optional_keys_may_be_missing_and_unknown_keys_are_ignored() {
        let smallest = parse(SMALLEST.as_bytes()).expect("read");
        assert_eq!((smallest.spec_version, smallest.origin), (None, None));
        let text = SMALLEST.replace(
            "{\"kind\"",
            r#"{"x-vendor":{"a":[1,null]},"origin":{"mirror":"m"},"kind""#,
        );
        let config = parse(text.as_bytes()).expect("read");
        assert!(config.origin.expect("there").is_empty());
    }

    #[test]
    fn invalid_configs_are_refused_with_the_key() {
        let with = |from: &str, to: &str| SMALLEST.replace(from, to);
        let long = format!("\"name\":\"{}\"", "n".repeat(TEXT_BYTES_MAX + 1));
        for (text, expected) in [
            (String::new(), "config of the source artifact"),
            ("[]".to_owned(), "found a list, expected a map"),
            ("{\"kind\":".to_owned(), "line 1:"),
            (
                with("\"kind\":\"source\",", ""),
                "the key `kind` is missing",
            ),
            (
                with("source\"", "agent\""),
                "at /kind: found `agent`, expected source",
            ),
            (
                with("\"a\"", "\"\""),
                "at /name: found ``, expected text that is not empty",
            ),
            (
                with("\"name\":\"a\"", &long),
                "expected text of at most 4096 bytes",
            ),
            (with("\"1\"", "1"), "at /version: found 1, expected text"),
            (with("directory", "svn"), "expected git, archive, directory"),
            (
                with("{", r#"{"specVersion":"2.0.0","#),
                "a version 1.x of the specification",
            ),
            (
                with("{", r#"{"origin":[],"#),
                "at /origin: found a list, expected a map",
            ),
            (
                with("{", r#"{"origin":{"url":{}},"#),
                "at /origin/url: found a map, expected text",
            ),
            (
                with("{", r#"{"snapshot":{"sparse":"a"},"#),
                "at /snapshot/sparse: found `a`, expected a list",
            ),
            (
                with("{", r#"{"snapshot":{"sparse":[1]},"#),
                "at /snapshot/sparse/0",
            ),
            (
                with("{", r#"{"snapshot":{"submodules":"some"},"#),
                "expected excluded, included",
            ),
            (
                with("{", r#"{"snapshot":{"fileCount":-1},"#),
                "expected a whole number from 0 on",
            ),
            (
                with("{", r#"{"snapshot":{"fileCount":null},"#),
                "found null",
            ),
            (with("{", r#"{"kind":"source","#), "kind"),
        ] {
            let error = parse(text.as_bytes()).expect_err(&text);
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert_eq!(error.code(), "source_config_invalid");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = parse(&bytes);
        }
    }
}
