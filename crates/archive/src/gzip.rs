//! gzip (RFC 1952) as a stream of checked bytes: header, deflate, CRC-32, length, members, nothing after.
//!
//! Several members are read as one stream, as gzip(1) does, so a tar that is split over members
//! gets the verdict of the whole. Anything after the last member is refused: two readers could
//! disagree about it. Name and comment of the header are skipped and never used.

use std::io::{ErrorKind, Read};

use flate2::{Crc, Decompress, FlushDecompress, Status};
use sha2::{Digest as _, Sha256};

use crate::error::UnpackError;
use crate::inflated::{Inflated, Piece, Pieces};
use spec::digest::Digest;
use spec::units::limit;

/// Compressed bytes that are read at once.
const INPUT_BYTES: usize = 128 * 1024;
/// Longest name or comment in a gzip header that is skipped, in bytes.
const HEADER_TEXT_BYTES_MAX: usize = 64 * 1024;

const FLAG_HEADER_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;
const FLAGS_RESERVED: u8 = 0xe0;

/// Why a byte stream is not one whole gzip file.
#[derive(Debug, thiserror::Error)]
pub enum GzipError {
    /// The archive could not be read.
    #[error("the archive could not be read")]
    Read(#[source] std::io::Error),
    /// The first bytes are not a gzip header.
    #[error("this is {found}; expected a gzip-compressed tar")]
    NotGzip {
        /// What the bytes look like.
        found: &'static str,
    },
    /// A compression method other than deflate.
    #[error("the gzip header names compression method {method}; expected 8 (deflate)")]
    Method {
        /// The byte that was found.
        method: u8,
    },
    /// Flags that RFC 1952 reserves.
    #[error("the gzip header has reserved flags ({flags:#04x}); expected none")]
    ReservedFlags {
        /// The byte that was found.
        flags: u8,
    },
    /// The CRC-16 of the header is wrong.
    #[error("the checksum of the gzip header is {stated:#06x}; expected {computed:#06x}")]
    HeaderChecksum {
        /// What the header says.
        stated: u16,
        /// What its bytes give.
        computed: u16,
    },
    /// Name or comment in the header does not end.
    #[error("the gzip header's name or comment is longer than {HEADER_TEXT_BYTES_MAX} bytes")]
    HeaderText,
    /// The stream ends inside a member.
    #[error("the gzip data ends in the middle of {part}")]
    Truncated {
        /// Header, data or trailer.
        part: &'static str,
    },
    /// The deflate data is malformed.
    #[error("the deflate data is malformed after {inflated_bytes} bytes")]
    Deflate {
        /// How far the member could be inflated.
        inflated_bytes: u64,
        /// What the decoder says.
        #[source]
        source: flate2::DecompressError,
    },
    /// The deflate data asks for a dictionary, or the decoder makes no progress.
    #[error("the deflate data cannot be continued after {inflated_bytes} bytes")]
    Stalled {
        /// How far the member could be inflated.
        inflated_bytes: u64,
    },
    /// The CRC-32 in the trailer is wrong.
    #[error("the gzip checksum is {stated:#010x}; the data gives {computed:#010x}")]
    Checksum {
        /// What the trailer says.
        stated: u32,
        /// What the data gives.
        computed: u32,
    },
    /// The length in the trailer is wrong.
    #[error("the gzip trailer says {stated} bytes (modulo 2^32); the data has {computed}")]
    Length {
        /// What the trailer says.
        stated: u32,
        /// What the data gives.
        computed: u32,
    },
    /// Bytes after the last member.
    #[error("bytes that are not gzip follow the gzip data, from byte {at} on; expected the end")]
    TrailingBytes {
        /// Offset of the first of them.
        at: u64,
    },
    /// More compressed bytes than allowed.
    #[error("the archive is larger than {}, the limit for compressed bytes", limit(.limit_bytes))]
    TooLarge { limit_bytes: u64 },
}

impl GzipError {
    /// Stable name of the cause.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Read(_) => "archive_unreadable",
            Self::NotGzip { .. } => "not_gzip",
            Self::Method { .. } => "gzip_method",
            Self::ReservedFlags { .. } => "gzip_reserved_flags",
            Self::HeaderChecksum { .. } => "gzip_header_checksum",
            Self::HeaderText => "gzip_header_text",
            Self::Truncated { .. } => "gzip_truncated",
            Self::Deflate { .. } | Self::Stalled { .. } => "gzip_malformed",
            Self::Checksum { .. } => "gzip_checksum",
            Self::Length { .. } => "gzip_length",
            Self::TrailingBytes { .. } => "gzip_trailing_bytes",
            Self::TooLarge { .. } => "compressed_bytes_limit",
        }
    }
}

/// What the first bytes of a file look like; `None` where they look like nothing known.
pub(crate) fn looks_like(start: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"\x1f\x8b", "gzip data"),
        (b"\x1f\x9d", "a compress (.Z) file"),
        (b"PK\x03\x04", "a zip archive"),
        (b"PK\x05\x06", "an empty zip archive"),
        (b"\xfd7zXZ\0", "an xz archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"BZh", "a bzip2 archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!", "a rar archive"),
        (b"LZIP", "an lzip archive"),
        (b"\x04\x22\x4d\x18", "an lz4 archive"),
        (b"!<arch>\n", "an ar archive"),
        (b"070701", "a cpio archive"),
        (b"\x7fELF", "an ELF binary"),
        (b"<", "an HTML or XML text"),
        (b"{", "a JSON text"),
        (b"#!", "a script"),
        (b"version https://git-lfs", "a Git LFS pointer"),
    ];
    if start.is_empty() {
        return Some("an empty file");
    }
    if start.get(257..262) == Some(b"ustar") {
        return Some("a plain tar archive");
    }
    KNOWN
        .iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map(|(_, name)| *name)
}

/// The compressed bytes: read in large pieces, hashed and counted as they come.
struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
    read_bytes: u64,
    limit_bytes: u64,
    hasher: Sha256,
}

impl<R: Read> Input<R> {
    /// The bytes at hand, after reading where there were none; empty at the end.
    fn fill(&mut self) -> Result<&[u8], GzipError> {
        while self.start == self.end && !self.ended {
            let count = match self.source.read(&mut self.buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(GzipError::Read(error)),
            };
            let piece = self.buffer.get(..count).unwrap_or_default();
            self.hasher.update(piece);
            self.read_bytes = self.read_bytes.saturating_add(count as u64);
            if self.limit_bytes < self.read_bytes {
                return Err(GzipError::TooLarge {
                    limit_bytes: self.limit_bytes,
                });
            }
            (self.start, self.end, self.ended) = (0, piece.len(), count == 0);
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn byte(&mut self) -> Result<Option<u8>, GzipError> {
        let byte = self.fill()?.first().copied();
        self.start += usize::from(byte.is_some());
        Ok(byte)
    }

    fn position(&self) -> u64 {
        self.read_bytes - (self.end - self.start) as u64
    }
}

/// Where in the gzip file the next byte lies.
#[derive(PartialEq)]
enum State {
    BeforeMember,
    InData,
    Ended,
}

/// Reads the inflated bytes of a gzip file.
pub(crate) struct GzipReader<R> {
    input: Input<R>,
    inflate: Decompress,
    crc: Crc,
    header_crc: Crc,
    members: u64,
    state: State,
    output: Piece,
}

impl<R: Read> Inflated for GzipReader<R> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        self.fill()?;
        Ok(self.output.bytes())
    }

    fn consume(&mut self, count: usize) {
        self.output.consume(count);
    }
}

impl<R: Read> Pieces for GzipReader<R> {
    fn next_piece(&mut self, empty: Piece) -> Result<Piece, UnpackError> {
        self.fill()?;
        Ok(std::mem::replace(&mut self.output, empty))
    }
}

impl<R: Read> GzipReader<R> {
    /// A reader of `source` that refuses more than `limit_bytes` compressed bytes.
    pub(crate) fn new(source: R, limit_bytes: u64) -> Self {
        Self {
            input: Input {
                source,
                buffer: vec![0; INPUT_BYTES].into_boxed_slice(),
                start: 0,
                end: 0,
                ended: false,
                read_bytes: 0,
                limit_bytes,
                hasher: Sha256::new(),
            },
            inflate: Decompress::new(false),
            crc: Crc::new(),
            header_crc: Crc::new(),
            members: 0,
            state: State::BeforeMember,
            output: Piece::new(),
        }
    }

    fn fill(&mut self) -> Result<(), GzipError> {
        while self.output.bytes().is_empty() {
            match self.state {
                State::BeforeMember => self.member_header()?,
                State::InData => self.inflate_some()?,
                State::Ended => break,
            }
        }
        Ok(())
    }

    /// SHA-256 of every compressed byte; meaningful once [`Inflated::chunk`] has ended.
    pub(crate) fn archive_digest(self) -> Digest {
        Digest::from_hasher(self.input.hasher)
    }

    fn member_header(&mut self) -> Result<(), GzipError> {
        let at = self.input.position();
        let first = self.input.fill()?;
        if first.is_empty() && 0 < self.members {
            self.state = State::Ended;
            return Ok(());
        }
        let found = looks_like(first).unwrap_or("no gzip file");
        let not_gzip = |members: u64| match members {
            0 => GzipError::NotGzip { found },
            _ => GzipError::TrailingBytes { at },
        };
        self.header_crc.reset();
        for expected in [0x1f, 0x8b] {
            match self.input.byte()? {
                Some(byte) if byte == expected => self.header_crc.update(&[byte]),
                _ => return Err(not_gzip(self.members)),
            }
        }
        let method = self.header_byte()?;
        if method != 8 {
            return Err(GzipError::Method { method });
        }
        let flags = self.header_byte()?;
        if flags & FLAGS_RESERVED != 0 {
            return Err(GzipError::ReservedFlags { flags });
        }
        // Time, extra flags, operating system.
        for _ in 0..6 {
            self.header_byte()?;
        }
        if flags & FLAG_EXTRA != 0 {
            let length = u16::from_le_bytes([self.header_byte()?, self.header_byte()?]);
            for _ in 0..length {
                self.header_byte()?;
            }
        }
        for flag in [FLAG_NAME, FLAG_COMMENT] {
            if flags & flag != 0 {
                self.skip_header_text()?;
            }
        }
        if flags & FLAG_HEADER_CRC != 0 {
            let [low, high, ..] = self.header_crc.sum().to_le_bytes();
            let computed = u16::from_le_bytes([low, high]);
            let stated = u16::from_le_bytes([self.header_byte()?, self.header_byte()?]);
            if stated != computed {
                return Err(GzipError::HeaderChecksum { stated, computed });
            }
        }
        self.inflate.reset(false);
        self.crc.reset();
        self.members += 1;
        self.state = State::InData;
        Ok(())
    }

    fn header_byte(&mut self) -> Result<u8, GzipError> {
        let part = "its header";
        let byte = self.input.byte()?.ok_or(GzipError::Truncated { part })?;
        self.header_crc.update(&[byte]);
        Ok(byte)
    }

    fn skip_header_text(&mut self) -> Result<(), GzipError> {
        for _ in 0..HEADER_TEXT_BYTES_MAX {
            if self.header_byte()? == 0 {
                return Ok(());
            }
        }
        Err(GzipError::HeaderText)
    }

    /// Fills the output as far as the data reaches.
    fn inflate_some(&mut self) -> Result<(), GzipError> {
        let Piece { buffer, start, end } = &mut self.output;
        (*start, *end) = (0, 0);
        while *end < buffer.len() {
            let input = self.input.fill()?;
            let ended = input.is_empty();
            let (read_before, wrote_before) = (self.inflate.total_in(), self.inflate.total_out());
            let room = &mut buffer[*end..];
            let status = self
                .inflate
                .decompress(input, room, FlushDecompress::None)
                .map_err(|source| GzipError::Deflate {
                    inflated_bytes: wrote_before,
                    source,
                })?;
            let read = usize_of(self.inflate.total_in() - read_before);
            let wrote = usize_of(self.inflate.total_out() - wrote_before);
            self.crc.update(&room[..wrote]);
            self.input.start += read;
            *end += wrote;
            if status == Status::StreamEnd {
                return self.member_trailer();
            }
            if read == 0 && wrote == 0 {
                let inflated_bytes = self.inflate.total_out();
                return Err(match ended {
                    true => GzipError::Truncated { part: "its data" },
                    false => GzipError::Stalled { inflated_bytes },
                });
            }
        }
        Ok(())
    }

    fn member_trailer(&mut self) -> Result<(), GzipError> {
        let mut trailer = [0; 8];
        for byte in &mut trailer {
            let part = "its trailer";
            *byte = self.input.byte()?.ok_or(GzipError::Truncated { part })?;
        }
        let [c0, c1, c2, c3, l0, l1, l2, l3] = trailer;
        let (stated, computed) = (u32::from_le_bytes([c0, c1, c2, c3]), self.crc.sum());
        if stated != computed {
            return Err(GzipError::Checksum { stated, computed });
        }
        let stated = u32::from_le_bytes([l0, l1, l2, l3]);
        let [l0, l1, l2, l3, ..] = self.inflate.total_out().to_le_bytes();
        let computed = u32::from_le_bytes([l0, l1, l2, l3]);
        if stated != computed {
            return Err(GzipError::Length { stated, computed });
        }
        self.state = State::BeforeMember;
        Ok(())
    }
}

/// Gives the bytes that `source` inflates to `sink`, piece by piece; the digest of `source`.
///
/// # Errors
/// The first rule of gzip that `source` breaks, or that it has more than `limit_bytes`.
pub fn inflate(
    source: impl Read,
    limit_bytes: u64,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<Digest, GzipError> {
    let mut reader = GzipReader::new(source, limit_bytes);
    loop {
        reader.fill()?;
        let count = reader.output.bytes().len();
        if count == 0 {
            return Ok(reader.archive_digest());
        }
        sink(reader.output.bytes());
        reader.consume(count);
    }
}

/// A count of bytes inside one buffer.
fn usize_of(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).expect("compressed");
        encoder.finish().expect("finished")
    }

    fn inflate(bytes: &[u8]) -> Result<(Vec<u8>, Digest), GzipError> {
        let mut all = Vec::new();
        let digest = super::inflate(bytes, 1 << 20, &mut |piece| all.extend_from_slice(piece))?;
        Ok((all, digest))
    }

    #[test]
    fn members_are_read_as_one_stream_and_every_byte_is_hashed() {
        let long: Vec<u8> = (0..700_000_u32)
            .map(|n| (n % 251).to_le_bytes()[0])
            .collect();
        let both = [gzip(&long), gzip(b""), gzip(b"tail")].concat();
        let (data, digest) = inflate(&both).expect("whole");
        assert_eq!(data, [&long[..], b"tail"].concat());
        assert_eq!(digest, Digest::of(&both));
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let whole = gzip(b"some bytes that are not many");
        for end in 2..whole.len() {
            let error = inflate(&whole[..end]).expect_err("cut");
            assert_eq!(error.code(), "gzip_truncated", "cut at {end}: {error}");
        }
    }

    #[test]
    fn every_changed_bit_of_the_trailer_is_found() {
        let whole = gzip(b"some bytes");
        for bit in 0..64 {
            let mut changed = whole.clone();
            let at = whole.len() - 8 + bit / 8;
            changed[at] ^= 1 << (bit % 8);
            let code = inflate(&changed).expect_err("changed").code();
            assert_eq!(
                code,
                if bit < 32 {
                    "gzip_checksum"
                } else {
                    "gzip_length"
                }
            );
        }
    }

    #[test]
    fn bytes_after_the_last_member_are_refused_with_their_place() {
        let whole = gzip(b"x");
        for tail in [&b"garbage"[..], b"\0", b"\x1f"] {
            match inflate(&[&whole[..], tail].concat()) {
                Err(GzipError::TrailingBytes { at }) => assert_eq!(at, whole.len() as u64),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn header_fields_are_skipped_and_their_checksum_is_checked() {
        let body = gzip(b"x")[10..].to_vec();
        let mut header = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 255];
        header.extend_from_slice(&[0xff, 0xff]);
        header.resize(header.len() + 0xffff, 7);
        header.extend_from_slice(b"../../x\0a comment\0");
        let mut crc = Crc::new();
        crc.update(&header);
        let right = crc.sum().to_le_bytes()[..2].to_vec();
        let good = [&header[..], &right, &body].concat();
        assert_eq!(inflate(&good).expect("whole").0, b"x");
        let bad = [&header[..], &[right[0] ^ 1, right[1]], &body].concat();
        assert_eq!(
            inflate(&bad).expect_err("bad").code(),
            "gzip_header_checksum"
        );
        let endless = [
            &[0x1f, 0x8b, 8, 0x08, 0, 0, 0, 0, 0, 255][..],
            &[b'a'; 70_000],
        ]
        .concat();
        assert_eq!(
            inflate(&endless).expect_err("endless").code(),
            "gzip_header_text"
        );
        let reserved = [0x1f, 0x8b, 8, 0x80, 0, 0, 0, 0, 0, 255];
        assert_eq!(
            inflate(&reserved).expect_err("flags").code(),
            "gzip_reserved_flags"
        );
        assert_eq!(
            inflate(&[0x1f, 0x8b, 7, 0]).expect_err("method").code(),
            "gzip_method"
        );
    }

    #[test]
    fn more_compressed_bytes_than_allowed_are_refused_while_reading() {
        let mut reader = GzipReader::new(std::io::repeat(0x1f).take(1 << 30), 1000);
        assert_eq!(
            reader.fill().expect_err("limit").code(),
            "compressed_bytes_limit"
        );
        assert!(reader.input.read_bytes <= INPUT_BYTES as u64);
    }
}
