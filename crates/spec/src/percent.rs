//! Percent-encoding of parts of URLs (RFC 3986, 2.1).

/// Encodes `text` as a part of a URL. Unreserved characters and the bytes in `kept` stay.
#[must_use]
pub fn percent_encoded(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() || kept.contains(&byte) => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_url_is_percent_encoded() {
        assert_eq!(
            percent_encoded("feature/a-b_c.d~1", b"/"),
            "feature/a-b_c.d~1"
        );
        assert_eq!(percent_encoded("ü #%?&", b"/"), "%C3%BC%20%23%25%3F%26");
        assert_eq!(percent_encoded("a/b:c", b""), "a%2Fb%3Ac");
    }
}
