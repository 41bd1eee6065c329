//! gzip, compared with a simple parser of the frame and with another inflate library.

use std::io::Read;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::PERMIT;
use archive::UnpackError;
use archive::gzip::inflate;
use spec::digest::Digest;

const LIMIT_BYTES: u64 = 1 << 20;
/// Number of inflated bytes that are compared.
const INFLATED_BYTES_MAX: usize = 4 << 20;

/// The first byte selects whether the trailer of the first member is corrected. Both decoders
/// return the same bytes or refuse, also with small reads.
pub(crate) fn check(bytes: &[u8]) {
    let Some((options, file)) = bytes.split_first() else {
        return;
    };
    let mut file = file.to_vec();
    if options & 1 == 0 {
        mend_trailer(&mut file);
    }
    let ours = read(file.as_slice());
    let slowly = read(Slowly(&file));
    match (&ours, &slowly) {
        (Ok(one), Ok(other)) => assert_eq!(one, other),
        (Err(one), Err(other)) => assert_eq!(one.code(), other.code()),
        (one, other) => panic!("{:?}, slowly {:?}", one.is_ok(), other.is_ok()),
    }
    match (ours, whole(&file)) {
        (Ok((data, digest)), Ok(theirs)) => {
            assert!(data == theirs, "other bytes");
            assert_eq!(digest, Digest::of(&file));
        }
        (Err(_), Err(Other::Refused)) | (_, Err(Other::TooLong)) => (),
        (Err(error), Ok(_)) => panic!("refused here only: {error}"),
        (Ok(_), Err(Other::Refused)) => panic!("accepted here only"),
    }
}

fn read(source: impl Read + Send) -> Result<(Vec<u8>, Digest), UnpackError> {
    let mut data = Vec::new();
    let digest = inflate(&PERMIT, source, LIMIT_BYTES, &mut |piece| {
        data.extend_from_slice(piece)
    })?;
    Ok((data, digest))
}

/// Returns one byte at first, then two, then three.
struct Slowly<'bytes>(&'bytes [u8]);

impl Read for Slowly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = (1 + self.0.len() % 3).min(self.0.len()).min(buffer.len());
        let (now, later) = self.0.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

/// Why the decoder refuses a file.
enum Other {
    Refused,
    TooLong,
}

/// All members in sequence, with nothing after them (RFC 1952).
fn whole(mut file: &[u8]) -> Result<Vec<u8>, Other> {
    let mut all = Vec::new();
    loop {
        let deflated = after_header(file).ok_or(Other::Refused)?;
        let (data, used) = inflated(deflated)?;
        let trailer = deflated.get(used..used + 8).ok_or(Other::Refused)?;
        let length = u32::try_from(data.len()).map_err(|_| Other::TooLong)?;
        if trailer[..4] != crc_32(&data).to_le_bytes() || trailer[4..] != length.to_le_bytes() {
            return Err(Other::Refused);
        }
        all.extend_from_slice(&data);
        file = &deflated[used + 8..];
        if file.is_empty() {
            return Ok(all);
        }
    }
}

fn after_header(file: &[u8]) -> Option<&[u8]> {
    let flags = match file {
        [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => *flags,
        _ => return None,
    };
    let mut at = 10;
    if flags & 4 != 0 {
        let length = file.get(at..at + 2)?;
        at += 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += file.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    if flags & 2 != 0 {
        let [low, high, ..] = crc_32(file.get(..at)?).to_le_bytes();
        if file.get(at..at + 2)? != [low, high] {
            return None;
        }
        at += 2;
    }
    file.get(at..)
}

/// The output of the other decoder, and how much input it consumed.
fn inflated(deflated: &[u8]) -> Result<(Vec<u8>, usize), Other> {
    let mut decoder = Box::new(DecompressorOxide::new());
    let mut data = vec![0; 64 << 10];
    let (mut read, mut written) = (0, 0);
    loop {
        let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, used, made) =
            decompress(&mut decoder, &deflated[read..], &mut data, written, flags);
        (read, written) = (read + used, written + made);
        match status {
            TINFLStatus::Done => {
                data.truncate(written);
                return Ok((data, read));
            }
            TINFLStatus::HasMoreOutput if data.len() < INFLATED_BYTES_MAX => {
                data.resize(data.len() * 2, 0);
            }
            TINFLStatus::HasMoreOutput => return Err(Other::TooLong),
            _ => return Err(Other::Refused),
        }
    }
}

fn mend_trailer(file: &mut [u8]) {
    let Some(deflated) = after_header(file) else {
        return;
    };
    let header_bytes = file.len() - deflated.len();
    let Ok((data, used)) = inflated(deflated) else {
        return;
    };
    let at = header_bytes + used;
    if let (Some(trailer), Ok(length)) = (file.get_mut(at..at + 8), u32::try_from(data.len())) {
        trailer[..4].copy_from_slice(&crc_32(&data).to_le_bytes());
        trailer[4..].copy_from_slice(&length.to_le_bytes());
    }
}

/// The checksum of RFC 1952, section 8.
pub(crate) fn crc_32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !data.iter().fold(!0, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (crc >> 8)
    })
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut number = 0_u32;
    while number < 256 {
        let mut crc = number;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                0xedb8_8320 ^ (crc >> 1)
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[number as usize] = crc;
        number += 1;
    }
    table
}
