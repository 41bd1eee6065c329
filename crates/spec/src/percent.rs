//! Percent-encoding of parts of URLs (RFC 3986, 2.1).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Encodes all characters except the unreserved ones of RFC 3986.
pub const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// As [`COMPONENT`], but keeps `/`.
pub const PATH: &AsciiSet = &COMPONENT.remove(b'/');

/// Encodes `text` as a part of a URL: the bytes in `encoded`, and all that are not ASCII.
#[must_use]
pub fn percent_encoded(text: &str, encoded: &'static AsciiSet) -> String {
    utf8_percent_encode(text, encoded).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_url_is_percent_encoded() {
        assert_eq!(
            percent_encoded("feature/a-b_c.d~1", PATH),
            "feature/a-b_c.d~1"
        );
        assert_eq!(percent_encoded("ü #%?&", PATH), "%C3%BC%20%23%25%3F%26");
        assert_eq!(percent_encoded("a/b:c", COMPONENT), "a%2Fb%3Ac");
    }
}
