//! Shapes of references, which decide how long a commit is cached (AIP-26, "Cache invalidation for
//! github sources").

use std::fmt;
use std::time::Duration;

/// How long the commit of a version tag is cached.
pub(crate) const TAG_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// Shape of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefShape {
    /// `^[0-9a-f]{40}$`. It never changes.
    Commit,
    /// `^v[0-9]+(\.[0-9]+)*$`. It is resolved again after `TAG_LIFETIME`.
    VersionTag,
    /// 7 to 39 hexadecimal digits: probably an abbreviated commit. Treated as
    /// [`RefShape::Floating`].
    Abbreviated,
    /// A branch or another tag. It is resolved each time.
    Floating,
}

impl RefShape {
    /// Determines the shape of `reference`.
    #[must_use]
    pub fn of(reference: &str) -> Self {
        if is_commit(reference) {
            return Self::Commit;
        }
        let is_version = reference.strip_prefix('v').is_some_and(|numbers| {
            numbers.split('.').all(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        });
        if is_version {
            return Self::VersionTag;
        }
        let is_hexadecimal = reference.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hexadecimal && (7..40).contains(&reference.len()) {
            return Self::Abbreviated;
        }
        Self::Floating
    }
}

/// Formats `a commit`, `a version tag` … for messages.
impl fmt::Display for RefShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Commit => "a commit",
            Self::VersionTag => "a version tag, which can be moved",
            Self::Abbreviated => "an abbreviated commit, which is read as a branch or tag",
            Self::Floating => "the name of a branch or tag, which can be moved",
        })
    }
}

/// Whether `text` is 40 hexadecimal digits in lower case.
#[must_use]
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_reference_follows_from_its_text() {
        let sha = "4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c";
        for (reference, shape) in [
            (sha, RefShape::Commit),
            (&sha[..39], RefShape::Abbreviated),
            (&sha[..8], RefShape::Abbreviated),
            (&sha[..7], RefShape::Abbreviated),
            (&sha[..6], RefShape::Floating),
            (&sha.to_uppercase(), RefShape::Floating),
            (&format!("{sha}0"), RefShape::Floating),
            ("v1", RefShape::VersionTag),
            ("v1.2.3", RefShape::VersionTag),
            ("v1.2.3.4.5", RefShape::VersionTag),
            ("v01.0", RefShape::VersionTag),
            ("v", RefShape::Floating),
            ("v1.", RefShape::Floating),
            ("v.1", RefShape::Floating),
            ("v1..2", RefShape::Floating),
            ("v1.2-rc1", RefShape::Floating),
            ("V1.2", RefShape::Floating),
            ("1.2.3", RefShape::Floating),
            ("v1.2.3\n", RefShape::Floating),
            ("main", RefShape::Floating),
            ("feature/v1", RefShape::Floating),
            ("", RefShape::Floating),
        ] {
            assert_eq!(RefShape::of(reference), shape, "{reference:?}");
        }
    }
}
