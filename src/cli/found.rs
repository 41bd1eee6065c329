//! Verbs that look at something and print what they found: as text, or as one JSON document.

use serde::Serialize;

use crate::cli::args::{PolicyFile, VoiceFlags, with_variable};

/// The flags that all of them have.
#[derive(Debug, clap::Args)]
#[command(mut_args = with_variable)]
pub struct FoundFlags {
    /// Print a JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// How to speak.
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// Configuration.
    #[command(flatten)]
    pub policy: PolicyFile,
}

/// `found` as JSON, or as `plain` writes it.
#[must_use]
pub fn text<Found: Serialize>(
    json: bool,
    found: &Found,
    plain: impl Fn(&Found) -> String,
) -> String {
    if !json {
        return plain(found);
    }
    // Strings, numbers and lists of them: this cannot fail.
    let mut text = serde_json::to_string_pretty(found).unwrap_or_default();
    text.push('\n');
    text
}
