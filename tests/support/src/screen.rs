//! A pseudoterminal that records the output of a program.

use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

use rustix::pty::OpenptFlags;

/// `\r\x1b[K` clears the current line.
pub const ERASED: &str = "\r\u{1b}[K";

/// The end for a program, and the recorded output once no process has that end open.
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
        // EIO: no process has the other end open (pty(7)).
        while let Ok(count) = rustix::io::read(terminal.as_fd(), &mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8(all).expect("text")
    });
    (screen, reader)
}
