//! `runner cache`: the unpacked bundles that are kept for the next run.

use std::fmt::Write as _;

use crate::cli::dispatch::document;
use crate::cli::found::{FoundFlags, text};
use crate::cli::print::Printer;
use crate::run::verbs::cache_verbs;
use spec::cache_report::{CacheListing, CacheRemoval, CacheVerdict};
use spec::host_policy::HostPolicy;
use spec::request::Caller;

/// Exit code of `verify` where something was damaged.
const DAMAGED: u8 = 1;

/// Look at the unpacked bundles that are kept for the next run.
#[derive(Debug, clap::Args)]
pub struct Cache {
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum What {
    /// List them, the one that was used last first
    #[command(after_help = "Examples:\n  runner cache ls")]
    Ls(FoundFlags),
    /// Remove what is above the size and what dead runs left; never a tree in use
    #[command(after_help = "Examples:\n  runner cache gc\n  runner cache gc --all")]
    Gc(CacheGc),
    /// Read them all and remove those that are not what their digest says
    #[command(
        after_help = "Examples:\n  runner cache verify\n\nExit codes: 0 all whole, 1 some were damaged and are removed."
    )]
    Verify(FoundFlags),
}

/// `gc`.
#[derive(Debug, clap::Args)]
pub struct CacheGc {
    /// Every tree that no run uses
    #[arg(long)]
    pub all: bool,
    /// What all have.
    #[command(flatten)]
    pub flags: FoundFlags,
}

impl What {
    /// The flags that all have.
    #[must_use]
    pub fn flags(&self) -> &FoundFlags {
        match self {
            Self::Ls(flags) | Self::Verify(flags) => flags,
            Self::Gc(gc) => &gc.flags,
        }
    }
}

/// Does it and prints what was found; the exit code.
#[must_use]
pub fn cache(what: &What, caller: &Caller, policy: &HostPolicy, printer: &Printer) -> u8 {
    let json = what.flags().json;
    let said = match what {
        What::Ls(_) => {
            cache_verbs::list(caller, policy).map(|found| (text(json, &found, listing), 0))
        }
        What::Gc(gc) => cache_verbs::collect(caller, policy, gc.all)
            .map(|found| (text(json, &found, removal), 0)),
        What::Verify(_) => cache_verbs::verify(caller, policy).map(|found| {
            let code = if found.damaged.is_empty() { 0 } else { DAMAGED };
            (text(json, &found, verdict), code)
        }),
    };
    match said {
        Ok((text, code)) => match document(printer, &text) {
            0 => code,
            failed => failed,
        },
        Err(error) => printer.failure(&error),
    }
}

fn listing(found: &CacheListing) -> String {
    let mut text = String::new();
    for tree in &found.trees {
        let line = writeln!(
            text,
            "{}  {:>10} KiB  {:>7} entries",
            tree.content_digest,
            tree.disk_bytes / 1024,
            tree.entries
        );
        debug_assert!(line.is_ok(), "writing to a string");
    }
    let place = if found.in_memory { "memory" } else { "disk" };
    format!(
        "{text}{} trees, {} of {} KiB, in {} ({place})\n",
        found.trees.len(),
        found.used_bytes / 1024,
        found.size_bytes / 1024,
        found.directory
    )
}

fn removal(found: &CacheRemoval) -> String {
    format!(
        "removed {} trees, {} KiB\n",
        found.trees,
        found.bytes / 1024
    )
}

fn verdict(found: &CacheVerdict) -> String {
    let mut text = String::new();
    for tree in &found.damaged {
        let line = writeln!(text, "damaged, removed: {} ({})", tree.entry, tree.problem);
        debug_assert!(line.is_ok(), "writing to a string");
    }
    format!(
        "{text}{} trees are whole, {} were damaged\n",
        found.whole,
        found.damaged.len()
    )
}
