//! `runner source gc`.

use crate::cli::output::{OutputFlags, render};
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::SourceRemoval;
use spec::units::count;

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
        "removed {} and {}, {} KiB\n",
        count(removed.blobs, "blob"),
        count(removed.trees, "tree"),
        removed.bytes / 1024
    )
}
