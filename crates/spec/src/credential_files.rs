//! Which files hold credentials, by their names and lines: `policies/credential-files.yaml` as data.

use serde::Deserialize;

/// The one list there is.
const BUILT_IN: &str = include_str!("../../../policies/credential-files.yaml");
/// Bytes at the start of a file in which lines are looked for.
pub const LOOKED_AT_BYTES: usize = 64 * 1024;

/// One kind of file that holds credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialRule {
    pub id: String,
    /// Patterns in the syntax of `.gitignore`; the last one that matches decides.
    pub paths: Vec<String>,
    /// What must be in the file besides.
    #[serde(default)]
    pub lines: Option<Lines>,
}

/// What tells one file from another of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// One of these is in the line.
    pub any: Vec<String>,
    /// And none of these.
    #[serde(default)]
    pub none: Vec<String>,
}

impl Lines {
    /// Whether one line of `start`, the first [`LOOKED_AT_BYTES`] of a file, is such a line.
    #[must_use]
    pub fn are_in(&self, start: &[u8]) -> bool {
        let has = |line: &[u8], text: &String| {
            line.windows(text.len().max(1))
                .any(|window| window == text.as_bytes())
        };
        start.split(|byte| *byte == b'\n').any(|line| {
            self.any.iter().any(|text| has(line, text))
                && !self.none.iter().any(|text| has(line, text))
        })
    }
}

/// The list that every build goes by.
///
/// # Errors
/// What the parser says of a file that is no such list. A test reads the one there is.
pub fn rules() -> Result<Vec<CredentialRule>, String> {
    serde_saphyr::from_str(BUILT_IN).map_err(|error| error.without_snippet().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_is_read_and_every_rule_says_something_of_its_own() {
        let rules = rules().expect("a list");
        let ids: BTreeSet<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids.len(), rules.len(), "an id stands twice");
        for rule in &rules {
            assert!(!rule.paths.is_empty(), "{}", rule.id);
            let texts = rule.lines.iter().flat_map(|lines| &lines.any);
            assert!(texts.clone().all(|text| !text.is_empty()), "{}", rule.id);
            assert!(rule.lines.is_none() || 0 < texts.count(), "{}", rule.id);
        }
    }

    #[test]
    fn one_line_has_to_have_the_one_and_not_the_other() {
        let lines = Lines {
            any: vec!["_authToken".to_owned()],
            none: vec!["${".to_owned()],
        };
        for (text, found) in [
            ("//r.example.org/:_authToken=npm_x\n", true),
            ("a=1\n//r.example.org/:_authToken=npm_x", true),
            ("//r.example.org/:_authToken=${TOKEN}\n", false),
            ("x=${TOKEN}\n//r.example.org/:_authToken=npm_x\n", true),
            ("_auth\nToken", false),
            ("", false),
        ] {
            assert_eq!(lines.are_in(text.as_bytes()), found, "{text}");
        }
    }
}
