//! `runner source list`.

use crate::cli::output::{OutputFlags, render};
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::SourceListing;
use spec::units::count;

#[derive(Debug, clap::Args)]
pub struct SourceList {
    #[command(flatten)]
    pub flags: OutputFlags,
}

impl SourceList {
    pub(super) fn run(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let listing = source_verbs::list(terms)?;
        Ok(render(self.flags.json, &listing, to_text))
    }
}

fn to_text(listing: &SourceListing) -> String {
    let mut text = String::new();
    for source in &listing.sources {
        let kib = source.layer_bytes.div_ceil(1024);
        text.push_str(&format!(
            "{}  {kib:>8} KiB  {}\n",
            source.digest, source.name
        ));
    }
    format!(
        "{text}{}; {} of {} KiB, images too, in {}\n",
        count(listing.sources.len(), "source"),
        listing.used_bytes.div_ceil(1024),
        listing.size_bytes / 1024,
        listing.directory
    )
}
