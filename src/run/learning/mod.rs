//! `runner learn`: a run that sees more of the host than the policy will have, and whose changes of
//! writable directories are kept in memory, listed and dropped.
//!
//! The caller's writable mounts become overlayfs whose upper directories are in the writable space. At
//! the end these have exactly what was created, changed and deleted.

mod changes;
mod host_files;
mod view;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::plan::learning::{LearnedPaths, Shown, learn};
use crate::run::error::RunError;
use crate::run::learning::host_files::CallersFiles;
use crate::run::learning::view::target_of;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::sources::{Sources, overlay_directory};
use crate::run::unpacking::make_lower;
use sandbox::launch::Launched;
use sandbox::mounts::Owners;
use sandbox::overlay::{MountAt, Overlay, SOURCES_MAX, Upper};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::{Access, MountSource, RequestedMount};
use spec::egress::EgressRule;
use spec::path::escape_path;
use spec::path_use::PathUses;
use spec::request::ViewEntry;

/// What a run is observed for, and what was observed.
pub(crate) struct Learning {
    shown: RefCell<Shown>,
    host: CallersFiles,
    observed: RefCell<Observed>,
}

#[derive(Default)]
struct Observed {
    /// The number and the directory inside of each overlayfs.
    overlays: Vec<(usize, PathBuf)>,
    asked: Vec<EgressRule>,
    /// `None`: the body did not start, or its processes did not end.
    learned: Option<Learned>,
}

/// What a run used.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) paths: LearnedPaths,
    /// Number of uses of paths that are not among them.
    pub(crate) unseen: u64,
    /// The hosts that the manifest of a bundle asks for.
    pub(crate) asked: Vec<EgressRule>,
}

impl std::fmt::Debug for Learning {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Learning")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

impl Learning {
    /// What the run used; `None`: the body did not start, or its processes did not end.
    pub(crate) fn into_learned(self) -> Option<Learned> {
        self.observed.into_inner().learned
    }

    /// The caller's working directory, if it is shown.
    pub(crate) fn working_directory(&self) -> Option<Vec<u8>> {
        let directory = self.shown.borrow().working_directory.clone();
        (!directory.is_empty()).then_some(directory)
    }

    /// Replaces the writable mounts by overlayfs, and covers what must stay hidden.
    pub(super) fn mount(
        &self,
        resolved: &mut ResolvedRun,
        sources: &mut Sources,
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<(), RunError> {
        let mut shown = self.shown.borrow_mut();
        shown.add_view(&resolved.view);
        if resolved.image.is_some() {
            shown.show_image();
            resolved.view.retain(|entry| !shown.is_of_host(entry));
        }
        let asked = resolved.manifest.egress.iter();
        self.observed.borrow_mut().asked = asked.map(|asked| asked.rule.clone()).collect();
        let (mut writable, others): (Vec<_>, _) = std::mem::take(&mut resolved.view)
            .into_iter()
            .partition(|entry| matches!(entry, ViewEntry::Bind { writable: true, .. }));
        let mut known = BTreeSet::new();
        writable.retain(|entry| known.insert(target_of(entry)));
        resolved.view = others;
        // Those of writable workspace sources have the first numbers.
        let first = sources.mounts.len();
        let mounted = self.mount_overlays(first, writable, prepared, resources)?;
        sources.mounts.extend(mounted);
        let hidden = shown.hidden.iter().map(|path| RequestedMount {
            target: path.clone(),
            is_directory: Path::new(std::ffi::OsStr::from_bytes(path)).is_dir(),
            source: MountSource::Tmpfs { size_bytes: None },
        });
        sources.mounts.extend(hidden);
        Ok(())
    }

    fn mount_overlays(
        &self,
        first: usize,
        entries: Vec<ViewEntry>,
        prepared: &mut Prepared,
        resources: &Resources,
    ) -> Result<Vec<RequestedMount>, RunError> {
        let mut opened = Vec::with_capacity(entries.len());
        for entry in entries {
            let ViewEntry::Bind { source, target, .. } = entry else {
                continue;
            };
            let root = File::open(&source)
                .and_then(|root| match root.metadata()?.is_dir() {
                    true => Ok(root),
                    false => Err(Errno::NOTDIR.into()),
                })
                .map_err(|error| refused(&source, error.to_string()))?;
            opened.push((source, target, root));
        }
        if let Some((source, ..)) = opened.get(SOURCES_MAX.saturating_sub(first)) {
            let problem = format!("is one of more than {SOURCES_MAX} writable directories");
            return Err(refused(source, problem));
        }
        let mut owners = resources.body_ids().map(Owners::of);
        let mut overlays = Vec::with_capacity(opened.len());
        for (number, (source, _, root)) in (first..).zip(&opened) {
            let lower = make_lower(source, root.as_fd(), &resources.base, owners.as_mut());
            let lower = lower.map_err(|errno| not_overlaid(source, errno))?;
            overlays.push(Overlay {
                directory: overlay_directory(number),
                lowers: vec![lower],
                upper: Upper::Writable,
                mount_at: MountAt::Launch(number),
            });
        }
        if overlays.is_empty() {
            return Ok(Vec::new());
        }
        prepared.request_overlays(&overlays)?;
        drop(overlays);
        let answers = prepared.await_overlays(&resources.base)?;
        let mut mounted = Vec::with_capacity(opened.len());
        let mut observed = self.observed.borrow_mut();
        for (overlay, ((source, target, _), answer)) in
            (first..).zip(opened.into_iter().zip(answers))
        {
            answer.map_err(|errno| not_overlaid(&source, errno))?;
            observed.overlays.push((overlay, target.clone()));
            mounted.push(RequestedMount {
                target: target.as_os_str().as_bytes().to_vec(),
                is_directory: true,
                source: MountSource::Overlay {
                    overlay,
                    access: Access::Writable,
                },
            });
        }
        Ok(mounted)
    }

    /// Learns from a body whose processes have ended.
    pub(in crate::run) fn finish(&self, launched: &Launched) -> Result<(), RunError> {
        let observed = &mut *self.observed.borrow_mut();
        let shown = &*self.shown.borrow();
        let space = launched.space.as_fd();
        let mut changes = BTreeMap::new();
        let mut unread = 0;
        for (number, directory) in &observed.overlays {
            let inside = directory.as_os_str().as_bytes().to_vec();
            if shown.elsewhere.contains(&inside) {
                continue;
            }
            let upper = format!("{}/upper", overlay_directory(*number));
            let act = || {
                let directory = escape_path(directory);
                format!("list the changes of {directory}")
            };
            unread += changes::read(space, &upper, directory, &mut changes)
                .map_err(RunError::host(act()))?;
        }
        let links = launched.refused_calls.path_links();
        let none = PathUses::default();
        let uses = launched.refused_calls.path_uses().unwrap_or(&none);
        observed.learned = Some(Learned {
            paths: learn(uses, &links, &changes, shown, &self.host),
            unseen: uses.found.unlisted() + uses.unknown + unread,
            asked: std::mem::take(&mut observed.asked),
        });
        Ok(())
    }
}

fn refused(path: &Path, problem: String) -> RunError {
    RunError::Argument {
        code: "learn_refused",
        what: "the writable path",
        object: escape_path(path),
        problem,
        hint: Some("while learning, only directories of yours can be written".to_owned()),
    }
}

fn not_overlaid(path: &Path, errno: Errno) -> RunError {
    let problem = match errno {
        Errno::PERM => "belongs to another user, so its changes cannot be kept apart".to_owned(),
        errno => format!("cannot be the lower directory of an overlayfs: {errno}"),
    };
    refused(path, problem)
}
