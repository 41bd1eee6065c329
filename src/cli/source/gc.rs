//! `runner source gc`.

use crate::cli::output::{OutputFlags, render};
use crate::run::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::SourceRemoval;

#[derive(Debug, clap::Args)]
pub struct SourceGc {
    /// Remove everything that no run uses, including images
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

impl SourceGc {
    pub(super) fn run(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let removed = source_verbs::collect(terms, self.all)?;
        Ok(render(self.flags.json, &removed, to_text))
    }
}

pub(super) fn to_text(removed: &SourceRemoval) -> String {
    format!(
        "removed {} blobs and {} trees, {} KiB\n",
        removed.blobs,
        removed.trees,
        removed.bytes / 1024
    )
}
