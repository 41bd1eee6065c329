//! Mounts available sources for the body.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::plan::sources::{MountPoint, mount_points_in};
use crate::run::Run;
use crate::run::contract::make_directories;
use crate::run::error::RunError;
use crate::run::sources::error::SourceProblem;
use crate::run::sources::{Had, Sources, of_source};
use crate::run::unpacking::lower;
use archive::{Tree, UnpackError};
use sandbox::mounts::Owners;
use sandbox::overlay::{Overlay, PLACES, SOURCES_MAX, Shown as OverlayShown, Upper};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::{Access, RequestedMount, Shown};
use sources::oci::error::OciError;
use spec::manifest::WorkspaceSource;
use spec::path::RelPath;
use spec::request::ViewEntry;
use spec::workspace_source_report::SourceView;
use store::InUse;
use sys::file::open_beneath;

/// Directory of a copy, in place of its overlayfs.
const COPY: &str = "copy";

/// A source that needs an overlayfs or a copy.
struct Own<'had, 'manifest> {
    had: &'had Had<'manifest>,
    /// Its index among the available sources.
    index: usize,
    /// Mount points to create in it; for a writable one the child creates them.
    places: Vec<MountPoint>,
}

impl Own<'_, '_> {
    fn access(&self) -> Access {
        Access::of(self.had.source.writable)
    }
}

impl Run<'_> {
    /// Mounts all available sources; `others` are the other requested mounts. Returns how each
    /// source is mounted, in order.
    pub(super) fn show(
        &self,
        all_had: Vec<Had<'_>>,
        others: &[RequestedMount],
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<(Sources, Vec<SourceView>), RunError> {
        let mut sources = Sources::default();
        let mut views = vec![SourceView::ReadOnly; all_had.len()];
        let mut owns = Vec::new();
        for (index, had) in all_had.iter().enumerate() {
            let places = missing_places(had, &all_had, others);
            if had.source.writable || !places.is_empty() {
                owns.push(Own { had, index, places });
            } else {
                sources.entries.push(ViewEntry::Bind {
                    source: had.path.clone(),
                    target: had.source.target.as_str().into(),
                    writable: false,
                });
            }
        }
        let laid = self.lay_sources(&owns, prepared, resources)?;
        for (number, (own, laid)) in owns.iter().zip(laid).enumerate() {
            let access = own.access();
            let (view, shown) = if laid {
                let overlay = number;
                (SourceView::Overlayfs, Shown::Overlay { overlay, access })
            } else {
                let source = self.copy_source(own, number, prepared, resources)?;
                (SourceView::Copy, Shown::Own { source, access })
            };
            views[own.index] = view;
            sources.mounts.push(RequestedMount {
                target: target_of(own.had.source),
                is_directory: true,
                shown,
            });
        }
        drop(owns);
        sources.in_use = all_had.into_iter().map(|had| had.in_use).collect();
        Ok((sources, views))
    }

    /// Asks the child for the overlayfs mounts; returns whether it succeeded.
    fn lay_sources(
        &self,
        owns: &[Own<'_, '_>],
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<Vec<bool>, RunError> {
        let mut laid = vec![false; owns.len()];
        if self.policy.oci.copy {
            return Ok(laid);
        }
        if let Some(first_beyond) = owns.get(SOURCES_MAX) {
            let problem = SourceProblem::TooMany { most: SOURCES_MAX };
            return Err(of_source(first_beyond.had.source)(problem).into());
        }
        let mut overlays = Vec::with_capacity(owns.len());
        let mut asked = Vec::with_capacity(owns.len());
        let mut owners = resources.body_ids().map(Owners::of);
        for (number, own) in owns.iter().enumerate() {
            let (path, root) = (own.had.path.as_path(), own.had.root.as_fd());
            // If the body would not own the files, it gets a copy.
            let Ok(lower) = lower(path, root, &resources.base, owners.as_mut()) else {
                continue;
            };
            let place = place_of(number);
            let upper = if own.had.source.writable {
                Upper::Writable
            } else {
                let _assumed = self.assume_body_ids(resources)?;
                let upper = format!("{place}/upper");
                make_places(prepared.space(), &upper, &own.places)
                    .map_err(RunError::host("make the places of mounts in a source"))?;
                Upper::ReadOnly
            };
            asked.push(number);
            overlays.push(Overlay {
                place,
                lowers: vec![lower],
                upper,
                shown: OverlayShown::AtLaunch(number),
            });
        }
        if overlays.is_empty() {
            return Ok(laid);
        }
        prepared.ask_overlays(&overlays)?;
        drop(overlays);
        let answers = prepared.overlaid(&resources.base)?;
        for (number, answer) in asked.into_iter().zip(answers) {
            laid[number] = answer.is_ok();
        }
        Ok(laid)
    }

    /// Copies a source into the writable space and returns its path inside.
    fn copy_source(
        &self,
        own: &Own<'_, '_>,
        number: usize,
        prepared: &Prepared,
        resources: &Resources,
    ) -> Result<Vec<u8>, RunError> {
        let source = own.had.source;
        let failed = |problem: SourceProblem| RunError::from(of_source(source)(problem));
        let tree = part_of(&own.had.in_use, source.subpath.as_ref()).map_err(failed)?;
        let copy = format!("{}/{COPY}", place_of(number));
        let space = prepared.space();
        let into = {
            let _assumed = self.assume_body_ids(resources)?;
            make_directories(space, &copy)
                .map_err(RunError::host("make a directory for a copy of a source"))?
        };
        store::copy_into(
            &tree,
            own.had.root.as_fd(),
            into.as_fd(),
            resources.body_ids(),
        )
        .map_err(|error: UnpackError| failed(SourceProblem::Copy(error)))?;
        let _assumed = self.assume_body_ids(resources)?;
        make_places(space, &copy, &own.places)
            .map_err(RunError::host("make the places of mounts in a source"))?;
        Ok(format!("/{copy}").into_bytes())
    }
}

fn target_of(source: &WorkspaceSource) -> Vec<u8> {
    source.target.as_str().as_bytes().to_vec()
}

fn place_of(number: usize) -> String {
    format!("{PLACES}/{number}")
}

/// Mount points that the snapshot of the read-only source `had` lacks.
fn missing_places(
    had: &Had<'_>,
    all_had: &[Had<'_>],
    others: &[RequestedMount],
) -> Vec<MountPoint> {
    if had.source.writable {
        return Vec::new();
    }
    let sources = all_had
        .iter()
        .map(|other| (other.source.target.as_str().as_bytes(), true));
    let others = others
        .iter()
        .map(|other| (other.target.as_slice(), other.is_directory));
    let all: Vec<(&[u8], bool)> = sources.chain(others).collect();
    let mut places = mount_points_in(had.source.target.as_str().as_bytes(), &all);
    places.retain(|place| !has_place(had.root.as_fd(), place));
    places
}

fn has_place(root: BorrowedFd<'_>, place: &MountPoint) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let found = open_beneath(root, place.path.as_bytes(), flags, Mode::empty());
    found
        .and_then(rustix::fs::fstat)
        .is_ok_and(|status| (status.st_mode & libc::S_IFMT == libc::S_IFDIR) == place.is_directory)
}

/// Creates `places` below `above`, a directory of the space that is created if missing.
fn make_places(space: BorrowedFd<'_>, above: &str, places: &[MountPoint]) -> Result<(), Errno> {
    for place in places {
        let path = format!("{above}/{}", path_text(&place.path)?);
        if place.is_directory {
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
