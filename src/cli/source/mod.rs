//! `runner source`: artifacts of sources, made, sent, fetched, kept and looked at. One file for
//! each verb.

mod gc;
mod inspect;
mod list;
mod pull;
mod status;

use std::fmt::Write as _;
use std::sync::Arc;

use crate::cli::dispatch::document;
use crate::cli::found::{FoundFlags, refused};
use crate::cli::print::Printer;
use crate::oci::opening::Terms;
use crate::spec::host_policy::HostPolicy;
use crate::spec::oci::source_config::SourceConfig;
use crate::spec::path::escape;
use crate::spec::report::ErrorReport;
use crate::spec::request::Caller;
use crate::spec::source_report::SourceLayer;

pub use gc::SourceGc;
pub use inspect::SourceInspect;
pub use list::SourceList;
pub use pull::SourcePull;
pub use status::TransferStatus;

/// Make, fetch and look at artifacts of sources, which `workspaceSources` of a manifest name.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// What to do.
    #[command(subcommand)]
    pub what: SourceVerb,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum SourceVerb {
    /// Fetch a source into the store and unpack it there, so that runs have it at once
    Pull(SourcePull),
    /// Say what a source says of itself: one in the store, in a layout, or in a registry
    Inspect(SourceInspect),
    /// List the sources in the store, the one that was used last first
    List(SourceList),
    /// Remove what is above the size and what dead processes left; never what a run uses
    Gc(SourceGc),
}

impl SourceVerb {
    /// The flags that all have.
    #[must_use]
    pub fn flags(&self) -> &FoundFlags {
        match self {
            Self::Pull(pull) => &pull.flags,
            Self::Inspect(inspect) => &inspect.flags,
            Self::List(list) => &list.flags,
            Self::Gc(gc) => &gc.flags,
        }
    }

    /// `--insecure`, where the verb has it.
    fn insecure(&self) -> bool {
        match self {
            Self::Pull(pull) => pull.insecure,
            Self::Inspect(inspect) => inspect.insecure,
            Self::List(_) | Self::Gc(_) => false,
        }
    }
}

/// Does it and prints what was found; the exit code.
#[must_use]
pub fn source(what: &SourceVerb, caller: &Caller, policy: &HostPolicy, printer: &Printer) -> u8 {
    let terms = Terms {
        caller,
        policy,
        insecure: what.insecure(),
        listener: Arc::new(TransferStatus::new(*printer)),
    };
    let said = match what {
        SourceVerb::Pull(pull) => pull.said(&terms, printer),
        SourceVerb::Inspect(inspect) => inspect.said(&terms),
        SourceVerb::List(list) => list.said(&terms),
        SourceVerb::Gc(gc) => gc.said(&terms),
    };
    tell(said, printer)
}

fn tell(said: Result<String, ErrorReport>, printer: &Printer) -> u8 {
    match said {
        Ok(text) => document(printer, &text),
        Err(error) => refused(&error, printer),
    }
}

/// What an artifact says of itself, a line for each thing.
fn described(config: Option<&SourceConfig>, layer: &SourceLayer) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        let written = writeln!(text, "{key:>11}: {}", escape(value.as_bytes()));
        debug_assert!(written.is_ok(), "writing to a string");
    };
    match config {
        None => line("config", "none"),
        Some(config) => {
            line("source", &format!("{}:{}", config.name, config.version));
            line("made of", config.source_type.word());
            let origin = config.origin.as_ref();
            for (key, value) in [
                ("description", config.description.as_ref()),
                ("url", origin.and_then(|origin| origin.url.as_ref())),
                ("repository", origin.and_then(|origin| origin.repo.as_ref())),
                ("ref", origin.and_then(|origin| origin.reference.as_ref())),
                ("commit", origin.and_then(|origin| origin.commit.as_ref())),
            ] {
                if let Some(value) = value {
                    line(key, value);
                }
            }
        }
    }
    line(
        "layer",
        &format!("{}, {} KiB", layer.digest, layer.bytes.div_ceil(1024)),
    );
    text
}
