//! Percent-encoding of parts of URLs (RFC 3986, 2.1).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is encoded in a part that holds no separator: everything but what is unreserved.
pub const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in a path, which keeps its `/`.
pub const PATH: &AsciiSet = &COMPONENT.remove(b'/');

/// `text` as a part of a URL, with the bytes in `encoded` encoded, and all beyond ASCII.
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
