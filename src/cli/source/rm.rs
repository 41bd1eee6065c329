//! `runner source rm`.

use crate::cli::output::{OutputFlags, render};
use crate::cli::source::gc::to_text;
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;

#[derive(Debug, clap::Args)]
pub struct SourceRm {
    /// A name that `runner source list` prints
    #[arg(value_name = "NAME:VERSION|REF")]
    pub name: String,
    #[command(flatten)]
    pub flags: OutputFlags,
}

impl SourceRm {
    pub(super) fn run(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let removed = source_verbs::remove(terms, &self.name)?;
        Ok(render(self.flags.json, &removed, to_text))
    }
}
