//! A host name in canonical form: lower-case letters, digits, `-` and `_`, no dot at the end, labels of
//! 1 to 63 bytes, at most 253 bytes.
//!
//! Parsers that read a name differently have been used to bypass checks. So checks, resolver and relay
//! share this type, and only [`HostName::from_labels`] and [`HostName::parse`] create it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest host name, in bytes (RFC 1035, without the dot at the end).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host name in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct HostName(String);

/// Why bytes are not a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    #[error("a label is empty")]
    EmptyLabel,
    #[error("a label has more than 63 bytes")]
    LongLabel,
    #[error("the name has more than 253 bytes")]
    Long,
    #[error("a label has a character other than letters, digits, `-` and `_`")]
    Character,
    #[error("a label starts or ends with `-`")]
    Hyphen,
    /// The last label is a number, as in an address.
    #[error("the last label is a number, as in an address")]
    Numeric,
}

impl HostName {
    /// Parses a name. One dot at the end is dropped; upper case becomes lower case.
    ///
    /// # Errors
    /// [`HostNameError`]: the first rule that it breaks.
    pub fn parse(text: &[u8]) -> Result<Self, HostNameError> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        Self::from_labels(text.split(|byte| *byte == b'.'))
    }

    /// Creates a name from the labels of a DNS message.
    ///
    /// # Errors
    /// [`HostNameError`]: the first rule that it breaks.
    pub fn from_labels<'label>(
        labels: impl IntoIterator<Item = &'label [u8]>,
    ) -> Result<Self, HostNameError> {
        let mut name = String::new();
        for label in labels {
            check_label(label)?;
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(
                label
                    .iter()
                    .map(|byte| char::from(byte.to_ascii_lowercase())),
            );
            if name.len() > NAME_BYTES_MAX {
                return Err(HostNameError::Long);
            }
        }
        // There was no label.
        if name.is_empty() {
            return Err(HostNameError::EmptyLabel);
        }
        if name.rsplit('.').next().is_some_and(is_numeric) {
            return Err(HostNameError::Numeric);
        }
        Ok(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is a subdomain of `parent`; false for `parent` itself.
    #[must_use]
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0
            .strip_suffix(&parent.0)
            .is_some_and(|rest| rest.ends_with('.'))
    }
}

/// Only names in canonical form.
impl TryFrom<String> for HostName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let name = Self::parse(text.as_bytes()).ok();
        let name = name.filter(|name| name.0 == text);
        name.ok_or("not a host name in canonical form")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn check_label(label: &[u8]) -> Result<(), HostNameError> {
    if label.is_empty() {
        return Err(HostNameError::EmptyLabel);
    }
    if label.len() > LABEL_BYTES_MAX {
        return Err(HostNameError::LongLabel);
    }
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !label.iter().all(is_allowed) {
        return Err(HostNameError::Character);
    }
    if label.starts_with(b"-") || label.ends_with(b"-") {
        return Err(HostNameError::Hyphen);
    }
    Ok(())
}

/// Whether C libraries could read a name with this last label as an address: `127.1`, `0x7f`.
#[must_use]
pub(crate) fn is_numeric(label: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"))
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digits(label) || hexadecimal
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_parsed_into_its_canonical_form() {
        for (text, form) in [
            ("api.openai.com", "api.openai.com"),
            ("API.OpenAI.com.", "api.openai.com"),
            ("_dmarc.example", "_dmarc.example"),
            ("localhost", "localhost"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            let name = HostName::parse(text.as_bytes()).expect(text);
            assert_eq!(name.as_str(), form);
        }
    }

    #[test]
    fn ambiguous_names_are_refused() {
        use HostNameError::{Character, EmptyLabel, Hyphen, Long, LongLabel, Numeric};
        let long_label = "a".repeat(64);
        let long = ["a".repeat(63).as_str(); 4].join(".");
        for (text, error) in [
            ("", EmptyLabel),
            (".", EmptyLabel),
            ("a..b", EmptyLabel),
            ("a.com..", EmptyLabel),
            (".a", EmptyLabel),
            ("a\0.com", Character),
            ("a b.com", Character),
            ("a/b.com", Character),
            ("-a.com", Hyphen),
            ("a-.com", Hyphen),
            ("b\u{fc}cher.example", Character),
            ("a.com:80", Character),
            ("127.0.0.1", Numeric),
            ("0x7f000001", Numeric),
            ("2130706433", Numeric),
            ("a.0x1", Numeric),
            (long_label.as_str(), LongLabel),
            (long.as_str(), Long),
        ] {
            assert_eq!(HostName::parse(text.as_bytes()), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_subdomain_differs_by_whole_labels() {
        let name = |text: &str| HostName::parse(text.as_bytes()).expect(text);
        let parent = name("anthropic.com");
        for (text, below) in [
            ("api.anthropic.com", true),
            ("a.b.anthropic.com", true),
            ("anthropic.com", false),
            ("evilanthropic.com", false),
            ("anthropic.com.evil.com", false),
        ] {
            assert_eq!(name(text).is_below(&parent), below, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_is_idempotent_and_never_panics(text: Vec<u8>) {
            if let Ok(name) = HostName::parse(&text) {
                prop_assert_eq!(HostName::parse(name.as_str().as_bytes()), Ok(name.clone()));
                prop_assert!(name.as_str().len() <= NAME_BYTES_MAX);
                prop_assert!(!name.as_str().ends_with('.'));
            }
        }
    }
}
