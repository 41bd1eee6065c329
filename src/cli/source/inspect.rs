//! `runner source inspect`.

use crate::cli::output::{OutputFlags, render};
use crate::cli::source::describe;
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::path::escape;
use spec::report::ErrorReport;
use spec::source_report::SourceInspected;

#[derive(Debug, clap::Args)]
pub struct SourceInspect {
    /// NAME:VERSION, the directory of a layout, or HOST/REPOSITORY with a tag or a digest
    #[arg(value_name = "WHAT")]
    pub reference: String,
    /// Use plain HTTP for the registry
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

impl SourceInspect {
    pub(super) fn run(&self, terms: &Terms<'_>) -> Result<String, ErrorReport> {
        let inspected = source_verbs::inspect(terms, &self.reference)?;
        Ok(render(self.flags.json, &inspected, to_text))
    }
}

fn to_text(inspected: &SourceInspected) -> String {
    let config = inspected.config.as_ref();
    let mut text = format!(
        "{}\n{}",
        inspected.digest,
        describe(config, &inspected.layer)
    );
    for (key, value) in &inspected.annotations {
        let (key, value) = (escape(key.as_bytes()), escape(value.as_bytes()));
        text.push_str(&format!(" annotation: {key}={value}\n"));
    }
    text
}
