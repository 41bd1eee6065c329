//! gzip (RFC 1952): the members of a file as one stream of bytes, without trailing data.
//!
//! flate2 reads a member: header, deflate, CRC-32 and length. A tar that is split over members is treated
//! as one stream, as by gzip(1). Data after the last member is refused: readers disagree about it.

use std::io::{BufRead as _, Chain, ErrorKind, Read};

use flate2::bufread::GzDecoder;

use crate::compressed::{Compression, Hashed, Input, decode};
use crate::error::{Refusal, UnpackError};
use crate::inflated::Inflated as _;
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;

/// The first two bytes of a member.
const MAGIC: &[u8] = &[0x1f, 0x8b];

/// The format that the first bytes of a file indicate; `None` if unknown.
pub(crate) fn guess_format(start: &[u8]) -> Option<&'static str> {
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

/// Reads the bytes of all members.
pub(crate) struct GzipReader<R> {
    state: State<R>,
    members: u64,
}

enum State<R> {
    BetweenMembers(Input<R>),
    InMember(Box<GzDecoder<Chain<&'static [u8], Input<R>>>>),
    Ended,
    Failed,
}

impl<R: Read> GzipReader<R> {
    pub(crate) fn new(file: Input<R>) -> Self {
        Self {
            state: State::BetweenMembers(file),
            members: 0,
        }
    }

    fn begin_member(&mut self, mut file: Input<R>) -> std::io::Result<State<R>> {
        let at = file.consumed_bytes();
        let found = guess_format(file.fill_buf()?).unwrap_or("no gzip file");
        let mut start = Vec::new();
        file.by_ref().take(2).read_to_end(&mut start)?;
        if start.is_empty() && self.members > 0 {
            return Ok(State::Ended);
        }
        if start != MAGIC {
            let refusal = match self.members {
                0 => Refusal::new(
                    "not_gzip",
                    format!("this is {found}; expected a gzip-compressed tar"),
                )
                .with_hint(Refusal::MAKE_AN_ARCHIVE),
                _ => Refusal::new(
                    "gzip_trailing_bytes",
                    format!(
                        "bytes that are not gzip follow the gzip data, from byte {at} on; \
                         expected the end"
                    ),
                )
                .with_hint(Refusal::NOT_JOINED),
            };
            return Err(std::io::Error::other(UnpackError::Refused(refusal)));
        }
        self.members += 1;
        let decoder = GzDecoder::new(MAGIC.chain(file));
        Ok(State::InMember(Box::new(decoder)))
    }
}

impl<R: Read> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            // After an error, no further data is read and no end is reported.
            self.state = match std::mem::replace(&mut self.state, State::Failed) {
                State::BetweenMembers(file) => self.begin_member(file)?,
                State::InMember(mut decoder) => match decoder.read(buffer)? {
                    0 => State::BetweenMembers(decoder.into_inner().into_inner().1),
                    count => {
                        self.state = State::InMember(decoder);
                        return Ok(count);
                    }
                },
                State::Ended => {
                    self.state = State::Ended;
                    return Ok(0);
                }
                State::Failed => return Err(ErrorKind::InvalidData.into()),
            };
        }
    }
}

/// Passes the decoded bytes of the gzip file `source` to `sink` in pieces; returns the digest of
/// `source`.
///
/// # Errors
/// The first gzip rule that `source` breaks, or its size exceeds `limit_bytes`.
pub fn inflate(
    permit: &ParsePermit,
    source: impl Read + Send,
    limit_bytes: u64,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<Digest, UnpackError> {
    let mut source = Hashed::new(source);
    let mut decoded = decode(permit, &mut source, Compression::Gzip, limit_bytes);
    loop {
        let piece = decoded.chunk()?;
        let count = piece.len();
        if count == 0 {
            break;
        }
        sink(piece);
        decoded.consume(count);
    }
    drop(decoded);
    Ok(source.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).expect("compressed");
        encoder.finish().expect("finished")
    }

    fn inflate(bytes: &[u8]) -> Result<(Vec<u8>, Digest), UnpackError> {
        let mut all = Vec::new();
        let digest = super::inflate(&PERMIT, bytes, 1 << 20, &mut |piece| {
            all.extend_from_slice(piece)
        })?;
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
            assert_eq!(code, "gzip_malformed");
        }
    }

    #[test]
    fn bytes_after_the_last_member_are_refused_with_their_place() {
        let whole = gzip(b"x");
        for tail in [&b"garbage"[..], b"\0", b"\x1f"] {
            let error = inflate(&[&whole[..], tail].concat()).expect_err("trailing bytes");
            assert_eq!(error.code(), "gzip_trailing_bytes");
            let place = format!("from byte {} on", whole.len());
            assert!(error.to_string().contains(&place), "{error}");
        }
    }

    #[test]
    fn header_fields_are_skipped_and_their_checksum_is_checked() {
        let body = gzip(b"x")[10..].to_vec();
        let mut header = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 255];
        header.extend_from_slice(&[0xff, 0xff]);
        header.resize(header.len() + 0xffff, 7);
        header.extend_from_slice(b"../../x\0a comment\0");
        let mut crc = flate2::Crc::new();
        crc.update(&header);
        let right = crc.sum().to_le_bytes()[..2].to_vec();
        let good = [&header[..], &right, &body].concat();
        assert_eq!(inflate(&good).expect("whole").0, b"x");
        let bad = [&header[..], &[right[0] ^ 1, right[1]], &body].concat();
        assert_eq!(inflate(&bad).expect_err("bad").code(), "gzip_malformed");
        let endless = [
            &[0x1f, 0x8b, 8, 0x08, 0, 0, 0, 0, 0, 255][..],
            &[b'a'; 70_000],
        ]
        .concat();
        assert_eq!(
            inflate(&endless).expect_err("endless").code(),
            "gzip_malformed"
        );
        let reserved = [0x1f, 0x8b, 8, 0x80, 0, 0, 0, 0, 0, 255];
        assert_eq!(
            inflate(&reserved).expect_err("flags").code(),
            "gzip_malformed"
        );
        assert_eq!(
            inflate(&[0x1f, 0x8b, 7, 0, 0, 0, 0, 0, 0, 255])
                .expect_err("method")
                .code(),
            "gzip_malformed"
        );
    }

    #[test]
    fn more_compressed_bytes_than_allowed_are_refused_while_reading() {
        let mut source = std::io::repeat(0x1f).take(1 << 30);
        let error = super::inflate(&PERMIT, &mut source, 1000, &mut |_| ()).expect_err("limit");
        assert_eq!(error.code(), "compressed_bytes_limit");
        assert!((1 << 30) - source.limit() <= 128 * 1024);
    }
}
