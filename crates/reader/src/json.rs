//! Parses structured inputs and outputs: JSON. The value comes back in a form whose decoder only compares
//! lengths: a tag, for texts, lists and maps their length, and what they hold.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Map, Number, Value};

use spec::io::contract::{
    DOCUMENT_BYTES_MAX, DOCUMENT_DEPTH_MAX, DOCUMENT_MEMORY_MAX, ReadDocumentError, read_document,
};

use crate::WaitLimit;
use crate::message::{is_plain, put_part, split_part};
use crate::worker::{MALFORMED, NoAnswer, TextWorker};

/// Parsing takes linear time: this is for a machine that is busy.
const TIME_MAX: Duration = Duration::from_secs(60);
/// The value, and the text and the answer, which grow by doubling.
const MEMORY_BYTES_MAX: u64 = 6 * DOCUMENT_MEMORY_MAX as u64;
/// A longer text is refused unseen.
const TEXT_BYTES_MAX: u64 = DOCUMENT_BYTES_MAX as u64 + 1;

/// Why there is no value.
#[derive(Debug)]
pub enum Unparsed {
    Document(ReadDocumentError),
    Cancelled(i32),
    Host(Errno),
}

/// Parses the text that `source` returns as [`read_document`] does. This process never holds it whole.
///
/// # Errors
/// [`Unparsed`].
pub fn parse_json(
    source: &mut dyn Read,
    memory_max: usize,
    wait_limit: WaitLimit<'_>,
) -> Result<Value, Unparsed> {
    let failed = |reason: String| Unparsed::Document(ReadDocumentError::Reader { reason });
    let worker = TextWorker {
        time_max: TIME_MAX,
        memory_bytes: MEMORY_BYTES_MAX,
        // No value takes more bytes than the memory that was estimated for it.
        answer_bytes: DOCUMENT_MEMORY_MAX,
        prepare: &|| Ok(()),
        run: &|permit, source: File| {
            let mut source = source.take(TEXT_BYTES_MAX);
            let mut text = Vec::new();
            if source.read_to_end(&mut text).is_err() {
                return Vec::new();
            }
            #[cfg(feature = "planted-bugs")]
            confinement::planted::trigger("json", &text);
            write(&read_document(permit, &text, memory_max))
        },
    };
    let answer = worker
        .answer(source, wait_limit)
        .map_err(|no_answer| match no_answer {
            NoAnswer::Cancelled(signal) => Unparsed::Cancelled(signal),
            NoAnswer::Host(errno) => Unparsed::Host(errno),
            other => failed(other.reason()),
        })?;
    read(&answer, memory_max.min(DOCUMENT_MEMORY_MAX))
        .ok_or_else(|| failed(MALFORMED.to_owned()))?
        .map_err(Unparsed::Document)
}

const ERROR: u8 = b'e';
const NULL: u8 = b'n';
const FALSE: u8 = b'0';
const TRUE: u8 = b'1';
const UNSIGNED: u8 = b'u';
const SIGNED: u8 = b'i';
const FLOAT: u8 = b'd';
const TEXT: u8 = b's';
const LIST: u8 = b'l';
const MAP: u8 = b'm';

fn write(parsed: &Result<Value, ReadDocumentError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match parsed {
        Ok(value) => put(value, &mut bytes),
        Err(error) => {
            bytes.push(ERROR);
            bytes.extend(serde_json::to_vec(error).unwrap_or_default());
        }
    }
    bytes
}

fn put(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(NULL),
        Value::Bool(value) => bytes.push(if *value { TRUE } else { FALSE }),
        Value::Number(number) => {
            let (tag, number) = if let Some(number) = number.as_u64() {
                (UNSIGNED, number.to_le_bytes())
            } else if let Some(number) = number.as_i64() {
                (SIGNED, number.to_le_bytes())
            } else {
                (FLOAT, number.as_f64().unwrap_or_default().to_le_bytes())
            };
            bytes.push(tag);
            bytes.extend(number);
        }
        Value::String(text) => {
            bytes.push(TEXT);
            put_part(text.as_bytes(), bytes);
        }
        Value::Array(values) => {
            bytes.push(LIST);
            bytes.extend((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| put(value, bytes));
        }
        Value::Object(entries) => {
            bytes.push(MAP);
            bytes.extend((entries.len() as u64).to_le_bytes());
            for (key, value) in entries {
                put_part(key.as_bytes(), bytes);
                put(value, bytes);
            }
        }
    }
}

/// `None` for what [`write`] does not return for a text within the limits.
fn read(bytes: &[u8], memory_max: usize) -> Option<Result<Value, ReadDocumentError>> {
    if let Some(error) = bytes.strip_prefix(&[ERROR]) {
        let error: ReadDocumentError = serde_json::from_slice(error).ok()?;
        return is_plain(&error.to_string()).then_some(Err(error));
    }
    let mut decoder = Decoder {
        rest: bytes,
        memory_left: memory_max,
    };
    let value = decoder.value(0)?;
    decoder.rest.is_empty().then_some(Ok(value))
}

struct Decoder<'bytes> {
    rest: &'bytes [u8],
    /// No more is charged than `read_document` estimates.
    memory_left: usize,
}

impl Decoder<'_> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.charge(size_of::<Value>())?;
        let (tag, rest) = self.rest.split_first()?;
        self.rest = rest;
        if matches!(*tag, LIST | MAP) && depth == DOCUMENT_DEPTH_MAX {
            return None;
        }
        Some(match *tag {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            UNSIGNED => Value::from(u64::from_le_bytes(self.number()?)),
            SIGNED => Value::from(i64::from_le_bytes(self.number()?)),
            FLOAT => Value::Number(Number::from_f64(f64::from_le_bytes(self.number()?))?),
            TEXT => Value::String(self.text()?),
            LIST => {
                let mut values = Vec::new();
                for _ in 0..u64::from_le_bytes(self.number()?) {
                    values.push(self.value(depth + 1)?);
                }
                Value::Array(values)
            }
            MAP => {
                let mut entries = Map::new();
                for _ in 0..u64::from_le_bytes(self.number()?) {
                    let key = self.text()?;
                    if entries.insert(key, self.value(depth + 1)?).is_some() {
                        return None;
                    }
                }
                Value::Object(entries)
            }
            _ => return None,
        })
    }

    fn number(&mut self) -> Option<[u8; 8]> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*number)
    }

    fn text(&mut self) -> Option<String> {
        let (text, rest) = split_part(self.rest)?;
        self.rest = rest;
        self.charge(text.len())?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn charge(&mut self, bytes: usize) -> Option<()> {
        self.memory_left = self.memory_left.checked_sub(bytes)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use spec::parse_permit::ParsePermit;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    #[test]
    fn values_and_errors_are_those_of_the_parser() {
        let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for text in [
            r#"{"b": [1, -1, 1.5, -0.0, 18446744073709551615, "x\u0000", null, true], "a": {}}"#,
            "[]",
            "5",
            "{\"a\": 1, \"a\": 2}",
            "",
            "[1,",
            "36893488147419103232",
            "\"\u{1b}\"",
            deep(DOCUMENT_DEPTH_MAX).as_str(),
            deep(DOCUMENT_DEPTH_MAX + 1).as_str(),
        ] {
            let here = read_document(&PERMIT, text.as_bytes(), DOCUMENT_MEMORY_MAX);
            let source = &mut text.as_bytes();
            let there = parse_json(source, DOCUMENT_MEMORY_MAX, WaitLimit::default());
            match (here, there) {
                // Maps compare without their order.
                (Ok(here), Ok(there)) => assert_eq!(here.to_string(), there.to_string()),
                (Err(here), Err(Unparsed::Document(there))) => assert_eq!(here, there),
                (here, there) => panic!("{text}: {here:?} {there:?}"),
            }
        }
    }

    #[test]
    fn the_memory_that_was_estimated_is_enough_for_the_answer() {
        for text in [
            format!("[{}0]", "0,".repeat(100_000)),
            format!("[{}[]]", "[],".repeat(100_000)),
            format!("[{}{{}}]", "{\"\":\"\"},".repeat(50_000)),
        ] {
            let text = text.as_bytes();
            let needed = (12..)
                .map(|power| 1usize << power)
                .find(|memory| read_document(&PERMIT, text, *memory).is_ok())
                .expect("a document");
            let parsed = parse_json(&mut &*text, needed, WaitLimit::default());
            assert_eq!(
                parsed.expect("a value"),
                read_document(&PERMIT, text, needed).expect("a value")
            );
        }
    }

    #[test]
    fn what_no_text_has_is_refused() {
        let nested = |levels| {
            let value = (0..levels).fold(json!(0), |value, _| json!([value]));
            write(&Ok(value))
        };
        assert!(read(&nested(DOCUMENT_DEPTH_MAX), 1 << 20).is_some());
        let number = |tag, bytes: [u8; 8]| [&[tag][..], &bytes].concat();
        let key = [&1u64.to_le_bytes()[..], b"a"].concat();
        let twice = [&number(MAP, 2u64.to_le_bytes())[..], &key, b"n", &key, b"n"].concat();
        for bad in [
            vec![],
            b"nn".to_vec(),
            b"x".to_vec(),
            number(LIST, [0xff; 8]),
            number(MAP, [0xff; 8]),
            number(TEXT, [0xff; 8]),
            number(FLOAT, f64::NAN.to_le_bytes()),
            [&number(TEXT, 1u64.to_le_bytes())[..], b"\xff"].concat(),
            twice,
            nested(DOCUMENT_DEPTH_MAX + 1),
            b"e{\"Syntax\":{\"reason\":\"\\u001b\"}}".to_vec(),
        ] {
            assert_eq!(read(&bad, 1 << 20), None, "{bad:?}");
        }
        let long = write(&Ok(json!("x".repeat(1000))));
        assert!(read(&long, 2000).is_some());
        assert_eq!(read(&long, 1000), None);
    }

    proptest! {
        #[test]
        fn no_answer_panics(cut in any::<prop::sample::Index>(), byte: u8) {
            let value = json!({"a": [1, "x", null, 1.5, -1], "b": {"c": true}});
            let mut bytes = write(&Ok(value));
            let index = cut.index(bytes.len());
            bytes[index] = byte;
            let _read = read(&bytes, 1 << 20);
            bytes.truncate(index);
            assert_eq!(read(&bytes, 1 << 20), None);
        }
    }
}
