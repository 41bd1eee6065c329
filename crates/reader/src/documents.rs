//! Parses YAML, JSON and front matter.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use spec::document::{
    self, DocumentError, DocumentProblem, FlatNode, Format, Node, flatten, restore,
};
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

use crate::worker::{MALFORMED, TextWorker};
use crate::{WaitLimit, message};

const TIME_MAX: Duration = Duration::from_secs(10);
const MEMORY_BYTES_MAX: u64 = 128 << 20;
/// The most values and the longest text, escaped. Maximum of all documents of a bundle; more of them are
/// parsed one by one.
pub(crate) const DOCUMENTS_BYTES_MAX: usize = 32 << 20;

/// A document as the reader tells it.
#[derive(Debug, Serialize, Deserialize)]
enum Parsed {
    Document(Vec<FlatNode>),
    Error(DocumentError),
}

impl Parsed {
    fn new(permit: &ParsePermit, text: &[u8], format: Format) -> Self {
        Self::of(&document::parse(permit, text, format))
    }

    fn of(parsed: &Result<Node, DocumentError>) -> Self {
        match parsed {
            Ok(root) => Self::Document(flatten(root)),
            Err(error) => Self::Error(error.clone()),
        }
    }

    /// The document or error, checked for what a text can have.
    fn check(self) -> Result<Node, DocumentError> {
        let malformed = || failed(MALFORMED.to_owned());
        match self {
            Self::Document(list) => restore(list).ok_or_else(malformed),
            Self::Error(error) => {
                let text = error.to_string();
                let hint = error.problem.hint().unwrap_or_default();
                let is_plain = [text.as_str(), hint].iter().all(|text| {
                    text.len() <= message::TEXT_BYTES_MAX && text.split('\n').all(message::is_plain)
                });
                Err(if is_plain { error } else { malformed() })
            }
        }
    }
}

/// Documents that the reader of a bundle parsed, by their paths.
#[derive(Debug, Default)]
pub struct Documents(BTreeMap<RelPath, Result<Node, DocumentError>>);

impl Documents {
    /// Adds the document at `path`, or why it is none.
    pub fn insert(&mut self, path: RelPath, parsed: Result<Node, DocumentError>) {
        self.0.insert(path, parsed);
    }

    /// `None`: it was not parsed.
    #[must_use]
    pub fn get(&self, path: &RelPath) -> Option<&Result<Node, DocumentError>> {
        self.0.get(path)
    }

    /// Of no more than [`DOCUMENTS_BYTES_MAX`] bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let list = self.0.iter();
        let list: Vec<(&[u8], Parsed)> = list
            .map(|(path, parsed)| (path.as_bytes(), Parsed::of(parsed)))
            .collect();
        let mut bytes = serde_json::to_vec(&list).unwrap_or_default();
        if bytes.len() > DOCUMENTS_BYTES_MAX {
            bytes.clear();
        }
        bytes
    }

    /// No documents if a reader cannot have written `bytes`, or not to the end: each is then parsed by
    /// [`parse_document`], within limits of its own.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let list: Vec<(Vec<u8>, Parsed)> = serde_json::from_slice(bytes).unwrap_or_default();
        let checked = list.into_iter().filter_map(|(path, parsed)| {
            let path = RelPath::parse(&path).ok()?;
            Some((path, parsed.check()))
        });
        Self(checked.collect())
    }
}

fn failed(reason: String) -> DocumentError {
    DocumentError {
        place: None,
        problem: DocumentProblem::Reader { reason },
    }
}

/// Parses `text` as [`document::parse`] does.
///
/// # Errors
/// [`DocumentError`] with the place of the first error.
pub fn parse_document(text: &[u8], format: Format) -> Result<Node, DocumentError> {
    // What is refused unseen needs no process.
    document::check_size(text)?;
    let worker = TextWorker {
        time_max: TIME_MAX,
        memory_bytes: MEMORY_BYTES_MAX,
        answer_bytes: DOCUMENTS_BYTES_MAX,
        prepare: &|| Ok(()),
        run: &|permit, _source| {
            #[cfg(feature = "planted-bugs")]
            confinement::planted::trigger("documents", text);
            serde_json::to_vec(&Parsed::new(permit, text, format)).unwrap_or_default()
        },
    };
    let answer = worker
        .answer(&mut std::io::empty(), WaitLimit::default())
        .map_err(|no_answer| failed(no_answer.reason()))?;
    read_document_answer(&answer)
}

/// Parses the answer of the process that parses a document.
///
/// # Errors
/// That of the document; [`DocumentProblem::Reader`] for what a parser cannot have written.
pub fn read_document_answer(answer: &[u8]) -> Result<Node, DocumentError> {
    let parsed: Parsed =
        serde_json::from_slice(answer).map_err(|_error| failed(MALFORMED.to_owned()))?;
    parsed.check()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::document::TEXT_BYTES_MAX;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    #[test]
    fn documents_and_errors_are_those_of_the_parser() {
        for (text, format) in [
            ("a: [1, x]\n", Format::Yaml),
            ("{\"a\": [1, \"x\"]}", Format::Json),
            ("---\na: 1\n---\ntext\n", Format::FrontMatter),
            ("a: &x [1]\nb: *x\n", Format::Yaml),
            ("a: [", Format::Yaml),
            ("a: 1\na: 2\n", Format::Yaml),
            ("", Format::Yaml),
            ("\u{1b}[31m: {", Format::Json),
        ] {
            let here = document::parse(&PERMIT, text.as_bytes(), format);
            assert_eq!(parse_document(text.as_bytes(), format), here, "{text}");
        }
        let long = vec![b' '; TEXT_BYTES_MAX + 1];
        assert_eq!(
            parse_document(&long, Format::Yaml),
            document::parse(&PERMIT, &long, Format::Yaml)
        );
    }

    #[test]
    fn documents_of_a_bundle_are_read_back_and_nothing_else_is() {
        let path = RelPath::parse(b"a.yaml").expect("a path");
        let mut documents = Documents::default();
        documents.insert(
            path.clone(),
            document::parse(&PERMIT, b"a: [1]", Format::Yaml),
        );
        let written = documents.write();
        assert_eq!(Documents::read(&written).get(&path), documents.get(&path));
        for cut in 0..written.len() {
            assert_eq!(Documents::read(&written[..cut]).0.len(), 0, "{cut}");
        }
        let path = serde_json::to_string(&b"../a"[..]).expect("JSON");
        let outside = format!("[[{path},{{\"Document\":[]}}]]");
        assert_eq!(Documents::read(outside.as_bytes()).0.len(), 0);
        let empty = outside.replace(&path, "[97]");
        let read = Documents::read(empty.as_bytes());
        let parsed = read.get(&RelPath::parse(b"a").expect("a path"));
        let error = parsed.expect("told").as_ref().expect_err("no document");
        assert_eq!(error.problem.code(), "manifest_unparsed");
    }

    #[test]
    fn an_error_with_control_characters_is_not_repeated() {
        let told = Parsed::Error(DocumentError {
            place: None,
            problem: DocumentProblem::Syntax {
                reason: "\u{1b}[31m".to_owned(),
            },
        });
        let error = told.check().expect_err("malformed");
        assert_eq!(error.problem.code(), "manifest_unparsed");
    }
}
