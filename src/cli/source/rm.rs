//! `runner source rm`.

use crate::cli::found::{FoundFlags, text};
use crate::cli::source::gc::plain;
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;

/// Forget a source of the store, and remove what no other one there shares; never what a run uses.
#[derive(Debug, clap::Args)]
pub struct SourceRm {
    /// As `runner source list` shows it
    #[arg(value_name = "NAME:VERSION|REF")]
    pub name: String,
    /// What all have.
    #[command(flatten)]
    pub flags: FoundFlags,
}

impl SourceRm {
    /// Does it; what is to be printed.
    pub(super) fn said(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let removed = source_verbs::remove(terms, &self.name)?;
        Ok(text(self.flags.json, &removed, plain))
    }
}
