//! Keeps the mounts that were asked for apart from the stores of other runs.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::run::cached_bundle;
use crate::run::error::RunError;
use crate::run::resources::runtime_directory;
use sandbox::mounts;
use sources::oci::store::StorePlace;
use spec::host_policy::HostPolicy;
use spec::path::escape;
use spec::request::{Caller, ViewEntry};

/// Refuses a mount that holds the runtime directory, where a body could lock, or write, what other runs
/// are recorded and counted by; and a writable one through which it could put trees of its own into
/// what is kept for later runs: bundles and artifacts. The sources are without links from here on, and
/// of a writable mount none is followed when it is mounted: what was judged is what is shown.
///
/// # Errors
/// [`RunError::Argument`]; [`RunError::Host`] where it cannot be found out where a store lies: what is
/// not known is not taken for apart.
pub(super) fn keep_stores_apart(
    entries: &mut [ViewEntry],
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(), RunError> {
    let mut lent = Lent::default();
    for entry in entries.iter_mut() {
        if let ViewEntry::Bind {
            source, writable, ..
        } = entry
        {
            *source = mounts::resolve_source(source)?.0;
            lent.all.push(source.clone());
            if *writable {
                lent.writable.push(source.clone());
            }
        }
    }
    if !lent.all.is_empty() {
        refuse_store(&lent.all, &runtime_directory(caller), &RUNS)?;
    }
    if lent.writable.is_empty() {
        return Ok(());
    }
    if !policy.cache.bundles.off {
        let place = cached_bundle::place(caller, policy)
            .map_err(|error| RunError::host(BUNDLES.act)(errno_of(&error)))?;
        refuse_store(&lent.writable, &place.directory, &BUNDLES)?;
    }
    let place = StorePlace::choose(caller, policy)
        .map_err(|error| RunError::host(ARTIFACTS.act)(errno_of(&error)))?;
    refuse_store(&lent.writable, &place.directory, &ARTIFACTS)
}

/// Sources of mounts, without links.
#[derive(Default)]
struct Lent {
    all: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// The kernel's answer that is at the bottom of `error`.
fn errno_of(error: &(dyn std::error::Error + 'static)) -> Errno {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let errno = causes.last().and_then(|cause| cause.downcast_ref());
    *errno.unwrap_or(&Errno::IO)
}

/// How a mount that holds a store is told of.
struct StoreWords {
    code: &'static str,
    act: &'static str,
    problem: &'static str,
    hint: &'static str,
}

const RUNS: StoreWords = StoreWords {
    code: "mount_holds_runtime_directory",
    act: "find out where the runtime directory lies, which no mount may hold",
    problem: "holds the runtime directory, by which runs are recorded and locked",
    hint: "show what the body needs of it, or have another runtime directory (RUNNER_OPT_RUNTIME_DIRECTORY)",
};
const BUNDLES: StoreWords = StoreWords {
    code: "mount_holds_cache",
    act: "find out where the cache of unpacked bundles (cache.bundles.directory) lies, which no mount may hold",
    problem: "holds the cache of unpacked bundles, which the body could then change",
    hint: "mount it read-only, or keep bundles elsewhere (cache.bundles.directory) or not at all (cache.bundles.off)",
};
const ARTIFACTS: StoreWords = StoreWords {
    code: "mount_holds_cache",
    act: "find out where the store of images and workspace sources (oci.directory) lies, which no mount may hold",
    problem: "holds the store of images and workspace sources, which the body could then change",
    hint: "mount it read-only, or keep them elsewhere (oci.directory)",
};

/// `store` need not be made yet. Masking it would not do: a directory above it can
/// be renamed.
///
/// # Errors
/// [`RunError::Argument`], [`RunError::Host`].
fn refuse_store(sources: &[PathBuf], store: &Path, words: &StoreWords) -> Result<(), RunError> {
    let store = resolve_store(store).map_err(RunError::host(words.act))?;
    for source in sources {
        if store.starts_with(source) || source.starts_with(&store) {
            return Err(RunError::Argument {
                code: words.code,
                what: "mount source",
                object: escape(source.as_os_str().as_bytes()),
                problem: words.problem.to_owned(),
                hint: Some(words.hint.to_owned()),
            });
        }
    }
    Ok(())
}

/// Most links that are followed by hand, as the kernel has it.
const LINKS_MAX: usize = 40;

/// `path` without links, though the end of it need not be made yet. A link to what is not there is
/// followed as well: whoever makes the store goes through it.
fn resolve_store(path: &Path) -> Result<PathBuf, Errno> {
    let errno = |error: std::io::Error| sys::file::errno_of(&error);
    let mut path = path.to_owned();
    for _link in 0..LINKS_MAX {
        let (real, rest) = resolve_what_is_there(&path).map_err(errno)?;
        let mut names = rest.components();
        let Some(first) = names.next() else {
            return Ok(real);
        };
        let first = real.join(first);
        match first.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // What it would be the parent of is not known before it is made.
                return match rest.components().any(|name| name == Component::ParentDir) {
                    true => Err(Errno::NOENT),
                    false => Ok(real.join(rest)),
                };
            }
            Err(error) => return Err(errno(error)),
            Ok(found) if found.is_symlink() => {
                let target = first.read_link().map_err(errno)?;
                path = real.join(target).join(names.as_path());
            }
            // Somebody has made it in the meantime.
            Ok(_) => path = first.join(names.as_path()),
        }
    }
    Err(Errno::LOOP)
}

/// What of `path` is there, without links, and the rest.
fn resolve_what_is_there(path: &Path) -> std::io::Result<(PathBuf, &Path)> {
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
