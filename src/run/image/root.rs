//! Mounts an image as the body's root: creates the upper layer in the writable space and asks the
//! child to mount the overlayfs.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::run::Run;
use crate::run::contract::space;
use crate::run::error::RunError;
use crate::run::image::OpenedImage;
use crate::run::launching::launch_plan::requested_steps;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::sources::Sources;
use crate::run::unpacking::make_lower;
use sandbox::image_root::{TopLayerEntry, UserFiles, plan_binds, plan_top_layer};
use sandbox::launch::ImageRoot;
use sandbox::mounts::Owners;
use sandbox::overlay::{IMAGE, LOWERS_MAX, Lower, MountAt, Overlay, Upper};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::ViewStep;
use spec::report::WarningReport;
use spec::units;

/// Directory of the upper layer in the writable space: below
/// [`OVERLAYS`](sandbox::view::OVERLAYS), which a launch with an image covers and where no mount can
/// be requested.
const DIRECTORY: &str = "runner/overlays/image";
/// The upper layer in it.
pub(in crate::run) const UPPER: &str = "runner/overlays/image/upper";

/// The image, ready to become the root at the launch.
pub(in crate::run) struct MountedImage {
    pub(in crate::run) root: ImageRoot,
    /// Why it is read-only although nobody requested that.
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
        let steps = requested_steps(resolved, sources)?;
        self.fill_upper(resources, prepared, &steps, opened)?;
        let read_only = self.policy.oci.root_read_only;
        let not_writable = if read_only {
            None
        } else {
            self.mount_writable(resources, prepared, opened)?
        };
        let writable = !read_only && not_writable.is_none();
        if !writable {
            self.mount_layers(resources, prepared, opened, Upper::ReadOnly)?
                .map_err(needs_overlayfs)?;
        }
        Ok(Some(MountedImage {
            root: ImageRoot {
                overlay: IMAGE,
                writable,
                binds: plan_binds(&steps),
            },
            not_writable,
        }))
    }

    /// Returns a warning if this kernel cannot mount the image writable in memory; it may still
    /// mount it read-only.
    fn mount_writable(
        &self,
        resources: &Resources,
        prepared: &mut Prepared,
        opened: &OpenedImage,
    ) -> Result<Option<WarningReport>, RunError> {
        let errno = match self.mount_layers(resources, prepared, opened, Upper::Writable)? {
            Ok(()) => return Ok(None),
            // The tmpfs has no user attributes. Any other error would occur read-only too.
            Err(errno @ Errno::OPNOTSUPP) => errno,
            Err(errno) => return Err(needs_overlayfs(errno)),
        };
        let reason = format!(
            "tmpfs has no user attributes on this kernel (Linux 6.6 has), so the root of the image \
             is read-only: {errno}"
        );
        if self.request.strict {
            return Err(RunError::Argument {
                code: "image_root_read_only",
                what: "--strict",
                object: "requires a writable root:".to_owned(),
                problem: reason,
                hint: Some("run on Linux 6.6 or later, or omit --strict".to_owned()),
            });
        }
        Ok(Some(WarningReport::new("image_root_read_only", reason)))
    }

    fn mount_layers(
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
                make_lower(&layer.path, root, &resources.base, owners.as_mut())
                    .map_err(not_mappable)
            })
            .collect::<Result<Vec<Lower<'_>>, RunError>>()?;
        prepared.request_overlays(&[Overlay {
            directory: DIRECTORY.to_owned(),
            lowers,
            upper,
            mount_at: MountAt::Launch(IMAGE),
        }])?;
        let answers = prepared.await_overlays(&resources.base)?;
        Ok(answers.into_iter().collect())
    }

    /// Creates mount points and user names in the upper layer. Must precede the mount: the layers of
    /// a mounted overlayfs must not change.
    fn fill_upper(
        &self,
        resources: &Resources,
        prepared: &Prepared,
        steps: &[ViewStep],
        opened: &OpenedImage,
    ) -> Result<(), RunError> {
        let names = UserFiles {
            passwd: &opened.passwd,
            group: &opened.group,
        };
        let entries = plan_top_layer(steps, &opened.user, names);
        let _assumed = self.assume_body_ids(resources)?;
        space::make_directories(prepared.space(), UPPER)
            .and_then(|upper| {
                entries
                    .iter()
                    .try_for_each(|entry| create(upper.as_fd(), entry))
            })
            .map_err(RunError::host("fill the root of the image"))
    }
}

fn check_layers(count: usize) -> Result<(), RunError> {
    if (1..=LOWERS_MAX).contains(&count) {
        return Ok(());
    }
    Err(RunError::Argument {
        code: "image_layers",
        what: "image",
        object: format!("has {},", units::count(count, "layer")),
        problem: format!("expected 1 to {LOWERS_MAX}"),
        hint: Some("build it with fewer layers".to_owned()),
    })
}

fn needs_overlayfs(errno: Errno) -> RunError {
    RunError::Argument {
        code: "image_needs_overlayfs",
        what: "image",
        object: "cannot be a root on this host:".to_owned(),
        problem: format!("the kernel cannot mount overlayfs in a user namespace ({errno})"),
        hint: Some(
            "run on Linux 5.11 or later with CONFIG_OVERLAY_FS (see `runner doctor`), or without an \
             image"
                .to_owned(),
        ),
    }
}

fn not_mappable(errno: Errno) -> RunError {
    RunError::Argument {
        code: "image_not_mappable",
        what: "image",
        object: "cannot be mounted for the body:".to_owned(),
        problem: format!("the file system of the store cannot map its owner to the body ({errno})"),
        hint: Some("set oci.directory to a directory on another file system".to_owned()),
    }
}

/// `upper` is new and contains nothing of the image, so no link of the image is followed.
fn create(upper: BorrowedFd<'_>, entry: &TopLayerEntry) -> Result<(), Errno> {
    match entry {
        TopLayerEntry::Directory(path) => {
            rustix::fs::mkdirat(upper, &path[..], Mode::from_raw_mode(0o755))
        }
        TopLayerEntry::File { path, contents } => {
            space::write_new(upper, path, Mode::from_raw_mode(0o644), contents)
        }
    }
}
