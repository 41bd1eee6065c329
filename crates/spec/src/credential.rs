//! Detects credentials in a manifest.

use crate::document::{Node, Value};

const PREFIXES: [&str; 19] = [
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "pk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "npm_",
    "pypi-",
    "-----BEGIN",
];
/// Shorter texts are not credentials: a prefix alone may be a word.
const CREDENTIAL_BYTES_MIN: usize = 12;

/// The reason for values that are detected by their key.
const BY_KEY: &str = "its key says so; the name of a secret ends in `_ref`";
/// The reason for values that are detected by their prefix.
const BY_PREFIX: &str = "it starts like an issued one";

/// Finds the first value at or below `node` that looks like a credential, and the reason.
pub fn find(node: &Node) -> Option<(&Node, &'static str)> {
    all(node).into_iter().next()
}

/// Finds the first text at or below `node` with the prefix of an issued credential, under any key.
pub(crate) fn find_issued(node: &Node) -> Option<(&Node, &'static str)> {
    match &node.value {
        Value::Text(text) => looks_issued(text).then_some((node, BY_PREFIX)),
        Value::List(items) => items.iter().find_map(find_issued),
        Value::Map(entries) => entries.iter().find_map(|(_, value)| find_issued(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Whether `text` has the prefix of an issued credential.
pub fn looks_issued(text: &str) -> bool {
    let text = text.trim();
    text.len() >= CREDENTIAL_BYTES_MIN && PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

/// Whether line `index` of a text that is no document may hold a credential: by its own words, by those of
/// the line before it, or because the text is an inventory or has a key file in it.
pub(crate) fn may_hold_credential(text: &str, index: usize) -> bool {
    let is_inventory = |line: &str| keys(line).any(|key| key == "slug");
    if text.contains("-----BEGIN") || text.lines().any(is_inventory) {
        return true;
    }
    let lines = text.split('\n').skip(index.saturating_sub(1));
    lines.take(1 + index.min(1)).any(|line| {
        let words = line.split(|sign: char| sign.is_whitespace() || "\"'`,:=()[]{}".contains(sign));
        words.into_iter().any(looks_issued) || keys(line).any(names_a_credential)
    })
}

/// The words before a `:` or `=`.
fn keys(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.match_indices([':', '=']);
    ends.filter_map(|(end, _)| {
        let before = line[..end].trim_end().trim_end_matches(['"', '\'']);
        before
            .rsplit(|sign: char| sign.is_whitespace() || "\"'`,:=()[]{}".contains(sign))
            .next()
    })
}

fn names_a_credential(key: &str) -> bool {
    let mut words: Vec<String> = vec![String::new()];
    let mut previous_lower = false;
    for character in key.chars() {
        let separator = matches!(character, '_' | '-' | '.' | ' ');
        if separator || (character.is_uppercase() && previous_lower) {
            words.push(String::new());
        }
        if let (false, Some(word)) = (separator, words.last_mut()) {
            word.extend(character.to_lowercase());
        }
        previous_lower = character.is_lowercase();
    }
    words.last().is_some_and(|word| {
        matches!(
            word.as_str(),
            "key" | "apikey" | "token" | "secret" | "password" | "passwd"
        )
    })
}

/// Finds all values at or below `node` that look like a credential, in the order of the text, with
/// the reasons.
pub fn all(node: &Node) -> Vec<(&Node, &'static str)> {
    let mut found = Vec::new();
    collect(node, &mut found);
    found
}

fn collect<'document>(node: &'document Node, found: &mut Vec<(&'document Node, &'static str)>) {
    match &node.value {
        Value::Text(text) if looks_issued(text) => found.push((node, BY_PREFIX)),
        Value::List(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Map(entries) => {
            for (key, value) in entries {
                match &value.value {
                    Value::Text(text) if !text.is_empty() && names_a_credential(&key.name) => {
                        found.push((value, BY_KEY));
                    }
                    _ => collect(value, found),
                }
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_key_decides() {
        for key in [
            "api_key",
            "apiKey",
            "apikey",
            "token",
            "ACCESS-TOKEN",
            "db.password",
            "secret",
        ] {
            assert!(names_a_credential(key), "{key}");
        }
        for key in [
            "api_key_ref",
            "monkey",
            "tokens_max",
            "keyboard",
            "secretary",
            "",
            "keyRef",
        ] {
            assert!(!names_a_credential(key), "{key}");
        }
    }

    #[test]
    fn issued_credentials_are_detected_by_their_prefix() {
        assert!(looks_issued("sk-live-0123456789"));
        assert!(looks_issued("ghp_0123456789abcdef"));
        assert!(!looks_issued("sk-"));
        assert!(!looks_issued("code-interpreter-v3"));
    }
}
