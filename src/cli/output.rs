//! Verbs that print text, or one JSON document with `--json`.

use serde::Serialize;

use crate::cli::args::CommonFlags;

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
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
