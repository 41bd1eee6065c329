//! Finds the tree of an archive in the cache.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::fd::OwnedFd;

use crate::run::Run;
use crate::run::contract::WaitLimit;
use crate::run::error::RunError;
use crate::run::interruptible::Interruptible;
use crate::run::unpacking::{UNPACK, unpack_limits};
use archive::{OpenedArchive, UnpackError, UnpackLimits};
use spec::host_policy::HostPolicy;
use spec::report::{CacheFound, WarningReport, with_causes};
use spec::request::{BundleArgument, Caller, Subject};
use store::{Cache, CacheError, Distrust, Identity, ListedTree, Record};

/// Archives up to this size unpack faster than the cache lookup and the overlayfs mount take
/// (`benches/cache.rs`).
pub(super) const SMALL_BYTES: u64 = 32 << 10;

/// Source of the bundle's files.
pub(super) enum BundleFrom {
    /// A tree of the cache.
    Tree {
        tree: Box<ListedTree>,
        found: CacheFound,
        reason: Option<&'static str>,
    },
    /// The archive must be unpacked, with the reason.
    File {
        file: File,
        reason: &'static str,
    },
    Directory(OwnedFd),
}

/// Result of the cache lookup.
pub(super) struct LookedUp {
    pub(super) from: BundleFrom,
    /// Why the cache cannot be used.
    pub(super) warning: Option<WarningReport>,
}

/// Answer of the cache.
enum Answer {
    Tree(Box<ListedTree>, CacheFound, Option<&'static str>),
    /// Not cached, with the reason.
    Nothing(&'static str),
}

/// Opens this caller's cache of unpacked bundles.
///
/// # Errors
/// [`CacheError`] if the directory is not safe or cannot be created.
pub(crate) fn open_cache(
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(Cache, store::CacheLocation), CacheError> {
    let place = place(caller, policy)?;
    Ok((Cache::open(&place)?, place))
}

/// Directory of the cache, which need not exist.
///
/// # Errors
/// [`CacheError::Call`] if the file system cannot be inspected.
pub(super) fn place(
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<store::CacheLocation, CacheError> {
    let bundles = &policy.cache.bundles;
    let stated = caller.bundle_cache_directory.as_ref();
    store::select_location(
        stated.or(bundles.directory.as_ref()).map(AsRef::as_ref),
        caller.runtime_directory.as_deref(),
        &caller.cache_directory,
        bundles.size_bytes,
    )
}

impl Run<'_> {
    /// Looks up the tree of `archive`. The warnings of an unusable cache are returned even if
    /// unpacking fails later.
    pub(super) fn look_up(
        &self,
        archive: OpenedArchive,
        wait_limit: WaitLimit<'_>,
    ) -> Result<LookedUp, RunError> {
        match archive {
            OpenedArchive::Directory(source) => Ok(LookedUp {
                from: BundleFrom::Directory(source),
                warning: None,
            }),
            OpenedArchive::File(file) => {
                let limits = unpack_limits(self.policy);
                self.ask_cache(file, wait_limit, &limits)
            }
        }
    }

    /// Looks up `file`; rewinds it on a miss.
    fn ask_cache(
        &self,
        mut file: File,
        wait_limit: WaitLimit<'_>,
        limits: &UnpackLimits,
    ) -> Result<LookedUp, RunError> {
        let nothing = |file, reason, warning| LookedUp {
            from: BundleFrom::File { file, reason },
            warning,
        };
        if let Some(reason) = self.why_not(&file, limits) {
            return Ok(nothing(file, reason, None));
        }
        let mut look = Look {
            file: &mut file,
            wait_limit,
            limits,
            trusts: !self.request.bundle.no_trust_mtime,
        };
        let answer = match open_cache(&self.request.caller, self.policy) {
            Ok((cache, _)) => look.look(&cache),
            Err(error) => Err(Failure::Cache(error)),
        };
        let (reason, warning) = match answer {
            Ok(Answer::Tree(tree, found, reason)) => {
                return Ok(LookedUp {
                    from: BundleFrom::Tree {
                        tree,
                        found,
                        reason,
                    },
                    warning: None,
                });
            }
            Ok(Answer::Nothing(reason)) => (reason, None),
            Err(Failure::Run(error)) => return Err(error),
            Err(Failure::Cache(error)) => {
                let reason = match &error {
                    CacheError::Unsafe { .. } => "unsafe",
                    error if error.is_full() => "full",
                    _ => "unusable",
                };
                let warning = WarningReport::new("bundle_cache_unused", with_causes(&error));
                (reason, Some(warning))
            }
        };
        rewind(&mut file)?;
        Ok(nothing(file, reason, warning))
    }

    /// Why the cache is skipped.
    fn why_not(&self, file: &File, limits: &UnpackLimits) -> Option<&'static str> {
        if self.request.bundle.no_cache {
            return Some("flag");
        }
        if self.policy.cache.bundles.off {
            return Some("policy");
        }
        // Standard input can be read only once, and its identity proves nothing.
        if self.request.subject == Subject::Bundle(BundleArgument::Stdin) {
            return Some("stdin");
        }
        match file.metadata() {
            Ok(status) if status.len() <= SMALL_BYTES => Some("small"),
            // The reader refuses it.
            Ok(status) if limits.compressed_bytes < status.len() => Some("too_large"),
            Ok(_) => None,
            Err(_unreadable) => Some("unusable"),
        }
    }
}

/// One cache lookup.
struct Look<'look> {
    file: &'look mut File,
    wait_limit: WaitLimit<'look>,
    limits: &'look UnpackLimits,
    trusts: bool,
}

/// Why a lookup ended early.
enum Failure {
    /// The run continues without the cache.
    Cache(CacheError),
    /// The archive is refused, or the run is cancelled.
    Run(RunError),
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

impl Look<'_> {
    fn look(&mut self, cache: &Cache) -> Result<Answer, Failure> {
        let identity = Identity::of(self.file)?;
        let distrust = if self.trusts {
            identity
                .distrust(self.file)?
                .map(|distrust| match distrust {
                    Distrust::OthersMayWrite => "others_may_write",
                    Distrust::OthersMayReplace => "others_may_replace",
                    Distrust::TooRecent => "young",
                })
        } else {
            Some("untrusted")
        };
        if distrust.is_none()
            && let Some(tree) = cache.by_identity(&identity, self.limits)?
        {
            return Ok(Answer::Tree(Box::new(tree), CacheFound::Identity, None));
        }
        let bytes = identity.bytes();
        if cache.knows_size(bytes) {
            let digest = self.hash()?;
            if let Some((tree, record)) = cache.by_digest(bytes, &digest, self.limits)? {
                self.remember(cache, &identity, distrust, &record)?;
                return Ok(Answer::Tree(Box::new(tree), CacheFound::Digest, distrust));
            }
            rewind(self.file).map_err(Failure::Run)?;
        }
        self.make(cache, &identity, distrust)
    }

    fn hash(&mut self) -> Result<spec::digest::Digest, Failure> {
        let mut source = self.source()?;
        let hashed = store::hash(&mut source);
        source.check(UNPACK).map_err(Failure::Run)?;
        hashed.map_err(|error| {
            let errno = sys::file::errno_of(&error);
            Failure::Run(RunError::host("read the bundle")(errno))
        })
    }

    fn source(&self) -> Result<Interruptible<'_>, Failure> {
        let file = self.file.try_clone().map_err(|error| {
            let errno = sys::file::errno_of(&error);
            Failure::Run(RunError::host("read the bundle")(errno))
        })?;
        Ok(self.wait_limit.reader(file))
    }

    /// Unpacks the archive into the cache and hashes it in the same pass.
    fn make(
        &mut self,
        cache: &Cache,
        identity: &Identity,
        distrust: Option<&'static str>,
    ) -> Result<Answer, Failure> {
        let building = cache.begin()?;
        let fits = UnpackLimits {
            unpacked_bytes: self.limits.unpacked_bytes.min(cache.size_bytes()),
            ..*self.limits
        };
        let mut source = self.source()?;
        let ahead_from_bytes = source.ahead_from_bytes();
        let unpacked = archive::unpack_ahead(&mut source, building.tree(), &fits, ahead_from_bytes);
        source.check(UNPACK).map_err(Failure::Run)?;
        let unpacked = match unpacked {
            Ok(unpacked) => unpacked,
            // An archive too large for the cache may fit the run's own space.
            Err(UnpackError::Target { source, .. }) if store::is_full(source.errno) => {
                return Ok(Answer::Nothing("full"));
            }
            Err(UnpackError::TooManyBytes { .. })
                if fits.unpacked_bytes < self.limits.unpacked_bytes =>
            {
                return Ok(Answer::Nothing("too_large"));
            }
            Err(refused) => return Err(Failure::Run(refused.into())),
        };
        let (tree, record) = cache.publish(building, unpacked, identity.bytes(), self.limits)?;
        let reason = match &record {
            Some(record) => {
                self.remember(cache, identity, distrust, record)?;
                distrust
            }
            None => Some("too_large"),
        };
        Ok(Answer::Tree(Box::new(tree), CacheFound::Miss, reason))
    }

    /// Records the digest under the file's identity, if that identity stands for the contents and
    /// the file did not change while it was read.
    fn remember(
        &self,
        cache: &Cache,
        identity: &Identity,
        distrust: Option<&'static str>,
        record: &Record,
    ) -> Result<(), Failure> {
        if distrust.is_none() && Identity::of(self.file)? == *identity {
            cache.remember(identity, record, self.limits)?;
        }
        Ok(())
    }
}

fn rewind(file: &mut File) -> Result<(), RunError> {
    let sought = file.seek(SeekFrom::Start(0));
    sought.map(|_start| ()).map_err(|error| {
        let errno = sys::file::errno_of(&error);
        RunError::host("read the bundle again")(errno)
    })
}
