//! Parses files of strangers that have formats of their own, such as the version in the file of a tool.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spec::parse_permit::ParsePermit;

use crate::WaitLimit;
use crate::worker::{MALFORMED, TextWorker};

const TIME_MAX: Duration = Duration::from_secs(10);
const MEMORY_BYTES: u64 = 64 << 20;
/// Copies of the text that a parser makes: as UTF-8, and with parts replaced.
const MEMORY_PER_BYTE: u64 = 12;
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Returns what `parse` returns for `text`. A bug of the parser lets the child return any `T`: use it as if
/// `text` had said so.
///
/// # Errors
/// Why there is no answer, as the end of a sentence.
pub fn parse_with<T: Serialize + DeserializeOwned>(
    text: &[u8],
    parse: &dyn Fn(&ParsePermit, &[u8]) -> T,
) -> Result<T, String> {
    let of_copies = MEMORY_PER_BYTE.saturating_mul(text.len() as u64);
    let worker = TextWorker {
        time_max: TIME_MAX,
        memory_bytes: MEMORY_BYTES.saturating_add(of_copies),
        answer_bytes: ANSWER_BYTES_MAX,
        prepare: &|| Ok(()),
        run: &|permit, _source| {
            #[cfg(feature = "planted-bugs")]
            confinement::planted::trigger("texts", text);
            serde_json::to_vec(&parse(permit, text)).unwrap_or_default()
        },
    };
    let answer = worker
        .answer(&mut std::io::empty(), WaitLimit::default())
        .map_err(|no_answer| no_answer.reason())?;
    read_text_answer(&answer).ok_or_else(|| MALFORMED.to_owned())
}

/// Parses the answer of the process that parses a text. `None` for what no parser answers.
#[must_use]
pub fn read_text_answer<T: DeserializeOwned>(answer: &[u8]) -> Option<T> {
    serde_json::from_slice(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_that_of_the_parser() {
        let permit = ParsePermit::for_trusted_text();
        let lines = |_: &ParsePermit, text: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(text);
            text.lines().map(str::to_owned).collect()
        };
        for text in [&b""[..], b"\n", b"a\nb\xff\n\x1b\"\\"] {
            assert_eq!(parse_with(text, &lines), Ok(lines(&permit, text)));
        }
        let bytes = |_: &ParsePermit, text: &[u8]| Some(text.to_vec());
        assert_eq!(parse_with(b"a\xff", &bytes), Ok(bytes(&permit, b"a\xff")));
    }

    ///
    #[test]
    fn a_parser_with_a_bug_ends_nobody_else() {
        let allocate = |_: &ParsePermit, _: &[u8]| {
            let mut texts = Vec::new();
            loop {
                texts.push("x".repeat(1 << 20));
                if texts.len() == usize::MAX {
                    return texts;
                }
            }
        };
        let long = |_: &ParsePermit, _: &[u8]| "x".repeat(ANSWER_BYTES_MAX);
        for answer in [
            parse_with(b"", &|_, _| deep(0)).map(drop),
            parse_with(b"", &allocate).map(drop),
            parse_with(b"", &long).map(drop),
            parse_with(b"", &|_, _| -> bool { panic!("a bug") }).map(drop),
        ] {
            let problem = answer.expect_err("no answer");
            assert!(problem.contains("ended without an answer"), "{problem}");
        }
    }

    /// Until the stack is full.
    #[expect(unconditional_recursion, reason = "a bug of a parser")]
    fn deep(depth: u64) -> u64 {
        let kept = std::hint::black_box([depth; 64]);
        deep(depth + 1) + kept[0]
    }

    ///
    #[test]
    fn the_parser_opens_no_file() {
        let open = |_: &ParsePermit, _: &[u8]| {
            let opened = std::fs::File::open("/etc/passwd").map(drop);
            format!("{:?}", opened.map_err(|error| error.kind()))
        };
        let refused = "Err(PermissionDenied)".to_owned();
        assert_eq!(parse_with(b"", &open), Ok(refused));
    }

    #[test]
    fn another_type_is_malformed() {
        /// Written as a number and read as a text.
        struct Forged;
        impl Serialize for Forged {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(1)
            }
        }
        impl<'de> serde::Deserialize<'de> for Forged {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|_text| Self)
            }
        }
        let answer = parse_with(b"", &|_, _| Forged).map(drop);
        assert_eq!(answer, Err(MALFORMED.to_owned()));
    }
}
