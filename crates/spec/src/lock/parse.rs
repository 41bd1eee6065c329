//! Strict parser of the lock file: every key required, no others, each error with its place.

use crate::digest::Digest;
use crate::document::{self, DocumentError, DocumentProblem, Format, Node, Place, Value, excerpt};
use crate::lock::{LOCK_VERSION, Lock, LockedKind, LockedNeeds, LockedSource};
use crate::path::escape;

/// Why a lock file is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.written())]
pub struct LockError {
    pub file: String,
    pub place: Option<Place>,
    pub pointer: Option<String>,
    pub problem: LockProblem,
}

/// Why a lock file is refused. Texts of the file are escaped and shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockProblem {
    #[error(transparent)]
    Document(#[from] DocumentProblem),
    #[error("found the key `{found}`, expected {expected}")]
    UnknownKey {
        found: String,
        /// The allowed keys.
        expected: String,
    },
    #[error("the key `{key}` is missing")]
    Missing { key: &'static str },
    #[error("found {found}, expected {expected}")]
    Wrong { found: String, expected: String },
}

impl LockError {
    fn written(&self) -> String {
        let place = self
            .place
            .map_or_else(String::new, |place| format!(":{place}"));
        let pointer = match self.pointer.as_deref() {
            None | Some("") => String::new(),
            Some(pointer) => format!(" at {pointer}"),
        };
        let file = escape(self.file.as_bytes());
        format!("{file}{place}{pointer}: {}", self.problem)
    }

    /// Stable name of the cause.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "lock_invalid"
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        "write it anew: `runner bundle … --lock FILE`".to_owned()
    }
}

const TOP_KEYS: [&str; 8] = [
    "version",
    "engine",
    "image",
    "needs",
    "egress",
    "secrets",
    "sources",
    "content_digest",
];
const NEEDS_KEYS: [&str; 4] = ["language", "native", "npm", "pip"];
const SOURCE_KEYS: [&str; 10] = [
    "from",
    "kind",
    "path",
    "repository",
    "reference",
    "sha",
    "archive_digest",
    "archive_bytes",
    "bytes",
    "files",
];
const REPOSITORY_KEYS: [&str; 5] = [
    "repository",
    "reference",
    "sha",
    "archive_digest",
    "archive_bytes",
];

impl Lock {
    /// Parses a lock file; `file` is its name in messages.
    ///
    /// # Errors
    /// [`LockError`] with the first error.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, LockError> {
        let root =
            document::parse(text, Format::Json).map_err(|error: DocumentError| LockError {
                file: file.to_owned(),
                place: error.place,
                pointer: None,
                problem: LockProblem::Document(error.problem),
            })?;
        Reader { file, root: &root }.lock(&root)
    }
}

struct Reader<'document> {
    file: &'document str,
    root: &'document Node,
}

impl<'document> Reader<'document> {
    fn lock(&self, root: &'document Node) -> Result<Lock, LockError> {
        let Value::Map(_) = root.value else {
            return Err(self.wrong(root, "a map"));
        };
        // Checked first: other versions may have other keys.
        let version = self.number(root, "version")?;
        if version != LOCK_VERSION {
            return Err(self.wrong(self.entry(root, "version")?, "1, the one version there is"));
        }
        self.known(root, &TOP_KEYS)?;
        let needs = self.entry(root, "needs")?;
        self.known(needs, &NEEDS_KEYS)?;
        let sources = self.list(root, "sources")?;
        Ok(Lock {
            version,
            engine: self.text(root, "engine")?,
            image: self.text_or_null(root, "image")?,
            needs: LockedNeeds {
                language: self.text_or_null(needs, "language")?,
                native: self.texts(needs, "native")?,
                npm: self.texts(needs, "npm")?,
                pip: self.texts(needs, "pip")?,
            },
            egress: self.texts(root, "egress")?,
            secrets: self.texts(root, "secrets")?,
            sources: sources
                .iter()
                .map(|source| self.source(source))
                .collect::<Result<_, _>>()?,
            content_digest: self.digest(root, "content_digest")?,
        })
    }

    fn source(&self, node: &'document Node) -> Result<LockedSource, LockError> {
        self.known(node, &SOURCE_KEYS)?;
        let kind = match self.text(node, "kind")?.as_str() {
            "inline" => LockedKind::Inline,
            "local" => LockedKind::Local,
            "github" => LockedKind::GitHub,
            _ => return Err(self.wrong(self.entry(node, "kind")?, "inline, local or github")),
        };
        let mut source = LockedSource {
            from: self.text(node, "from")?,
            kind,
            path: match node.get("path") {
                Some(_) => Some(self.text(node, "path")?),
                None => None,
            },
            repository: None,
            reference: None,
            sha: None,
            archive_digest: None,
            archive_bytes: None,
            bytes: self.number(node, "bytes")?,
            files: self.number(node, "files")?,
        };
        if kind == LockedKind::GitHub {
            source.repository = Some(self.text(node, "repository")?);
            source.reference = Some(self.text(node, "reference")?);
            source.sha = Some(self.commit(node)?);
            source.archive_digest = Some(self.digest(node, "archive_digest")?);
            source.archive_bytes = Some(self.number(node, "archive_bytes")?);
        } else if let Some(found) = REPOSITORY_KEYS.iter().find(|key| node.get(key).is_some()) {
            return Err(self.error(
                self.entry(node, found)?,
                LockProblem::UnknownKey {
                    found: (*found).to_owned(),
                    expected: format!("it for `github` only, not for `{}`", kind.word()),
                },
            ));
        }
        Ok(source)
    }

    fn commit(&self, node: &'document Node) -> Result<String, LockError> {
        let text = self.text(node, "sha")?;
        let is_commit = text.len() == 40
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_commit {
            return Ok(text);
        }
        let expected = "a commit, 40 hexadecimal digits in lower case";
        Err(self.wrong(self.entry(node, "sha")?, expected))
    }

    fn digest(&self, node: &'document Node, key: &'static str) -> Result<Digest, LockError> {
        Digest::parse(&self.text(node, key)?).ok_or_else(|| {
            let expected = "`sha256:` and 64 hexadecimal digits in lower case";
            match self.entry(node, key) {
                Ok(value) => self.wrong(value, expected),
                Err(error) => error,
            }
        })
    }

    fn number(&self, node: &'document Node, key: &'static str) -> Result<u64, LockError> {
        let value = self.entry(node, key)?;
        let number = match &value.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(value, "a whole number from 0 on"))
    }

    fn text(&self, node: &'document Node, key: &'static str) -> Result<String, LockError> {
        let value = self.entry(node, key)?;
        match &value.value {
            Value::Text(text) if !text.is_empty() => Ok(text.clone()),
            _ => Err(self.wrong(value, "text")),
        }
    }

    fn text_or_null(
        &self,
        node: &'document Node,
        key: &'static str,
    ) -> Result<Option<String>, LockError> {
        match self.entry(node, key)?.value {
            Value::Null => Ok(None),
            _ => self.text(node, key).map(Some),
        }
    }

    fn texts(&self, node: &'document Node, key: &'static str) -> Result<Vec<String>, LockError> {
        self.list(node, key)?
            .iter()
            .map(|item| match &item.value {
                Value::Text(text) if !text.is_empty() => Ok(text.clone()),
                _ => Err(self.wrong(item, "text")),
            })
            .collect()
    }

    fn list(
        &self,
        node: &'document Node,
        key: &'static str,
    ) -> Result<&'document [Node], LockError> {
        let value = self.entry(node, key)?;
        match &value.value {
            Value::List(items) => Ok(items),
            _ => Err(self.wrong(value, "a list")),
        }
    }

    fn entry(
        &self,
        node: &'document Node,
        key: &'static str,
    ) -> Result<&'document Node, LockError> {
        node.get(key)
            .ok_or_else(|| self.error(node, LockProblem::Missing { key }))
    }

    fn known(&self, node: &'document Node, keys: &[&str]) -> Result<(), LockError> {
        let Value::Map(entries) = &node.value else {
            return Err(self.wrong(node, "a map"));
        };
        match entries
            .iter()
            .find(|(key, _)| !keys.contains(&key.name.as_str()))
        {
            None => Ok(()),
            Some((key, value)) => {
                let mut error = self.error(
                    value,
                    LockProblem::UnknownKey {
                        found: excerpt(&key.name),
                        expected: keys.join(", "),
                    },
                );
                error.place = Some(key.place);
                Err(error)
            }
        }
    }

    fn wrong(&self, node: &Node, expected: &str) -> LockError {
        let found = match &node.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(text) => excerpt(text),
            Value::Text(text) => format!("`{}`", excerpt(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        };
        self.error(
            node,
            LockProblem::Wrong {
                found,
                expected: expected.to_owned(),
            },
        )
    }

    fn error(&self, node: &Node, problem: LockProblem) -> LockError {
        LockError {
            file: self.file.to_owned(),
            place: Some(node.place),
            pointer: self.root.pointer_to(node),
            problem,
        }
    }
}
