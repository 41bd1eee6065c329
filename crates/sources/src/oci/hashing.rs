//! A file that is hashed while it is written.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};

use sha2::Digest as _;

use spec::digest::Digest;

pub(super) struct HashingFile {
    pub(super) file: File,
    hasher: sha2::Sha256,
    bytes: u64,
}

impl HashingFile {
    /// Pass the content that `file` already has to [`HashingFile::update`].
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            hasher: sha2::Sha256::new(),
            bytes: 0,
        }
    }

    /// Hashes bytes that are already in the file.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = sha2::Sha256::new();
        self.bytes = 0;
        Ok(())
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::from_hasher(self.hasher.clone())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Write for HashingFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write(buffer)?;
        self.update(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
