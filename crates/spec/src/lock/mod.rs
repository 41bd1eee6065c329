//! The lock file: pins the sources of a bundle, so that the next build uses the same.
//!
//! Its schema is `schemas/lock.schema.json`. It has commits, digests and sizes, but no values of
//! secrets, host paths, times or users.

use std::collections::BTreeSet;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::document::{self, DocumentError, Node, ReadError, ReadProblem, Value};
use crate::path::escape;

/// The only version.
pub const LOCK_VERSION: u64 = 1;

/// The inputs of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:lock")))]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// [`LOCK_VERSION`].
    #[cfg_attr(test, schemars(extend("const" = LOCK_VERSION)))]
    pub version: u64,
    /// `subprocess` or `sandbox`.
    pub engine: String,
    /// The image template.
    #[serde(deserialize_with = "document::nullable")]
    #[cfg_attr(test, schemars(required, extend("type" = ["string", "null"])))]
    pub image: Option<String>,
    /// The `needs` of the `runner` block.
    pub needs: LockedNeeds,
    /// Entries of the egress list, in normalized form.
    pub egress: Vec<String>,
    /// Names of the variables with secret values.
    pub secrets: Vec<String>,
    /// Every source, in the order of the overlay.
    pub sources: Vec<LockedSource>,
    /// SHA-256 of the canonical tar.
    #[cfg_attr(test, schemars(with = "String"))]
    pub content_digest: Digest,
}

/// The `needs` of the `runner` block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LockedNeeds {
    /// `node`, `python` or `multi`.
    #[serde(deserialize_with = "document::nullable")]
    #[cfg_attr(test, schemars(required, extend("type" = ["string", "null"])))]
    pub language: Option<String>,
    /// Packages of the operating system.
    pub native: Vec<String>,
    /// npm packages.
    pub npm: Vec<String>,
    /// Python packages.
    pub pip: Vec<String>,
}

/// The kind of a source. A `ref` is replaced by the sources of its code-workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockedKind {
    /// In the manifest.
    Inline,
    /// In the workspace.
    Local,
    /// In a repository.
    GitHub,
}

impl LockedKind {
    /// The word in the lock file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Local => "local",
            Self::GitHub => "github",
        }
    }
}

/// A source. Only the kind `github` has the fields of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LockedSource {
    /// The manifest, relative to the workspace, `#`, and the JSON Pointer of the source in it.
    pub from: String,
    /// The kind of the source.
    pub kind: LockedKind,
    /// The path of the source, as the manifest has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub path: Option<String>,
    /// `owner/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub repository: Option<String>,
    /// Commit, tag or branch, as the manifest has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub reference: Option<String>,
    /// The commit that the reference named.
    #[serde(
        default,
        deserialize_with = "commit",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(test, schemars(extend("type" = "string")))]
    pub sha: Option<String>,
    /// SHA-256 of the fetched archive. A service may repack a commit: another digest is not a
    /// difference of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("type" = "string")))]
    pub archive_digest: Option<Digest>,
    /// Size of the archive, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("type" = "integer")))]
    pub archive_bytes: Option<u64>,
    /// Size of the files of the source, in bytes.
    pub bytes: u64,
    /// Number of files, links included.
    pub files: u64,
}

fn commit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() == 40 && text.bytes().all(is_digit) {
        return Ok(Some(text));
    }
    let expected = "a commit, 40 hexadecimal digits in lower case";
    Err(D::Error::invalid_value(Unexpected::Str(&text), &expected))
}

/// Why a lock file is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{error}", escape(.file.as_bytes()), separator(.error))]
pub struct LockError {
    pub file: String,
    pub error: ReadError,
}

const fn separator(error: &ReadError) -> &'static str {
    match error.place {
        Some(_) => ":",
        None => ": ",
    }
}

impl LockError {
    /// Stable name of the cause.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "lock_invalid"
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        "write a new one: `runner bundle … --lock FILE`".to_owned()
    }
}

/// A difference between the lock file and the current state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: the lock file has {locked}, the manifest now has {now}")]
pub struct LockDifference {
    pub what: String,
    /// Escaped.
    pub locked: String,
    pub now: String,
}

impl Lock {
    /// Reads a lock file from its parsed `document`; `file` is its name in messages.
    ///
    /// # Errors
    /// [`LockError`] with the first error.
    pub fn read(document: Result<Node, DocumentError>, file: &str) -> Result<Self, LockError> {
        let read = document.map_err(ReadError::from);
        read.and_then(|root| Self::of(&root))
            .map_err(|error| LockError {
                file: file.to_owned(),
                error,
            })
    }

    fn of(root: &Node) -> Result<Self, ReadError> {
        // Checked first: other versions may have other keys.
        document::from_node::<Version>(root)?;
        let lock: Self = document::from_node(root)?;
        if let Some(empty) = empty_text(root) {
            return Err(ReadError::wrong(root, empty, "text"));
        }
        for (index, source) in lock.sources.iter().enumerate() {
            let node = root
                .get("sources")
                .and_then(|sources| sources.child(&index.to_string()));
            check_kind(root, node.unwrap_or(root), source)?;
        }
        Ok(lock)
    }

    /// Formats the lock file: keys sorted, indented by two spaces, a newline at the end.
    ///
    /// # Errors
    /// Never for this type; passes on the error of serde_json.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        value.sort_all_objects();
        let mut text = serde_json::to_string_pretty(&value)?;
        text.push('\n');
        Ok(text)
    }

    /// The locked commit of `reference` in `repository`.
    #[must_use]
    pub fn pinned(&self, repository: &str, reference: &str) -> Option<&str> {
        self.sources
            .iter()
            .find(|source| {
                source.repository.as_deref() == Some(repository)
                    && source.reference.as_deref() == Some(reference)
            })
            .and_then(|source| source.sha.as_deref())
    }

    /// The differences between `now` and this lock file, in the order of the file.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<LockDifference> {
        let Self {
            version: _,
            engine,
            image,
            needs,
            egress,
            secrets,
            sources,
            content_digest,
        } = self;
        let LockedNeeds {
            language,
            native,
            npm,
            pip,
        } = needs;
        let mut found = Differences::default();
        found.compare("engine", Some(engine), Some(&now.engine));
        found.compare("image", image.as_ref(), now.image.as_ref());
        let language_now = now.needs.language.as_ref();
        found.compare("needs.language", language.as_ref(), language_now);
        found.compare_sets("needs.native", native, &now.needs.native);
        found.compare_sets("needs.npm", npm, &now.needs.npm);
        found.compare_sets("needs.pip", pip, &now.needs.pip);
        found.compare_sets("egress", egress, &now.egress);
        found.compare_sets("secrets", secrets, &now.secrets);
        found.compare_sources(sources, &now.sources);
        let digests = [content_digest, &now.content_digest].map(|digest| digest.to_string());
        found.compare("content_digest", Some(&digests[0]), Some(&digests[1]));
        found.0
    }
}

#[derive(Deserialize)]
struct Version {
    #[serde(deserialize_with = "known_version", rename = "version")]
    _version: (),
}

fn known_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match u64::deserialize(deserializer)? {
        LOCK_VERSION => Ok(()),
        other => Err(D::Error::invalid_value(
            Unexpected::Unsigned(other),
            &"1, the only version",
        )),
    }
}

fn empty_text(node: &Node) -> Option<&Node> {
    match &node.value {
        Value::Text(text) => text.is_empty().then_some(node),
        Value::List(items) => items.iter().find_map(empty_text),
        Value::Map(entries) => entries.iter().find_map(|(_, value)| empty_text(value)),
        _ => None,
    }
}

/// Checks that a source has the keys of a repository if and only if its kind is `github`.
fn check_kind(root: &Node, node: &Node, source: &LockedSource) -> Result<(), ReadError> {
    let is_github = source.kind == LockedKind::GitHub;
    for key in REPOSITORY_KEYS {
        let (at, problem) = match node.get(key) {
            None if is_github => (node, ReadProblem::Missing { key }),
            Some(value) if !is_github => {
                let reason = format!(
                    "found the key `{key}` in a source of kind `{}`; only `github` has it",
                    source.kind.word()
                );
                (value, ReadProblem::Refused { reason })
            }
            _ => continue,
        };
        return Err(ReadError::at(root, at, problem));
    }
    Ok(())
}

const REPOSITORY_KEYS: [&str; 5] = [
    "repository",
    "reference",
    "sha",
    "archive_digest",
    "archive_bytes",
];

#[derive(Default)]
struct Differences(Vec<LockDifference>);

impl Differences {
    fn compare(&mut self, what: &str, locked: Option<&String>, now: Option<&String>) {
        if locked != now {
            let quoted = |text: Option<&String>| match text {
                Some(text) => format!("`{}`", escape(text.as_bytes())),
                None => "none".to_owned(),
            };
            let difference = LockDifference {
                what: what.to_owned(),
                locked: quoted(locked),
                now: quoted(now),
            };
            // A code-workspace that is referenced twice has its sources twice.
            if !self.0.contains(&difference) {
                self.0.push(difference);
            }
        }
    }

    /// Compares lists whose order has no meaning.
    fn compare_sets(&mut self, what: &str, locked: &[String], now: &[String]) {
        let (before, after): (BTreeSet<_>, BTreeSet<_>) =
            (locked.iter().collect(), now.iter().collect());
        for gone in before.difference(&after) {
            self.compare(what, Some(gone), None);
        }
        for new in after.difference(&before) {
            self.compare(what, None, Some(new));
        }
    }

    fn compare_sources(&mut self, locked: &[LockedSource], now: &[LockedSource]) {
        let names = |sources: &[LockedSource]| -> Vec<String> {
            sources.iter().map(|source| source.from.clone()).collect()
        };
        let (before, after) = (names(locked), names(now));
        let known = self.0.len();
        self.compare_sets("sources", &before, &after);
        if self.0.len() == known {
            let lists = [before.join(", "), after.join(", ")];
            self.compare("order of the sources", Some(&lists[0]), Some(&lists[1]));
        }
        for source in locked {
            if let Some(other) = now.iter().find(|other| other.from == source.from) {
                self.compare_source(source, other);
            }
        }
    }

    fn compare_source(&mut self, locked: &LockedSource, now: &LockedSource) {
        let values = |source: &LockedSource| {
            let LockedSource {
                from: _,
                kind,
                path,
                repository,
                reference,
                sha,
                archive_digest: _,
                archive_bytes: _,
                bytes,
                files,
            } = source;
            [
                ("kind", Some(kind.word().to_owned())),
                ("path", path.clone()),
                ("repository", repository.clone()),
                ("reference", reference.clone()),
                ("sha", sha.clone()),
                ("bytes", Some(bytes.to_string())),
                ("files", Some(files.to_string())),
            ]
        };
        for ((field, before), (_, after)) in values(locked).iter().zip(&values(now)) {
            let what = format!("source {}: {field}", escape(locked.from.as_bytes()));
            self.compare(&what, before.as_ref(), after.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Format;
    use crate::parse_permit::PERMIT;

    pub(super) fn example() -> Lock {
        Lock {
            version: LOCK_VERSION,
            engine: "subprocess".to_owned(),
            image: None,
            needs: LockedNeeds {
                language: Some("node".to_owned()),
                native: vec!["ffmpeg".to_owned()],
                ..LockedNeeds::default()
            },
            egress: vec!["api.example.org:443".to_owned()],
            secrets: vec!["API_KEY".to_owned()],
            sources: vec![
                LockedSource {
                    from: "tool/manifest.yaml#/code/sources/0".to_owned(),
                    kind: LockedKind::GitHub,
                    path: Some("lib".to_owned()),
                    repository: Some("org/shell".to_owned()),
                    reference: Some("v1.2".to_owned()),
                    sha: Some("4f3a2b1c".repeat(5)),
                    archive_digest: Some(Digest::of(b"archive")),
                    archive_bytes: Some(7),
                    bytes: 12,
                    files: 2,
                },
                LockedSource {
                    from: "tool/manifest.yaml#/code/sources/1".to_owned(),
                    kind: LockedKind::Inline,
                    path: Some("run.sh".to_owned()),
                    repository: None,
                    reference: None,
                    sha: None,
                    archive_digest: None,
                    archive_bytes: None,
                    bytes: 3,
                    files: 1,
                },
            ],
            content_digest: Digest::of(b"content"),
        }
    }

    fn parse(text: &str) -> Result<Lock, LockError> {
        Lock::read(document::parse(&PERMIT, text.as_bytes(), Format::Json), "l")
    }

    #[test]
    fn a_written_lock_file_is_read_back_and_has_sorted_keys() {
        let lock = example();
        let text = lock.to_json().expect("written");
        assert_eq!(parse(&text), Ok(lock));
        assert!(text.ends_with("}\n"));
        let keys: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("  \"")?.split('"').next())
            .collect();
        assert!(keys.is_sorted() && keys.len() == 8, "{keys:?}");
    }

    #[test]
    fn the_commit_of_a_reference_is_found_by_repository_and_reference() {
        let lock = example();
        let sha = "4f3a2b1c".repeat(5);
        assert_eq!(lock.pinned("org/shell", "v1.2"), Some(sha.as_str()));
        assert_eq!(lock.pinned("org/shell", "v1.3"), None);
        assert_eq!(lock.pinned("org/other", "v1.2"), None);
    }

    #[test]
    fn each_difference_is_named() {
        let lock = example();
        assert_eq!(lock.differences(&lock), []);
        type Change = fn(&mut Lock);
        let change: [(&str, Change); 14] = [
            (
                "engine: the lock file has `subprocess`, the manifest now has `sandbox`",
                |lock| {
                    lock.engine = "sandbox".to_owned();
                },
            ),
            (
                "image: the lock file has none, the manifest now has `node`",
                |lock| {
                    lock.image = Some("node".to_owned());
                },
            ),
            (
                "needs.language: the lock file has `node`, the manifest now has none",
                |lock| {
                    lock.needs.language = None;
                },
            ),
            (
                "needs.native: the lock file has `ffmpeg`, the manifest now has none",
                |lock| {
                    lock.needs.native.clear();
                },
            ),
            (
                "needs.npm: the lock file has none, the manifest now has `x@1`",
                |lock| {
                    lock.needs.npm.push("x@1".to_owned());
                },
            ),
            (
                "needs.pip: the lock file has none, the manifest now has `x==1`",
                |lock| {
                    lock.needs.pip.push("x==1".to_owned());
                },
            ),
            (
                "egress: the lock file has none, the manifest now has `*.example.org`",
                |lock| {
                    lock.egress.push("*.example.org".to_owned());
                },
            ),
            (
                "secrets: the lock file has `API_KEY`, the manifest now has none",
                |lock| {
                    lock.secrets.clear();
                },
            ),
            (
                "sources: the lock file has `tool/manifest.yaml#/code/sources/1`, the manifest now has none",
                |lock| {
                    lock.sources.truncate(1);
                },
            ),
            ("order of the sources", |lock| lock.sources.reverse()),
            ("source tool/manifest.yaml#/code/sources/0: sha", |lock| {
                lock.sources[0].sha = Some("0".repeat(40));
            }),
            (
                "source tool/manifest.yaml#/code/sources/0: reference: the lock file has `v1.2`, the manifest now has `v1.3`",
                |lock| {
                    lock.sources[0].reference = Some("v1.3".to_owned());
                },
            ),
            (
                "source tool/manifest.yaml#/code/sources/1: bytes: the lock file has `3`, the manifest now has `4`",
                |lock| {
                    lock.sources[1].bytes = 4;
                },
            ),
            ("content_digest", |lock| {
                lock.content_digest = Digest::of(b"other")
            }),
        ];
        for (expected, change) in change {
            let mut now = lock.clone();
            change(&mut now);
            let differences = lock.differences(&now);
            let [only] = differences.as_slice() else {
                panic!("{expected}: {differences:?}");
            };
            assert!(only.to_string().starts_with(expected), "{only}");
        }
    }

    #[test]
    fn a_difference_of_a_source_that_occurs_twice_is_reported_once() {
        let mut lock = example();
        lock.sources.push(lock.sources[1].clone());
        let mut now = lock.clone();
        for source in &mut now.sources[1..] {
            source.bytes = 4;
        }
        assert_eq!(lock.differences(&now).len(), 1);
    }

    #[test]
    fn the_order_of_lists_and_the_archive_are_no_difference() {
        let mut lock = example();
        lock.egress.push("b.example.org".to_owned());
        let mut now = lock.clone();
        now.egress.reverse();
        now.sources[0].archive_digest = Some(Digest::of(b"packed anew"));
        now.sources[0].archive_bytes = Some(8);
        assert_eq!(lock.differences(&now), []);
    }

    #[test]
    fn an_invalid_lock_file_is_refused_with_its_place() {
        let text = example().to_json().expect("written");
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        };
        for (text, expected) in [
            (String::new(), "l:1:1: "),
            ("[]".to_owned(), "l:1:1: found a list, expected a map"),
            ("{".to_owned(), "l:1:"),
            ("{}".to_owned(), "l:1:1: the key `version` is missing"),
            (
                with("\"version\": 1", "\"version\": 2"),
                "at /version: found 2, expected 1",
            ),
            (
                with("\"version\": 1", "\"version\": \"1\""),
                "at /version: found `1`, expected a whole",
            ),
            (
                with("\"engine\":", "\"motor\":"),
                "found the key `motor`, expected version",
            ),
            (
                with("\"subprocess\"", "7"),
                "at /engine: found 7, expected text",
            ),
            (
                with("\"image\": null,", ""),
                "l:1:1: the key `image` is missing",
            ),
            (
                with("\"pip\": []", "\"pip\": [1]"),
                "at /needs/pip/0: found 1, expected text",
            ),
            (
                with("\"pip\": []", "\"pip\": [], \"gem\": []"),
                "at /needs/gem: found the key `gem`",
            ),
            (
                with("\"kind\": \"inline\"", "\"kind\": \"ref\""),
                "at /sources/1/kind: found `ref`",
            ),
            (with("4f3a2b1c4f3a", "4F3A2b1c4f3a"), "at /sources/0/sha"),
            (
                with("\"bytes\": 3", "\"bytes\": -3"),
                "at /sources/1/bytes: found -3",
            ),
            (
                with(
                    "\"files\": 1",
                    &format!("\"files\": 1, \"sha\": \"{}\"", "0".repeat(40)),
                ),
                "at /sources/1/sha: found the key `sha` in a source of kind `inline`; only `github`",
            ),
            (with("sha256:", "sha1:"), "at /content_digest: found `sha1:"),
            (
                with("\"secrets\":", "\"engine\": \"x\", \"secrets\":"),
                "duplicate key `engine`",
            ),
        ] {
            let error = parse(&text).expect_err("refused");
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            assert!(error.to_string().starts_with("l:"), "{error}");
            assert_eq!(error.code(), "lock_invalid");
        }
    }

    #[test]
    fn the_published_schema_of_the_lock_file_is_that_of_its_types() {
        let mut generated =
            serde_json::to_string_pretty(&schemars::schema_for!(Lock)).expect("a schema");
        generated.push('\n');
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../schemas/lock.schema.json"
        );
        support::golden::assert_golden(path.as_ref(), &generated);
        let schema = serde_json::from_str(&generated).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let lock = example();
        let mut value = serde_json::to_value(&lock).expect("JSON");
        assert!(validator.is_valid(&value));
        value["more"] = serde_json::Value::Null;
        assert!(!validator.is_valid(&value));
    }
}
