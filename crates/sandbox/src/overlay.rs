//! Overlayfs: trees that lie elsewhere and are never written, and over them a directory of the run's
//! own limited space, which takes what the body changes.
//!
//! There are two kinds. The bundle's appears at once, over the very directory that has its upper and
//! work: nobody reaches them but through it. Others are kept by the child until its launch plan says
//! where they appear ([`crate::view::ViewStep::AttachOverlay`]), and an image becomes the root.
//! All count against the run's limits. The kernel opens what lies below read-only and copies a file
//! up before anything of it changes.
//!
//! What differs from a directory of the body's own: a directory that came from below cannot
//! be renamed (EXDEV: the kernel offers redirects in no user namespace), a program that runs can be
//! written (no ETXTBSY before it was copied up), and a shared mapping that was made before the
//! first change does not see it (all in Documentation/filesystems/overlayfs.rst).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::SandboxError;
use crate::prepare::{BasePlan, Prepared, describe_base, expect_message};
use crate::steps::message;
use crate::view;
use sys::arena::Arena;
use sys::arena::Slot;
use sys::link::{self, DESCRIPTORS_MAX, Message, Received};
use sys::mount::{self, Attributes};

/// Most trees below one overlayfs: the names of so many fit into one option of the mount.
pub const LOWERS_MAX: usize = 44;
/// Most overlayfs of workspace sources; their numbers are below it.
pub const SOURCES_MAX: usize = 32;
/// The number of an image's.
pub const IMAGE: usize = SOURCES_MAX;
/// Most that the child keeps until the launch.
pub(crate) const KEPT_MAX: usize = SOURCES_MAX + 1;
/// Where the bundle lies in the space.
pub(crate) const BUNDLE_PLACE: &str = "bundle";
/// Directory of the space in which overlays of the launch have their places. What they are laid of
/// is nothing that a body should see: whoever shows the space to a body covers it.
pub const PLACES: &str = view::PLACES;

/// The mode of a directory that the child makes.
const MODE: u32 = 0o755;
/// Where what lies below is mounted while an overlayfs is made of it: a short name, because the
/// list of all of them is one option of the mount.
const LOWERS: &CStr = c"l";

/// What lies below.
#[derive(Debug)]
pub enum Lower<'tree> {
    /// A detached mount that shows the body as the owner: root's.
    Tree(OwnedFd),
    /// A directory of the caller's own: its path, and what is open there.
    Directory(&'tree Path, BorrowedFd<'tree>),
}

/// What takes the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// `upper` of the place, with `work` beside it.
    Writable,
    /// Nothing: `upper` of the place, which exists, lies uppermost, and all of it is read-only.
    ReadOnly,
}

/// Where it appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// At its own place, as soon as it is laid.
    AtOnce,
    /// Where the launch plan says, which calls it by this number, below `KEPT_MAX`.
    AtLaunch(usize),
}

/// One overlayfs that is wanted.
#[derive(Debug)]
pub struct Overlay<'tree> {
    /// The directory of the space that has its `upper` and `work`, relative, one or more components;
    /// the child makes what is missing of it.
    pub place: String,
    /// What lies below, uppermost first: 1 to [`LOWERS_MAX`].
    pub lowers: Vec<Lower<'tree>>,
    /// What takes the changes.
    pub upper: Upper,
    pub shown: Shown,
}

impl<'tree> Overlay<'tree> {
    /// The bundle's.
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

/// One of them as the child is asked for it, published before [`message::OVERLAY`].
#[derive(Debug, Clone, Copy)]
struct OverlaySteps<'a> {
    /// The place, and what lies above it.
    places: &'a [&'a CStr],
    place: &'a CStr,
    upper: &'a CStr,
    work: &'a CStr,
    /// `work` of `work`: the kernel's own.
    inner: &'a CStr,
    /// Of all that lies below.
    option: &'a CStr,
    lowers: &'a [LowerSteps<'a>],
    writable: bool,
    kept_as: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct LowerSteps<'a> {
    /// Where it is mounted meanwhile.
    at: &'a CStr,
    /// `None`: the tree comes with the message.
    path: Option<&'a CStr>,
    device: u64,
    inode: u64,
}

/// What the child keeps for its launch.
pub(super) type Kept = [Option<OwnedFd>; KEPT_MAX];

fn published<'a>(arena: &'a Arena) -> &'a [OverlaySteps<'a>] {
    #[expect(
        unsafe_code,
        reason = "memory that another process wrote has no safe type"
    )]
    // SAFETY: `ask_overlays` publishes exactly this type before it sends OVERLAY, and this is
    // called only once that message has come; it publishes no more there before it has the answers.
    unsafe {
        arena.published(Slot::Overlay)
    }
}

impl Prepared {
    /// Asks the child to lay overlayfs. To be answered with [`Self::overlaid`] before anything else
    /// is asked, these too.
    ///
    /// # Errors
    /// [`SandboxError::Supervisor`]: E2BIG for more than one message carries, or than an overlayfs
    /// takes; EBUSY before the last ones were answered.
    pub fn ask_overlays(&mut self, overlays: &[Overlay<'_>]) -> Result<(), SandboxError> {
        let failed = |act, object: &'static str| {
            move |errno| SandboxError::Supervisor {
                act,
                object: object.to_owned(),
                errno,
            }
        };
        let lay_out = failed("lay out", "an overlayfs");
        if self.overlays_asked != 0 {
            return Err(lay_out(Errno::BUSY));
        }
        let mut trees = Vec::new();
        let mut steps = Vec::with_capacity(overlays.len());
        for overlay in overlays {
            steps.push(lay_out_one(&self.arena, overlay).map_err(lay_out)?);
            trees.extend(overlay.lowers.iter().filter_map(|lower| match lower {
                Lower::Tree(tree) => Some(tree.as_fd()),
                Lower::Directory(..) => None,
            }));
        }
        if DESCRIPTORS_MAX < trees.len() {
            return Err(lay_out(Errno::TOOBIG));
        }
        let steps = self.arena.slice(&steps).map_err(lay_out)?;
        self.arena.publish(Slot::Overlay, steps).map_err(lay_out)?;
        let ask = Message {
            kind: message::OVERLAY,
            values: [0; 3],
        };
        link::send(self.link.as_fd(), ask, &trees).map_err(failed("send to", "the child"))?;
        self.overlays_asked = overlays.len();
        Ok(())
    }

    /// The child's answers, in the order in which they were asked: `Err` inside where this kernel
    /// does not do it. Then the place is empty, as before; but what was in its `upper` stays.
    ///
    /// # Errors
    /// [`SandboxError`] where the child failed or is gone.
    pub fn overlaid(&mut self, plan: &BasePlan) -> Result<Vec<Result<(), Errno>>, SandboxError> {
        let describe = |step, index| describe_base(plan, step, index);
        let act = "lay out an overlayfs";
        if self.overlays_asked != 0 && self.ready.is_none() {
            // Said before, since the new root was assembled before the question was read.
            let ready = expect_message(self.link.as_fd(), message::READY, act, &describe)?;
            self.ready = Some(ready);
        }
        let mut answers = Vec::with_capacity(self.overlays_asked);
        for _each in 0..std::mem::take(&mut self.overlays_asked) {
            let link = self.link.as_fd();
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

/// The child's side: tries each and answers. What it made of what failed is removed.
pub(super) fn answer(
    arena: &Arena,
    link: BorrowedFd<'_>,
    received: &Received,
    kept: &mut Kept,
) -> Result<(), Errno> {
    let mut trees = received.iter();
    for steps in published(arena) {
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
        let answer = Message {
            kind: message::OVERLAID,
            values: [errno, 0, 0],
        };
        link::send(link, answer, &[])?;
    }
    Ok(())
}

fn lay<'tree>(
    steps: &OverlaySteps<'_>,
    trees: &mut impl Iterator<Item = &'tree Option<OwnedFd>>,
) -> Result<OwnedFd, Errno> {
    // All that came for it is taken, whatever becomes of it: what follows is the next one's.
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
    // The overlayfs has copies of its own, and the body's list of mounts needs no second ones.
    for lower in steps.lowers.iter().take(mounted) {
        mount::detach(lower.at)?;
    }
    for lower in steps.lowers {
        remove_directory(lower.at)?;
    }
    remove_directory(LOWERS)?;
    laid
}

/// Only what is mounted in this mount namespace can lie below.
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

/// Where the space cannot hold what overlayfs notes of a file (tmpfs before Linux 6.6), a directory
/// that is removed and made anew would show what was in it.
fn takes_notes(upper: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(CWD, upper, flags, Mode::empty())?;
    let note = c"user.overlay.runner";
    rustix::fs::fsetxattr(&upper, note, b"y", rustix::fs::XattrFlags::empty())?;
    rustix::fs::fremovexattr(&upper, note)
}

/// Nothing of a failed try stays: the supervisor fills the place instead.
fn clear(steps: &OverlaySteps<'_>) -> Result<(), Errno> {
    remove_directory(steps.inner)?;
    remove_directory(steps.work)?;
    match remove_directory(steps.upper) {
        // What the supervisor had put there.
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

/// Lays an empty directory over [`PLACES`]: the space may become the body's root, and what an
/// overlayfs is laid of is reached through it alone.
pub(super) fn cover_places() -> Result<(), Errno> {
    const OVERLAYS: &CStr = c"runner/overlays";
    const EMPTY: &CStr = c"runner/overlays/empty";
    make_directory(EMPTY)?;
    mount::bind(EMPTY, OVERLAYS, false)?;
    mount::restrict(OVERLAYS, Attributes::RDONLY, false)
}

const DESCRIPTOR_PATH_BYTES: usize = 32;

/// `/proc/self/fd/N`, which the list of mounts then shows, instead of a path of the host. Nothing
/// is allocated.
fn descriptor_path<'buffer>(
    descriptor: &OwnedFd,
    buffer: &'buffer mut [u8; DESCRIPTOR_PATH_BYTES],
) -> Result<&'buffer CStr, Errno> {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    buffer[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut digits = [0_u8; 10];
    let mut count = 0;
    let mut number = descriptor.as_raw_fd().unsigned_abs();
    loop {
        digits[count] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        count += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    for (place, digit) in buffer[PREFIX.len()..]
        .iter_mut()
        .zip(digits[..count].iter().rev())
    {
        *place = *digit;
    }
    CStr::from_bytes_until_nul(buffer).map_err(|_no_end| Errno::INVAL)
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
