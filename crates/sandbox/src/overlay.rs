//! Overlayfs: read-only lower trees under a directory of the run's limited space that takes the
//! changes.
//!
//! The bundle's overlayfs is mounted at once, over the directory that contains its upper and work.
//! The child keeps others until its launch plan attaches them
//! ([`crate::view::ViewStep::AttachOverlay`]) or makes an image the root.
//!
//! Differences from a plain directory (Documentation/filesystems/overlayfs.rst): a directory of a
//! lower tree cannot be renamed (EXDEV: user namespaces have no redirects), a running program can
//! be written (no ETXTBSY before copy-up), and a shared mapping made before the first change does
//! not see it.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::SandboxError;
use crate::prepare::{BasePlan, Prepared, describe_base, expect_message};
use crate::steps::{self, Plan, message, published};
use crate::view;
use sys::arena::{Arena, Slot};
use sys::link::{self, DESCRIPTORS_MAX, Message, Received};
use sys::mount::{self, Attributes};

/// Maximum lower trees of one overlayfs: their names must fit into one mount option.
pub const LOWERS_MAX: usize = 44;
/// Maximum overlayfs of workspace sources; their numbers are below it.
pub const SOURCES_MAX: usize = 32;
/// Number of the image's overlayfs.
pub const IMAGE: usize = SOURCES_MAX;
pub(crate) const KEPT_MAX: usize = SOURCES_MAX + 1;
pub(crate) const BUNDLE_PLACE: &str = "bundle";
/// Directory of the space for overlays of the launch. A view that contains the space must cover it.
pub const PLACES: &str = view::PLACES;

const MODE: u32 = 0o755;
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

/// Where changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// To `upper` of the directory, which also contains `work`.
    Writable,
    /// Nowhere: the existing `upper` of the directory is the top layer of a read-only overlayfs.
    ReadOnly,
}

/// Where the overlayfs is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Immediately over its directory.
    AtOnce,
    /// Where the launch plan attaches this number, below `KEPT_MAX`.
    AtLaunch(usize),
}

/// A requested overlayfs.
#[derive(Debug)]
pub struct Overlay<'tree> {
    /// Relative directory of the space with `upper` and `work`; the child creates missing
    /// components.
    pub place: String,
    /// Top layer first: 1 to [`LOWERS_MAX`].
    pub lowers: Vec<Lower<'tree>>,
    pub upper: Upper,
    pub shown: Shown,
}

impl<'tree> Overlay<'tree> {
    /// Creates the request for the bundle's overlayfs.
    #[must_use]
    pub fn of_bundle(lower: Lower<'tree>) -> Self {
        Self {
            place: BUNDLE_PLACE.to_owned(),
            lowers: vec![lower],
            upper: Upper::Writable,
            shown: Shown::AtOnce,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct OverlaySteps<'a> {
    /// The directory and its parents.
    places: &'a [&'a CStr],
    place: &'a CStr,
    upper: &'a CStr,
    work: &'a CStr,
    /// `work/work`, which the kernel creates.
    inner: &'a CStr,
    option: &'a CStr,
    lowers: &'a [LowerSteps<'a>],
    writable: bool,
    kept_as: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct LowerSteps<'a> {
    at: &'a CStr,
    /// `None`: the tree comes with the message.
    path: Option<&'a CStr>,
    device: u64,
    inode: u64,
}

pub(super) type Kept = [Option<OwnedFd>; KEPT_MAX];

impl Plan for &[OverlaySteps<'_>] {
    const SLOT: Slot = Slot::Overlay;
}

impl Prepared {
    /// Requests overlayfs from the child. Call [`Self::overlaid`] before the next request.
    ///
    /// # Errors
    /// [`SandboxError::Supervisor`]: E2BIG for more than one message or overlayfs can hold; EBUSY
    /// if the previous request has no answer yet.
    pub fn ask_overlays(&mut self, overlays: &[Overlay<'_>]) -> Result<(), SandboxError> {
        let lay_out = SandboxError::supervisor("lay out", "an overlayfs");
        if self.overlays_asked != 0 {
            return Err(lay_out(Errno::BUSY));
        }
        let mut trees = Vec::new();
        let mut steps = Vec::with_capacity(overlays.len());
        for overlay in overlays {
            steps.push(lay_out_one(&self.prefork.arena, overlay).map_err(&lay_out)?);
            trees.extend(overlay.lowers.iter().filter_map(|lower| match lower {
                Lower::Tree(tree) => Some(tree.as_fd()),
                Lower::Directory(..) => None,
            }));
        }
        if DESCRIPTORS_MAX < trees.len() {
            return Err(lay_out(Errno::TOOBIG));
        }
        let steps = self.prefork.arena.slice(&steps).map_err(&lay_out)?;
        steps::publish(&self.prefork.arena, steps).map_err(&lay_out)?;
        let ask = Message::of(message::OVERLAY);
        link::send(self.prefork.link.as_fd(), ask, &trees)
            .map_err(SandboxError::supervisor("send to", "the child"))?;
        self.overlays_asked = overlays.len();
        Ok(())
    }

    /// Returns the child's answers in the order of the requests; an inner `Err` if the kernel does
    /// not support it. The place is then empty, but the content of its `upper` stays.
    ///
    /// # Errors
    /// [`SandboxError`] if the child failed or is gone.
    pub fn overlaid(&mut self, plan: &BasePlan) -> Result<Vec<Result<(), Errno>>, SandboxError> {
        let describe = |step, index| describe_base(plan, step, index);
        let act = "lay out an overlayfs";
        if self.overlays_asked != 0 && self.ready.is_none() {
            // The child sends READY before it reads the request.
            let ready = expect_message(self.prefork.link.as_fd(), message::READY, act, &describe)?;
            self.ready = Some(ready);
        }
        let mut answers = Vec::with_capacity(self.overlays_asked);
        for _each in 0..std::mem::take(&mut self.overlays_asked) {
            let link = self.prefork.link.as_fd();
            let (answer, _) = expect_message(link, message::OVERLAID, act, &describe)?;
            answers.push(match answer.values[0] {
                0 => Ok(()),
                errno => Err(link::stated_errno(errno)),
            });
        }
        Ok(answers)
    }
}

fn lay_out_one<'a>(arena: &'a Arena, overlay: &Overlay<'_>) -> Result<OverlaySteps<'a>, Errno> {
    let Overlay {
        place,
        lowers,
        upper,
        shown,
    } = overlay;
    if lowers.is_empty() || LOWERS_MAX < lowers.len() {
        return Err(Errno::TOOBIG);
    }
    let kept_as = match *shown {
        Shown::AtOnce => None,
        Shown::AtLaunch(number) if number < KEPT_MAX => Some(number),
        Shown::AtLaunch(_) => return Err(Errno::TOOBIG),
    };
    let mut places = Vec::new();
    for (at, _) in place.match_indices('/') {
        places.push(arena.c_string(&place.as_bytes()[..at])?);
    }
    places.push(arena.c_string(place.as_bytes())?);
    let below = |name: &str| arena.c_string(format!("{place}/{name}").as_bytes());
    let writable = *upper == Upper::Writable;
    let mut options = Vec::new();
    if !writable {
        options.push(format!("{place}/upper"));
    }
    let mut laid_out = Vec::with_capacity(lowers.len());
    for (index, lower) in lowers.iter().enumerate() {
        let at = format!("l/{index}");
        laid_out.push(lay_out_lower(arena, &at, lower)?);
        options.push(at);
    }
    let option = options.join(":");
    if mount::OPTION_BYTES_MAX <= option.len() {
        return Err(Errno::TOOBIG);
    }
    Ok(OverlaySteps {
        place: arena.c_string(place.as_bytes())?,
        places: arena.slice(&places)?,
        upper: below("upper")?,
        work: below("work")?,
        inner: below("work/work")?,
        option: arena.c_string(option.as_bytes())?,
        lowers: arena.slice(&laid_out)?,
        writable,
        kept_as,
    })
}

fn lay_out_lower<'a>(
    arena: &'a Arena,
    at: &str,
    lower: &Lower<'_>,
) -> Result<LowerSteps<'a>, Errno> {
    let at = arena.c_string(at.as_bytes())?;
    Ok(match lower {
        Lower::Tree(_) => LowerSteps {
            at,
            path: None,
            device: 0,
            inode: 0,
        },
        Lower::Directory(path, directory) => {
            let status = rustix::fs::fstat(directory)?;
            LowerSteps {
                at,
                path: Some(arena.c_string(path.as_os_str().as_encoded_bytes())?),
                device: status.st_dev,
                inode: status.st_ino,
            }
        }
    })
}

/// Child: tries each request, answers, and removes what a failed one created.
pub(super) fn answer(
    arena: &Arena,
    link: BorrowedFd<'_>,
    received: &Received,
    kept: &mut Kept,
) -> Result<(), Errno> {
    let mut trees = received.iter();
    for steps in published::<&[OverlaySteps<'_>]>(arena) {
        let laid = match lay(steps, &mut trees) {
            Ok(laid) => match steps.kept_as {
                None => mount::attach(laid.as_fd(), steps.place),
                Some(number) => {
                    *kept.get_mut(number).ok_or(Errno::TOOBIG)? = Some(laid);
                    Ok(())
                }
            },
            Err(errno) => Err(errno),
        };
        let errno = match laid {
            Ok(()) => 0,
            Err(errno) => {
                clear(steps)?;
                errno.raw_os_error()
            }
        };
        let answer = Message::with(message::OVERLAID, [errno, 0, 0]);
        link::send(link, answer, &[])?;
    }
    Ok(())
}

fn lay<'tree>(
    steps: &OverlaySteps<'_>,
    trees: &mut impl Iterator<Item = &'tree Option<OwnedFd>>,
) -> Result<OwnedFd, Errno> {
    // Take all its trees even on failure: the next ones belong to the next request.
    let mut below = [const { None }; LOWERS_MAX];
    for (place, lower) in below.iter_mut().zip(steps.lowers) {
        if lower.path.is_none() {
            *place = trees.next().and_then(Option::as_ref);
        }
    }
    for place in steps.places {
        make_directory(place)?;
    }
    make_directory(steps.upper)?;
    let upper_and_work = if steps.writable {
        make_directory(steps.work)?;
        takes_notes(steps.upper)?;
        Some((steps.upper, steps.work))
    } else {
        None
    };
    if let ([only], Some(_)) = (steps.lowers, upper_and_work)
        && only.path.is_some()
    {
        let lower = open_own(only)?;
        let mut name = [0; DESCRIPTOR_PATH_BYTES];
        return mount::new_overlay(descriptor_path(&lower, &mut name)?, upper_and_work);
    }
    make_directory(LOWERS)?;
    let mut mounted = 0;
    let mut laid = Ok(());
    for (lower, tree) in steps.lowers.iter().zip(&below) {
        laid = mount_lower(lower, *tree);
        if laid.is_err() {
            break;
        }
        mounted += 1;
    }
    let laid = laid.and_then(|()| mount::new_overlay(steps.option, upper_and_work));
    // The overlayfs has its own copies; keep the body's list of mounts short.
    for lower in steps.lowers.iter().take(mounted) {
        mount::detach(lower.at)?;
    }
    for lower in steps.lowers {
        remove_directory(lower.at)?;
    }
    remove_directory(LOWERS)?;
    laid
}

/// A lower tree must be mounted in this mount namespace.
fn mount_lower(steps: &LowerSteps<'_>, tree: Option<&OwnedFd>) -> Result<(), Errno> {
    make_directory(steps.at)?;
    match steps.path {
        None => mount::attach(tree.ok_or(Errno::BADF)?.as_fd(), steps.at),
        Some(_) => {
            let directory = open_own(steps)?;
            let tree = mount::clone_directory(directory.as_fd())?;
            mount::attach(tree.as_fd(), steps.at)
        }
    }
}

fn open_own(steps: &LowerSteps<'_>) -> Result<OwnedFd, Errno> {
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
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(MODE)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Without extended attributes on the space (tmpfs before Linux 6.6) a removed and recreated
/// directory would show its old content.
fn takes_notes(upper: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(CWD, upper, flags, Mode::empty())?;
    let note = c"user.overlay.runner";
    rustix::fs::fsetxattr(&upper, note, b"y", rustix::fs::XattrFlags::empty())?;
    rustix::fs::fremovexattr(&upper, note)
}

/// Removes a failed try; the supervisor fills the place instead.
fn clear(steps: &OverlaySteps<'_>) -> Result<(), Errno> {
    remove_directory(steps.inner)?;
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

/// Covers [`PLACES`] with an empty directory: the space may become the body's root, and overlay
/// data must be reached through the overlayfs only.
pub(super) fn cover_places() -> Result<(), Errno> {
    const OVERLAYS: &CStr = c"runner/overlays";
    const EMPTY: &CStr = c"runner/overlays/empty";
    make_directory(EMPTY)?;
    mount::bind(EMPTY, OVERLAYS, false)?;
    mount::restrict(OVERLAYS, Attributes::RDONLY, false)
}

const DESCRIPTOR_PATH_BYTES: usize = 32;

/// Formats `/proc/self/fd/N`, which hides the path of the host in the list of mounts.
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
    fn a_descriptor_has_the_path_that_proc_gives_it() {
        let file = std::fs::File::open("/dev/null").expect("opened");
        let descriptor = OwnedFd::from(file);
        let mut buffer = [0; DESCRIPTOR_PATH_BYTES];
        let path = descriptor_path(&descriptor, &mut buffer).expect("a path");
        let expected = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        assert_eq!(path.to_bytes(), expected.as_bytes());
    }
}
