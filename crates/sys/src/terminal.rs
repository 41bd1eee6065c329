//! Pseudo-terminals: pairs, raw mode, size.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::process::check;

/// Opens the multiplexer at `ptmx`, unlocks a terminal and returns both ends (open(2), ioctl(2)).
pub fn open_pair(ptmx: &CStr) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::openat(rustix::fs::CWD, ptmx, flags, Mode::empty())?;
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int, which lives across the call.
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    check(result.into())?;
    let slave_flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags and returns a new descriptor.
    let slave =
        check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, slave_flags) }.into())?;
    let slave = i32::try_from(slave).map_err(|_range| Errno::BADF)?;
    // SAFETY: the kernel just made this descriptor; it has no other owner.
    Ok((master, unsafe { OwnedFd::from_raw_fd(slave) }))
}

/// Copies the window size from terminal `from` to terminal `to`. Fails with ENOTTY if one of them
/// is not a terminal.
pub fn copy_size(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let size = rustix::termios::tcgetwinsize(from)?;
    rustix::termios::tcsetwinsize(to, size)
}

/// A terminal in raw mode; the guard restores the previous mode on drop.
#[derive(Debug)]
pub struct RawMode<'fd> {
    terminal: BorrowedFd<'fd>,
    before: rustix::termios::Termios,
}

impl<'fd> RawMode<'fd> {
    /// Puts `terminal` into raw mode. Fails with ENOTTY if it is not a terminal.
    pub fn enter(terminal: BorrowedFd<'fd>) -> Result<Self, Errno> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal, rustix::termios::OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        let restored = rustix::termios::tcsetattr(
            self.terminal,
            rustix::termios::OptionalActions::Drain,
            &self.before,
        );
        // EIO: the terminal is gone.
        debug_assert!(restored.is_ok() || restored == Err(Errno::IO));
    }
}
