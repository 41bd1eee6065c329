//! A terminal of the test's own, on which a program's words appear.

use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

use rustix::pty::OpenptFlags;

/// What `\r\x1b[K` does to the line that stands there.
pub const ERASED: &str = "\r\u{1b}[K";

/// The end for a program, and what was shown there once nobody has that end any more.
pub fn open() -> (OwnedFd, JoinHandle<String>) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::grantpt(&terminal).expect("granted");
    rustix::pty::unlockpt(&terminal).expect("unlocked");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("a name");
    let screen: OwnedFd = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().expect("text"))
        .expect("opened")
        .into();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        // EIO: nobody has the other end any more (pty(7)).
        while let Ok(count) = rustix::io::read(terminal.as_fd(), &mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8(all).expect("text")
    });
    (screen, reader)
}
