//! Output of the body in the report. The bytes are encoded while the report is written.
//!
//! Text with replaced bytes is up to three times as long as the bytes, Base64 a third longer.
//! Neither is stored in memory as a whole.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::base64::Base64;

/// One of the body's two output streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamReport {
    pub bytes: u64,
    pub dropped_bytes: u64,
    /// The captured bytes. In the document: `text` with replacement characters, and `text_base64`
    /// with the exact bytes if they are not UTF-8.
    pub captured: Option<Vec<u8>>,
}

impl StreamReport {
    /// The captured bytes if they are UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.captured.as_deref()?).ok()
    }

    /// The captured bytes; empty if the stream was not captured.
    #[must_use]
    pub fn captured_bytes(&self) -> &[u8] {
        self.captured.as_deref().unwrap_or_default()
    }
}

impl Serialize for StreamReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let captured = self.captured.as_deref();
        let exact = captured.filter(|_| self.text().is_none());
        let mut fields = serializer.serialize_struct("StreamReport", 4)?;
        fields.serialize_field("bytes", &self.bytes)?;
        fields.serialize_field("dropped_bytes", &self.dropped_bytes)?;
        fields.serialize_field("text", &captured.map(Lossy))?;
        fields.serialize_field("text_base64", &exact.map(Base64))?;
        fields.end()
    }
}

/// The fields of the document, for the schema.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "StreamReport")]
#[expect(dead_code, reason = "only the names and types of its fields are used")]
/// One of the body's two output streams.
pub(crate) struct StreamDocument {
    /// Bytes that the body wrote.
    bytes: u64,
    /// Bytes of these that were dropped.
    dropped_bytes: u64,
    /// The captured text, with U+FFFD for bytes that are not UTF-8; `null`: not captured.
    text: Option<String>,
    /// The captured bytes, if they are not UTF-8.
    text_base64: Option<String>,
}

/// Text with replacement characters for invalid UTF-8.
struct Lossy<'bytes>(&'bytes [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            formatter.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                formatter.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Lossy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf_8_are_also_encoded_as_base64() {
        let document = |captured: Option<&[u8]>| {
            let report = StreamReport {
                captured: captured.map(<[u8]>::to_vec),
                ..StreamReport::default()
            };
            serde_json::to_value(&report).expect("serialised")
        };
        let text = document(Some("ü\n".as_bytes()));
        assert_eq!(
            (&text["text"], &text["text_base64"]),
            (&"ü\n".into(), &().into())
        );
        let bytes = document(Some(b"a\xffb"));
        assert_eq!(bytes["text"], "a\u{fffd}b");
        assert_eq!(bytes["text_base64"], "Yf9i");
        assert_eq!(document(None)["text"], serde_json::Value::Null);
    }
}
