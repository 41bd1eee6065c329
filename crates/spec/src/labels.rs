//! Labels of sandboxes: names and values that mean something to whoever set them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::path::escape;

/// Most labels of a sandbox.
const LABELS_MAX: usize = 64;

/// Most bytes of all names and values together: each list has them.
const LABEL_BYTES_MAX: usize = 16 << 10;

/// By their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

/// They are no labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("`{found}` is not a label: expected NAME=VALUE, in UTF-8 and without NUL")]
    Form {
        /// Escaped and cut.
        found: String,
    },
    #[error("too many labels: expected at most {LABELS_MAX}")]
    TooMany,
    #[error(
        "the labels have {found} bytes: expected at most {LABEL_BYTES_MAX}, all names and values \
         together"
    )]
    TooLong { found: usize },
}

/// A word of a message, of a label that may have any length.
const SHOWN_BYTES_MAX: usize = 64;

impl Labels {
    /// Reads words of the form `NAME=VALUE`; `NAME` alone has an empty value. The last of a name counts.
    ///
    /// # Errors
    /// [`LabelError`].
    pub fn parse<'word>(words: impl IntoIterator<Item = &'word [u8]>) -> Result<Self, LabelError> {
        let mut labels = BTreeMap::new();
        for word in words {
            let (name, value) = split(word)?;
            labels.insert(name.to_owned(), value.to_owned());
        }
        if labels.len() > LABELS_MAX {
            return Err(LabelError::TooMany);
        }
        let sizes = labels.iter().map(|(name, value)| name.len() + value.len());
        match sizes.sum() {
            found if found > LABEL_BYTES_MAX => Err(LabelError::TooLong { found }),
            _ => Ok(Self(labels)),
        }
    }
}

/// Which labels a sandbox has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFilter {
    name: String,
    /// `None`: any.
    value: Option<String>,
}

impl LabelFilter {
    /// Reads `NAME` or `NAME=VALUE`.
    ///
    /// # Errors
    /// [`LabelError::Form`].
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        let (name, value) = split(text.as_bytes())?;
        Ok(Self {
            name: name.to_owned(),
            value: text.contains('=').then(|| value.to_owned()),
        })
    }

    /// Whether the labels have it.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        let found = labels.0.get(&self.name);
        found.is_some_and(|found| self.value.as_ref().is_none_or(|value| value == found))
    }
}

fn split(word: &[u8]) -> Result<(&str, &str), LabelError> {
    let text = std::str::from_utf8(word).ok();
    let label = text.map(|text| text.split_once('=').unwrap_or((text, "")));
    let label = label
        .filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'));
    label.ok_or_else(|| LabelError::Form {
        found: escape(&word[..word.len().min(SHOWN_BYTES_MAX)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Labels, LabelError> {
        Labels::parse(words.iter().map(|word| word.as_bytes()))
    }

    #[test]
    fn a_label_is_a_name_and_a_value_and_the_last_of_a_name_counts() {
        let labels = parse(&["a=1", "b", "c=x=y\n", "a=2", "ä="]).expect("labels");
        let found: Vec<_> = labels.0.iter().collect();
        let expected = [("a", "2"), ("b", ""), ("c", "x=y\n"), ("ä", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            found,
            expected
                .iter()
                .map(|(name, value)| (name, value))
                .collect::<Vec<_>>()
        );
        for bad in ["", "=", "=x", "a\0=b", "a=\0"] {
            assert!(
                matches!(parse(&[bad]), Err(LabelError::Form { .. })),
                "{bad:?}"
            );
        }
        let found = Labels::parse([&b"\xff=\x1b"[..]])
            .expect_err("not UTF-8")
            .to_string();
        assert!(found.starts_with(r"`\xff=\x1b` is not"), "{found}");
    }

    #[test]
    fn labels_have_a_limited_number_and_size() {
        let many: Vec<String> = (0..=LABELS_MAX).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(parse(&many), Err(LabelError::TooMany));
        assert!(parse(&many[1..]).is_ok());
        let longest = format!("a={}", "x".repeat(LABEL_BYTES_MAX - 1));
        assert!(parse(&[&longest]).is_ok());
        let longer = format!("{longest}x");
        let found = LABEL_BYTES_MAX + 1;
        assert_eq!(parse(&[&longer]), Err(LabelError::TooLong { found }));
        assert!(parse(&[&longest, "b=1"]).is_err());
        // Only what is kept counts.
        assert!(parse(&[&longer, "a=1"]).is_ok());
        let name = "\u{1b}".repeat(1 << 20);
        let found = parse(&[&format!("{name}\0")])
            .expect_err("a NUL")
            .to_string();
        assert!(found.len() < 1_000 && !found.contains('\u{1b}'), "{found}");
    }

    #[test]
    fn a_filter_names_a_label_and_may_name_its_value() {
        let labels = parse(&["a=1", "empty"]).expect("labels");
        for (filter, expected) in [
            ("a", true),
            ("a=1", true),
            ("a=", false),
            ("a=2", false),
            ("b", false),
            ("empty", true),
            ("empty=", true),
        ] {
            let parsed = LabelFilter::parse(filter).expect(filter);
            assert_eq!(parsed.matches(&labels), expected, "{filter}");
        }
        assert!(LabelFilter::parse("").is_err() && LabelFilter::parse("=x").is_err());
    }
}
