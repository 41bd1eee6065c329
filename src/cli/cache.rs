//! `runner cache`: lists, removes and verifies unpacked bundles.

use crate::cli::output::{OutputFlags, render};
use crate::cli::print::Printer;
use crate::run::verbs::cache_verbs;
use spec::cache_report::{CacheListing, CacheRemoval, CacheVerdict};
use spec::host_policy::HostPolicy;
use spec::request::Caller;
use spec::units::count;

/// Exit code of `verify` if a tree was damaged.
const DAMAGED: u8 = 1;

#[derive(Debug, clap::Args)]
pub struct Cache {
    #[command(subcommand)]
    pub verb: CacheVerb,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum CacheVerb {
    /// List the kept bundles, the most recently used first
    #[command(after_help = "Examples:\n  runner cache ls")]
    Ls(OutputFlags),
    /// Remove trees beyond the maximum size and what dead runs left; never a tree in use
    #[command(after_help = "Examples:\n  runner cache gc\n  runner cache gc --all")]
    Gc(CacheGc),
    /// Read all kept bundles and remove those that do not match their digest
    #[command(
        after_help = "Examples:\n  runner cache verify\n\nExit codes: 0 all match, 1 some were damaged and are removed."
    )]
    Verify(OutputFlags),
}

#[derive(Debug, clap::Args)]
pub struct CacheGc {
    /// Remove every tree that no run uses
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

impl CacheVerb {
    #[must_use]
    pub fn flags(&self) -> &OutputFlags {
        match self {
            Self::Ls(flags) | Self::Verify(flags) => flags,
            Self::Gc(gc) => &gc.flags,
        }
    }
}

/// Returns the exit code.
#[must_use]
pub fn cache(verb: &CacheVerb, caller: &Caller, policy: &HostPolicy, printer: &Printer) -> u8 {
    let json = verb.flags().json;
    let output = match verb {
        CacheVerb::Ls(_) => {
            cache_verbs::list(caller, policy).map(|found| (render(json, &found, listing), 0))
        }
        CacheVerb::Gc(gc) => cache_verbs::collect(caller, policy, gc.all)
            .map(|found| (render(json, &found, removal), 0)),
        CacheVerb::Verify(_) => cache_verbs::verify(caller, policy).map(|found| {
            let code = if found.damaged.is_empty() { 0 } else { DAMAGED };
            (render(json, &found, verdict), code)
        }),
    };
    match output {
        Ok((text, code)) => printer.document(&text, code),
        Err(error) => printer.failure(&error),
    }
}

fn listing(found: &CacheListing) -> String {
    let mut text = String::new();
    for tree in &found.trees {
        text.push_str(&format!(
            "{}  {:>10} KiB  {:>15}\n",
            tree.content_digest,
            tree.disk_bytes / 1024,
            count(tree.entries, "entry")
        ));
    }
    let medium = if found.in_memory { "memory" } else { "disk" };
    format!(
        "{text}{}, {} of {} KiB, in {} ({medium})\n",
        count(found.trees.len(), "tree"),
        found.used_bytes / 1024,
        found.size_bytes / 1024,
        found.directory
    )
}

fn removal(found: &CacheRemoval) -> String {
    format!(
        "removed {}, {} KiB\n",
        count(found.trees, "tree"),
        found.bytes / 1024
    )
}

fn verdict(found: &CacheVerdict) -> String {
    let mut text = String::new();
    for tree in &found.damaged {
        text.push_str(&format!(
            "damaged, removed: {} ({})\n",
            tree.entry, tree.problem
        ));
    }
    format!(
        "{text}{}: {} whole, {} damaged\n",
        count(
            found.whole.saturating_add(found.damaged.len() as u64),
            "tree"
        ),
        found.whole,
        found.damaged.len()
    )
}
