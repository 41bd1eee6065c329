//! `runner source gc`.

use crate::cli::found::{FoundFlags, text};
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::SourceRemoval;

/// Remove what is above the size and what dead processes left; never what a run uses.
#[derive(Debug, clap::Args)]
pub struct SourceGc {
    /// Everything that no run uses, images too
    #[arg(long)]
    pub all: bool,
    /// What all have.
    #[command(flatten)]
    pub flags: FoundFlags,
}

impl SourceGc {
    /// Does it; what is to be printed.
    pub(super) fn said(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let removed = source_verbs::collect(terms, self.all)?;
        Ok(text(self.flags.json, &removed, plain))
    }
}

pub(super) fn plain(removed: &SourceRemoval) -> String {
    format!(
        "removed {} blobs and {} trees, {} KiB\n",
        removed.blobs,
        removed.trees,
        removed.bytes / 1024
    )
}
