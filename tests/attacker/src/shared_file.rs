//! A file that a process shares which may open none.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::ptr;

use crate::Attack;

/// Two halves: others write an attack to the first, which leaves its notes in the second.
const HALF_BYTES: usize = 64 << 10;

/// A file that is mapped, so that it is read and written without system calls.
pub struct SharedFile(&'static mut [u8]);

impl SharedFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// That of open(2), ftruncate(2) or mmap(2).
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.mode(0o600).open(path)?;
        file.set_len(2 * HALF_BYTES as u64)?;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                2 * HALF_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping has this length and stays; only bytes of tests change in it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast(), 2 * HALF_BYTES) };
        Ok(Self(bytes))
    }

    /// [`crate::trigger`] for what others have written.
    pub fn trigger(&mut self, parser: &str) {
        if let Some(attack) = Attack::find(parser, &self.0[..HALF_BYTES]) {
            attack.carry_out(Some(self));
        }
    }

    /// The length in eight bytes, little-endian, comes last, so that who waits for it sees all.
    pub(crate) fn note(&mut self, text: &str) {
        let (length, place) = self.0[HALF_BYTES..].split_at_mut(8);
        place[..text.len()].copy_from_slice(text.as_bytes());
        length.copy_from_slice(&(text.len() as u64).to_le_bytes());
    }
}
