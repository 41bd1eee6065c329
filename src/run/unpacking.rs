//! The bundle's tree: out of the cache, or unpacked; and how the body comes to have it.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::run::Run;
use crate::run::contract::{self, Patience};
use crate::run::error::RunError;
use crate::run::interruptible::Interruptible;
use crate::run::subject::UnpackedFiles;
use archive::{OpenedArchive, UnpackError, UnpackLimits, Unpacked};
use sandbox::mounts::Owners;
use sandbox::overlay::{Lower, Overlay};
use sandbox::prepare::{BasePlan, Identity as BodyIdentity, Prepared};
use sandbox::resources::Resources;
use sandbox::view::BUNDLE;
use spec::host_policy::HostPolicy;
use spec::report::{
    BundleCacheReport, BundleReport, BundleView, CacheFound, Report, WarningReport, with_causes,
};
use spec::request::{BundleArgument, Caller, Subject};
use store::{Cache, CacheError, Distrust, HeldTree, Identity, InUse, Record};
use sys::credentials::HostIds;
use sys::mount::{self, Attributes};

/// An archive that is not larger is unpacked in less time than it takes to find its tree and to lay
/// an overlayfs over it (`benches/cache.rs`).
pub(super) const SMALL_BYTES: u64 = 32 << 10;

/// What takes the time.
const UNPACK: &str = "unpacking the bundle";

/// A bundle whose files can be read.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) unpacked: Unpacked,
    /// The directory that it lies in: the body's own, or the kept one.
    pub(super) root: OwnedFd,
    /// The kept tree, and whether the child was asked to lay an overlayfs over it.
    kept: Option<(InUse, bool)>,
}

impl Bundle {
    /// Its files, to look at.
    pub(super) fn files(&self) -> UnpackedFiles<'_> {
        UnpackedFiles {
            tree: &self.unpacked.tree,
            root: self.root.as_fd(),
        }
    }
}

/// What the cache had to say.
enum Answer {
    Tree(Box<HeldTree>, CacheFound, Option<&'static str>),
    /// Nothing is kept: why.
    Nothing(&'static str),
}

/// Where unpacked bundles are kept for this caller.
///
/// # Errors
/// [`CacheError`] where it is not safe, or cannot be made.
pub(crate) fn open_cache(
    caller: &Caller,
    policy: &HostPolicy,
) -> Result<(Cache, store::Place), CacheError> {
    let place = place(caller, policy)?;
    Ok((Cache::open(&place)?, place))
}

/// Where they are, or would be.
///
/// # Errors
/// [`CacheError::Call`] where the file system cannot be looked at.
pub(super) fn place(caller: &Caller, policy: &HostPolicy) -> Result<store::Place, CacheError> {
    let bundles = &policy.cache.bundles;
    let stated = caller.bundle_cache_directory.as_ref();
    store::choose(
        stated.or(bundles.directory.as_ref()).map(AsRef::as_ref),
        caller.runtime_directory.as_deref(),
        &caller.cache_directory,
        bundles.size_bytes,
    )
}

impl Run<'_> {
    /// Finds the tree or unpacks it; where the child has to do something for the body to have it,
    /// it was asked to.
    pub(super) fn unpack(
        &self,
        archive: Option<OpenedArchive>,
        prepared: &mut Prepared,
        resources: &Resources,
        patience: Patience<'_>,
        report: &mut Report,
    ) -> Result<Option<Bundle>, RunError> {
        let limits = unpack_limits(self.policy);
        let (bundle, cache) = match archive {
            None => return Ok(None),
            Some(OpenedArchive::File(mut file)) => {
                match self.ask_cache(&mut file, patience, &limits, report)? {
                    Answer::Tree(tree, found, reason) => {
                        let (bundle, view) = self.have(*tree, prepared, resources)?;
                        let cache = BundleCacheReport {
                            found,
                            reason,
                            view,
                        };
                        (bundle, cache)
                    }
                    Answer::Nothing(reason) => {
                        let bundle =
                            self.unpack_own(file, prepared, resources, patience, &limits)?;
                        (bundle, own(reason))
                    }
                }
            }
            // The source is read with the caller's rights, and only the target written with the
            // body's.
            Some(OpenedArchive::Directory(source)) => {
                let root = self.own_directory(prepared, resources)?;
                let ids = resources.body_ids();
                let unpacked =
                    archive::unpack_directory_as(source.as_fd(), root.as_fd(), &limits, ids)?;
                (Bundle::own(unpacked, root), own("directory"))
            }
        };
        let unpacked = &bundle.unpacked;
        report.bundle = Some(BundleReport {
            name: None,
            version: None,
            content_digest: unpacked.content_digest,
            archive_digest: unpacked.archive_digest,
            bytes: unpacked.bytes,
            entries: unpacked.entries,
            cache,
            sources: Vec::new(),
        });
        report.warnings.extend(unpacked.warnings.iter().cloned());
        Ok(Some(bundle))
    }

    /// Takes the child's answer. Where it could not lay an overlayfs, the body gets a copy.
    pub(super) fn finish_bundle(
        &self,
        bundle: &mut Bundle,
        prepared: &mut Prepared,
        resources: &Resources,
        report: &mut Report,
    ) -> Result<Option<InUse>, RunError> {
        let Some((in_use, asked)) = bundle.kept.take() else {
            return Ok(None);
        };
        if asked
            && prepared
                .overlaid(&resources.base)?
                .iter()
                .any(Result::is_err)
        {
            self.copy(&bundle.unpacked, &in_use, prepared, resources)?;
            if let Some(told) = &mut report.bundle {
                told.cache.view = BundleView::Copy;
            }
        }
        Ok(Some(in_use))
    }

    fn own_directory(
        &self,
        prepared: &Prepared,
        resources: &Resources,
    ) -> Result<OwnedFd, RunError> {
        let _assumed = self.assume(resources)?;
        contract::open_directory(prepared.space(), BUNDLE.trim_start_matches('/'))
    }

    fn unpack_own(
        &self,
        file: File,
        prepared: &Prepared,
        resources: &Resources,
        patience: Patience<'_>,
        limits: &UnpackLimits,
    ) -> Result<Bundle, RunError> {
        let root = self.own_directory(prepared, resources)?;
        let _assumed = self.assume(resources)?;
        let mut source = patience.reader(file);
        let ahead_from_bytes = source.ahead_from_bytes();
        let unpacked = archive::unpack_ahead(&mut source, root.as_fd(), limits, ahead_from_bytes);
        source.check(UNPACK)?;
        Ok(Bundle::own(unpacked?, root))
    }

    /// What the cache has of `file`, which is at its start again where it has nothing.
    fn ask_cache(
        &self,
        file: &mut File,
        patience: Patience<'_>,
        limits: &UnpackLimits,
        report: &mut Report,
    ) -> Result<Answer, RunError> {
        if let Some(reason) = self.why_not(file, limits) {
            return Ok(Answer::Nothing(reason));
        }
        let mut look = Look {
            file,
            patience,
            limits,
            trusts: !self.request.bundle.no_trust_mtime,
        };
        let answer = match open_cache(&self.request.caller, self.policy) {
            Ok((cache, _)) => look.look(&cache),
            Err(error) => Err(Failure::Cache(error)),
        };
        let reason = match answer {
            Ok(Answer::Nothing(reason)) => reason,
            Ok(answer) => return Ok(answer),
            Err(Failure::Run(error)) => return Err(error),
            Err(Failure::Cache(error)) => {
                let reason = match &error {
                    CacheError::Unsafe { .. } => "unsafe",
                    error if error.is_full() => "full",
                    _ => "unusable",
                };
                let message = with_causes(&error);
                report
                    .warnings
                    .push(WarningReport::new("bundle_cache_unused", message));
                reason
            }
        };
        rewind(file)?;
        Ok(Answer::Nothing(reason))
    }

    /// Why the cache is not even asked.
    fn why_not(&self, file: &File, limits: &UnpackLimits) -> Option<&'static str> {
        if self.request.bundle.no_cache {
            return Some("flag");
        }
        if self.policy.cache.bundles.off {
            return Some("policy");
        }
        // It can be read only once, and nobody says whether it stays what it is.
        if self.request.subject == Subject::Bundle(BundleArgument::Stdin) {
            return Some("stdin");
        }
        match file.metadata() {
            Ok(status) if status.len() <= SMALL_BYTES => Some("small"),
            // It is refused when it is read.
            Ok(status) if limits.compressed_bytes < status.len() => Some("too_large"),
            Ok(_) => None,
            Err(_unreadable) => Some("unusable"),
        }
    }

    /// Gives the body a kept tree.
    fn have(
        &self,
        tree: HeldTree,
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<(Bundle, BundleView), RunError> {
        let HeldTree { unpacked, in_use } = tree;
        let root = rustix::io::fcntl_dupfd_cloexec(&in_use.root, 0)
            .map_err(RunError::host("read the kept bundle"))?;
        let lower = match self.policy.cache.bundles.copy || self.request.bundle.keep {
            // What is kept of a run is read from the space: all of it has to be there.
            true => None,
            // Where the body would not be the owner of its files, it gets a copy.
            false => {
                let mut owners = resources.body_ids().map(Owners::of);
                let tree = (in_use.path.as_path(), in_use.root.as_fd());
                lower(tree, &resources.base, owners.as_mut()).ok()
            }
        };
        let asked = lower.is_some();
        let view = match lower {
            Some(lower) => {
                prepared.ask_overlays(&[Overlay::of_bundle(lower)])?;
                BundleView::Overlayfs
            }
            None => {
                self.copy(&unpacked, &in_use, prepared, resources)?;
                BundleView::Copy
            }
        };
        let kept = Some((in_use, asked));
        let bundle = Bundle {
            unpacked,
            root,
            kept,
        };
        Ok((bundle, view))
    }

    fn copy(
        &self,
        unpacked: &Unpacked,
        in_use: &InUse,
        prepared: &Prepared,
        resources: &Resources,
    ) -> Result<(), RunError> {
        let into = self.own_directory(prepared, resources)?;
        let from = in_use.root.as_fd();
        store::copy_into(&unpacked.tree, from, into.as_fd(), resources.body_ids())?;
        Ok(())
    }
}

impl Bundle {
    fn own(unpacked: Unpacked, root: OwnedFd) -> Self {
        Self {
            unpacked,
            root,
            kept: None,
        }
    }
}

fn own(reason: &'static str) -> BundleCacheReport {
    BundleCacheReport {
        found: CacheFound::Off,
        reason: Some(reason),
        view: BundleView::Own,
    }
}

/// One look into the cache.
struct Look<'look> {
    file: &'look mut File,
    patience: Patience<'look>,
    limits: &'look UnpackLimits,
    trusts: bool,
}

/// What ended a look.
enum Failure {
    /// The run goes on without.
    Cache(CacheError),
    /// The archive is refused, or the run was cancelled.
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
        let distrust = match self.trusts {
            false => Some("untrusted"),
            true => identity
                .distrust(self.file)?
                .map(|distrust| match distrust {
                    Distrust::OthersMayWrite => "others_may_write",
                    Distrust::OthersMayReplace => "others_may_replace",
                    Distrust::Young => "young",
                }),
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
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Failure::Run(RunError::host("read the bundle")(errno))
        })
    }

    fn source(&self) -> Result<Interruptible<'_>, Failure> {
        let file = self.file.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Failure::Run(RunError::host("read the bundle")(errno))
        })?;
        Ok(self.patience.reader(file))
    }

    /// Unpacks the archive into the cache: once, and hashed on the way.
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
            // What does not fit in here may fit into the run's own space.
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

    /// Remembers what was read under the file's identity, if that stands for its contents and the
    /// file did not change while it was read.
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
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        RunError::host("read the bundle again")(errno)
    })
}

/// A kept tree, of which the path and the open root are given, as the child may lay an overlayfs
/// over it. `owners` are root's maps of this run.
///
/// # Errors
/// The errno of what failed; EPERM where the body would not be the owner of its files.
pub(super) fn lower<'tree>(
    (path, root): (&'tree Path, BorrowedFd<'tree>),
    base: &BasePlan,
    owners: Option<&mut Owners>,
) -> Result<Lower<'tree>, Errno> {
    let status = rustix::fs::fstat(root)?;
    let owner = HostIds {
        uid: status.st_uid,
        gid: status.st_gid,
    };
    match (base.identity, owners) {
        (BodyIdentity::Own(ids), _) if ids == owner => Ok(Lower::Directory(path, root)),
        (BodyIdentity::Own(_), _) | (BodyIdentity::Claimed(_), None) => Err(Errno::PERM),
        (BodyIdentity::Claimed(_), Some(owners)) => {
            show_as_body((path, root), owner, owners).map(Lower::Tree)
        }
    }
}

/// A detached mount of the tree, read-only, in which what belongs to `owner` is the body's.
fn show_as_body(
    (path, root): (&Path, BorrowedFd<'_>),
    owner: HostIds,
    owners: &mut Owners,
) -> Result<OwnedFd, Errno> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_nul| Errno::INVAL)?;
    let tree = mount::clone_tree(&path)?;
    // What was locked and looked at, and nothing that took its name since.
    let (cloned, resources) = (rustix::fs::fstat(&tree)?, rustix::fs::fstat(root)?);
    if (cloned.st_dev, cloned.st_ino) != (resources.st_dev, resources.st_ino) {
        return Err(Errno::STALE);
    }
    mount::map_owners(tree.as_fd(), owners.map(owner)?.as_fd())?;
    let attributes = Attributes::NOSUID.and(Attributes::NODEV);
    mount::restrict_tree(tree.as_fd(), attributes.and(Attributes::RDONLY))?;
    Ok(tree)
}

/// How large a bundle may be on this host.
pub(super) fn unpack_limits(policy: &HostPolicy) -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: policy.unpack.archive_bytes,
        unpacked_bytes: policy.unpack.unpacked_bytes,
        entries: policy.unpack.entries,
    }
}
