//! `runner source inspect`.

use std::fmt::Write as _;

use crate::cli::args::with_variable;
use crate::cli::found::{FoundFlags, text};
use crate::cli::source::described;
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::path::escape;
use spec::report::ErrorReport;
use spec::source_report::SourceInspected;

/// Say what a source says of itself: one in the store, in a layout, or in a registry.
#[derive(Debug, clap::Args)]
#[command(mut_args = with_variable)]
pub struct SourceInspect {
    /// NAME:VERSION, the directory of a layout, or HOST/REPOSITORY with a tag or a digest
    #[arg(value_name = "WHAT")]
    pub reference: String,
    /// Speak to the registry without TLS
    #[arg(long)]
    pub insecure: bool,
    /// What all have.
    #[command(flatten)]
    pub flags: FoundFlags,
}

impl SourceInspect {
    /// Does it; what is to be printed.
    pub(super) fn said(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let inspected = source_verbs::inspect(terms, &self.reference)?;
        Ok(text(self.flags.json, &inspected, plain))
    }
}

fn plain(inspected: &SourceInspected) -> String {
    let config = inspected.config.as_ref();
    let mut text = format!(
        "{}\n{}",
        inspected.digest,
        described(config, &inspected.layer)
    );
    for (key, value) in &inspected.annotations {
        let (key, value) = (escape(key.as_bytes()), escape(value.as_bytes()));
        let written = writeln!(text, " annotation: {key}={value}");
        debug_assert!(written.is_ok(), "writing to a string");
    }
    text
}
