//! Copies a file through two descriptors and hashes exactly the bytes that were written.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, retry_on_intr};
use sha2::Digest as _;

use spec::digest::Digest;
use sys::file::write_all;

/// Large enough that the calls cost little beside the hashing.
pub(super) const BUFFER_BYTES: usize = 256 * 1_024;

/// Why a copy is incomplete.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CopyError {
    /// read(2) failed.
    Read(Errno),
    /// write(2) failed.
    Write(Errno),
    /// The source ended before its checked size.
    Shrank,
    /// The source continues after its checked size.
    Grew,
}

/// Copies exactly `bytes` bytes from `source` to `sink` and returns their digest.
///
/// A plain loop: the digest needs the bytes anyway, so copy_file_range(2) would save nothing.
pub(super) fn copy_hashed(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    bytes: u64,
    buffer: &mut [u8],
) -> Result<Digest, CopyError> {
    let mut hasher = sha2::Sha256::new();
    let mut left = bytes;
    while left > 0 {
        let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = retry_on_intr(|| rustix::io::read(source, &mut buffer[..room]))
            .map_err(CopyError::Read)?;
        if read == 0 {
            return Err(CopyError::Shrank);
        }
        let chunk = &buffer[..read];
        hasher.update(chunk);
        write_all(sink, chunk).map_err(CopyError::Write)?;
        left -= read as u64;
    }
    // One byte more shows that the file grew, or that its size is not its length, as in procfs.
    match retry_on_intr(|| rustix::io::read(source, &mut buffer[..1])).map_err(CopyError::Read)? {
        0 => Ok(Digest::from_hasher(hasher)),
        _ => Err(CopyError::Grew),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, Write as _};
    use std::os::fd::AsFd as _;

    fn copy(content: &[u8], judged_bytes: u64) -> (Result<Digest, CopyError>, Vec<u8>) {
        let mut source = tempfile::tempfile().expect("a file");
        source.write_all(content).expect("written");
        source.rewind().expect("rewound");
        let sink = tempfile::NamedTempFile::new().expect("a file");
        let result = copy_hashed(
            source.as_fd(),
            sink.as_file().as_fd(),
            judged_bytes,
            &mut [0; 4_096],
        );
        (result, std::fs::read(sink.path()).expect("read"))
    }

    #[test]
    fn the_digest_is_that_of_the_bytes_that_were_written() {
        let content = vec![7_u8; BUFFER_BYTES * 2 + 1];
        let (result, written) = copy(&content, content.len() as u64);
        assert_eq!(result, Ok(Digest::of(&content)));
        assert_eq!(written, content);
        assert_eq!(copy(b"", 0).0, Ok(Digest::of(b"")));
    }

    #[test]
    fn a_file_that_changes_its_size_while_it_is_copied_is_noticed() {
        assert_eq!(copy(b"12345", 4).0, Err(CopyError::Grew));
        assert_eq!(copy(b"12345", 6).0, Err(CopyError::Shrank));
        assert_eq!(copy(b"1", 0).0, Err(CopyError::Grew));
    }

    /// D-28: short reads.
    #[test]
    fn a_pipe_that_gives_a_byte_at_a_time_is_copied_whole() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || {
            for byte in 0..100_u8 {
                writer.write_all(&[byte]).expect("written");
            }
        });
        let sink = tempfile::tempfile().expect("a file");
        let result = copy_hashed(reader.as_fd(), sink.as_fd(), 100, &mut [0; 4_096]);
        thread.join().expect("joined");
        assert_eq!(result, Ok(Digest::of(&(0..100).collect::<Vec<u8>>())));
    }
}
