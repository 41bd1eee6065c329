//! Mounts an image as the body's root: creates the upper layer in the run's own space and asks the
//! child to mount the overlayfs.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::run::Run;
use crate::run::contract;
use crate::run::error::RunError;
use crate::run::image::OpenedImage;
use crate::run::planning::distinct;
use crate::run::resolved::ResolvedRun;
use crate::run::sources::Sources;
use crate::run::unpacking::lower;
use sandbox::image_root::{TopLayerEntry, UserFiles, plan_binds, plan_top_layer};
use sandbox::launch::ImageRoot;
use sandbox::mounts::{self, MountError, Owners};
use sandbox::overlay::{IMAGE, LOWERS_MAX, Lower, MountAt, Overlay, Upper};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::{self as view_plan, ViewStep};
use spec::report::WarningReport;

/// Directory of the upper layer in the space: below [`OVERLAYS`](sandbox::view::OVERLAYS), which a
/// launch with an image covers and where no mount can be requested.
const PLACE: &str = "runner/overlays/image";

/// The image, ready to become the root at the launch.
pub(in crate::run) struct MountedImage {
    pub(in crate::run) root: ImageRoot,
    /// Why it is read-only without a request.
    pub(in crate::run) not_writable: Option<WarningReport>,
}

impl Run<'_> {
    /// Mounts the image of `resolved`, if it has one.
    ///
    /// # Errors
    /// [`RunError::Argument`] where this host cannot, [`RunError::Host`], [`RunError::Sandbox`].
    pub(in crate::run) fn mount_image(
        &self,
        resources: &Resources,
        prepared: &mut Prepared,
        resolved: &ResolvedRun,
        sources: &Sources,
    ) -> Result<Option<MountedImage>, RunError> {
        let Some(image) = &resolved.image else {
            return Ok(None);
        };
        let opened = image
            .opened
            .as_ref()
            .ok_or_else(|| RunError::host("open the image")(Errno::NOENT))?;
        check_layers(opened.image.layers.len())?;
        let asked = asked_steps(resolved, sources)?;
        self.fill(resources, prepared, &asked, opened)?;
        let read_only = self.policy.oci.root_read_only;
        let not_writable = if read_only {
            None
        } else {
            self.lay_writable(resources, prepared, opened)?
        };
        let writable = !read_only && not_writable.is_none();
        if !writable {
            self.lay_layers(resources, prepared, opened, Upper::ReadOnly)?
                .map_err(needs_overlayfs)?;
        }
        Ok(Some(MountedImage {
            root: ImageRoot {
                overlay: IMAGE,
                writable,
                binds: plan_binds(&asked),
            },
            not_writable,
        }))
    }

    /// Returns a warning if this kernel cannot mount it writable in memory, but may mount it
    /// read-only.
    fn lay_writable(
        &self,
        resources: &Resources,
        prepared: &mut Prepared,
        opened: &OpenedImage,
    ) -> Result<Option<WarningReport>, RunError> {
        let errno = match self.lay_layers(resources, prepared, opened, Upper::Writable)? {
            Ok(()) => return Ok(None),
            // Only for missing attribute support; any other error would occur read-only too.
            Err(errno @ Errno::OPNOTSUPP) => errno,
            Err(errno) => return Err(needs_overlayfs(errno)),
        };
        let reason = format!(
            "a tmpfs keeps no attributes of users on this kernel (Linux 6.6), so the root of the \
             image cannot be written: {errno}"
        );
        if self.request.strict {
            return Err(RunError::Argument {
                code: "image_root_read_only",
                what: "--strict",
                object: "asks for a writable root:".to_owned(),
                problem: reason,
                hint: Some("run on Linux 6.6 or later, or leave --strict off".to_owned()),
            });
        }
        Ok(Some(WarningReport::new("image_root_read_only", reason)))
    }

    fn lay_layers(
        &self,
        resources: &Resources,
        prepared: &mut Prepared,
        opened: &OpenedImage,
        upper: Upper,
    ) -> Result<Result<(), Errno>, RunError> {
        let mut owners = resources.body_ids().map(Owners::of);
        let layers = opened.image.layers.iter().rev();
        let lowers = layers
            .map(|layer| {
                let root = layer.root.as_fd();
                lower(&layer.path, root, &resources.base, owners.as_mut()).map_err(not_mappable)
            })
            .collect::<Result<Vec<Lower<'_>>, RunError>>()?;
        prepared.request_overlays(&[Overlay {
            directory: PLACE.to_owned(),
            lowers,
            upper,
            mount_at: MountAt::Launch(IMAGE),
        }])?;
        let answers = prepared.await_overlays(&resources.base)?;
        Ok(answers.into_iter().collect())
    }

    /// Called before the mount: the layers of a mounted overlayfs must not change.
    fn fill(
        &self,
        resources: &Resources,
        prepared: &Prepared,
        asked: &[ViewStep],
        opened: &OpenedImage,
    ) -> Result<(), RunError> {
        let names = UserFiles {
            passwd: &opened.passwd,
            group: &opened.group,
        };
        let list = plan_top_layer(asked, &opened.user, names);
        let _assumed = self.assume_body_ids(resources)?;
        contract::make_directories(prepared.space(), &format!("{PLACE}/upper"))
            .and_then(|upper| list.iter().try_for_each(|one| make(upper.as_fd(), one)))
            .map_err(RunError::host("fill the root of the image"))
    }
}

/// The steps of the requested mounts; nothing is cloned for them yet.
fn asked_steps(resolved: &ResolvedRun, sources: &Sources) -> Result<Vec<ViewStep>, RunError> {
    let entries = distinct(resolved);
    let looked = entries.iter().chain(&sources.entries).map(mounts::inspect);
    let mut mounts = looked.collect::<Result<Vec<_>, MountError>>()?;
    mounts.extend(sources.mounts.iter().cloned());
    Ok(view_plan::asked(&mounts)?)
}

fn check_layers(count: usize) -> Result<(), RunError> {
    if (1..=LOWERS_MAX).contains(&count) {
        return Ok(());
    }
    Err(RunError::Argument {
        code: "image_layers",
        what: "image",
        object: format!("has {count} layers,"),
        problem: format!("expected 1 to {LOWERS_MAX}"),
        hint: Some("build it with fewer layers".to_owned()),
    })
}

fn needs_overlayfs(errno: Errno) -> RunError {
    RunError::Argument {
        code: "image_needs_overlayfs",
        what: "image",
        object: "cannot be a root on this host:".to_owned(),
        problem: format!("its kernel lays no overlayfs in a user namespace ({errno})"),
        hint: Some(
            "Linux 5.11 or later with CONFIG_OVERLAY_FS can (`runner doctor`); `engine: \
             subprocess` needs none"
                .to_owned(),
        ),
    }
}

fn not_mappable(errno: Errno) -> RunError {
    RunError::Argument {
        code: "image_not_mappable",
        what: "image",
        object: "cannot be shown to the body:".to_owned(),
        problem: format!("the file system of the store cannot show it as the body's own ({errno})"),
        hint: Some("name a directory on another file system with oci.directory".to_owned()),
    }
}

/// `upper` is new and only ours: it contains nothing of the image.
fn make(upper: BorrowedFd<'_>, one: &TopLayerEntry) -> Result<(), Errno> {
    match one {
        TopLayerEntry::Directory(path) => {
            rustix::fs::mkdirat(upper, &path[..], Mode::from_raw_mode(0o755))
        }
        TopLayerEntry::File(path, contents) => {
            contract::write_new(upper, path, Mode::from_raw_mode(0o644), contents)
        }
    }
}
