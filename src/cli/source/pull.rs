//! `runner source pull`.

use crate::cli::output::{OutputFlags, render};
use crate::cli::print::Printer;
use crate::cli::source::describe;
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::{SourceFound, SourcePulled};
use spec::units::count;

#[derive(Debug, clap::Args)]
pub struct SourcePull {
    /// HOST/REPOSITORY@sha256:DIGEST, oci:DIRECTORY or oci:DIRECTORY:NAME
    #[arg(value_name = "REF")]
    pub reference: String,
    /// Accept a reference by tag; its digest is printed
    #[arg(long)]
    pub allow_tags: bool,
    /// Use plain HTTP for the registry
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

impl SourcePull {
    pub(super) fn run(&self, terms: &Terms<'_>, printer: &Printer) -> Result<String, ErrorReport> {
        let pulled = source_verbs::pull(terms, &self.reference, self.allow_tags)?;
        printer.warnings(&pulled.warnings);
        Ok(render(self.flags.json, &pulled, to_text))
    }
}

fn to_text(pulled: &SourcePulled) -> String {
    let found = match pulled.found {
        SourceFound::Store => "was in the store",
        SourceFound::Pulled => "pulled",
    };
    let files = match pulled.files {
        Some(files) => format!("{}, ", count(files, "file")),
        None => String::new(),
    };
    format!(
        "{}\n{}   unpacked: {files}{} KiB, {found}\n",
        pulled.digest,
        describe(pulled.config.as_ref(), &pulled.layer),
        pulled.bytes.div_ceil(1024)
    )
}
