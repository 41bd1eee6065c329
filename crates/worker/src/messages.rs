//! What the stream and its buckets contain: names, the request of a run, and its result. No I/O.

use std::collections::BTreeMap;
use std::fmt;

use companion::run_state::{Code, RunError, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spec::digest::Digest;

/// Most bytes of a message. The server has 1 MiB unless it is configured otherwise.
pub(crate) const MESSAGE_BYTES_MAX: usize = 512 << 10;
const NAME_BYTES_MAX: usize = 64;
const FILES_MAX: usize = 64;
/// Of one word: execve(2) takes 128 KiB.
const WORD_BYTES_MAX: usize = 64 << 10;

/// The name of a stream, and the beginning of those of its buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamName(String);

impl StreamName {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        name(text).map(Self)
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The id that the sender of a run gives it: part of a subject and key of its result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunId(String);

impl RunId {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        name(text).map(Self)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "expected 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`"
        )),
    }
}

/// What is run: the content of a message. It grants nothing; what a run may do, the worker decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// A bundle in the bucket of bundles.
    #[serde(with = "as_text")]
    pub(crate) bundle: Digest,
    /// The structured input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inputs: Option<Value>,
    /// Input files in the bucket of files, by their keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) input_files: BTreeMap<String, ObjectDigest>,
    /// Appended to the arguments of the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
}

impl RunRequest {
    /// # Errors
    /// A message: what is wrong.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, String> {
        let request: Self = serde_json::from_slice(content)
            .map_err(|error| format!("the message is not the request of a run: {error}"))?;
        request.check()?;
        Ok(request)
    }

    /// # Errors
    /// A message: what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.input_files.len() > FILES_MAX {
            return Err(format!("a run has at most {FILES_MAX} input files"));
        }
        let is_name = |key: &String| !key.is_empty() && !key.contains(['=', '/']) && !is_dots(key);
        if let Some(key) = self.input_files.keys().find(|key| !is_name(key)) {
            return Err(format!(
                "the key `{key}` of an input file is not the name of a file, or has a `=`"
            ));
        }
        let is_word = |word: &String| word.len() <= WORD_BYTES_MAX && !word.contains('\0');
        match self.input_files.keys().chain(&self.args).all(is_word) {
            true => Ok(()),
            false => Err(format!(
                "an argument or a key has a NUL, or more than {WORD_BYTES_MAX} bytes"
            )),
        }
    }
}

fn is_dots(key: &str) -> bool {
    key == "." || key == ".."
}

/// A digest in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ObjectDigest(#[serde(with = "as_text")] pub(crate) Digest);

mod as_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use spec::digest::Digest;

    pub(super) fn serialize<S: Serializer>(
        digest: &Digest,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(digest)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        Digest::parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is no digest: expected sha256: and 64 lower-case hexadecimal digits"
            ))
        })
    }
}

/// How a run ended: the value of its id in the bucket of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) id: String,
    pub(crate) state: State,
    pub(crate) error: Option<RunError>,
    /// The host and the process that ran it.
    pub(crate) worker: String,
    /// How often the message was delivered.
    pub(crate) deliveries: u64,
    /// The report of `runner exec`, in the bucket of files; `null`: there is none.
    pub(crate) report: Option<ObjectDigest>,
    /// What the body wrote to standard output; `null`: nothing.
    pub(crate) stdout: Option<ObjectDigest>,
    /// Standard error, with messages of `runner exec`; `null`: nothing.
    pub(crate) stderr: Option<ObjectDigest>,
    pub(crate) artifacts: Vec<Artifact>,
}

/// An output file, in the bucket of files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Artifact {
    pub(crate) key: String,
    /// Below a directory of outputs.
    pub(crate) path: String,
    pub(crate) digest: ObjectDigest,
    pub(crate) bytes: u64,
}

impl RunResult {
    /// Without files.
    pub(crate) fn new(id: &RunId, state: State, error: Option<RunError>) -> Self {
        Self {
            id: id.to_string(),
            state,
            error,
            worker: String::new(),
            deliveries: 0,
            report: None,
            stdout: None,
            stderr: None,
            artifacts: Vec::new(),
        }
    }

    /// Of a run that was not executed.
    pub(crate) fn failed(id: &RunId, code: Code, message: String) -> Self {
        Self::new(id, State::Failed, Some(RunError::new(code, message)))
    }

    /// Of a run that was cancelled before it began.
    pub(crate) fn cancelled(id: &RunId) -> Self {
        let message = "it was cancelled before it began".to_owned();
        let error = RunError::new(Code::Cancelled, message);
        Self::new(id, State::Cancelled, Some(error))
    }

    /// In place of one that is too large for a message.
    pub(crate) fn without_artifacts(&self) -> Self {
        let message = "its result has too many output files for a message".to_owned();
        Self {
            state: State::Failed,
            error: Some(RunError::new(Code::MissingArtifact, message)),
            artifacts: Vec::new(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens_of_a_subject() {
        for name in ["a", "build-7", "A_9", &"x".repeat(64)] {
            assert!(RunId::parse(name).is_ok(), "{name}");
        }
        for name in ["", "a.b", "a b", "*", ">", "a/b", "é", &"x".repeat(65)] {
            assert!(RunId::parse(name).is_err(), "{name}");
            assert!(StreamName::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_request_is_read_and_what_is_wrong_is_named() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let whole = format!(
            r#"{{"bundle":"{digest}","inputs":{{"n":1}},"input_files":{{"k":"{digest}"}},"args":["x"]}}"#
        );
        let request = RunRequest::parse(whole.as_bytes()).expect("it is whole");
        let written = serde_json::to_string(&request).expect("strings");
        assert_eq!(written, whole);
        for (text, problem) in [
            ("{", "not the request of a run"),
            ("{}", "missing field `bundle`"),
            (r#"{"bundle":"sha256:00"}"#, "no digest"),
            (
                &format!(r#"{{"bundle":"{digest}","memory":"9t"}}"#),
                "unknown field `memory`",
            ),
            (
                &format!(r#"{{"bundle":"{digest}","input_files":{{"a=b":"{digest}"}}}}"#),
                "`a=b`",
            ),
            (
                &format!(r#"{{"bundle":"{digest}","input_files":{{"../x":"{digest}"}}}}"#),
                "`../x`",
            ),
            (
                &format!(r#"{{"bundle":"{digest}","args":["a\u0000b"]}}"#),
                "a NUL",
            ),
            (
                &format!(
                    r#"{{"bundle":"{digest}","args":["{}"]}}"#,
                    "x".repeat(70_000)
                ),
                "65536 bytes",
            ),
        ] {
            let error = RunRequest::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(problem), "{error}");
        }
    }
}
