//! Decoded byte streams of compressed archives: gzip, zstd, xz and plain files, with bounded memory.

use std::io::{BufRead, ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};

use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest as _, Sha256};

use crate::error::{Refusal, UnpackError};
use crate::gzip::GzipReader;
use crate::inflated::{Decoded, Piece};
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;
use spec::units::limit;

/// Maximum window of a zstd frame, in bytes: the window of `zstd --ultra -22`.
const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;
/// Memory limit of the xz decoder, in KiB: `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;
/// Size of one read of compressed bytes.
const INPUT_BYTES: usize = 128 * 1024;

/// The compression format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Plain,
    /// RFC 1952.
    Gzip,
    /// RFC 8878, one or more frames.
    Zstd,
    /// The .xz format, one or more streams.
    Xz,
}

impl Compression {
    /// The name of the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }
}

/// Computes the SHA-256 of the bytes read.
#[derive(Debug)]
pub struct Hashed<R> {
    source: R,
    hasher: Sha256,
}

impl<R> Hashed<R> {
    /// Hashes what is read of `source` from here on.
    pub fn new(source: R) -> Self {
        Self {
            source,
            hasher: Sha256::new(),
        }
    }

    /// The digest of the bytes that were read.
    pub fn digest(self) -> Digest {
        Digest::from_hasher(self.hasher)
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// The error of a decoder's source: decoders wrap errors, and this one must not be reported as damage.
type Failure = Arc<Mutex<Option<UnpackError>>>;

/// The buffered compressed bytes. [`std::io::BufReader`] would zero its whole buffer at the first read.
pub(crate) struct Input<R> {
    source: Counted<R>,
    buffered: Piece,
}

impl<R> Input<R> {
    /// Number of bytes that were consumed.
    pub(crate) fn consumed_bytes(&self) -> u64 {
        self.source.read_bytes - self.buffered.bytes().len() as u64
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.buffered.bytes().is_empty() {
            self.buffered.clear();
            self.buffered.read_from(&mut self.source)?;
        }
        Ok(self.buffered.bytes())
    }

    fn consume(&mut self, count: usize) {
        self.buffered.consume(count);
    }
}

/// Counts compressed bytes, and records errors of the source.
struct Counted<R> {
    source: R,
    read_bytes: u64,
    limit_bytes: u64,
    failure: Failure,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let failed = loop {
            match self.source.read(buffer) {
                Ok(count) => {
                    self.read_bytes = self.read_bytes.saturating_add(count as u64);
                    if self.read_bytes <= self.limit_bytes {
                        return Ok(count);
                    }
                    break UnpackError::Refused(
                        Refusal::new(
                            "compressed_bytes_limit",
                            format!(
                                "the archive is larger than {}, the limit for compressed bytes",
                                limit(&self.limit_bytes)
                            ),
                        )
                        .with_hint(Refusal::LEAVE_OUT),
                    );
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => break UnpackError::Read(error),
            }
        };
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(failed);
        Err(std::io::Error::other("the source of the data failed"))
    }
}

/// Decodes `source`, which may have at most `limit_bytes` compressed bytes. Every archive is read by this.
pub(crate) fn decode<'a>(
    _permit: &ParsePermit,
    source: impl Read + Send + 'a,
    compression: Compression,
    limit_bytes: u64,
) -> Decoded<'a> {
    let failure = Failure::default();
    let counted = Counted {
        source,
        read_bytes: 0,
        limit_bytes,
        failure: Arc::clone(&failure),
    };
    let input = Input {
        source: counted,
        buffered: Piece::new(INPUT_BYTES),
    };
    let decoder: Box<dyn Read + Send + 'a> = match compression {
        Compression::Plain => Box::new(input),
        Compression::Gzip => Box::new(GzipReader::new(input)),
        Compression::Zstd => Box::new(ZstdReader::new(input)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB_MAX)),
    };
    Decoded::new(decoder, move |source| {
        let kept = failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        kept.unwrap_or_else(|| malformed(compression, source))
    })
}

/// Converts a decoder's error.
fn malformed(compression: Compression, source: std::io::Error) -> UnpackError {
    if compression == Compression::Gzip && source.kind() == ErrorKind::UnexpectedEof {
        return UnpackError::Damaged(
            Refusal::new("gzip_truncated", "the gzip data ends in the middle")
                .with_hint(Refusal::MAKE_AGAIN),
        );
    }
    source
        .downcast()
        .unwrap_or_else(|source| UnpackError::Malformed {
            compression: compression.name(),
            source,
        })
}

/// Reads all frames of a zstd file in sequence. Skippable frames are not part of the data.
struct ZstdReader<R> {
    source: Input<R>,
    decoder: FrameDecoder,
    in_frame: bool,
    frames: u64,
}

impl<R: Read> ZstdReader<R> {
    fn new(source: Input<R>) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        Self {
            source,
            decoder,
            in_frame: false,
            frames: 0,
        }
    }

    /// Reads the header of the next data frame; `false` at the end.
    fn begin_frame(&mut self) -> std::io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return match self.frames {
                    0 => Err(std::io::Error::other("it has no frame")),
                    _ => Ok(false),
                };
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    (self.in_frame, self.frames) = (true, self.frames + 1);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.source).take(u64::from(length));
                    if std::io::copy(&mut skipped, &mut std::io::sink())? < u64::from(length) {
                        return Err(std::io::Error::other("a skippable frame is cut short"));
                    }
                }
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
    }

    fn end_frame(&mut self) -> std::io::Result<()> {
        self.in_frame = false;
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            return Err(std::io::Error::other("the checksum of a frame is wrong"));
        }
        Ok(())
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if !self.in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder
                    .decode_blocks(&mut self.source, some)
                    .map_err(std::io::Error::other)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.end_frame()?;
        }
    }
}
