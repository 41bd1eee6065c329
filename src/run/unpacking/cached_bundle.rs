//! Finds the tree of an archive in the cache.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::fd::OwnedFd;

use crate::run::Run;
use crate::run::error::RunError;
use crate::run::interruptible::{self, Interruptible, WaitLimit};
use crate::run::unpacking::{UNPACK, parse_documents, unpack_limits};
use archive::{OpenedArchive, Tree, UnpackLimits};
use reader::{Cause, Documents, Problem, Target, UnpackFailure};
use spec::host_policy::HostPolicy;
use spec::parse_permit::ParsePermit;
use spec::report::{CacheFound, WarningReport, with_causes};
use spec::request::{BundleArgument, Caller, Subject};
use store::{Cache, CacheError, Distrust, Identity, ListedTree, Record};

/// Archives up to this size unpack faster than the cache lookup and the overlayfs mount take
/// (`benches/cache.rs`).
const SMALL_BYTES: u64 = 32 << 10;

pub(in crate::run) struct CachedTree {
    pub(in crate::run) tree: Box<ListedTree>,
    pub(in crate::run) found: CacheFound,
    /// Why the identity of the archive was not enough to find it.
    pub(in crate::run) reason: Option<&'static str>,
    /// Those that were parsed when it was unpacked.
    pub(in crate::run) documents: Documents,
}

/// Source of the bundle's files.
pub(in crate::run) enum BundleSource {
    Cached(CachedTree),
    /// The archive must be unpacked, with the reason.
    File {
        file: File,
        reason: &'static str,
    },
    Directory(OwnedFd),
}

pub(in crate::run) struct LookedUp {
    pub(in crate::run) source: BundleSource,
    /// Why the cache cannot be used.
    pub(in crate::run) warning: Option<WarningReport>,
}

/// Opens this caller's cache of unpacked bundles.
///
/// # Errors
/// [`CacheError`] if the directory is not safe or cannot be created.
pub(in crate::run) fn open_cache(
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(Cache, store::CacheLocation), CacheError> {
    let place = cache_place(caller, policy)?;
    Ok((Cache::open(&place)?, place))
}

/// Directory of the cache, which need not exist.
///
/// # Errors
/// [`CacheError::Call`] if the file system cannot be inspected.
pub(in crate::run) fn cache_place(
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
    pub(in crate::run) fn look_up(
        &self,
        archive: OpenedArchive,
        wait_limit: WaitLimit<'_>,
    ) -> Result<LookedUp, RunError> {
        match archive {
            OpenedArchive::Directory(source) => Ok(LookedUp {
                source: BundleSource::Directory(source),
                warning: None,
            }),
            OpenedArchive::File(file) => {
                let limits = unpack_limits(self.policy);
                self.look_up_file(file, wait_limit, &limits)
            }
        }
    }

    /// Looks up `file`; rewinds it on a miss.
    fn look_up_file(
        &self,
        mut file: File,
        wait_limit: WaitLimit<'_>,
        limits: &UnpackLimits,
    ) -> Result<LookedUp, RunError> {
        let not_cached = |file, reason, warning| LookedUp {
            source: BundleSource::File { file, reason },
            warning,
        };
        if let Some(reason) = self.skip_reason(&file, limits) {
            return Ok(not_cached(file, reason, None));
        }
        let mut lookup = Lookup {
            file: &mut file,
            wait_limit,
            limits,
            trusts_mtime: !self.request.bundle.no_trust_mtime,
            has_manifest: self.request.bundle.manifest.is_some(),
        };
        let found = match open_cache(&self.request.caller, self.policy) {
            Ok((cache, _)) => lookup.run(&cache),
            Err(error) => Err(Miss::Cache(error)),
        };
        let (reason, warning) = match found {
            Ok(tree) => {
                return Ok(LookedUp {
                    source: BundleSource::Cached(tree),
                    warning: None,
                });
            }
            Err(Miss::DoesNotFit(reason)) => (reason, None),
            Err(Miss::Run(error)) => return Err(error),
            Err(Miss::Cache(error)) => {
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
        Ok(not_cached(file, reason, warning))
    }

    fn skip_reason(&self, file: &File, limits: &UnpackLimits) -> Option<&'static str> {
        if self.request.bundle.no_cache {
            return Some("flag");
        }
        if self.policy.cache.bundles.off {
            return Some("policy");
        }
        // Standard input can be read only once, and its identity says nothing about its contents.
        if self.request.subject == Subject::Bundle(BundleArgument::Stdin) {
            return Some("stdin");
        }
        match file.metadata() {
            Ok(status) if status.len() <= SMALL_BYTES => Some("small"),
            // The archive reader refuses it.
            Ok(status) if status.len() > limits.compressed_bytes => Some("too_large"),
            Ok(_) => None,
            Err(_unreadable) => Some("unusable"),
        }
    }
}

impl CachedTree {
    fn new(tree: ListedTree, found: CacheFound, reason: Option<&'static str>) -> Self {
        Self {
            tree: Box::new(tree),
            found,
            reason,
            documents: Documents::default(),
        }
    }
}

struct Lookup<'run> {
    file: &'run mut File,
    wait_limit: WaitLimit<'run>,
    limits: &'run UnpackLimits,
    trusts_mtime: bool,
    /// The caller's manifest replaces that of the bundle.
    has_manifest: bool,
}

/// Why a lookup returned no tree.
enum Miss {
    /// The unpacked archive does not fit into the cache, with the reason.
    DoesNotFit(&'static str),
    /// The cache failed; the run continues without it.
    Cache(CacheError),
    /// The archive is refused, or the run is cancelled.
    Run(RunError),
}

impl From<CacheError> for Miss {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

impl Lookup<'_> {
    fn run(&mut self, cache: &Cache) -> Result<CachedTree, Miss> {
        let identity = Identity::of(self.file)?;
        let distrust = if self.trusts_mtime {
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
            return Ok(CachedTree::new(tree, CacheFound::Identity, None));
        }
        let bytes = identity.bytes();
        if cache.knows_size(bytes) {
            let digest = self.hash()?;
            if let Some((tree, record)) = cache.by_digest(bytes, &digest, self.limits)? {
                self.remember(cache, &identity, distrust, &record)?;
                return Ok(CachedTree::new(tree, CacheFound::Digest, distrust));
            }
            rewind(self.file).map_err(Miss::Run)?;
        }
        self.unpack(cache, &identity, distrust)
    }

    fn hash(&mut self) -> Result<spec::digest::Digest, Miss> {
        let mut source = Interruptible::new(self.file()?, self.wait_limit);
        let hashed = store::hash(&mut source);
        source.check(UNPACK).map_err(Miss::Run)?;
        hashed.map_err(|error| {
            let errno = sys::file::errno_of(&error);
            Miss::Run(RunError::host("read the bundle")(errno))
        })
    }

    fn file(&self) -> Result<File, Miss> {
        self.file.try_clone().map_err(|error| {
            let errno = sys::file::errno_of(&error);
            Miss::Run(RunError::host("read the bundle")(errno))
        })
    }

    /// Unpacks the archive into the cache, in a confined process, and verifies what that left.
    fn unpack(
        &mut self,
        cache: &Cache,
        identity: &Identity,
        distrust: Option<&'static str>,
    ) -> Result<CachedTree, Miss> {
        let building = cache.begin()?;
        let fits = UnpackLimits {
            unpacked_bytes: self.limits.unpacked_bytes.min(cache.size_bytes()),
            ..*self.limits
        };
        let target = Target {
            directory: building.tree(),
            ids: None,
        };
        let file = self.file()?;
        let parse = |permit: &ParsePermit, tree: &Tree| {
            parse_documents(permit, tree, target.directory, self.has_manifest)
        };
        let unpacked = interruptible::unpack(file, target, &fits, &parse, self.wait_limit);
        let (unpacked, documents) = match unpacked {
            Ok(unpacked) => unpacked,
            // An archive too large for the cache may fit into the writable space.
            Err(UnpackFailure::Problem(Problem {
                cause: Cause::Full, ..
            })) => {
                return Err(Miss::DoesNotFit("full"));
            }
            Err(UnpackFailure::Problem(Problem {
                cause: Cause::TooManyBytes,
                ..
            })) if fits.unpacked_bytes < self.limits.unpacked_bytes => {
                return Err(Miss::DoesNotFit("too_large"));
            }
            Err(failure) => return Err(Miss::Run(failure.into())),
        };
        // The reader is not trusted to name the tree that others will find under this digest.
        let root = building.tree();
        if let Some(problem) = store::check_tree(root, &unpacked.tree, &unpacked.content_digest) {
            let problem = format!("its reader told another tree than it left: {problem}");
            return Err(Miss::Run(RunError::Reader(Problem::of_reader(&problem))));
        }
        let (tree, record) = cache.publish(building, unpacked, identity.bytes(), self.limits)?;
        let reason = match &record {
            Some(record) => {
                self.remember(cache, identity, distrust, record)?;
                distrust
            }
            None => Some("too_large"),
        };
        Ok(CachedTree {
            documents,
            ..CachedTree::new(tree, CacheFound::Miss, reason)
        })
    }

    /// Records the digest under the file's identity, if the identity can be trusted and the file did
    /// not change while it was read.
    fn remember(
        &self,
        cache: &Cache,
        identity: &Identity,
        distrust: Option<&'static str>,
        record: &Record,
    ) -> Result<(), Miss> {
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
