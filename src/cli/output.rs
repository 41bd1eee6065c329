//! Verbs that print text, or one JSON document with `--json`.

use serde::Serialize;

use crate::cli::args::CommonFlags;
use spec::path::is_hidden;

#[derive(Debug, clap::Args)]
pub struct OutputFlags {
    /// Print a JSON document instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// `value` as JSON, or as `to_text` writes it.
#[must_use]
pub fn render<Value: Serialize>(
    json: bool,
    value: &Value,
    to_text: impl Fn(&Value) -> String,
) -> String {
    if json { to_json(value) } else { to_text(value) }
}

pub(super) fn to_json(value: &impl Serialize) -> String {
    // Strings, numbers and lists of them: this cannot fail.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    escape_hidden(text + "\n")
}

/// A terminal may take for a command what JSON need not escape.
fn escape_hidden(text: String) -> String {
    // A line feed in a string is escaped already.
    let is_escaped = |character: char| character != '\n' && is_hidden(character);
    if !text.contains(is_escaped) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_hidden_character_and_means_the_same() {
        let value = "ä\u{1b}[2J\u{7f}\u{9b}2J\u{202e}\u{e0041}\n";
        let text = to_json(&value);
        assert_eq!(
            text,
            "\"ä\\u001b[2J\\u007f\\u009b2J\\u202e\\udb40\\udc41\\n\"\n"
        );
        let read: String = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read, value);
    }
}
