//! Overlayfs: read-only lower trees, and an upper directory in the writable space that takes the
//! changes.
//!
//! The bundle's overlayfs is mounted immediately, over the directory that contains its upper and
//! work. The child keeps the others until its launch plan attaches them
//! ([`crate::view::ViewStep::AttachOverlay`]) or makes an image the root.
//!
//! Differences from a plain directory (Documentation/filesystems/overlayfs.rst): a directory of a
//! lower tree cannot be renamed (EXDEV: user namespaces have no redirects), the file of a running
//! program can be written (no ETXTBSY before copy-up), and a shared mapping made before the first
//! change does not see it.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::SandboxError;
use crate::prepare::{BasePlan, Prepared, describe_base, expect_message};
use crate::steps::{self, Plan, message, read_plan};
use crate::view::BUNDLE;
use sys::arena::{Arena, Slot};
use sys::link::{self, DESCRIPTORS_MAX, Message, Received};
use sys::mount::{self, Attributes};

/// Maximum lower trees of one overlayfs: their names must fit into one mount option.
pub const LOWERS_MAX: usize = 44;
/// Maximum overlayfs of workspace sources; their numbers are below it.
pub const SOURCES_MAX: usize = 32;
/// Number of the image's overlayfs.
pub const IMAGE: usize = SOURCES_MAX;
pub(crate) const LAUNCH_OVERLAYS_MAX: usize = SOURCES_MAX + 1;

/// Temporary mount point of lower trees. The name is short because the list of them is one mount
/// option.
const LOWERS: &CStr = c"l";

/// A lower tree.
#[derive(Debug)]
pub enum Lower<'tree> {
    /// A detached mount with idmapped owners, for runs of root.
    Tree(OwnedFd),
    /// A directory of the caller: path and descriptor.
    Directory(&'tree Path, BorrowedFd<'tree>),
}

/// Role of the directory `upper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// It takes the changes.
    Writable,
    /// It is the top layer of a read-only overlayfs.
    ReadOnly,
}

/// When the overlayfs is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountAt {
    /// Immediately, over its directory.
    Now,
    /// At the launch, whose plan refers to this number, below `LAUNCH_OVERLAYS_MAX`.
    Launch(usize),
}

/// A requested overlayfs.
#[derive(Debug)]
pub struct Overlay<'tree> {
    /// Directory of the writable space with `upper` and `work`, relative to its root. The child
    /// creates missing components.
    pub directory: String,
    /// Top layer first: 1 to [`LOWERS_MAX`].
    pub lowers: Vec<Lower<'tree>>,
    pub upper: Upper,
    pub mount_at: MountAt,
}

impl<'tree> Overlay<'tree> {
    /// Creates the request for the bundle's overlayfs.
    #[must_use]
    pub fn of_bundle(lower: Lower<'tree>) -> Self {
        Self {
            directory: BUNDLE.trim_start_matches('/').to_owned(),
            lowers: vec![lower],
            upper: Upper::Writable,
            mount_at: MountAt::Now,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct OverlaySteps<'a> {
    /// Parents of the directory, and the directory itself.
    path: &'a [&'a CStr],
    directory: &'a CStr,
    upper: &'a CStr,
    work: &'a CStr,
    /// `work/work`, which the kernel creates.
    inner_work: &'a CStr,
    /// Value of `lowerdir=`.
    option: &'a CStr,
    lowers: &'a [LowerSteps<'a>],
    writable: bool,
    mount_at: MountAt,
}

#[derive(Debug, Clone, Copy)]
struct LowerSteps<'a> {
    mount_point: &'a CStr,
    /// `None`: the tree comes with the message.
    path: Option<&'a CStr>,
    device: u64,
    inode: u64,
}

pub(super) type LaunchOverlays = [Option<OwnedFd>; LAUNCH_OVERLAYS_MAX];

impl Plan for &[OverlaySteps<'_>] {
    const SLOT: Slot = Slot::Overlay;
}

impl Prepared {
    /// Requests overlayfs from the child. Call [`Self::await_overlays`] before the next request.
    ///
    /// # Errors
    /// [`SandboxError::Supervisor`]: E2BIG for more than one message or overlayfs can hold; EBUSY
    /// if the previous request has no answer yet.
    pub fn request_overlays(&mut self, overlays: &[Overlay<'_>]) -> Result<(), SandboxError> {
        let failed = SandboxError::supervisor("prepare", "an overlayfs");
        if self.overlays_pending != 0 {
            return Err(failed(Errno::BUSY));
        }
        let mut trees = Vec::new();
        let mut steps = Vec::with_capacity(overlays.len());
        for overlay in overlays {
            steps.push(copy_overlay(&self.prefork.arena, overlay).map_err(&failed)?);
            trees.extend(overlay.lowers.iter().filter_map(|lower| match lower {
                Lower::Tree(tree) => Some(tree.as_fd()),
                Lower::Directory(..) => None,
            }));
        }
        if DESCRIPTORS_MAX < trees.len() {
            return Err(failed(Errno::TOOBIG));
        }
        let steps = self.prefork.arena.slice(&steps).map_err(&failed)?;
        steps::publish(&self.prefork.arena, steps).map_err(&failed)?;
        let request = Message::of(message::OVERLAY);
        link::send(self.prefork.link.as_fd(), request, &trees)
            .map_err(SandboxError::supervisor("send to", "the child"))?;
        self.overlays_pending = overlays.len();
        Ok(())
    }

    /// Returns the child's answers in the order of the requests: an inner `Err` if the kernel
    /// refused one. Its directory is then empty except for files of the supervisor in `upper`.
    ///
    /// # Errors
    /// [`SandboxError`] if the child failed or has ended.
    pub fn await_overlays(
        &mut self,
        plan: &BasePlan,
    ) -> Result<Vec<Result<(), Errno>>, SandboxError> {
        let describe = |step, index| describe_base(plan, step, index);
        let act = "create an overlayfs";
        if self.overlays_pending != 0 && self.ready.is_none() {
            // The child sends READY before it reads the request.
            let ready = expect_message(self.prefork.link.as_fd(), message::READY, act, &describe)?;
            self.ready = Some(ready);
        }
        let mut results = Vec::with_capacity(self.overlays_pending);
        for _each in 0..std::mem::take(&mut self.overlays_pending) {
            let link = self.prefork.link.as_fd();
            let (answer, _) = expect_message(link, message::OVERLAID, act, &describe)?;
            results.push(match answer.values[0] {
                0 => Ok(()),
                errno => Err(link::errno_from_peer(errno)),
            });
        }
        Ok(results)
    }
}

fn copy_overlay<'a>(arena: &'a Arena, overlay: &Overlay<'_>) -> Result<OverlaySteps<'a>, Errno> {
    let Overlay {
        directory,
        lowers,
        upper,
        mount_at,
    } = overlay;
    let is_beyond = matches!(*mount_at, MountAt::Launch(number) if number >= LAUNCH_OVERLAYS_MAX);
    if lowers.is_empty() || lowers.len() > LOWERS_MAX || is_beyond {
        return Err(Errno::TOOBIG);
    }
    let mut path = Vec::new();
    for (end, _) in directory.match_indices('/') {
        path.push(arena.c_string(&directory.as_bytes()[..end])?);
    }
    let whole = arena.c_string(directory.as_bytes())?;
    path.push(whole);
    let beneath = |name: &str| arena.c_string(format!("{directory}/{name}").as_bytes());
    let writable = *upper == Upper::Writable;
    let mut options = Vec::new();
    if !writable {
        options.push(format!("{directory}/upper"));
    }
    let mut lower_steps = Vec::with_capacity(lowers.len());
    for (index, lower) in lowers.iter().enumerate() {
        let mount_point = format!("l/{index}");
        lower_steps.push(copy_lower(arena, &mount_point, lower)?);
        options.push(mount_point);
    }
    let option = options.join(":");
    if option.len() >= mount::OPTION_BYTES_MAX {
        return Err(Errno::TOOBIG);
    }
    Ok(OverlaySteps {
        directory: whole,
        path: arena.slice(&path)?,
        upper: beneath("upper")?,
        work: beneath("work")?,
        inner_work: beneath("work/work")?,
        option: arena.c_string(option.as_bytes())?,
        lowers: arena.slice(&lower_steps)?,
        writable,
        mount_at: *mount_at,
    })
}

fn copy_lower<'a>(
    arena: &'a Arena,
    mount_point: &str,
    lower: &Lower<'_>,
) -> Result<LowerSteps<'a>, Errno> {
    let mount_point = arena.c_string(mount_point.as_bytes())?;
    Ok(match lower {
        Lower::Tree(_) => LowerSteps {
            mount_point,
            path: None,
            device: 0,
            inode: 0,
        },
        Lower::Directory(path, directory) => {
            let status = rustix::fs::fstat(directory)?;
            LowerSteps {
                mount_point,
                path: Some(arena.c_string(path.as_os_str().as_encoded_bytes())?),
                device: status.st_dev,
                inode: status.st_ino,
            }
        }
    })
}

/// Child: tries each request, answers it, and after a failure removes what it created.
pub(super) fn handle_request(
    arena: &Arena,
    link: BorrowedFd<'_>,
    received: &Received,
    launch_overlays: &mut LaunchOverlays,
) -> Result<(), Errno> {
    let mut trees = received.iter();
    for steps in read_plan::<&[OverlaySteps<'_>]>(arena) {
        let mounted = match (create_overlay(steps, &mut trees), steps.mount_at) {
            (Ok(overlay), MountAt::Now) => mount::attach(overlay.as_fd(), steps.directory),
            (Ok(overlay), MountAt::Launch(number)) => {
                *launch_overlays.get_mut(number).ok_or(Errno::TOOBIG)? = Some(overlay);
                Ok(())
            }
            (Err(errno), _) => Err(errno),
        };
        let errno = match mounted {
            Ok(()) => 0,
            Err(errno) => {
                remove_created(steps)?;
                errno.raw_os_error()
            }
        };
        let answer = Message::with(message::OVERLAID, [errno, 0, 0]);
        link::send(link, answer, &[])?;
    }
    Ok(())
}

fn create_overlay<'tree>(
    steps: &OverlaySteps<'_>,
    trees: &mut impl Iterator<Item = &'tree Option<OwnedFd>>,
) -> Result<OwnedFd, Errno> {
    // Take all its trees even on failure: the next ones belong to the next request.
    let mut lower_trees = [const { None }; LOWERS_MAX];
    for (tree, lower) in lower_trees.iter_mut().zip(steps.lowers) {
        if lower.path.is_none() {
            *tree = trees.next().and_then(Option::as_ref);
        }
    }
    for directory in steps.path {
        make_directory(directory)?;
    }
    make_directory(steps.upper)?;
    let upper_and_work = if steps.writable {
        make_directory(steps.work)?;
        mount::check_overlay_attributes(steps.upper)?;
        Some((steps.upper, steps.work))
    } else {
        None
    };
    if let ([only], Some(_)) = (steps.lowers, upper_and_work)
        && only.path.is_some()
    {
        let lower = open_lower(only)?;
        let mut name = [0; DESCRIPTOR_PATH_BYTES];
        return mount::new_overlay(descriptor_path(&lower, &mut name)?, upper_and_work);
    }
    make_directory(LOWERS)?;
    let mut mounted = 0;
    let mut result = Ok(());
    for (lower, tree) in steps.lowers.iter().zip(&lower_trees) {
        result = mount_lower(lower, *tree);
        if result.is_err() {
            break;
        }
        mounted += 1;
    }
    let overlay = result.and_then(|()| mount::new_overlay(steps.option, upper_and_work));
    // The overlayfs has its own copies; keep the body's list of mounts short.
    for lower in steps.lowers.iter().take(mounted) {
        mount::detach(lower.mount_point)?;
    }
    for lower in steps.lowers {
        remove_directory(lower.mount_point)?;
    }
    remove_directory(LOWERS)?;
    overlay
}

/// Mounts a lower tree, because overlayfs takes only trees of this mount namespace.
fn mount_lower(steps: &LowerSteps<'_>, tree: Option<&OwnedFd>) -> Result<(), Errno> {
    make_directory(steps.mount_point)?;
    if steps.path.is_none() {
        return mount::attach(tree.ok_or(Errno::BADF)?.as_fd(), steps.mount_point);
    }
    let directory = open_lower(steps)?;
    let tree = mount::clone_directory(directory.as_fd())?;
    mount::attach(tree.as_fd(), steps.mount_point)
}

fn open_lower(steps: &LowerSteps<'_>) -> Result<OwnedFd, Errno> {
    let path = steps.path.ok_or(Errno::BADF)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&directory)?;
    if (found.st_dev, found.st_ino) != (steps.device, steps.inode) {
        return Err(Errno::STALE);
    }
    Ok(directory)
}

fn make_directory(path: &CStr) -> Result<(), Errno> {
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes the directories of a failed overlayfs; the supervisor may fill the directory instead.
fn remove_created(steps: &OverlaySteps<'_>) -> Result<(), Errno> {
    remove_directory(steps.inner_work)?;
    remove_directory(steps.work)?;
    match remove_directory(steps.upper) {
        // Contains files of the supervisor.
        Err(Errno::NOTEMPTY) => Ok(()),
        other => other,
    }
}

fn remove_directory(path: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Covers [`crate::view::OVERLAYS`] with an empty directory: the body may see the writable space as
/// its root and must reach the data of overlayfs through the overlayfs only.
pub(super) fn cover_overlays() -> Result<(), Errno> {
    const OVERLAYS: &CStr = c"runner/overlays";
    const EMPTY: &CStr = c"runner/overlays/empty";
    make_directory(EMPTY)?;
    mount::bind(EMPTY, OVERLAYS, false)?;
    mount::restrict(OVERLAYS, Attributes::RDONLY, false)
}

const DESCRIPTOR_PATH_BYTES: usize = 32;

/// Formats `/proc/self/fd/N`, so that the list of mounts does not show the path of the host.
fn descriptor_path<'buffer>(
    descriptor: &OwnedFd,
    buffer: &'buffer mut [u8; DESCRIPTOR_PATH_BYTES],
) -> Result<&'buffer CStr, Errno> {
    let number = descriptor.as_raw_fd();
    mount::c_string(buffer, format_args!("/proc/self/fd/{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_descriptor_is_a_link_to_its_file() {
        let file = std::fs::File::open("/dev/null").expect("opened");
        let descriptor = OwnedFd::from(file);
        let mut buffer = [0; DESCRIPTOR_PATH_BYTES];
        let path = descriptor_path(&descriptor, &mut buffer).expect("a path");
        let file = std::fs::read_link(path.to_str().expect("text"));
        assert_eq!(file.expect("a link"), Path::new("/dev/null"));
    }
}
