//! Parser of a source config: strict about the used keys, unknown keys are ignored.

use crate::document::{self, DocumentError, DocumentProblem, Format, Node, Place, Value, excerpt};
use crate::oci::source_config::{
    DESCRIPTION_BYTES_MAX, Origin, SnapshotFacts, SourceConfig, SourceConfigKind, SourceType,
    Submodules, TEXT_BYTES_MAX,
};

/// Why a config is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the config of the source artifact{}: {problem}", self.position())]
pub struct SourceConfigError {
    pub place: Option<Place>,
    pub pointer: Option<String>,
    pub problem: SourceConfigProblem,
}

/// Why a config is refused. Texts of the config are escaped and shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceConfigProblem {
    #[error(transparent)]
    Document(#[from] DocumentProblem),
    #[error("the key `{key}` is missing")]
    Missing { key: &'static str },
    #[error("found {found}, expected {expected}")]
    Wrong { found: String, expected: String },
}

impl SourceConfigError {
    fn position(&self) -> String {
        let place = self.place.map(|place| format!(", line {place}"));
        let pointer = self
            .pointer
            .as_deref()
            .filter(|pointer| !pointer.is_empty())
            .map(|pointer| format!(" at {pointer}"));
        [place, pointer].into_iter().flatten().collect()
    }

    /// Stable name of the cause.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "source_config_invalid"
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        "build the artifact anew: `runner source build DIR`".to_owned()
    }
}

impl SourceConfig {
    /// Parses a config. Unknown keys are ignored.
    ///
    /// # Errors
    /// [`SourceConfigError`] with the first error.
    pub fn parse(text: &[u8]) -> Result<Self, SourceConfigError> {
        let root = document::parse(text, Format::Json).map_err(|error: DocumentError| {
            SourceConfigError {
                place: error.place,
                pointer: None,
                problem: SourceConfigProblem::Document(error.problem),
            }
        })?;
        Reader { root: &root }.config()
    }
}

struct Reader<'document> {
    root: &'document Node,
}

impl<'document> Reader<'document> {
    fn config(&self) -> Result<SourceConfig, SourceConfigError> {
        const TYPES: [(&str, SourceType); 3] = [
            ("git", SourceType::Git),
            ("archive", SourceType::Archive),
            ("directory", SourceType::Directory),
        ];
        let root = self.root;
        self.map(root)?;
        let spec_version = self.text(root, "specVersion", TEXT_BYTES_MAX)?;
        if let Some(found) = &spec_version
            && found != "1"
            && !found.starts_with("1.")
        {
            let expected = "a version 1.x of the specification, the one that is known";
            return Err(self.wrong_at(root, "specVersion", expected));
        }
        let kind = self.required(root, "kind", |node, key| {
            self.word(node, key, &[("source", SourceConfigKind::Source)])
        })?;
        let name = self.required(root, "name", |node, key| self.title(node, key))?;
        let version = self.required(root, "version", |node, key| self.title(node, key))?;
        let source_type =
            self.required(root, "sourceType", |node, key| self.word(node, key, &TYPES))?;
        Ok(SourceConfig {
            spec_version,
            kind,
            name,
            version,
            source_type,
            description: self.text(root, "description", DESCRIPTION_BYTES_MAX)?,
            origin: match root.get("origin") {
                None => None,
                Some(node) => Some(self.origin(node)?),
            },
            snapshot: match root.get("snapshot") {
                None => None,
                Some(node) => Some(self.snapshot(node)?),
            },
        })
    }

    fn origin(&self, node: &'document Node) -> Result<Origin, SourceConfigError> {
        self.map(node)?;
        Ok(Origin {
            url: self.text(node, "url", TEXT_BYTES_MAX)?,
            repo: self.text(node, "repo", TEXT_BYTES_MAX)?,
            reference: self.text(node, "ref", TEXT_BYTES_MAX)?,
            commit: self.text(node, "commit", TEXT_BYTES_MAX)?,
        })
    }

    fn snapshot(&self, node: &'document Node) -> Result<SnapshotFacts, SourceConfigError> {
        const WORDS: [(&str, Submodules); 2] = [
            ("excluded", Submodules::Excluded),
            ("included", Submodules::Included),
        ];
        self.map(node)?;
        Ok(SnapshotFacts {
            prepared_from_path: self.text(node, "preparedFromPath", TEXT_BYTES_MAX)?,
            sparse: self.texts(node, "sparse")?,
            submodules: self.word(node, "submodules", &WORDS)?,
            file_count: match node.get("fileCount") {
                None => None,
                Some(_) => Some(self.number(node, "fileCount")?),
            },
        })
    }

    fn required<T>(
        &self,
        node: &'document Node,
        key: &'static str,
        read: impl FnOnce(&'document Node, &'static str) -> Result<Option<T>, SourceConfigError>,
    ) -> Result<T, SourceConfigError> {
        read(node, key)?.ok_or_else(|| self.error(node, SourceConfigProblem::Missing { key }))
    }

    fn word<T: Copy>(
        &self,
        node: &'document Node,
        key: &'static str,
        known: &[(&str, T)],
    ) -> Result<Option<T>, SourceConfigError> {
        let Some(text) = self.text(node, key, TEXT_BYTES_MAX)? else {
            return Ok(None);
        };
        match known.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<String> =
                    known.iter().map(|(word, _)| format!("`{word}`")).collect();
                Err(self.wrong_at(node, key, &words.join(" or ")))
            }
        }
    }

    fn title(
        &self,
        node: &'document Node,
        key: &'static str,
    ) -> Result<Option<String>, SourceConfigError> {
        match self.text(node, key, TEXT_BYTES_MAX)? {
            Some(text) if text.is_empty() => {
                Err(self.wrong_at(node, key, "text that is not empty"))
            }
            text => Ok(text),
        }
    }

    fn text(
        &self,
        node: &'document Node,
        key: &'static str,
        bytes_max: usize,
    ) -> Result<Option<String>, SourceConfigError> {
        let Some(value) = node.get(key) else {
            return Ok(None);
        };
        self.plain(value, bytes_max).map(Some)
    }

    fn plain(&self, value: &'document Node, bytes_max: usize) -> Result<String, SourceConfigError> {
        match &value.value {
            Value::Text(text) if text.len() <= bytes_max => Ok(text.clone()),
            _ => Err(self.wrong(value, &format!("text of at most {bytes_max} bytes"))),
        }
    }

    fn texts(
        &self,
        node: &'document Node,
        key: &'static str,
    ) -> Result<Vec<String>, SourceConfigError> {
        let Some(value) = node.get(key) else {
            return Ok(Vec::new());
        };
        match &value.value {
            Value::List(items) => items
                .iter()
                .map(|item| self.plain(item, TEXT_BYTES_MAX))
                .collect(),
            _ => Err(self.wrong(value, "a list of texts")),
        }
    }

    fn number(&self, node: &'document Node, key: &'static str) -> Result<u64, SourceConfigError> {
        let number = match node.get(key).map(|node| &node.value) {
            Some(Value::Number(text)) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong_at(node, key, "a whole number from 0 on"))
    }

    fn map(&self, node: &'document Node) -> Result<(), SourceConfigError> {
        match node.value {
            Value::Map(_) => Ok(()),
            _ => Err(self.wrong(node, "a map")),
        }
    }

    fn wrong_at(&self, node: &'document Node, key: &str, expected: &str) -> SourceConfigError {
        self.wrong(node.get(key).unwrap_or(node), expected)
    }

    fn wrong(&self, node: &Node, expected: &str) -> SourceConfigError {
        let found = match &node.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(text) => excerpt(text),
            Value::Text(text) => format!("`{}` ({} bytes)", excerpt(text), text.len()),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        };
        self.error(
            node,
            SourceConfigProblem::Wrong {
                found,
                expected: expected.to_owned(),
            },
        )
    }

    fn error(&self, node: &Node, problem: SourceConfigProblem) -> SourceConfigError {
        SourceConfigError {
            place: Some(node.place),
            pointer: self.root.pointer_to(node),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::source_config::tests::full;
    use proptest::prelude::*;

    const SMALLEST: &str = r#"{"kind":"source","name":"a","version":"1","sourceType":"directory"}"#;

    #[test]
    fn a_config_is_read_back_as_it_was_written() {
        let config = full();
        assert_eq!(
            SourceConfig::parse(&config.to_json().expect("written")),
            Ok(config)
        );
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
        let config = SourceConfig::parse(text.as_bytes()).expect("read");
        assert_eq!(config.source_type, SourceType::Git);
        let snapshot = config.snapshot.expect("a snapshot");
        assert_eq!(snapshot.sparse, ["services/api", "packages/shared"]);
        assert_eq!(snapshot.file_count, Some(1824));
        let commit = config.origin.expect("an origin").commit;
        assert_eq!(commit.as_deref(), Some("abc1234def5678"));
    }

    #[test]
    fn what_is_optional_may_be_missing_and_what_is_unknown_says_nothing() {
        let smallest = SourceConfig::parse(SMALLEST.as_bytes()).expect("read");
        assert_eq!((smallest.spec_version, smallest.origin), (None, None));
        let text = SMALLEST.replace(
            "{\"kind\"",
            r#"{"x-vendor":{"a":[1,null]},"origin":{"mirror":"m"},"kind""#,
        );
        let patient = SourceConfig::parse(text.as_bytes()).expect("read");
        assert!(patient.origin.expect("there").is_empty());
    }

    #[test]
    fn each_thing_that_no_config_has_is_refused_by_its_name() {
        let with = |from: &str, to: &str| SMALLEST.replace(from, to);
        let long = format!("\"name\":\"{}\"", "n".repeat(TEXT_BYTES_MAX + 1));
        for (text, said) in [
            (String::new(), "config of the source artifact"),
            ("[]".to_owned(), "found a list, expected a map"),
            ("{\"kind\":".to_owned(), "line 1:"),
            (
                with("\"kind\":\"source\",", ""),
                "the key `kind` is missing",
            ),
            (
                with("source\"", "agent\""),
                "at /kind: found `agent` (5 bytes), expected `source`",
            ),
            (
                with("\"a\"", "\"\""),
                "at /name: found `` (0 bytes), expected text that is not empty",
            ),
            (
                with("\"name\":\"a\"", &long),
                "expected text of at most 4096 bytes",
            ),
            (with("\"1\"", "1"), "at /version: found 1, expected text"),
            (
                with("directory", "svn"),
                "expected `git` or `archive` or `directory`",
            ),
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
                "expected a list of texts",
            ),
            (
                with("{", r#"{"snapshot":{"sparse":[1]},"#),
                "at /snapshot/sparse/0",
            ),
            (
                with("{", r#"{"snapshot":{"submodules":"some"},"#),
                "expected `excluded` or `included`",
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
            let error = SourceConfig::parse(text.as_bytes()).expect_err(&text);
            assert!(error.to_string().contains(said), "{text}: {error}");
            assert_eq!(error.code(), "source_config_invalid");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = SourceConfig::parse(&bytes);
        }
    }
}
