//! `runner source list`.

use std::fmt::Write as _;

use crate::cli::found::{FoundFlags, text};
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::SourceListing;

/// List the sources in the store, the one that was used last first.
#[derive(Debug, clap::Args)]
pub struct SourceList {
    /// What all have.
    #[command(flatten)]
    pub flags: FoundFlags,
}

impl SourceList {
    /// Does it; what is to be printed.
    pub(super) fn said(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let listing = source_verbs::list(terms)?;
        Ok(text(self.flags.json, &listing, plain))
    }
}

fn plain(listing: &SourceListing) -> String {
    let mut text = String::new();
    for source in &listing.sources {
        let kib = source.layer_bytes.div_ceil(1024);
        let written = writeln!(text, "{}  {kib:>8} KiB  {}", source.digest, source.name);
        debug_assert!(written.is_ok(), "writing to a string");
    }
    format!(
        "{text}{} sources; {} of {} KiB, images too, in {}\n",
        listing.sources.len(),
        listing.used_bytes.div_ceil(1024),
        listing.size_bytes / 1024,
        listing.directory
    )
}
