//! Mounts pulled sources for the body.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::plan::sources::{MountPoint, mount_points_in};
use crate::run::Run;
use crate::run::contract::space::make_directories;
use crate::run::error::RunError;
use crate::run::sources::error::SourceProblem;
use crate::run::sources::{PulledSource, SourceUpper, Sources, source_error};
use crate::run::unpacking::make_lower;
use archive::{Tree, UnpackError};
use sandbox::mounts::Owners;
use sandbox::overlay::{MountAt, Overlay, SOURCES_MAX, Upper};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::{Access, MountSource, OVERLAYS, RequestedMount};
use sources::oci::error::OciError;
use spec::manifest::WorkspaceSource;
use spec::path::RelPath;
use spec::request::ViewEntry;
use spec::workspace_source_report::SourceView;
use store::InUse;
use sys::file::open_beneath;

/// Name of the directory of a copy, in the directory of the missing overlayfs.
const COPY: &str = "copy";

/// A source that needs an overlayfs or a copy of its own.
struct PrivateSource<'pulled, 'manifest> {
    pulled: &'pulled PulledSource<'manifest>,
    /// Its index among the pulled sources.
    index: usize,
    /// Mount points to create in it; for a writable one the child creates them.
    mount_points: Vec<MountPoint>,
}

impl PrivateSource<'_, '_> {
    fn access(&self) -> Access {
        Access::of(self.pulled.source.writable)
    }
}

impl Run<'_> {
    /// Mounts all pulled sources; `others` are the other requested mounts. Returns the view of each
    /// source, in order.
    pub(super) fn mount_sources(
        &self,
        all: Vec<PulledSource<'_>>,
        others: &[RequestedMount],
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<(Sources, Vec<SourceView>), RunError> {
        let mut sources = Sources::default();
        let mut views = vec![SourceView::ReadOnly; all.len()];
        let mut private_sources = Vec::new();
        for (index, pulled) in all.iter().enumerate() {
            let mount_points = missing_mount_points(pulled, &all, others);
            if pulled.source.writable || !mount_points.is_empty() {
                private_sources.push(PrivateSource {
                    pulled,
                    index,
                    mount_points,
                });
            } else {
                sources.entries.push(ViewEntry::Bind {
                    source: pulled.path.clone(),
                    target: pulled.source.target.as_str().into(),
                    writable: false,
                });
            }
        }
        let mounted = self.mount_overlays(&private_sources, prepared, resources)?;
        for (number, (private, mounted)) in private_sources.iter().zip(mounted).enumerate() {
            let access = private.access();
            let (view, source) = if mounted {
                let overlay = number;
                if private.pulled.source.writable {
                    sources.uppers.push(SourceUpper {
                        target: target_of(private.pulled.source),
                        upper: format!("{}/upper", overlay_directory(number)),
                        lower: private.pulled.path.clone(),
                    });
                }
                (
                    SourceView::Overlayfs,
                    MountSource::Overlay { overlay, access },
                )
            } else {
                let path = self.copy_source(private, number, prepared, resources)?;
                (SourceView::Copy, MountSource::Space { path, access })
            };
            views[private.index] = view;
            sources.mounts.push(RequestedMount {
                target: target_of(private.pulled.source),
                is_directory: true,
                source,
            });
        }
        drop(private_sources);
        sources.in_use = all.into_iter().map(|pulled| pulled.in_use).collect();
        Ok((sources, views))
    }

    /// Asks the child for the overlayfs mounts; returns whether each succeeded.
    fn mount_overlays(
        &self,
        private_sources: &[PrivateSource<'_, '_>],
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<Vec<bool>, RunError> {
        let mut mounted = vec![false; private_sources.len()];
        if self.policy.oci.copy {
            return Ok(mounted);
        }
        if let Some(first_beyond) = private_sources.get(SOURCES_MAX) {
            let problem = SourceProblem::TooMany { most: SOURCES_MAX };
            return Err(source_error(first_beyond.pulled.source)(problem).into());
        }
        let mut overlays = Vec::with_capacity(private_sources.len());
        let mut numbers = Vec::with_capacity(private_sources.len());
        let mut owners = resources.body_ids().map(Owners::of);
        for (number, private) in private_sources.iter().enumerate() {
            let (path, root) = (private.pulled.path.as_path(), private.pulled.root.as_fd());
            // If the body would not own the files, it gets a copy.
            let Ok(lower) = make_lower(path, root, &resources.base, owners.as_mut()) else {
                continue;
            };
            let directory = overlay_directory(number);
            let upper = if private.pulled.source.writable {
                Upper::Writable
            } else {
                let _assumed = self.assume_body_ids(resources)?;
                let upper = format!("{directory}/upper");
                make_mount_points(prepared.space(), &upper, &private.mount_points)
                    .map_err(RunError::host("make mount points in a source"))?;
                Upper::ReadOnly
            };
            numbers.push(number);
            overlays.push(Overlay {
                directory,
                lowers: vec![lower],
                upper,
                mount_at: MountAt::Launch(number),
            });
        }
        if overlays.is_empty() {
            return Ok(mounted);
        }
        prepared.request_overlays(&overlays)?;
        drop(overlays);
        let answers = prepared.await_overlays(&resources.base)?;
        for (number, answer) in numbers.into_iter().zip(answers) {
            mounted[number] = answer.is_ok();
        }
        Ok(mounted)
    }

    /// Copies a source into the writable space and returns its path inside.
    fn copy_source(
        &self,
        private: &PrivateSource<'_, '_>,
        number: usize,
        prepared: &Prepared,
        resources: &Resources,
    ) -> Result<Vec<u8>, RunError> {
        let source = private.pulled.source;
        let failed = |problem: SourceProblem| RunError::from(source_error(source)(problem));
        let tree = part_of(&private.pulled.in_use, source.subpath.as_ref()).map_err(failed)?;
        let copy = format!("{}/{COPY}", overlay_directory(number));
        let space = prepared.space();
        let target = {
            let _assumed = self.assume_body_ids(resources)?;
            make_directories(space, &copy)
                .map_err(RunError::host("make a directory for a copy of a source"))?
        };
        store::copy_into(
            &tree,
            private.pulled.root.as_fd(),
            target.as_fd(),
            resources.body_ids(),
        )
        .map_err(|error: UnpackError| failed(SourceProblem::Copy(error)))?;
        let _assumed = self.assume_body_ids(resources)?;
        make_mount_points(space, &copy, &private.mount_points)
            .map_err(RunError::host("make mount points in a source"))?;
        Ok(format!("/{copy}").into_bytes())
    }
}

fn target_of(source: &WorkspaceSource) -> Vec<u8> {
    source.target.as_str().as_bytes().to_vec()
}

/// The directory of an overlayfs in the writable space.
pub(in crate::run) fn overlay_directory(number: usize) -> String {
    format!("{OVERLAYS}/{number}")
}

/// Mount points that the snapshot of the read-only source `pulled` lacks.
fn missing_mount_points(
    pulled: &PulledSource<'_>,
    all: &[PulledSource<'_>],
    others: &[RequestedMount],
) -> Vec<MountPoint> {
    if pulled.source.writable {
        return Vec::new();
    }
    let sources = all
        .iter()
        .map(|other| (other.source.target.as_str().as_bytes(), true));
    let others = others
        .iter()
        .map(|other| (other.target.as_slice(), other.is_directory));
    let all: Vec<(&[u8], bool)> = sources.chain(others).collect();
    let mut mount_points = mount_points_in(pulled.source.target.as_str().as_bytes(), &all);
    mount_points.retain(|mount_point| !has_mount_point(pulled.root.as_fd(), mount_point));
    mount_points
}

fn has_mount_point(root: BorrowedFd<'_>, mount_point: &MountPoint) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let found = open_beneath(root, mount_point.path.as_bytes(), flags, Mode::empty());
    found.and_then(rustix::fs::fstat).is_ok_and(|status| {
        (status.st_mode & libc::S_IFMT == libc::S_IFDIR) == mount_point.is_directory
    })
}

/// Creates `mount_points` below `parent`, a directory of the writable space that is created if
/// missing.
fn make_mount_points(
    space: BorrowedFd<'_>,
    parent: &str,
    mount_points: &[MountPoint],
) -> Result<(), Errno> {
    for mount_point in mount_points {
        let path = format!("{parent}/{}", path_text(&mount_point.path)?);
        if mount_point.is_directory {
            make_directories(space, &path)?;
            continue;
        }
        let (parent, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        let parent = make_directories(space, parent)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
    }
    Ok(())
}

fn path_text(path: &RelPath) -> Result<&str, Errno> {
    std::str::from_utf8(path.as_bytes()).map_err(|_not_text| Errno::ILSEQ)
}

/// The paths in a cached tree, relative to it or to a directory of it.
fn part_of(in_use: &InUse, subpath: Option<&RelPath>) -> Result<Tree, SourceProblem> {
    let tree = in_use.tree().map_err(OciError::from)?;
    Ok(match subpath {
        None => tree,
        Some(subpath) => tree.below(subpath),
    })
}
