//! The bundle as an overlayfs: a tree that was unpacked before, and over it a directory of the
//! run's own limited space, which takes what the body changes.
//!
//! Upper and work lie in `bundle` of the space, which the overlayfs then covers: nobody reaches
//! them but through it, and they count against the run's limits. The kernel opens what lies below
//! read-only and copies a file up before anything of it changes.
//!
//! What differs from a directory of the body's own: a directory that came with the bundle cannot
//! be renamed (EXDEV: the kernel offers redirects in no user namespace), a program that runs can be
//! written (no ETXTBSY before it was copied up), and a shared mapping that was made before the
//! first change does not see it (all in Documentation/filesystems/overlayfs.rst).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::kernel::arena::Arena;
use crate::kernel::arena::Slot;
use crate::kernel::link::{self, Message, Received};
use crate::kernel::mount;
use crate::sandbox::error::SandboxError;
use crate::sandbox::prepare::{BasePlan, Prepared, describe_base, expect_message};
use crate::sandbox::steps::message;

/// The mode of the directory, as of one that the child made.
const MODE: u32 = 0o755;
const LOWER: &CStr = c"bundle/lower";
const UPPER: &CStr = c"bundle/upper";
const WORK: &CStr = c"bundle/work";
const BUNDLE: &CStr = c"bundle";

/// What lies below.
#[derive(Debug)]
pub enum Lower<'tree> {
    /// A detached mount that shows the body as the owner: root's.
    Tree(OwnedFd),
    /// A directory of the caller's own: its path, and what is open there.
    Directory(&'tree std::path::Path, BorrowedFd<'tree>),
}

/// What the child is asked, published before [`message::OVERLAY`].
#[derive(Debug, Clone, Copy)]
pub(super) struct OverlaySteps<'a> {
    /// `None`: the tree comes with the message.
    lower: Option<&'a CStr>,
    device: u64,
    inode: u64,
}

impl<'a> OverlaySteps<'a> {
    fn published(arena: &'a Arena) -> Self {
        #[expect(
            unsafe_code,
            reason = "memory that another process wrote has no safe type"
        )]
        // SAFETY: `ask` publishes exactly this type before it sends OVERLAY, and this is called
        // only once that message has come; what lies at this place is published once.
        unsafe {
            arena.published(Slot::Overlay)
        }
    }
}

impl Prepared {
    /// Asks the child to lay an overlayfs over `lower` at the bundle's place. To be answered with
    /// [`Self::overlaid`] before anything else is asked.
    ///
    /// # Errors
    /// [`SandboxError::Supervisor`].
    pub fn ask_overlay(&mut self, lower: &Lower<'_>) -> Result<(), SandboxError> {
        let failed = |act, object: &'static str| {
            move |errno| SandboxError::Supervisor {
                act,
                object: object.to_owned(),
                errno,
            }
        };
        let lay_out = failed("lay out", "the overlayfs");
        let steps = match lower {
            Lower::Tree(_) => OverlaySteps {
                lower: None,
                device: 0,
                inode: 0,
            },
            Lower::Directory(path, directory) => {
                let status = rustix::fs::fstat(directory).map_err(&lay_out)?;
                let path = path.as_os_str().as_encoded_bytes();
                OverlaySteps {
                    lower: Some(self.arena.c_string(path).map_err(&lay_out)?),
                    device: status.st_dev,
                    inode: status.st_ino,
                }
            }
        };
        self.arena.publish(Slot::Overlay, steps).map_err(&lay_out)?;
        let ask = Message {
            kind: message::OVERLAY,
            values: [0; 3],
        };
        let trees = match lower {
            Lower::Tree(tree) => vec![tree.as_fd()],
            Lower::Directory(..) => Vec::new(),
        };
        link::send(self.link.as_fd(), ask, &trees).map_err(failed("send to", "the child"))
    }

    /// The child's answer: `Err` inside where this kernel does not do it. Then `bundle` of the
    /// space is empty, as before.
    ///
    /// # Errors
    /// [`SandboxError`] where the child failed or is gone.
    pub fn overlaid(&mut self, plan: &BasePlan) -> Result<Result<(), Errno>, SandboxError> {
        let describe = |step, index| describe_base(plan, step, index);
        let act = "lay out the bundle";
        if self.ready.is_none() {
            // Said before, since the new root was assembled before the question was read.
            let ready = expect_message(self.link.as_fd(), message::READY, act, &describe)?;
            self.ready = Some(ready);
        }
        let (answer, _) = expect_message(self.link.as_fd(), message::OVERLAID, act, &describe)?;
        Ok(match answer.values[0] {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        })
    }
}

/// The child's side: tries it and answers. What it made of what failed is removed.
pub(super) fn answer(
    arena: &Arena,
    link: BorrowedFd<'_>,
    received: &Received,
) -> Result<(), Errno> {
    let steps = OverlaySteps::published(arena);
    let tree = received.first().and_then(Option::as_ref);
    let errno = match lay(&steps, tree) {
        Ok(()) => 0,
        Err(errno) => {
            clear()?;
            errno.raw_os_error()
        }
    };
    let answer = Message {
        kind: message::OVERLAID,
        values: [errno, 0, 0],
    };
    link::send(link, answer, &[])
}

fn lay(steps: &OverlaySteps<'_>, tree: Option<&OwnedFd>) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(MODE);
    for directory in [UPPER, WORK] {
        rustix::fs::mkdirat(rustix::fs::CWD, directory, mode)?;
    }
    // Where the space cannot hold what overlayfs notes of a file (tmpfs before Linux 6.6), a
    // directory that is removed and made anew would show what was in it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(rustix::fs::CWD, UPPER, flags, Mode::empty())?;
    let note = c"user.overlay.runner";
    rustix::fs::fsetxattr(&upper, note, b"y", rustix::fs::XattrFlags::empty())?;
    rustix::fs::fremovexattr(&upper, note)?;
    let Some(path) = steps.lower else {
        let tree = tree.ok_or(Errno::BADF)?;
        rustix::fs::mkdirat(rustix::fs::CWD, LOWER, mode)?;
        // Only what is mounted in this mount namespace can lie below.
        mount::attach(tree.as_fd(), LOWER)?;
        let laid = mount::new_overlay(LOWER, UPPER, WORK);
        // The overlayfs has a copy of its own, and the body's list of mounts needs no second one.
        mount::detach(LOWER)?;
        return mount::attach(laid?.as_fd(), BUNDLE);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lower = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&lower)?;
    if (found.st_dev, found.st_ino) != (steps.device, steps.inode) {
        return Err(Errno::STALE);
    }
    let mut name = [0; DESCRIPTOR_PATH_BYTES];
    let laid = mount::new_overlay(descriptor_path(&lower, &mut name)?, UPPER, WORK)?;
    mount::attach(laid.as_fd(), BUNDLE)
}

/// Nothing of a failed try stays: the supervisor fills the directory instead.
fn clear() -> Result<(), Errno> {
    for directory in [c"bundle/work/work", WORK, UPPER, LOWER] {
        match rustix::fs::unlinkat(rustix::fs::CWD, directory, rustix::fs::AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => (),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
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
