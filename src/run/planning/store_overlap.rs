//! Refuses mounts and outputs that overlap the stores of other runs, and outputs that overlap the
//! configuration.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::run::error::RunError;
use crate::run::host::resources::runtime_directory;
use crate::run::unpacking::cached_bundle;
use crate::staging::OutputFile;
use sandbox::mounts;
use sources::oci::store::StorePlace;
use spec::history::AuditPolicy;
use spec::host_policy::HostPolicy;
use spec::path::escape_path;
use spec::request::{Caller, ViewEntry};
use spec::sources_policy::SecretsProvider;
use spec::state_directory::SERVED_RUNS;

/// Refuses a mount that overlaps the runtime directory, where a body could lock or write the
/// records of other runs, and a writable mount through which it could change the history of runs or
/// trees kept for later runs: bundles and artifacts. Resolves the links of all sources; mounting follows none in a
/// writable one, so that the checked directory is the mounted one.
///
/// # Errors
/// [`RunError::Argument`]; [`RunError::Host`] if the path of a store cannot be determined: an
/// unknown path counts as overlapping.
pub(in crate::run) fn keep_stores_apart(
    entries: &mut [ViewEntry],
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(), RunError> {
    let mut sources = MountSources::default();
    for entry in entries.iter_mut() {
        if let ViewEntry::Bind {
            source, writable, ..
        } = entry
        {
            *source = mounts::resolve_source(source)?.0;
            sources.all.push(source.clone());
            if *writable {
                sources.writable.push(source.clone());
            }
        }
    }
    if !sources.all.is_empty() {
        refuse_store(&sources.all, &runtime_directory(caller), &RUNS)?;
    }
    if sources.writable.is_empty() {
        return Ok(());
    }
    if !policy.cache.bundles.off {
        let bundles = bundle_cache(caller, policy).map_err(RunError::host(BUNDLES.act))?;
        refuse_store(&sources.writable, &bundles, &BUNDLES)?;
    }
    if policy.audit != AuditPolicy::Off {
        refuse_store(&sources.writable, &caller.history_directory, &HISTORY)?;
    }
    refuse_store(&sources.writable, &served_runs(caller), &SERVED)?;
    let artifacts = artifact_store(caller, policy).map_err(RunError::host(ARTIFACTS.act))?;
    refuse_store(&sources.writable, &artifacts, &ARTIFACTS)
}

/// Refuses, even if granted, an output below `root` that would change what the runner itself trusts in
/// later runs: its records, stores and configuration, and the secrets.
///
/// # Errors
/// [`RunError::Argument`]; [`RunError::Host`] if one of these paths cannot be determined.
pub(in crate::run) fn keep_outputs_apart(
    outputs: &[OutputFile],
    root: &Path,
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(), RunError> {
    if outputs.is_empty() {
        return Ok(());
    }
    let act = "locate the files of the runner, which no output may replace";
    let root = root
        .canonicalize()
        .map_err(|error| RunError::host(act)(sys::file::errno_of(&error)))?;
    let trusted = trusted_paths(caller, policy).map_err(RunError::host(act))?;
    for output in outputs {
        // Writing an output follows no link below the root.
        let destination = root.join(OsStr::from_bytes(output.path.as_bytes()));
        let overlaps = |path: &&PathBuf| {
            let (path, destination) = (fold(path), fold(&destination));
            path.starts_with(&destination) || destination.starts_with(&path)
        };
        if let Some(path) = trusted.iter().find(overlaps) {
            return Err(RunError::Argument {
                code: "destination_refused",
                what: "output destination",
                object: escape_path(&destination),
                problem: format!(
                    "overlaps {}, which the runner trusts in later runs",
                    escape_path(path)
                ),
                hint: Some(
                    "choose another path, or write the outputs to another directory (--out-dir)"
                        .to_owned(),
                ),
            });
        }
    }
    Ok(())
}

/// Files and directories that the runner trusts in every run of this user, with their links resolved
/// and, as an output could replace a link, unresolved. Paths that the user cannot reach are left out:
/// neither the runner nor an output reaches them.
fn trusted_paths(caller: &Caller, policy: &HostPolicy) -> Result<Vec<PathBuf>, Errno> {
    let mut paths = vec![
        Ok(runtime_directory(caller)),
        bundle_cache(caller, policy),
        artifact_store(caller, policy),
        Ok(caller.cache_directory.clone()),
        Ok(caller.history_directory.clone()),
    ];
    let provider = match &policy.secrets.provider {
        Some(SecretsProvider::Directory(directory)) => Some(directory),
        _ => None,
    };
    let stated = [&policy.cache.directory, &policy.secrets.inventory];
    let stated = stated.into_iter().flatten().chain(provider);
    let all = stated.chain(&caller.directories_without_outputs);
    paths.extend(all.cloned().map(Ok));
    // Not set: every path begins with an empty one.
    paths.retain(|path| !path.as_ref().is_ok_and(|path| path.is_relative()));
    let mut trusted = Vec::new();
    for path in paths {
        let link = path.clone().and_then(|path| resolve_parent(&path));
        let real = path.and_then(|path| resolve_store(&path));
        for resolved in [link, real] {
            match resolved {
                Ok(path) => trusted.push(path),
                Err(Errno::ACCESS | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(trusted)
}

/// Resolves the links of `path` except its last name.
fn resolve_parent(path: &Path) -> Result<PathBuf, Errno> {
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => Ok(resolve_store(above)?.join(name)),
        _ => Ok(path.to_owned()),
    }
}

/// In a directory that ignores case, another spelling is the same file.
fn fold(path: &Path) -> PathBuf {
    path.as_os_str().to_ascii_lowercase().into()
}

fn served_runs(caller: &Caller) -> PathBuf {
    caller.history_directory.with_file_name(SERVED_RUNS)
}

fn bundle_cache(caller: &Caller, policy: &HostPolicy) -> Result<PathBuf, Errno> {
    let place = cached_bundle::cache_place(caller, policy).map_err(|error| errno_of(&error))?;
    Ok(place.directory)
}

fn artifact_store(caller: &Caller, policy: &HostPolicy) -> Result<PathBuf, Errno> {
    let place = StorePlace::choose(caller, policy).map_err(|error| errno_of(&error))?;
    Ok(place.directory)
}

#[derive(Default)]
struct MountSources {
    all: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// The errno at the root of `error`.
fn errno_of(error: &(dyn std::error::Error + 'static)) -> Errno {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let errno = causes.last().and_then(|cause| cause.downcast_ref());
    *errno.unwrap_or(&Errno::IO)
}

struct StoreWords {
    code: &'static str,
    act: &'static str,
    problem: &'static str,
    hint: &'static str,
}

const RUNS: StoreWords = StoreWords {
    code: "mount_holds_runtime_directory",
    act: "locate the runtime directory, which no mount may contain",
    problem: "overlaps the runtime directory, which records and locks runs",
    hint: "mount only other files, or set another runtime directory (RUNNER_OPT_RUNTIME_DIRECTORY)",
};
const BUNDLES: StoreWords = StoreWords {
    code: "mount_holds_cache",
    act: "locate the cache of unpacked bundles (cache.bundles.directory), which no mount may contain",
    problem: "overlaps the cache of unpacked bundles, which the body could change",
    hint: "mount it read-only, move the cache (cache.bundles.directory), or turn it off (cache.bundles.off)",
};
const ARTIFACTS: StoreWords = StoreWords {
    code: "mount_holds_cache",
    act: "locate the store of images and workspace sources (oci.directory), which no mount may contain",
    problem: "overlaps the store of images and workspace sources, which the body could change",
    hint: "mount it read-only, or move the store (oci.directory)",
};

const HISTORY: StoreWords = StoreWords {
    code: "mount_holds_history",
    act: "locate the history of runs, which no mount may contain",
    problem: "overlaps the history of runs, which the body could change",
    hint: "mount it read-only, or keep the history elsewhere (RUNNER_OPT_STATE_DIRECTORY)",
};

const SERVED: StoreWords = StoreWords {
    code: "mount_holds_served_runs",
    act: "locate the runs of `runner serve`, which no mount may contain",
    problem: "overlaps the runs of `runner serve`, whose events and reports the body could change",
    hint: "mount it read-only, or keep the runs elsewhere (RUNNER_OPT_STATE_DIRECTORY)",
};

/// Refuses sources that overlap `store`, which may not exist yet. Masking it inside would not
/// suffice: a directory above it could be renamed.
fn refuse_store(sources: &[PathBuf], store: &Path, words: &StoreWords) -> Result<(), RunError> {
    let store = resolve_store(store).map_err(RunError::host(words.act))?;
    for source in sources {
        if store.starts_with(source) || source.starts_with(&store) {
            return Err(RunError::Argument {
                code: words.code,
                what: "mount source",
                object: escape_path(source),
                problem: words.problem.to_owned(),
                hint: Some(words.hint.to_owned()),
            });
        }
    }
    Ok(())
}

/// Maximum number of links that are followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// Resolves the links of `path`, whose last components need not exist. Dangling links are followed,
/// since creating the store would follow them.
fn resolve_store(path: &Path) -> Result<PathBuf, Errno> {
    let errno = |error: std::io::Error| sys::file::errno_of(&error);
    let mut path = path.to_owned();
    for _link in 0..LINKS_MAX {
        let (real, rest) = resolve_existing(&path).map_err(errno)?;
        let mut names = rest.components();
        let Some(first) = names.next() else {
            return Ok(real);
        };
        let first = real.join(first);
        match first.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // The parent of a missing directory is unknown.
                return if rest.components().any(|name| name == Component::ParentDir) {
                    Err(Errno::NOENT)
                } else {
                    Ok(real.join(rest))
                };
            }
            Err(error) => return Err(errno(error)),
            Ok(found) if found.is_symlink() => {
                let target = first.read_link().map_err(errno)?;
                path = real.join(target).join(names.as_path());
            }
            // It was created in the meantime.
            Ok(_) => path = first.join(names.as_path()),
        }
    }
    Err(Errno::LOOP)
}

/// The existing part of `path`, without links, and the rest.
fn resolve_existing(path: &Path) -> std::io::Result<(PathBuf, &Path)> {
    let mut above = path;
    loop {
        match (above.canonicalize(), above.parent()) {
            (Ok(real), _) => return Ok((real, path.strip_prefix(above).unwrap_or(path))),
            (Err(error), Some(parent)) if error.kind() == std::io::ErrorKind::NotFound => {
                above = parent;
            }
            (Err(error), _) => return Err(error),
        }
    }
}
