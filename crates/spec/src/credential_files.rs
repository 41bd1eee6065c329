//! Rules that detect files with credentials by name and content: `policies/credential-files.yaml`.

use serde::Deserialize;

const BUILT_IN: &str = include_str!("../../../policies/credential-files.yaml");
/// Only this many bytes at the start of a file are searched.
pub const SEARCHED_BYTES: usize = 64 * 1024;

/// A kind of file with credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialRule {
    pub id: String,
    /// Patterns in the syntax of `.gitignore`. The last match decides.
    pub paths: Vec<String>,
    #[serde(default)]
    pub lines: Option<Lines>,
}

/// Matches a line that contains one of `any` and none of `none`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    pub any: Vec<String>,
    #[serde(default)]
    pub none: Vec<String>,
}

impl Lines {
    /// Whether a line of `start`, the first [`SEARCHED_BYTES`] of a file, matches.
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

/// Parses the built-in rules.
///
/// # Errors
/// The parser's message; a test parses the built-in list.
pub fn rules() -> Result<Vec<CredentialRule>, String> {
    serde_saphyr::from_str(BUILT_IN).map_err(|error| error.without_snippet().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_built_in_list_is_valid_and_its_ids_are_unique() {
        let rules = rules().expect("a list");
        let ids: BTreeSet<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids.len(), rules.len(), "a duplicate id");
        for rule in &rules {
            assert!(!rule.paths.is_empty(), "{}", rule.id);
            let texts = rule.lines.iter().flat_map(|lines| &lines.any);
            assert!(texts.clone().all(|text| !text.is_empty()), "{}", rule.id);
            assert!(rule.lines.is_none() || texts.count() > 0, "{}", rule.id);
        }
    }

    #[test]
    fn a_line_matches_with_one_of_any_and_none_of_none() {
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
