//! pip: `name==version` and matching by PEP 440.

use std::cmp::Ordering;

use crate::needs::{NeedError, parse_number as number};
use crate::parse_permit::ParsePermit;

/// A package and its accepted versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Normalised: lower case, `-` between words.
    pub name: String,
    specifiers: Vec<Specifier>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Specifier {
    operator: &'static str,
    version: Version,
    prefix: bool,
}

/// `[EPOCH!]1.2.3[{a|b|rc}N][.postN][.devN]`. A local version (`+…`) is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    epoch: u64,
    /// Without trailing zeros.
    release: Vec<u64>,
    /// Number of components of the release, trailing zeros included.
    written: usize,
    /// `(kind, number)`, where kind is `a`, `b` or `r`.
    pre: Option<(char, u64)>,
    post: Option<u64>,
    dev: Option<u64>,
}

/// Longer operators before their prefixes.
const OPERATORS: [&str; 8] = ["===", "==", "!=", "<=", ">=", "~=", "<", ">"];

impl Requirement {
    /// Parses `requests`, `requests==2.31.0`, `uvicorn[standard]>=0.20,<1`.
    ///
    /// # Errors
    /// [`NeedError`].
    pub fn parse(need: &str) -> Result<Self, NeedError> {
        let end = need
            .find(|sign: char| !is_name_sign(sign))
            .unwrap_or(need.len());
        let (name, rest) = need.split_at(end);
        let plain = |sign: Option<char>| sign.is_some_and(|sign| sign.is_ascii_alphanumeric());
        if !plain(name.chars().next()) || !plain(name.chars().last()) {
            return Err(NeedError::Name);
        }
        let rest = match rest.strip_prefix('[') {
            Some(extras) => extras.split_once(']').ok_or(NeedError::Version)?.1,
            None => rest,
        };
        let specifiers = if rest.is_empty() {
            Vec::new()
        } else {
            rest.split(',')
                .map(|text| Specifier::parse(text).ok_or(NeedError::Version))
                .collect::<Result<_, _>>()?
        };
        Ok(Self {
            name: normalised(name),
            specifiers,
        })
    }

    /// Whether `version`, which may be a stranger's, matches.
    #[must_use]
    pub fn accepts(&self, _permit: &ParsePermit, version: &str) -> bool {
        self.matches(version)
    }

    fn matches(&self, version: &str) -> bool {
        Version::parse(version)
            .is_some_and(|version| self.specifiers.iter().all(|one| one.accepts(&version)))
    }

    /// Whether the installed `NAME` or `NAME==VERSION` matches. A package without a version matches by
    /// its name.
    #[must_use]
    pub(crate) fn is_met_by(&self, installed: &str) -> bool {
        let (name, version) = installed.split_once("==").unzip();
        normalised(name.unwrap_or(installed)) == self.name
            && version.is_none_or(|version| self.matches(version))
    }
}

/// Normalises the name by PEP 503.
#[must_use]
pub(crate) fn normalised(name: &str) -> String {
    let words: Vec<String> = name
        .split(['-', '_', '.'])
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

/// Splits `NAME-VERSION.dist-info` into name, normalised, and version.
#[must_use]
pub fn of_dist_info<'name>(
    _permit: &ParsePermit,
    directory: &'name str,
) -> Option<(String, &'name str)> {
    let (name, version) = directory.strip_suffix(".dist-info")?.split_once('-')?;
    Some((normalised(name), version))
}

fn is_name_sign(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.')
}

impl Specifier {
    fn parse(text: &str) -> Option<Self> {
        let operator = OPERATORS
            .into_iter()
            .find(|operator| text.starts_with(operator))?;
        let rest = &text[operator.len()..];
        let (version, prefix) = match rest.strip_suffix(".*") {
            Some(version) if matches!(operator, "==" | "!=") => (version, true),
            Some(_) => return None,
            None => (rest, false),
        };
        let version = Version::parse(version)?;
        let has_suffix = version.is_prerelease() || version.post.is_some();
        if operator == "~=" && version.written < 2 || prefix && has_suffix {
            return None;
        }
        Some(Self {
            operator,
            version,
            prefix,
        })
    }

    fn accepts(&self, version: &Version) -> bool {
        let order = version.order(&self.version);
        let same_release =
            version.epoch == self.version.epoch && version.release == self.version.release;
        match self.operator {
            "==" | "===" if self.prefix => version.starts_with(&self.version, self.version.written),
            "==" | "===" => order == Ordering::Equal,
            "!=" if self.prefix => !version.starts_with(&self.version, self.version.written),
            "!=" => order != Ordering::Equal,
            "<=" => order != Ordering::Greater,
            ">=" => order != Ordering::Less,
            "~=" => {
                order != Ordering::Less
                    && version.starts_with(&self.version, self.version.written - 1)
            }
            // `<` excludes prereleases of its version, `>` post-releases.
            "<" => {
                order == Ordering::Less
                    && !(same_release && !self.version.is_prerelease() && version.is_prerelease())
            }
            _ => {
                order == Ordering::Greater
                    && !(same_release && self.version.post.is_none() && version.post.is_some())
            }
        }
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let public = lower.split('+').next().unwrap_or_default();
        let public = public.strip_prefix('v').unwrap_or(public);
        let (epoch, rest) = match public.split_once('!') {
            Some((epoch, rest)) => (number(epoch)?, rest),
            None => (0, public),
        };
        let end = rest
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .unwrap_or(rest.len());
        let (release, mut suffix) = rest.split_at(end);
        let release = release.strip_suffix('.').unwrap_or(release);
        let mut numbers = release
            .split('.')
            .map(number)
            .collect::<Option<Vec<u64>>>()?;
        let written = numbers.len();
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        let mut version = Self {
            epoch,
            release: numbers,
            written,
            pre: None,
            post: None,
            dev: None,
        };
        while !suffix.is_empty() {
            let (kind, number, rest) = split_suffix(suffix)?;
            match kind {
                'a' | 'b' | 'r' if version.pre.is_none() => version.pre = Some((kind, number)),
                'p' if version.post.is_none() => version.post = Some(number),
                'd' if version.dev.is_none() => version.dev = Some(number),
                _ => return None,
            }
            suffix = rest;
        }
        Some(version)
    }

    const fn is_prerelease(&self) -> bool {
        self.pre.is_some() || self.dev.is_some()
    }

    fn starts_with(&self, other: &Self, count: usize) -> bool {
        let number = |version: &Self, index: usize| version.release.get(index).copied();
        self.epoch == other.epoch
            && (0..count)
                .all(|index| number(self, index).unwrap_or(0) == number(other, index).unwrap_or(0))
    }

    fn order(&self, other: &Self) -> Ordering {
        let rank = |version: &Self| match (version.pre, version.post, version.dev) {
            // 1.0.dev1 sorts before 1.0a1.
            (None, None, Some(_)) => ('\0', 0),
            (Some(pre), _, _) => pre,
            (None, _, _) => ('z', 0),
        };
        self.epoch
            .cmp(&other.epoch)
            .then_with(|| self.release.cmp(&other.release))
            .then_with(|| rank(self).cmp(&rank(other)))
            .then_with(|| self.post.cmp(&other.post))
            .then_with(|| {
                let dev = |version: &Self| version.dev.unwrap_or(u64::MAX);
                dev(self).cmp(&dev(other))
            })
    }
}

fn split_suffix(text: &str) -> Option<(char, u64, &str)> {
    const WORDS: [(&str, char); 12] = [
        ("alpha", 'a'),
        ("beta", 'b'),
        ("preview", 'r'),
        ("pre", 'r'),
        ("post", 'p'),
        ("rev", 'p'),
        ("dev", 'd'),
        ("rc", 'r'),
        ("a", 'a'),
        ("b", 'b'),
        ("c", 'r'),
        ("r", 'p'),
    ];
    // `1.0-1` is short for `1.0.post1`.
    let short = text
        .strip_prefix('-')
        .filter(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()));
    let (kind, rest) = if let Some(rest) = short {
        ('p', rest)
    } else {
        let text = text.trim_start_matches(['.', '-', '_']);
        let (word, kind) = WORDS.into_iter().find(|(word, _)| text.starts_with(word))?;
        (kind, text[word.len()..].trim_start_matches(['.', '-', '_']))
    };
    let end = rest
        .find(|sign: char| !sign.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    let value = if digits.is_empty() {
        0
    } else {
        number(digits)?
    };
    Some((kind, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_permit::PERMIT;

    #[test]
    fn versions_match_as_in_pip() {
        for (specifier, within, without) in [
            ("", &["1", "0.0.1"][..], &["x", ""][..]),
            (
                "==2.31.0",
                &["2.31.0", "2.31", "2.31.0+local", "v2.31.0"],
                &["2.31.1", "2.31.0rc1", "2.31.0.post1"],
            ),
            ("==1.2.*", &["1.2", "1.2.9", "1.2rc1"], &["1.3", "1.20"]),
            ("!=1.0", &["1.1"], &["1.0.0"]),
            ("!=1.0.*", &["1.1"], &["1.0.4"]),
            (
                ">=0.20,<1",
                &["0.20", "0.99"],
                &["0.19", "1.0", "1.0rc1", "1.0.dev1"],
            ),
            ("<1.0rc1", &["1.0b1", "1.0.dev1"], &["1.0rc1", "1.0"]),
            (
                "==1.0.post1",
                &["1.0r1", "1.0-rev1", "1.0-1"],
                &["1.0rc1", "1.0"],
            ),
            ("<=1.0", &["1.0", "0.9"], &["1.0.1"]),
            (">1.0", &["1.0.1"], &["1.0", "1.0.post1"]),
            ("~=1.4.2", &["1.4.2", "1.4.9"], &["1.5", "1.4.1"]),
            ("~=1.4", &["1.4", "1.9"], &["2.0", "1.3"]),
            (
                ">=1.0a1",
                &["1.0a1", "1.0b1", "1.0rc1", "1.0"],
                &["1.0.dev1", "0.9"],
            ),
            ("==1.0alpha1", &["1.0a1"], &["1.0a2"]),
            (">=1.0", &["1.0.post1", "1!0.1"], &["1.0.dev3", "1.0rc9"]),
            ("===1.0", &["1.0"], &["1.1"]),
        ] {
            let requirement = Requirement::parse(&format!("name{specifier}")).expect(specifier);
            for version in within {
                assert!(requirement.matches(version), "{specifier} {version}");
            }
            for version in without {
                assert!(!requirement.matches(version), "{specifier} {version}");
            }
        }
    }

    #[test]
    fn names_are_normalised() {
        for need in ["Ruamel_Yaml==1", "ruamel.yaml==1", "ruamel-yaml[jinja2]==1"] {
            assert_eq!(Requirement::parse(need).expect(need).name, "ruamel-yaml");
        }
        assert_eq!(
            of_dist_info(&PERMIT, "ruamel.yaml-0.18.6.dist-info"),
            Some(("ruamel-yaml".to_owned(), "0.18.6"))
        );
        assert_eq!(of_dist_info(&PERMIT, "ruamel"), None);
        for need in ["", "==1", "-r", "a-", "é==1"] {
            assert!(Requirement::parse(need).is_err(), "{need}");
        }
    }

    #[test]
    fn unsupported_specifiers_are_refused() {
        for rest in [
            "@https://x",
            ";python_version<'3'",
            "==",
            "==x",
            "~=1",
            ">=1.*",
            "=1",
            "==1foo",
            "==1.0a1.*",
        ] {
            assert_eq!(
                Requirement::parse(&format!("name{rest}")),
                Err(NeedError::Version),
                "{rest}"
            );
        }
    }
}
