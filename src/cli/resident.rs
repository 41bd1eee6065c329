//! `runner resident`: the launcher of a pool, started by the library and by nobody else.

use std::time::Duration;

use crate::cli::args::PolicyFile;
use crate::cli::config;
use crate::cli::dispatch::{Engine, warning};
use crate::cli::surroundings::Surroundings;
use crate::resident::launcher::Orders;
use crate::spec::report::ErrorReport;
use crate::spec::units::parse_duration;

/// Serve a program that keeps a pool of sandboxes: standard input is a socket to it.
#[derive(Debug, clap::Args)]
pub struct Resident {
    /// How many sandboxes wait to be used
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub spares: u16,
    /// How many runs there are at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub runs_at_once: u32,
    /// How long a sandbox waits before it is replaced
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub spare_age_max: Duration,
    /// Configuration.
    #[command(flatten)]
    pub policy: PolicyFile,
}

/// Serves until the caller is gone; the exit code.
pub(super) fn resident(words: &Resident, surroundings: &Surroundings, engine: &Engine<'_>) -> u8 {
    (engine.resident)(orders(words, surroundings, engine))
}

fn orders(
    words: &Resident,
    surroundings: &Surroundings,
    engine: &Engine<'_>,
) -> Result<Orders, ErrorReport> {
    let loaded = config::load(surroundings, words.policy.policy.as_deref());
    let (policy, forbidden) = loaded.map_err(|error| error.report())?;
    let caller = surroundings.caller(&policy);
    let mut warnings: Vec<_> = (engine.enter_scope)(&caller).into_iter().collect();
    warnings.extend(forbidden.iter().map(warning));
    Ok(Orders {
        caller,
        policy,
        warnings,
        spares: words.spares.into(),
        runs_at_once: usize::try_from(words.runs_at_once).unwrap_or(usize::MAX),
        spare_age_max: words.spare_age_max,
    })
}
