//! Base64 (RFC 4648, section 4), with padding.

use std::fmt;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Displays bytes as base64.
#[derive(Clone, Copy)]
pub struct Base64<'bytes>(pub &'bytes [u8]);

impl fmt::Display for Base64<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.chunks(3) {
            let group = chunk
                .iter()
                .fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
            let group = group << (8 * (3 - chunk.len()));
            let mut quad = [b'='; 4];
            for (place, digit) in (0_u32..).zip(&mut quad[..=chunk.len()]) {
                let index = usize::try_from(group >> (18 - 6 * place) & 63).unwrap_or(0);
                *digit = DIGITS[index];
            }
            formatter.write_str(std::str::from_utf8(&quad).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Shows nothing: the bytes may be a credential.
impl fmt::Debug for Base64<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Base64({} bytes)", self.0.len())
    }
}

/// Decodes groups of four digits. Only the last may be padded.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (index, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if 2 < padding || (0 < padding && index + 1 < groups.len()) {
            return None;
        }
        let mut bits: u32 = 0;
        for digit in &group[..4 - padding] {
            let value = DIGITS.iter().position(|known| known == digit)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        bits <<= 6 * padding;
        let whole = bits.to_be_bytes();
        // Bits under the padding must be zero, so that each value has one form.
        if whole[4 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&whole[1..4 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_are_written_and_read() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe", "//4="),
        ] {
            assert_eq!(Base64(bytes).to_string(), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_written_otherwise_is_not_read() {
        for text in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "====", "Z===", "Zm-v", "Zm9v\n", "Z g=",
            "=m9v",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
