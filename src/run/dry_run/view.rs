//! The rows of the view: each path with its origin and who decided it.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use crate::run::Run;
use crate::run::dry_run::decided_by::Rows;
use crate::run::error::RunError;
use crate::run::fetching::artifacts;
use crate::run::image::SelectedImage;
use crate::run::launching::launch_plan;
use crate::run::launching::predicted_view::PredictedView;
use crate::run::planning::limits::unix_sockets_of;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::sources::Sources;
use sandbox::resources::Resources;
use sandbox::view::{Access, ViewStep};
use spec::manifest::WorkspaceSource;
use spec::oci::reference::{Reference, Which};
use spec::path::escape;
use spec::plan_report::{FIXED, PlannedEntry, PlannedPath, PlannedSource};
use spec::request::ViewEntry;

impl Run<'_> {
    /// The view of a run, for a detailed report or a trace. A key is without the file that it was inherited
    /// from.
    ///
    /// # Errors
    /// As those of the launch plan, which has the same view.
    pub(in crate::run) fn view(
        &self,
        resources: &Resources,
        resolved: &ResolvedRun,
        sources: &Sources,
    ) -> Result<Option<ViewOfRun>, RunError> {
        if !self.request.is_detailed && !self.request.is_traced {
            return Ok(None);
        }
        let requested = launch_plan::requested_steps(resolved, sources)?;
        let is_image = resolved.image.is_some();
        let steps = launch_plan::view_steps(&resources.host, is_image, requested);
        let rows = Rows::new(self.request, self.policy, None);
        let rows = rows.view(resolved, &steps);
        let sockets = unix_sockets_of(self.request, resolved, &resources.host);
        Ok(Some(ViewOfRun {
            steps,
            rows,
            refuses_sockets: sockets.refuses_named(),
            confines_sockets: sockets.confines(),
        }))
    }
}

/// The view of a run.
#[derive(Debug)]
pub(in crate::run) struct ViewOfRun {
    pub(in crate::run) steps: Vec<ViewStep>,
    pub(in crate::run) rows: Vec<PlannedPath>,
    /// The body can make no unix socket but connected pairs.
    pub(in crate::run) refuses_sockets: bool,
    /// Landlock alone refuses sockets of the host in mounted directories.
    pub(in crate::run) confines_sockets: bool,
}

impl ViewOfRun {
    /// What the body finds in it.
    pub(in crate::run) fn predicted<'run>(
        &'run self,
        image: Option<&'run SelectedImage>,
        has_own_uid: bool,
    ) -> PredictedView<'run> {
        PredictedView {
            steps: &self.steps,
            bundle: None,
            has_own_uid,
            image,
        }
    }
}

impl Rows<'_> {
    pub(in crate::run) fn view(
        &self,
        resolved: &ResolvedRun,
        steps: &[ViewStep],
    ) -> Vec<PlannedPath> {
        let decided_by: BTreeMap<&[u8], String> = resolved
            .view
            .iter()
            .map(|entry| {
                let (ViewEntry::Bind { target, .. } | ViewEntry::Tmpfs { target, .. }) = entry;
                let by = self.entry_decided_by(entry, resolved);
                (target.as_os_str().as_bytes(), by)
            })
            .collect();
        let mut rows: Vec<(&[u8], PlannedPath)> = steps
            .iter()
            .filter_map(|step| {
                let (path, mut row) = path_row(step, steps)?;
                if let Some(by) = decided_by.get(path) {
                    row.decided_by.clone_from(by);
                }
                let sources = &resolved.manifest.workspace_sources;
                let source = sources
                    .iter()
                    .find(|source| source.target.as_str().as_bytes() == path);
                if let Some(source) = source {
                    row.what = PlannedEntry::Source;
                    row.from = Some(escape(source.reference.as_bytes()));
                    row.decided_by = self.key(&source.source);
                }
                Some((path, row))
            })
            .collect();
        if let Some(image) = &resolved.image {
            let row = PlannedPath {
                path: "/".to_owned(),
                what: PlannedEntry::Image,
                from: Some(image.requested.place.to_string()),
                writable: !self.policy.oci.root_read_only,
                size_bytes: None,
                decided_by: self.image_by(resolved),
            };
            rows.push((b"/", row));
        }
        rows.sort_by_key(|(path, _)| *path);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Every workspace source, and whether it would have to be pulled.
    pub(in crate::run) fn workspace_sources(&self, resolved: &ResolvedRun) -> Vec<PlannedSource> {
        let row = |source: &WorkspaceSource| {
            let digest = match Reference::parse(&source.reference).map(|named| named.which()) {
                Ok(Which::Digest(digest)) => Some(digest),
                Ok(Which::Tag(_) | Which::Unnamed) | Err(_) => None,
            };
            let subpath = source.subpath.as_ref();
            let (caller, policy) = (&self.request.caller, self.policy);
            PlannedSource {
                id: escape(source.id.as_bytes()),
                reference: escape(source.reference.as_bytes()),
                mount_path: source.target.to_string(),
                subpath: subpath.map(|path| escape(path.as_bytes())),
                writable: source.writable,
                required: source.required,
                is_kept: digest.map(|digest| artifacts::is_in_store(&digest, caller, policy)),
                asked_by: self.key(&source.source),
                granted_by: self.granted_by("sources"),
            }
        };
        resolved
            .manifest
            .workspace_sources
            .iter()
            .map(row)
            .collect()
    }

    pub(super) fn image_by(&self, resolved: &ResolvedRun) -> String {
        match (&self.request.oci.image, &resolved.manifest.runner.image) {
            (Some(_), _) => "--image".to_owned(),
            (None, Some(_)) => self.key("runner.image"),
            (None, None) => "picked".to_owned(),
        }
    }

    pub(super) fn entry_decided_by(&self, entry: &ViewEntry, resolved: &ResolvedRun) -> String {
        if self.request.view.contains(entry) {
            let flag = match entry {
                ViewEntry::Tmpfs { .. } => "--tmpfs",
                ViewEntry::Bind {
                    source,
                    target,
                    writable,
                } if source == target => match writable {
                    true => "--rw",
                    false if self.request.sockets.contains(target) => "--socket",
                    false => "--ro",
                },
                ViewEntry::Bind { .. } => "--mount",
            };
            return flag.to_owned();
        }
        let mounts = &resolved.manifest.mounts;
        let requested = mounts.iter().find(|mount| match entry {
            ViewEntry::Bind { target, .. } => target.as_os_str() == mount.target.as_str(),
            ViewEntry::Tmpfs { .. } => false,
        });
        match requested {
            Some(mount) => self.key(&mount.source),
            None => "program".to_owned(),
        }
    }
}

/// The path of a step and its row; `None` for directories that are merely created.
fn path_row<'plan>(
    step: &'plan ViewStep,
    all: &'plan [ViewStep],
) -> Option<(&'plan [u8], PlannedPath)> {
    let row = |path: &'plan [u8], what, from: Option<&[u8]>, writable, size_bytes| {
        let row = PlannedPath {
            path: escape(path),
            what,
            from: from.map(escape),
            writable,
            size_bytes,
            decided_by: FIXED.to_owned(),
        };
        Some((path, row))
    };
    match step {
        ViewStep::Bind {
            source,
            target,
            access,
        } => {
            let what = match access {
                Access::Device => PlannedEntry::Device,
                Access::ReadOnly | Access::Writable => PlannedEntry::Host,
            };
            let writable = *access != Access::ReadOnly;
            row(target, what, Some(source), writable, None)
        }
        ViewStep::BindFromSpace { target, access, .. } => {
            let writable = *access == Access::Writable;
            row(target, PlannedEntry::Tmpfs, None, writable, None)
        }
        ViewStep::Attach { target, access, .. } => {
            let writable = *access == Access::Writable;
            row(target, PlannedEntry::Host, None, writable, None)
        }
        ViewStep::AttachOverlay { target, access, .. } => {
            let writable = *access == Access::Writable;
            row(target, PlannedEntry::Source, None, writable, None)
        }
        ViewStep::SelfBind { path } => row(path, PlannedEntry::Tmpfs, None, true, None),
        ViewStep::Tmpfs { target, size_bytes } => {
            row(target, PlannedEntry::Tmpfs, None, true, Some(*size_bytes))
        }
        ViewStep::Proc => row(b"/proc", PlannedEntry::Proc, None, false, None),
        ViewStep::Devpts => row(b"/dev/pts", PlannedEntry::Devpts, None, true, None),
        ViewStep::Mask { path } | ViewStep::MaskDirectory { path } => {
            row(path, PlannedEntry::Mask, None, false, None)
        }
        ViewStep::Symlink { path, target } => {
            row(path, PlannedEntry::Link, Some(target), false, None)
        }
        ViewStep::File { path, .. } => {
            let is_mount_point = all.iter().any(
                |step| matches!(step, ViewStep::Bind { target, .. } | ViewStep::Attach { target, .. } if target == path),
            );
            if is_mount_point {
                return None;
            }
            row(path, PlannedEntry::File, None, false, None)
        }
        ViewStep::Directory { .. } => None,
    }
}
