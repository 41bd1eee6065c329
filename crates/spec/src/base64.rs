//! Base64 (RFC 4648, section 4), with padding.

use std::fmt;

use ::base64::Engine as _;
use ::base64::display::Base64Display;
use ::base64::engine::general_purpose::STANDARD;

/// Displays bytes as Base64.
#[derive(Clone, Copy)]
pub struct Base64<'bytes>(pub &'bytes [u8]);

impl fmt::Display for Base64<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(self.0, &STANDARD).fmt(formatter)
    }
}

/// Omits the bytes: they may be a credential.
impl fmt::Debug for Base64<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Base64({} bytes)", self.0.len())
    }
}

/// Encodes without a buffer on the stack, as [`Base64`] has one: for a credential.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes padded Base64; `None` if it is invalid. Non-zero bits in the padding are invalid, so that
/// bytes have one encoding.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_are_encoded_and_decoded() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe", "//4="),
        ] {
            assert_eq!(Base64(bytes).to_string(), text);
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        for text in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "====", "Z===", "Zm-v", "Zm9v\n", "Z g=",
            "=m9v",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
