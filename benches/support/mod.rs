//! Common parts of the benches: options, a temporary directory, rounds that measure every peer once,
//! ratios with their spread, marks, and the report.
//!
//! A bench is `fn main() { support::run(&USAGE, measure) }` with
//! `fn measure(options: &Options) -> Report`. What every bench understands:
//!
//! - `--quick`: few rounds, 15 seconds at most
//! - `--rounds N`: how often everybody is measured
//! - `--idle MS`: how long the machine rests before each measurement
//! - `--json`: JSON in place of the tables; `--json=FILE`: JSON there, beside the tables
//! - `--user UID`: as root, everything again as that user, without any group
//! - `--help`
//!
//! `RUNNER_BIN` names another program to measure. Read the ratios, never the microseconds: other
//! work on the machine affects all peers of a round alike.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_debug_implementations,
    reason = "each bench uses a part of it; a measurement that cannot be taken ends there; the tables are what a bench is for"
)]

mod chamber;
mod ground;
pub mod marks;
mod options;
pub mod peers;
mod report;
mod rounds;
mod table;

pub use ground::{Ground, in_memory, on_path, runner};
pub use options::{Options, Usage};
pub use peers::Peer;
pub use report::Report;
pub use rounds::{interleaved, processor_us, run_once, try_out, wall_us};
pub use table::{Ratio, Row, Table, median, percentile};

/// A whole bench: reads the options, measures, prints the report.
pub fn run(usage: &Usage, measure: fn(&Options) -> Report) {
    let Some(options) = Options::read(usage) else {
        print!("{}", usage.text());
        return;
    };
    if let Some(uid) = options.user {
        ground::as_user(uid, options.json_file.as_deref());
        return;
    }
    measure(&options).print(&options);
}
