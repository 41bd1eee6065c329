//! `runner source pull`.

use crate::cli::args::with_variable;
use crate::cli::found::{FoundFlags, text};
use crate::cli::print::Printer;
use crate::cli::source::described;
use crate::run::verbs::source_verbs;
use sources::oci::opening::Terms;
use spec::report::ErrorReport;
use spec::source_report::{SourceFound, SourcePulled};

/// Fetch a source into the store and unpack it there, so that runs have it at once.
#[derive(Debug, clap::Args)]
#[command(mut_args = with_variable)]
pub struct SourcePull {
    /// HOST/REPOSITORY@sha256:DIGEST, oci:DIRECTORY or oci:DIRECTORY:NAME
    #[arg(value_name = "REF")]
    pub reference: String,
    /// Take what a tag stands for now; the digest is printed
    #[arg(long)]
    pub allow_tags: bool,
    /// Speak to the registry without TLS
    #[arg(long)]
    pub insecure: bool,
    /// What all have.
    #[command(flatten)]
    pub flags: FoundFlags,
}

impl SourcePull {
    /// Does it; what is to be printed.
    pub(super) fn said(&self, terms: &Terms<'_>, printer: &Printer) -> Result<String, ErrorReport> {
        let pulled = source_verbs::pull(terms, &self.reference, self.allow_tags)?;
        printer.warnings(&pulled.warnings);
        Ok(text(self.flags.json, &pulled, plain))
    }
}

fn plain(pulled: &SourcePulled) -> String {
    let found = match pulled.found {
        SourceFound::Store => "was in the store",
        SourceFound::Pulled => "pulled",
    };
    let files = match pulled.files {
        Some(files) => format!("{files} files, "),
        None => String::new(),
    };
    format!(
        "{}\n{}   unpacked: {files}{} KiB, {found}\n",
        pulled.digest,
        described(pulled.config.as_ref(), &pulled.layer),
        pulled.bytes.div_ceil(1024)
    )
}
