//! Sources of tar bytes: gzip, zstd, xz or a plain file, in buffered pieces.

use std::io::Read;

use sha2::{Digest as _, Sha256};

use crate::error::UnpackError;
use spec::digest::Digest;

/// Size of the buffer of inflated bytes: most files fit into one write(2).
const OUTPUT_BYTES: usize = 256 * 1024;
/// First size of a buffer. A small archive must not touch the pages of a full one: each is a page fault
/// in a new process.
const FIRST_BYTES: usize = 16 * 1024;

/// A source of inflated bytes.
///
/// Bytes are returned before their checksum is verified: results may be used only after the end is
/// reached.
pub(crate) trait Inflated {
    /// The available bytes; empty only after the whole file is read and valid.
    fn chunk(&mut self) -> Result<&[u8], UnpackError>;

    /// Marks `count` bytes of the last [`Self::chunk`] as consumed.
    fn consume(&mut self, count: usize);
}

/// Bytes with their own buffer, which doubles up to its limit as often as it is full.
pub(crate) struct Piece {
    buffer: Vec<u8>,
    bytes_max: usize,
    start: usize,
    end: usize,
}

impl Piece {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            bytes_max,
            start: 0,
            end: 0,
        }
    }

    /// An empty piece of inflated bytes.
    pub(crate) fn of_output() -> Self {
        Self::new(OUTPUT_BYTES)
    }

    /// Drops the bytes.
    pub(crate) fn clear(&mut self) {
        if self.is_full() && self.end < self.bytes_max {
            let bytes = self.end.saturating_mul(2).max(FIRST_BYTES);
            self.buffer = vec![0; bytes.min(self.bytes_max)];
        }
        (self.start, self.end) = (0, 0);
    }

    fn is_full(&self) -> bool {
        self.end == self.buffer.len()
    }

    /// Appends the bytes of one call of `read`; returns their number, 0 at the end.
    pub(crate) fn read_from(&mut self, source: &mut dyn Read) -> std::io::Result<usize> {
        let count = source.read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// The bytes that are not consumed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start.saturating_add(count));
    }
}

/// Adapts a decoder that implements `Read` to [`Inflated`].
pub(crate) struct Decoded<'a> {
    decoder: Box<dyn Read + Send + 'a>,
    /// Converts an error of the decoder.
    failed: Box<dyn Fn(std::io::Error) -> UnpackError + Send>,
    output: Piece,
}

impl<'a> Decoded<'a> {
    pub(crate) fn new(
        decoder: Box<dyn Read + Send + 'a>,
        failed: impl Fn(std::io::Error) -> UnpackError + Send + 'static,
    ) -> Self {
        Self {
            decoder,
            failed: Box::new(failed),
            output: Piece::of_output(),
        }
    }

    /// Returns the available bytes in their buffer, which `empty` replaces; no bytes at the end.
    pub(crate) fn next_piece(&mut self, empty: Piece) -> Result<Piece, UnpackError> {
        self.chunk()?;
        Ok(std::mem::replace(&mut self.output, empty))
    }
}

impl Inflated for Decoded<'_> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        if self.output.bytes().is_empty() {
            self.output.clear();
            while !self.output.is_full() {
                match self.output.read_from(&mut self.decoder) {
                    Ok(0) => break,
                    Ok(_) => (),
                    Err(error) => return Err((self.failed)(error)),
                }
            }
        }
        Ok(self.output.bytes())
    }

    fn consume(&mut self, count: usize) {
        self.output.consume(count);
    }
}

/// Hashes the consumed bytes, and checks for cancellation at each piece.
pub(crate) struct Cancellable<'a, S> {
    source: S,
    hasher: Sha256,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a, S: Inflated> Cancellable<'a, S> {
    pub(crate) fn new(source: S, is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self {
            source,
            hasher: Sha256::new(),
            is_cancelled,
        }
    }

    /// The digest of all consumed bytes, and the source.
    pub(crate) fn finish(self) -> (Digest, S) {
        (Digest::from_hasher(self.hasher), self.source)
    }
}

impl<S: Inflated> Inflated for Cancellable<'_, S> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        if (self.is_cancelled)() {
            return Err(UnpackError::Cancelled);
        }
        self.source.chunk()
    }

    fn consume(&mut self, count: usize) {
        // The bytes are already available, so this call cannot fail.
        if let Ok(chunk) = self.source.chunk() {
            self.hasher.update(chunk.get(..count).unwrap_or(chunk));
        }
        self.source.consume(count);
    }
}
