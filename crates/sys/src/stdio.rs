//! The three standard descriptors of this process, and descriptors that its caller passed on.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::file::CallError;

/// Opens /dev/null in the place of each of the descriptors 0, 1 and 2 that is closed.
///
/// Without it the first file that is opened becomes standard output, and what is printed lands in
/// it. Rust's start-up code does the same today and promises nothing. To be called first, while
/// nothing else of this process opens descriptors.
///
/// # Errors
/// The call that failed: open(2) of /dev/null, or fcntl(2).
pub fn open_missing() -> Result<(), CallError> {
    for fd in 0..=2 {
        match is_open(fd) {
            Ok(true) => (),
            Ok(false) => take_place(fd)?,
            Err(errno) => {
                return Err(CallError::new(
                    "fcntl F_GETFD",
                    format!("descriptor {fd}"),
                    errno,
                ));
            }
        }
    }
    Ok(())
}

/// A copy of a descriptor that the caller left open for us, close-on-exec and above 2.
///
/// # Errors
/// EBADF where it is not open; EMFILE.
pub fn duplicate_inherited(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: fcntl F_DUPFD_CLOEXEC takes plain integers and touches no memory of ours.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just made this descriptor and nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn is_open(fd: RawFd) -> Result<bool, Errno> {
    // SAFETY: fcntl F_GETFD takes plain integers and touches no memory of ours.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1 {
        return Ok(true);
    }
    match last_errno() {
        Errno::BADF => Ok(false),
        errno => Err(errno),
    }
}

fn take_place(fd: RawFd) -> Result<(), CallError> {
    // Reading gives end of file, writing succeeds, as for a program that was started properly.
    let opened = rustix::fs::open(c"/dev/null", OFlags::RDWR, Mode::empty())
        .map_err(|errno| CallError::new("open", "/dev/null", errno))?;
    if opened.as_raw_fd() == fd {
        // The lowest free number was the one that is missing: it stays open for good.
        std::mem::forget(opened);
        return Ok(());
    }
    // SAFETY: dup2 takes plain integers; `fd` is closed, so nobody's descriptor is replaced.
    if unsafe { libc::dup2(opened.as_raw_fd(), fd) } < 0 {
        return Err(CallError::new(
            "dup2",
            format!("descriptor {fd}"),
            last_errno(),
        ));
    }
    Ok(())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_standard_descriptor_becomes_dev_null() {
        // In a child, which has descriptors of its own: the tests share ours.
        // SAFETY: the child makes system calls only and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for fd in [0, 2] {
                // SAFETY: closes a descriptor of this child, which no Rust value owns.
                unsafe { libc::close(fd) };
            }
            let opened = open_missing().is_ok();
            let same = [0, 2].iter().all(|fd| {
                duplicate_inherited(*fd)
                    .and_then(rustix::fs::fstat)
                    .is_ok_and(|stat| stat.st_rdev == rustix::fs::makedev(1, 3))
            });
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!(opened && same))) };
        }
        let mut status = -1;
        // SAFETY: `status` is ours and outlives the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
    }

    #[test]
    fn a_descriptor_that_nobody_passed_is_an_error() {
        assert_eq!(duplicate_inherited(1_000_000).map(drop), Err(Errno::BADF));
        let copy = duplicate_inherited(1).expect("descriptor 1 is open");
        assert!(2 < copy.as_raw_fd());
    }
}
