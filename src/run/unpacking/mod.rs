//! Unpacks the bundle. Consumes the opened archive, returns the bundle's tree in the writable space or
//! in the cache.

pub(super) mod bundle_files;
pub(super) mod cached_bundle;

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::run::Run;
use crate::run::contract::space;
use crate::run::error::RunError;
use crate::run::inputs::loaded_manifest;
use crate::run::interruptible::{self, WaitLimit};
use crate::run::unpacking::bundle_files::UnpackedFiles;
use crate::run::unpacking::cached_bundle::{BundleSource, CachedTree};
use archive::{Tree, UnpackLimits, Unpacked};
use reader::{Documents, Target};
use sandbox::mounts::Owners;
use sandbox::overlay::{Lower, Overlay};
use sandbox::prepare::{BasePlan, Identity as BodyIdentity, Prepared};
use sandbox::resources::Resources;
use sandbox::view::BUNDLE;
use spec::host_policy::HostPolicy;
use spec::parse_permit::ParsePermit;
use spec::report::{BundleCacheReport, BundleReport, BundleView, CacheFound};
use store::{InUse, ListedTree};
use sys::credentials::HostIds;
use sys::mount::{self, Attributes};

/// Name of the step in the message of a timeout.
pub(super) const UNPACK: &str = "unpacking the bundle";

#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) unpacked: Unpacked,
    /// Those that its reader parsed.
    documents: Documents,
    /// Its directory: in the writable space or in the cache.
    pub(super) root: OwnedFd,
    /// The cached tree, and whether the child was asked to mount an overlayfs of it.
    cached: Option<(InUse, bool)>,
    cache: BundleCacheReport,
}

impl Bundle {
    pub(super) fn files(&self) -> UnpackedFiles<'_> {
        UnpackedFiles {
            tree: &self.unpacked.tree,
            root: self.root.as_fd(),
            documents: &self.documents,
        }
    }
}

/// Parses documents of the bundle in the process that unpacked it into `root`; none if the caller has a
/// manifest.
fn parse_documents(
    permit: &ParsePermit,
    tree: &Tree,
    root: BorrowedFd<'_>,
    has_manifest: bool,
) -> Documents {
    let documents = &Documents::default();
    if has_manifest {
        return Documents::default();
    }
    let files = UnpackedFiles {
        tree,
        root,
        documents,
    };
    loaded_manifest::parse_documents(permit, &files)
}

impl Run<'_> {
    /// Unpacks the bundle, or asks the child to mount its cached tree.
    pub(super) fn unpack(
        &self,
        source: BundleSource,
        prepared: &mut Prepared,
        resources: &Resources,
        wait_limit: WaitLimit<'_>,
    ) -> Result<Bundle, RunError> {
        let limits = unpack_limits(self.policy);
        match source {
            BundleSource::Cached(tree) => self.use_cached(tree, prepared, resources),
            BundleSource::File { file, reason } => {
                let root = self.open_target(prepared, resources)?;
                let (unpacked, documents) =
                    self.unpack_file(file, &root, resources, wait_limit, &limits)?;
                Ok(Bundle::in_space(unpacked, documents, root, reason))
            }
            // Reads the source with the caller's rights and writes the target with the body's.
            BundleSource::Directory(source) => {
                let root = self.open_target(prepared, resources)?;
                let ids = resources.body_ids();
                let unpacked =
                    archive::unpack_directory_as(source.as_fd(), root.as_fd(), &limits, ids)?;
                let documents = Documents::default();
                Ok(Bundle::in_space(unpacked, documents, root, "directory"))
            }
        }
    }

    /// Receives the child's answer. If the overlayfs failed, the body gets a copy.
    pub(super) fn finish_bundle(
        &self,
        bundle: &mut Bundle,
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<Option<InUse>, RunError> {
        let Some((in_use, is_overlay_requested)) = bundle.cached.take() else {
            return Ok(None);
        };
        if is_overlay_requested
            && prepared
                .await_overlays(&resources.base)?
                .iter()
                .any(Result::is_err)
        {
            self.copy_cached(&bundle.unpacked, &in_use, prepared, resources)?;
            bundle.cache.view = BundleView::Copy;
        }
        Ok(Some(in_use))
    }

    fn open_target(&self, prepared: &Prepared, resources: &Resources) -> Result<OwnedFd, RunError> {
        let _assumed = self.assume_body_ids(resources)?;
        space::open_directory(prepared.space(), BUNDLE.trim_start_matches('/'))
    }

    fn unpack_file(
        &self,
        file: File,
        root: &OwnedFd,
        resources: &Resources,
        wait_limit: WaitLimit<'_>,
        limits: &UnpackLimits,
    ) -> Result<(Unpacked, Documents), RunError> {
        let target = Target {
            directory: root.as_fd(),
            ids: resources.body_ids(),
        };
        let has_manifest = self.request.bundle.manifest.is_some();
        let parse = |permit: &ParsePermit, tree: &Tree| {
            parse_documents(permit, tree, root.as_fd(), has_manifest)
        };
        Ok(interruptible::unpack(
            file, target, limits, &parse, wait_limit,
        )?)
    }

    /// Requests an overlayfs of a cached tree, or copies the tree if that is impossible.
    fn use_cached(
        &self,
        cached: CachedTree,
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<Bundle, RunError> {
        let CachedTree {
            tree,
            found,
            reason,
            documents,
        } = cached;
        let ListedTree { unpacked, in_use } = *tree;
        let root = rustix::io::fcntl_dupfd_cloexec(&in_use.root, 0)
            .map_err(RunError::host("read the cached bundle"))?;
        let lower = if self.policy.cache.bundles.copy || self.request.bundle.keep {
            // `--keep` copies from the writable space, which must then contain all files.
            None
        } else {
            // If the body would not own the files, it gets a copy.
            let mut owners = resources.body_ids().map(Owners::of);
            let root = in_use.root.as_fd();
            make_lower(&in_use.path, root, &resources.base, owners.as_mut()).ok()
        };
        let is_overlay_requested = lower.is_some();
        let view = match lower {
            Some(lower) => {
                prepared.request_overlays(&[Overlay::of_bundle(lower)])?;
                BundleView::Overlayfs
            }
            None => {
                self.copy_cached(&unpacked, &in_use, prepared, resources)?;
                BundleView::Copy
            }
        };
        Ok(Bundle {
            unpacked,
            documents,
            root,
            cached: Some((in_use, is_overlay_requested)),
            cache: BundleCacheReport {
                found,
                reason,
                view,
            },
        })
    }

    fn copy_cached(
        &self,
        unpacked: &Unpacked,
        in_use: &InUse,
        prepared: &Prepared,
        resources: &Resources,
    ) -> Result<(), RunError> {
        let target = self.open_target(prepared, resources)?;
        let from = in_use.root.as_fd();
        store::copy_into(&unpacked.tree, from, target.as_fd(), resources.body_ids())?;
        Ok(())
    }
}

impl Bundle {
    fn in_space(
        unpacked: Unpacked,
        documents: Documents,
        root: OwnedFd,
        reason: &'static str,
    ) -> Self {
        Self {
            unpacked,
            documents,
            root,
            cached: None,
            cache: BundleCacheReport {
                found: CacheFound::Off,
                reason: Some(reason),
                view: BundleView::Own,
            },
        }
    }

    pub(super) fn view(&self) -> BundleView {
        self.cache.view
    }

    /// Report of the bundle before its manifest is read.
    pub(super) fn report(&self) -> BundleReport {
        let unpacked = &self.unpacked;
        BundleReport {
            name: None,
            version: None,
            content_digest: unpacked.content_digest,
            archive_digest: unpacked.archive_digest,
            bytes: unpacked.bytes,
            entries: unpacked.entries,
            cache: self.cache.clone(),
            sources: Vec::new(),
        }
    }
}

/// Prepares a cached tree as the lower layer of the child's overlayfs. `owners` are root's id maps
/// of this run.
///
/// # Errors
/// The errno of the failed call; EPERM if the body would not own its files.
pub(super) fn make_lower<'tree>(
    path: &'tree Path,
    root: BorrowedFd<'tree>,
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
            clone_for_body(path, root, owner, owners).map(Lower::Tree)
        }
    }
}

/// Makes a detached read-only mount of the tree that maps `owner` to the body.
fn clone_for_body(
    path: &Path,
    root: BorrowedFd<'_>,
    owner: HostIds,
    owners: &mut Owners,
) -> Result<OwnedFd, Errno> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_nul| Errno::INVAL)?;
    let tree = mount::clone_tree(&path)?;
    // The path must still lead to the locked and checked directory.
    let (cloned, locked) = (rustix::fs::fstat(&tree)?, rustix::fs::fstat(root)?);
    if (cloned.st_dev, cloned.st_ino) != (locked.st_dev, locked.st_ino) {
        return Err(Errno::STALE);
    }
    mount::map_owners(tree.as_fd(), owners.map(owner)?.as_fd())?;
    let attributes = Attributes::NOSUID.and(Attributes::NODEV);
    mount::restrict_tree(tree.as_fd(), attributes.and(Attributes::RDONLY))?;
    Ok(tree)
}

pub(super) fn unpack_limits(policy: &HostPolicy) -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: policy.unpack.archive_bytes,
        unpacked_bytes: policy.unpack.unpacked_bytes,
        entries: policy.unpack.entries,
    }
}
