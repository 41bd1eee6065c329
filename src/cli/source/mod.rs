//! `runner source`: artifacts of sources, made, sent, fetched, kept and looked at. One file for
//! each verb.

pub mod build;
mod ending;
mod error;
mod gc;
mod inspect;
mod list;
mod pull;
pub mod push;
mod rm;

use std::fmt::Write as _;
use std::sync::Arc;

use crate::cli::args::{PolicyFile, VoiceFlags};
use crate::cli::dispatch::document;
use crate::cli::print::Printer;
use crate::cli::source::build::{BUILD_HELP, Build};
use crate::cli::source::ending::UntilSignal;
use crate::cli::source::error::SourceError;
use crate::cli::source::push::{PUSH_HELP, Push};
use crate::cli::surroundings::Surroundings;
use sources::oci::observer::Observer;
use sources::oci::opening::Terms;
use spec::host_policy::HostPolicy;
use spec::oci::source_config::SourceConfig;
use spec::path::escape;
use spec::report::{ErrorReport, with_causes};
use spec::request::Caller;
use spec::source_report::SourceLayer;

pub use gc::SourceGc;
pub use inspect::SourceInspect;
pub use list::SourceList;
pub use pull::SourcePull;
pub use rm::SourceRm;

/// Build, push, pull and inspect source artifacts, which `workspaceSources` of a manifest name.
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
    /// Make a source artifact of a directory or a checkout of git
    #[command(after_help = BUILD_HELP, args_override_self = true)]
    Build(Box<Build>),
    /// Send a source artifact to a registry
    #[command(after_help = PUSH_HELP, args_override_self = true)]
    Push(Box<Push>),
    /// Fetch a source into the store and unpack it there, so that runs have it at once
    #[command(
        after_help = "Examples:\n  runner source pull --allow-tags registry.example.com/team/models:1.2.0"
    )]
    Pull(SourcePull),
    /// Say what a source says of itself: one in the store, in a layout, or in a registry
    #[command(after_help = "Examples:\n  runner source inspect models:1.2.0")]
    Inspect(SourceInspect),
    /// List the sources in the store, the one that was used last first
    #[command(after_help = "Examples:\n  runner source list\n  runner source list --json")]
    List(SourceList),
    /// Forget a source of the store, and remove what no other one there shares; never what a run uses
    #[command(after_help = "Examples:\n  runner source rm models:1.2.0")]
    Rm(SourceRm),
    /// Remove what is above the size and what dead processes left; never what a run uses
    #[command(after_help = "Examples:\n  runner source gc\n  runner source gc --all")]
    Gc(SourceGc),
}

impl SourceVerb {
    /// How to speak, and the configuration.
    #[must_use]
    pub fn frame(&self) -> (VoiceFlags, &PolicyFile) {
        let flags = match self {
            Self::Build(build) => &build.flags,
            Self::Push(push) => &push.flags,
            Self::Pull(pull) => &pull.flags,
            Self::Inspect(inspect) => &inspect.flags,
            Self::List(list) => &list.flags,
            Self::Rm(rm) => &rm.flags,
            Self::Gc(gc) => &gc.flags,
        };
        (flags.voice, &flags.policy)
    }

    /// How transfers are ended. Those that write what must not stay half done hold signals back.
    fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(UntilSignal {
            is_held: matches!(self, Self::Build(_) | Self::Push(_)),
        })
    }

    /// `--insecure`, where the verb has it.
    fn insecure(&self) -> bool {
        match self {
            Self::Pull(pull) => pull.insecure,
            Self::Inspect(inspect) => inspect.insecure,
            Self::Build(build) => build.insecure,
            Self::Push(push) => push.insecure,
            Self::List(_) | Self::Rm(_) | Self::Gc(_) => false,
        }
    }
}

/// Does it and prints what was found; the exit code.
#[must_use]
pub fn source(
    what: &SourceVerb,
    surroundings: &Surroundings,
    caller: &Caller,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    let terms = Terms {
        caller,
        policy,
        insecure: what.insecure(),
        observer: what.observer(),
    };
    let said = match what {
        SourceVerb::Build(build) => {
            build::build(build, surroundings, &terms, printer).map_err(reported)
        }
        SourceVerb::Push(push) => push::push_stored(push, &terms).map_err(reported),
        SourceVerb::Pull(pull) => pull.said(&terms, printer),
        SourceVerb::Inspect(inspect) => inspect.said(&terms),
        SourceVerb::List(list) => list.said(&terms),
        SourceVerb::Rm(rm) => rm.said(&terms),
        SourceVerb::Gc(gc) => gc.said(&terms),
    };
    tell(said, printer)
}

fn reported(error: SourceError) -> ErrorReport {
    ErrorReport {
        code: error.code().to_owned(),
        message: with_causes(&error),
        hint: error.hint(),
    }
}

fn tell(said: Result<String, ErrorReport>, printer: &Printer) -> u8 {
    match said {
        Ok(text) => document(printer, &text),
        Err(error) => printer.failure(&error),
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
