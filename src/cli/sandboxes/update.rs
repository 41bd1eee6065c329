//! `runner sandbox update`.

use std::time::Duration;

use super::{each, read_time};
use crate::cli::args::CommonFlags;
use crate::cli::limit_flags;
use crate::cli::print::Printer;
use crate::run::verbs::sandboxes;
use spec::limits::{FlagValue, milliseconds};
use spec::request::Caller;
use spec::sandboxes::UpdateRequest;

pub(super) const HELP: &str = "\
The times count from now, and stand still while a sandbox is paused. maxima.timeout of the
configuration limits the whole time of a sandbox, from its creation on, as for `create`.

Examples:
  runner sandbox update --timeout 1h build
  runner sandbox update --timeout none --idle-timeout 30m build

Exit codes: 0; 125 no such sandbox, it is ending, or the configuration does not allow it.";

#[derive(Debug, clap::Args)]
#[group(id = "change", required = true, multiple = true, args = ["timeout", "idle_timeout"])]
pub struct Update {
    /// End the sandbox after this time from now on; none: no time limit
    #[arg(long, value_name = "DURATION", value_parser = read_timeout)]
    pub timeout: Option<u64>,
    /// End the sandbox if no command runs or comes for this time from now on
    #[arg(long, value_name = "DURATION", value_parser = read_time)]
    pub idle_timeout: Option<Duration>,
    /// The names of the sandboxes
    #[arg(required = true, value_name = "NAME")]
    pub sandboxes: Vec<String>,
    #[command(flatten)]
    pub common: CommonFlags,
}

fn read_timeout(text: &str) -> Result<u64, String> {
    limit_flags::parse(FlagValue::TimeOrNone, text)
}

pub(super) fn update(args: &Update, caller: &Caller, printer: &Printer) -> u8 {
    let wanted = UpdateRequest {
        timeout_ms: args.timeout,
        idle_timeout_ms: args.idle_timeout.map(milliseconds),
    };
    each(&args.sandboxes, printer, |name| {
        sandboxes::update(caller, name, &wanted)
    })
}
