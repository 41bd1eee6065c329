//! Inherited descriptors.

use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};

use super::process::last_errno;

/// Duplicates an inherited descriptor, close-on-exec and above 2. Fails with EBADF if it is closed.
pub fn duplicate_inherited(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: fcntl F_DUPFD_CLOEXEC takes plain integers and accesses no memory.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just made this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Lets the child that `command` starts inherit this descriptor, with the number that it has here. It stays
/// close-on-exec here, so that no child of another thread inherits it. Closed with `command`.
pub fn inherit(command: &mut Command, fd: OwnedFd) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || Ok(rustix::io::fcntl_setfd(&fd, FdFlags::empty())?)) };
}

/// Opens /dev/null in place of each standard descriptor that is closed: a file that is opened later
/// would get its number, and what is printed. Call it before anything else is opened. Fails with the
/// errno of open(2).
pub fn open_closed_standard_descriptors() -> Result<(), Errno> {
    for standard in 0..=2 {
        // SAFETY: fcntl F_GETFD takes plain integers and accesses no memory.
        let flags = unsafe { libc::fcntl(standard, libc::F_GETFD) };
        if flags >= 0 || last_errno() != Errno::BADF {
            continue;
        }
        // It gets the lowest free number, and those below are open.
        let opened = rustix::fs::open(c"/dev/null", OFlags::RDWR, Mode::empty())?.into_raw_fd();
        debug_assert_eq!(opened, standard);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_child_inherits_the_descriptor_that_it_is_given_alone() {
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").expect("opened"));
        let (inherited, other) = (open(), open());
        let numbers = [inherited.as_raw_fd(), other.as_raw_fd()];
        let text = "for fd; do test -e /proc/self/fd/$fd && echo $fd; done; true";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text, "sh"]);
        command.args(numbers.map(|number| number.to_string()));
        inherit(&mut command, inherited);
        let output = command.output().expect("started");
        let expected = format!("{}\n", numbers[0]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_an_error() {
        assert_eq!(duplicate_inherited(1_000_000).map(drop), Err(Errno::BADF));
        let copy = duplicate_inherited(1).expect("descriptor 1 is open");
        assert!(2 < copy.as_raw_fd());
    }
}
