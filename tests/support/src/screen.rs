//! A pseudoterminal that records the output of a program.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;

/// `\r\x1b[K` clears the current line.
pub const ERASED: &str = "\r\u{1b}[K";
/// How long to wait for a text.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was written to a terminal.
pub struct Screen {
    text: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<String>,
}

impl Screen {
    /// What was written so far.
    pub fn text(&self) -> String {
        let bytes = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `part` was written.
    #[track_caller]
    pub fn until(&self, part: &str) {
        let started = Instant::now();
        while !self.text().contains(part) {
            let text = self.text();
            assert!(started.elapsed() < PATIENCE, "no {part:?} in {text:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// All text, once no process has the terminal open.
    pub fn join(self) -> String {
        self.reader.join().expect("joined")
    }
}

/// The end for a program, and the recorded output once no process has that end open.
pub fn open() -> (OwnedFd, JoinHandle<String>) {
    let (end, screen) = open_live();
    (end, screen.reader)
}

/// The end for a program, and what it writes, while it writes.
pub fn open_live() -> (OwnedFd, Screen) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::grantpt(&terminal).expect("granted");
    rustix::pty::unlockpt(&terminal).expect("unlocked");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("a name");
    let end: OwnedFd = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().expect("text"))
        .expect("opened")
        .into();
    let text = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&text);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // EIO: no process has the other end open (pty(7)).
        while let Ok(count) = rustix::io::read(terminal.as_fd(), &mut buffer) {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&buffer[..count]);
        }
        let all = all.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(all.clone()).expect("text")
    });
    (end, Screen { text, reader })
}
