//! npm: `name@range` and matching by semantic versioning.
//!
//! A need is one word, so ranges with spaces (`>=1 <2`, `1 - 2`) cannot occur. Ranges can be joined
//! by `||`.

use std::cmp::Ordering;

use crate::needs::{NeedError, parse_number as number};
use crate::parse_permit::ParsePermit;

/// As in npm: the largest integer that JavaScript represents exactly.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// A package and its accepted versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// `name` or `@scope/name`.
    pub name: String,
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    lowest: Option<Version>,
    below: Option<Version>,
    /// Inclusive upper bound, of `=` and `<=`.
    highest: Option<Version>,
}

/// `MAJOR.MINOR.PATCH[-PRERELEASE]`. Build metadata is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    prerelease: Vec<String>,
}

impl Requirement {
    /// Parses `stripe`, `stripe@^11.0.0`, `@scope/name@1.x||>=3`.
    ///
    /// # Errors
    /// [`NeedError`].
    pub fn parse(need: &str) -> Result<Self, NeedError> {
        // Skip the `@` of a scope.
        let at = need.char_indices().skip(1).find(|(_, sign)| *sign == '@');
        let (name, written) = match at {
            Some((at, _)) => (&need[..at], &need[at + 1..]),
            None => (need, ""),
        };
        let plain = name.strip_prefix('@').unwrap_or(name);
        let parts: Vec<&str> = plain.split('/').collect();
        let expected = if name.starts_with('@') { 2 } else { 1 };
        if parts.len() != expected || !parts.iter().all(|part| is_name(part)) {
            return Err(NeedError::Name);
        }
        let ranges = match written {
            "" | "latest" => Vec::new(),
            _ => written
                .split("||")
                .map(|range| Range::parse(range).ok_or(NeedError::Version))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self {
            name: name.to_owned(),
            ranges,
        })
    }

    /// Whether `version`, which may be a stranger's, matches. A prerelease matches a range only if a bound
    /// of the range is a prerelease with the same three numbers. A need without range, or with `latest`,
    /// accepts every version.
    #[must_use]
    pub fn accepts(&self, _permit: &ParsePermit, version: &str) -> bool {
        self.matches(version)
    }

    fn matches(&self, version: &str) -> bool {
        Version::parse(version).is_some_and(|version| {
            self.ranges.is_empty() || self.ranges.iter().any(|range| range.contains(&version))
        })
    }

    /// Whether the installed `NAME` or `NAME@VERSION` matches. A package without a version matches by
    /// its name.
    #[must_use]
    pub(crate) fn is_met_by(&self, installed: &str) -> bool {
        let Some(rest) = installed.strip_prefix(&self.name) else {
            return false;
        };
        let version = rest.strip_prefix('@');
        rest.is_empty() || version.is_some_and(|version| self.matches(version))
    }
}

/// Whether `part` is a path segment by npm's naming rules: neither `..` nor hidden.
fn is_name(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with(['.', '_'])
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~'))
}

/// A version whose last numbers may be missing, `x` or `*`.
struct Partial {
    numbers: Vec<u64>,
    prerelease: Vec<String>,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let operator = ["^", "~", ">=", "<=", ">", "<", "="]
            .into_iter()
            .find(|operator| text.starts_with(operator))
            .unwrap_or("");
        let partial = Partial::parse(&text[operator.len()..])?;
        let first = partial.first();
        let next = partial.next();
        let whole = partial.numbers.len() == 3;
        let (lowest, below, highest) = match operator {
            "^" => (Some(first), partial.next_by_caret(), None),
            "~" => (Some(first), partial.next_by_tilde(), None),
            ">=" => (Some(first), None, None),
            "<" => (None, Some(first), None),
            "<=" if whole => (None, None, Some(first)),
            "<=" => (None, next, None),
            // `>*` matches nothing.
            ">" if partial.numbers.is_empty() => (None, Some(first), None),
            ">" if whole => (Some(first.after()), None, None),
            ">" => (next, None, None),
            _ if whole => (Some(first.clone()), None, Some(first)),
            _ => (Some(first), next, None),
        };
        Some(Self {
            lowest,
            below,
            highest,
        })
    }

    fn contains(&self, version: &Version) -> bool {
        let bounds = [&self.lowest, &self.below, &self.highest];
        let named = bounds.iter().any(|bound| {
            bound.as_ref().is_some_and(|bound| {
                !bound.prerelease.is_empty() && bound.numbers == version.numbers
            })
        });
        (version.prerelease.is_empty() || named)
            && self
                .lowest
                .as_ref()
                .is_none_or(|lowest| version.order(lowest) != Ordering::Less)
            && self
                .below
                .as_ref()
                .is_none_or(|below| version.order(below) == Ordering::Less)
            && self
                .highest
                .as_ref()
                .is_none_or(|highest| version.order(highest) != Ordering::Greater)
    }
}

impl Partial {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next().unwrap_or(text);
        let (numbers, prerelease) = match text.split_once('-') {
            Some((numbers, prerelease)) => (numbers, prerelease.split('.').collect()),
            None => (text, Vec::new()),
        };
        let mut read = Vec::new();
        let parts: Vec<&str> = numbers.split('.').collect();
        if parts.len() > 3 {
            return None;
        }
        for (index, part) in parts.iter().enumerate() {
            if matches!(*part, "x" | "X" | "*") {
                if !parts[index..]
                    .iter()
                    .all(|part| matches!(*part, "x" | "X" | "*"))
                {
                    return None;
                }
                break;
            }
            read.push(number(part).filter(|number| *number <= NUMBER_MAX)?);
        }
        let wellformed = prerelease.iter().all(|part| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
        if !wellformed || (!prerelease.is_empty() && read.len() != 3) {
            return None;
        }
        Some(Self {
            numbers: read,
            prerelease: prerelease.into_iter().map(str::to_owned).collect(),
        })
    }

    fn first(&self) -> Version {
        let number = |index: usize| self.numbers.get(index).copied().unwrap_or(0);
        Version {
            numbers: [number(0), number(1), number(2)],
            prerelease: self.prerelease.clone(),
        }
    }

    /// The lowest version above all that start with these numbers; `None` without numbers.
    fn next(&self) -> Option<Version> {
        Some(self.raised(self.numbers.len().checked_sub(1)?))
    }

    /// Upper bound of `~`: the next minor version, or the next major version if only the major number
    /// is given.
    fn next_by_tilde(&self) -> Option<Version> {
        Some(self.raised(self.numbers.len().checked_sub(1)?.min(1)))
    }

    /// Upper bound of `^`: the first nonzero number must stay; if all are zero, the last one.
    fn next_by_caret(&self) -> Option<Version> {
        let last = self.numbers.len().checked_sub(1)?;
        let first_set = self.numbers.iter().position(|number| *number != 0);
        Some(self.raised(first_set.unwrap_or(last)))
    }

    fn raised(&self, index: usize) -> Version {
        let mut numbers = [0; 3];
        for (number, known) in numbers.iter_mut().zip(&self.numbers).take(index + 1) {
            *number = *known;
        }
        numbers[index] += 1;
        Version {
            numbers,
            prerelease: Vec::new(),
        }
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let partial = Partial::parse(text.trim().trim_start_matches('='))?;
        (partial.numbers.len() == 3).then(|| partial.first())
    }

    fn after(mut self) -> Self {
        if self.prerelease.is_empty() {
            self.numbers[2] += 1;
        } else {
            // More fields sort later: `a` < `a.0`.
            self.prerelease.push("0".to_owned());
        }
        self
    }

    fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => compare_prereleases(&self.prerelease, &other.prerelease),
            }
        })
    }
}

fn compare_prereleases(left: &[String], right: &[String]) -> Ordering {
    for (left, right) in left.iter().zip(right) {
        let order = match (number(left), number(right)) {
            (Some(left), Some(right)) => left.cmp(&right),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => left.cmp(right),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_match_as_in_npm() {
        for (range, within, without) in [
            (
                "1.2.3",
                &["1.2.3", "v1.2.3", "1.2.3+b"][..],
                &["1.2.4", "1.2.3-a", "1.2"][..],
            ),
            ("=1.2.3", &["1.2.3"], &["1.2.2"]),
            (
                "^11.0.0",
                &["11.0.0", "11.9.1"],
                &["10.9.9", "12.0.0", "11.0.0-rc.1", "12.0.0-a"],
            ),
            ("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2", "1.0.0"]),
            ("^0.0.3", &["0.0.3"], &["0.0.4"]),
            ("^0.0", &["0.0.0", "0.0.9"], &["0.1.0"]),
            ("^0.x", &["0.0.0", "0.9.9"], &["1.0.0"]),
            ("^1.2", &["1.2.0", "1.9.9"], &["1.1.9", "2.0.0"]),
            (
                "^1.2.3-beta.2",
                &["1.2.3-beta.2", "1.2.3-beta.11", "1.2.3", "1.9.0"],
                &["1.2.3-beta.1", "1.2.4-beta.3", "2.0.0"],
            ),
            ("~1.2.3", &["1.2.3", "1.2.9"], &["1.3.0", "1.2.2"]),
            ("~1.2", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("~1", &["1.0.0", "1.9.9"], &["2.0.0", "0.9.9"]),
            (">=1.2.3", &["1.2.3", "9.0.0"], &["1.2.2", "9.0.0-a"]),
            (">=1", &["1.0.0"], &["0.9.9"]),
            (">1.2.3", &["1.2.4"], &["1.2.3"]),
            (">1.2", &["1.3.0"], &["1.2.9"]),
            (
                ">1.2.3-a",
                &["1.2.3-b", "1.2.3-a.0", "1.2.3"],
                &["1.2.3-a", "1.2.4-b"],
            ),
            ("<2", &["1.9.9", "0.0.0"], &["2.0.0", "2.0.0-a"]),
            ("<=1.2", &["1.2.9"], &["1.3.0"]),
            ("<=1.2.3", &["1.2.3"], &["1.2.4"]),
            ("1.x", &["1.0.0", "1.9.9"], &["2.0.0"]),
            ("1", &["1.9.9"], &["2.0.0"]),
            ("1.2.*", &["1.2.7"], &["1.3.0"]),
            ("1.x||>=3", &["1.5.0", "3.0.0"], &["2.0.0"]),
            ("*", &["0.0.0", "7.0.0"], &["x", "", "1.0.0-a"]),
            ("x", &["0.0.0"], &["1.0.0-a"]),
            ("latest", &["1.0.0", "1.0.0-a"], &[]),
            (">*", &[], &["1.0.0", "0.0.0"]),
        ] {
            let requirement = Requirement::parse(&format!("pkg@{range}")).expect(range);
            for version in within {
                assert!(requirement.matches(version), "{range} {version}");
            }
            for version in without {
                assert!(!requirement.matches(version), "{range} {version}");
            }
        }
    }

    #[test]
    fn a_name_is_one_path_segment_or_two_with_a_scope() {
        for (need, name) in [
            ("stripe", "stripe"),
            ("stripe@", "stripe"),
            ("@scope/name", "@scope/name"),
            ("@scope/name@1.0.0", "@scope/name"),
            ("JSONStream@1", "JSONStream"),
        ] {
            assert_eq!(
                Requirement::parse(need).map(|found| found.name),
                Ok(name.to_owned())
            );
        }
        for need in [
            "", "@", "@scope", "a/b", "../x", "..", "@../x", "@a/..", "a\\b", "@a/b/c", ".hidden",
            "é",
        ] {
            assert_eq!(Requirement::parse(need), Err(NeedError::Name), "{need}");
        }
    }

    #[test]
    fn unsupported_ranges_are_refused() {
        for range in [
            "next",
            "1.2.3.4",
            "1.x.3",
            "git+ssh://x",
            "npm:other@1",
            "^",
            "1.2-a",
            "1.2.3-",
            "-1",
            "99999999999999999999",
            ">18446744073709551615",
            "1.9007199254740992",
        ] {
            assert_eq!(
                Requirement::parse(&format!("pkg@{range}")),
                Err(NeedError::Version),
                "{range}"
            );
        }
    }
}
