//! `runner source`: source artifacts, from directories to registries and back.

pub mod build;
mod ending;
mod error;
pub mod push;

use crate::cli::args::{PolicyFile, VoiceFlags};
use crate::cli::dispatch::document;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use crate::cli::source::build::{BUILD_HELP, Build};
use crate::cli::source::error::SourceError;
use crate::cli::source::push::{PUSH_HELP, Push};
use crate::cli::surroundings::Surroundings;
use crate::spec::host_policy::HostPolicy;
use crate::spec::report::with_causes;
use crate::spec::request::Caller;

/// Make, send, fetch and look at artifacts of sources.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum What {
    /// Make a source artifact of a directory or a checkout of git
    #[command(after_help = BUILD_HELP, args_override_self = true)]
    Build(Box<Build>),
    /// Send a source artifact to a registry
    #[command(after_help = PUSH_HELP, args_override_self = true)]
    Push(Box<Push>),
}

impl What {
    /// How to speak, and the configuration.
    #[must_use]
    pub fn frame(&self) -> (VoiceFlags, &PolicyFile) {
        match self {
            Self::Build(build) => (build.voice, &build.policy),
            Self::Push(push) => (push.voice, &push.policy),
        }
    }
}

/// Does it; the exit code.
#[must_use]
pub fn source(
    what: &What,
    surroundings: &Surroundings,
    caller: &Caller,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    let said = match what {
        What::Build(args) => build::build(args, surroundings, caller, policy, printer),
        What::Push(args) => push::push_stored(args, caller, policy, printer),
    };
    match said {
        Ok(text) => document(printer, &text),
        Err(error) => refused(&error, printer),
    }
}

fn refused(error: &SourceError, printer: &Printer) -> u8 {
    let text = format!("refused: {} ({})", with_causes(error), error.code());
    printer.line(Tone::Error, &text);
    if let Some(hint) = error.hint() {
        printer.line(Tone::Hint, &format!("hint: {hint}"));
    }
    FAILED
}
