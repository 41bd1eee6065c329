//! zstd, xz and plain files as inflated bytes, each within a
//! bound of memory.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::UnpackError;
use crate::gzip::GzipError;
use crate::inflated::Decoded;

/// Largest window of a zstd frame, in bytes: `zstd --ultra -22` takes as much.
const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;
/// Most memory of the xz decoder, in KiB: `xz -9` takes 65 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;
/// Compressed bytes that are read at once.
const INPUT_BYTES: usize = 128 * 1024;

/// How an archive is compressed.
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
    /// Its name.
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

/// What a decoder's source could not do, so that it is not taken for damage.
type Failure = Arc<Mutex<Option<UnpackError>>>;

/// Counts compressed bytes, and keeps the source's own errors.
struct Counted<R> {
    source: R,
    left_bytes: u64,
    limit_bytes: u64,
    failure: Failure,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let failed = match self.source.read(buffer) {
            Ok(count) => match self.left_bytes.checked_sub(count as u64) {
                Some(left_bytes) => {
                    self.left_bytes = left_bytes;
                    return Ok(count);
                }
                None => GzipError::TooLarge {
                    limit_bytes: self.limit_bytes,
                },
            },
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Err(error),
            Err(error) => GzipError::Read(error),
        };
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(UnpackError::Gzip(failed));
        Err(std::io::Error::other("the source of the data failed"))
    }
}

/// `source` with at most `limit_bytes` compressed bytes, through `decoder`.
fn decoded<R: Read, D: Read>(
    source: R,
    limit_bytes: u64,
    compression: Compression,
    decoder: impl FnOnce(Counted<R>) -> D,
) -> Decoded<D, impl Fn(std::io::Error) -> UnpackError + Send> {
    let failure = Failure::default();
    let counted = Counted {
        source,
        left_bytes: limit_bytes,
        limit_bytes,
        failure: Arc::clone(&failure),
    };
    Decoded::new(decoder(counted), move |source| {
        let mut kept = failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take().unwrap_or(UnpackError::Malformed {
            compression: compression.name(),
            source,
        })
    })
}

/// The bytes of a file that is not compressed.
pub(crate) fn plain<R: Read + Send>(
    source: R,
    limit_bytes: u64,
) -> Decoded<impl Read + Send, impl Fn(std::io::Error) -> UnpackError + Send> {
    decoded(source, limit_bytes, Compression::Plain, |counted| counted)
}

/// The bytes of a zstd file.
pub(crate) fn zstd<R: Read + Send>(
    source: R,
    limit_bytes: u64,
) -> Decoded<impl Read + Send, impl Fn(std::io::Error) -> UnpackError + Send> {
    decoded(source, limit_bytes, Compression::Zstd, ZstdReader::new)
}

/// The bytes of an xz file.
pub(crate) fn xz<R: Read + Send>(
    source: R,
    limit_bytes: u64,
) -> Decoded<impl Read + Send, impl Fn(std::io::Error) -> UnpackError + Send> {
    decoded(source, limit_bytes, Compression::Xz, |counted| {
        let input = BufReader::with_capacity(INPUT_BYTES, counted);
        XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB_MAX)
    })
}

/// All frames of a zstd file, one after the other; what is in skippable frames is none of the data.
struct ZstdReader<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    in_frame: bool,
    frames: u64,
}

impl<R: Read> ZstdReader<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        Self {
            source: BufReader::with_capacity(INPUT_BYTES, source),
            decoder,
            in_frame: false,
            frames: 0,
        }
    }

    /// Reads the header of the next frame with data; `false`: there is none.
    fn begin_frame(&mut self) -> std::io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return match self.frames {
                    0 => Err(std::io::Error::other("there is no frame in it")),
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
            if 0 < count || buffer.is_empty() {
                return Ok(count);
            }
            self.end_frame()?;
        }
    }
}
