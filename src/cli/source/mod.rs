//! `runner source`: one file for each verb.

pub mod build;
mod cancel;
mod error;
mod gc;
mod inspect;
mod list;
mod pull;
pub mod push;
mod rm;

use std::sync::Arc;

use crate::cli::context::ProcessContext;
use crate::cli::output::OutputFlags;
use crate::cli::print::Printer;
use crate::cli::source::build::{BUILD_HELP, Build};
use crate::cli::source::cancel::SignalObserver;
use crate::cli::source::error::SourceError;
use crate::cli::source::push::{PUSH_HELP, Push};
use sources::oci::observer::Observer;
use sources::oci::opening::Terms;
use spec::host_policy::HostPolicy;
use spec::oci::source_config::SourceConfig;
use spec::path::escape;
use spec::report::ErrorReport;
use spec::request::Caller;
use spec::source_report::SourceLayer;

pub use gc::SourceGc;
pub use inspect::SourceInspect;
pub use list::SourceList;
pub use pull::SourcePull;
pub use rm::SourceRm;

#[derive(Debug, clap::Args)]
pub struct Source {
    #[command(subcommand)]
    pub verb: SourceVerb,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum SourceVerb {
    /// Make a source artifact of a directory or a git checkout
    #[command(after_help = BUILD_HELP, args_override_self = true)]
    Build(Box<Build>),
    /// Send a source artifact to a registry
    #[command(after_help = PUSH_HELP, args_override_self = true)]
    Push(Box<Push>),
    /// Fetch a source into the store and unpack it there for later runs
    #[command(
        after_help = "Examples:\n  runner source pull --allow-tags registry.example.com/team/models:1.2.0"
    )]
    Pull(SourcePull),
    /// Print the metadata of a source in the store, in a layout or in a registry
    #[command(after_help = "Examples:\n  runner source inspect models:1.2.0")]
    Inspect(SourceInspect),
    /// List the sources in the store, the most recently used first
    #[command(after_help = "Examples:\n  runner source list\n  runner source list --json")]
    List(SourceList),
    /// Remove a source from the store, except for content that another source or a run uses
    #[command(after_help = "Examples:\n  runner source rm models:1.2.0")]
    Rm(SourceRm),
    /// Remove sources beyond the maximum size and what dead processes left; never what a run uses
    #[command(after_help = "Examples:\n  runner source gc\n  runner source gc --all")]
    Gc(SourceGc),
}

impl SourceVerb {
    #[must_use]
    pub fn flags(&self) -> &OutputFlags {
        match self {
            Self::Build(build) => &build.flags,
            Self::Push(push) => &push.flags,
            Self::Pull(pull) => &pull.flags,
            Self::Inspect(inspect) => &inspect.flags,
            Self::List(list) => &list.flags,
            Self::Rm(rm) => &rm.flags,
            Self::Gc(gc) => &gc.flags,
        }
    }

    /// Verbs whose writes must not stop halfway block signals.
    fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(SignalObserver {
            are_signals_blocked: matches!(self, Self::Build(_) | Self::Push(_)),
        })
    }

    fn is_insecure(&self) -> bool {
        match self {
            Self::Pull(pull) => pull.insecure,
            Self::Inspect(inspect) => inspect.insecure,
            Self::Build(build) => build.insecure,
            Self::Push(push) => push.insecure,
            Self::List(_) | Self::Rm(_) | Self::Gc(_) => false,
        }
    }
}

/// Returns the exit code.
#[must_use]
pub fn source(
    verb: &SourceVerb,
    context: &ProcessContext,
    caller: &Caller,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    let terms = Terms {
        caller,
        policy,
        insecure: verb.is_insecure(),
        observer: verb.observer(),
    };
    let text = match verb {
        SourceVerb::Build(build) => {
            build::build(build, context, &terms, printer).map_err(ErrorReport::from)
        }
        SourceVerb::Push(push) => push::push_stored(push, &terms).map_err(ErrorReport::from),
        SourceVerb::Pull(pull) => pull.run(&terms, printer),
        SourceVerb::Inspect(inspect) => inspect.run(&terms),
        SourceVerb::List(list) => list.run(&terms),
        SourceVerb::Rm(rm) => rm.run(&terms),
        SourceVerb::Gc(gc) => gc.run(&terms),
    };
    match text {
        Ok(text) => printer.document(&text, 0),
        Err(error) if error.code == "usage" => printer.problem("refused", &error),
        Err(error) => printer.failure(&error),
    }
}

impl From<SourceError> for ErrorReport {
    fn from(error: SourceError) -> Self {
        Self::of(error.code(), &error, error.hint())
    }
}

/// The metadata of an artifact, one line for each field.
fn describe(config: Option<&SourceConfig>, layer: &SourceLayer) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        text.push_str(&format!("{key:>11}: {}\n", escape(value.as_bytes())));
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
