//! `runner cache`: list, collect and verify unpacked bundles.

use std::time::UNIX_EPOCH;

use crate::run::unpacking::cached_bundle::open_cache;
use spec::cache_report::{CacheListing, CacheRemoval, CacheVerdict, DamagedTree, KeptTree};
use spec::host_policy::HostPolicy;
use spec::path::escape_path;
use spec::report::{ErrorReport, with_causes};
use spec::request::Caller;
use store::CacheError;

/// Lists the cached trees and their directory.
pub(crate) fn list(caller: &Caller, policy: &HostPolicy) -> Result<CacheListing, ErrorReport> {
    let (cache, place) = open_cache(caller, policy).map_err(|error| explain(&error))?;
    let listed = cache.list().map_err(|error| explain(&error))?;
    let trees: Vec<KeptTree> = listed
        .into_iter()
        .map(|tree| KeptTree {
            content_digest: tree.content,
            bytes: tree.bytes,
            disk_bytes: tree.disk_bytes,
            entries: tree.entries,
            used_unix_s: tree
                .last_use
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        })
        .collect();
    Ok(CacheListing {
        directory: escape_path(&place.directory),
        in_memory: place.in_memory,
        size_bytes: place.size_bytes,
        used_bytes: trees
            .iter()
            .fold(0, |sum, tree| tree.disk_bytes.saturating_add(sum)),
        trees,
    })
}

/// Removes garbage and trees beyond the size limit; with `all`, every unused tree.
pub(crate) fn collect(
    caller: &Caller,
    policy: &HostPolicy,
    all: bool,
) -> Result<CacheRemoval, ErrorReport> {
    let (cache, _) = open_cache(caller, policy).map_err(|error| explain(&error))?;
    let removed = cache.collect(all).map_err(|error| explain(&error))?;
    Ok(CacheRemoval {
        trees: removed.trees,
        bytes: removed.bytes,
    })
}

/// Reads every tree and removes the damaged ones.
pub(crate) fn verify(caller: &Caller, policy: &HostPolicy) -> Result<CacheVerdict, ErrorReport> {
    let (cache, _) = open_cache(caller, policy).map_err(|error| explain(&error))?;
    let (whole, damaged) = store::verify(&cache).map_err(|error| explain(&error))?;
    let damaged = damaged
        .into_iter()
        .map(|tree| DamagedTree {
            entry: tree.entry,
            problem: tree.problem,
        })
        .collect();
    Ok(CacheVerdict { whole, damaged })
}

fn explain(error: &CacheError) -> ErrorReport {
    ErrorReport::new("bundle_cache_unusable", with_causes(error)).with_hint(
        "name a directory of your own: cache.bundles.directory, or RUNNER_OPT_CACHE_DIRECTORY",
    )
}
