//! Where the bytes of a tar come from: gzip, zstd, xz or a plain file, in pieces of a buffer.

use std::io::Read;

use sha2::{Digest as _, Sha256};

use crate::error::UnpackError;
use spec::digest::Digest;

/// Inflated bytes that are held at once: most files leave in one write(2).
const OUTPUT_BYTES: usize = 256 * 1024;

/// Where inflated bytes come from.
///
/// Bytes come before their checksum is known: nothing that they caused may be used until the end
/// was reached.
pub(crate) trait Inflated {
    /// The bytes at hand; empty only after the whole file was read and found whole.
    ///
    /// # Errors
    /// The first thing that is wrong on the way.
    fn chunk(&mut self) -> Result<&[u8], UnpackError>;

    /// Marks `count` bytes of the last [`Self::chunk`] as used.
    fn consume(&mut self, count: usize);
}

/// Inflated bytes in a buffer of their own.
pub(crate) struct Piece {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Piece {
    /// Room for as many bytes as are held at once.
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; OUTPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// What was not used yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Marks `count` bytes as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start.saturating_add(count));
    }
}

/// A decoder that reads, as [`Inflated`].
pub(crate) struct Decoded<'a> {
    decoder: Box<dyn Read + Send + 'a>,
    /// The meaning of an error of the decoder.
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
            output: Piece::new(),
        }
    }

    /// Returns the bytes at hand in their buffer, which `empty` replaces; no bytes at the end.
    ///
    /// # Errors
    /// As [`Inflated::chunk`].
    pub(crate) fn next_piece(&mut self, empty: Piece) -> Result<Piece, UnpackError> {
        self.chunk()?;
        Ok(std::mem::replace(&mut self.output, empty))
    }
}

impl Inflated for Decoded<'_> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        if self.output.bytes().is_empty() {
            let Piece { buffer, start, end } = &mut self.output;
            (*start, *end) = (0, 0);
            while *end < buffer.len() {
                match self.decoder.read(&mut buffer[*end..]) {
                    Ok(0) => break,
                    Ok(count) => *end += count,
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

/// Hashes what is used of the bytes, and asks at each piece whether anybody still wants them.
pub(crate) struct Watched<'a, S> {
    source: S,
    hasher: Sha256,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a, S: Inflated> Watched<'a, S> {
    pub(crate) fn new(source: S, is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self {
            source,
            hasher: Sha256::new(),
            is_cancelled,
        }
    }

    /// The digest of all that was used, and the source.
    pub(crate) fn finish(self) -> (Digest, S) {
        (Digest::from_hasher(self.hasher), self.source)
    }
}

impl<S: Inflated> Inflated for Watched<'_, S> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        if (self.is_cancelled)() {
            return Err(UnpackError::Cancelled);
        }
        self.source.chunk()
    }

    fn consume(&mut self, count: usize) {
        // What was at hand is at hand still: no error can come of asking again.
        if let Ok(chunk) = self.source.chunk() {
            self.hasher.update(chunk.get(..count).unwrap_or(chunk));
        }
        self.source.consume(count);
    }
}
