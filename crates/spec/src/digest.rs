//! SHA-256 digests. The canonical form is `sha256:` and 64 lower-case hexadecimal digits.

use std::fmt;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hasher(<sha2::Sha256 as sha2::Digest>::new_with_prefix(bytes))
    }

    /// Returns the digest of `hasher`.
    #[must_use]
    pub fn from_hasher(hasher: sha2::Sha256) -> Self {
        Self(<sha2::Sha256 as sha2::Digest>::finalize(hasher).into())
    }

    /// Parses the canonical form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the 64 digits without `sha256:`, as a file name.
    #[must_use]
    pub fn hexadecimal(&self) -> String {
        self.to_string().split_off("sha256:".len())
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("sha256:")?;
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let expected = "`sha256:` and 64 hexadecimal digits in lower case";
            serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &expected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_string_has_the_published_digest() {
        assert_eq!(
            Digest::of(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn only_the_canonical_form_of_a_digest_is_parsed() {
        let digest = Digest::of(b"x");
        let text = digest.to_string();
        assert_eq!(Digest::parse(&text), Some(digest));
        for other in [
            &text[7..],
            &text[..70],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("sha256", "sha512"),
            "sha256:",
        ] {
            assert_eq!(Digest::parse(other), None, "{other}");
        }
    }
}
