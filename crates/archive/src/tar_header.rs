//! One header block of a tar archive: v7, ustar, pax and GNU (POSIX.1-2024 pax, "ustar Interchange
//! Format").
//!
//! Owner, group and device numbers are not read, so they cannot be malformed. The time is `None` if it is
//! not a number: it never causes a refusal.

use std::ops::Range;

use crate::error::Refusal;

/// Size of a block, in bytes.
pub(crate) const BLOCK_BYTES: usize = 512;
/// Largest size that eleven octal digits hold, in bytes: the twelfth byte of the field ends the number.
pub(crate) const OCTAL_SIZE_MAX: u64 = 0o77_777_777_777;

/// The format of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Before POSIX: a file whose name ends in `/` is a directory.
    V7,
    /// POSIX: with a prefix field for the name.
    Ustar,
    Gnu,
}

/// The relevant fields of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub format: Format,
    pub type_flag: u8,
    /// Prefix and name, as written.
    pub name: Vec<u8>,
    pub link_name: Vec<u8>,
    pub size_bytes: u64,
    /// Permission bits, including set-id and sticky bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified_s: Option<u64>,
}

pub(crate) const NAME: Range<usize> = 0..100;
pub(crate) const MODE: Range<usize> = 100..108;
pub(crate) const OWNER: Range<usize> = 108..116;
pub(crate) const GROUP: Range<usize> = 116..124;
pub(crate) const SIZE: Range<usize> = 124..136;
pub(crate) const MODIFIED: Range<usize> = 136..148;
pub(crate) const CHECKSUM: Range<usize> = 148..156;
pub(crate) const TYPE_FLAG: usize = 156;
pub(crate) const LINK_NAME: Range<usize> = 157..257;
pub(crate) const MAGIC: Range<usize> = 257..263;
pub(crate) const VERSION: Range<usize> = 263..265;
pub(crate) const DEVICE_MAJOR: Range<usize> = 329..337;
pub(crate) const DEVICE_MINOR: Range<usize> = 337..345;
pub(crate) const PREFIX: Range<usize> = 345..500;
const STAR_MAGIC: Range<usize> = 508..512;

impl Header {
    /// Parses a block; `None` if it is all zeros.
    pub(crate) fn parse(block: &[u8; BLOCK_BYTES]) -> Result<Option<Self>, Refusal> {
        if is_zero(block) {
            return Ok(None);
        }
        let computed = checksum(block);
        let stated = parse_octal(&block[CHECKSUM]);
        if stated != Some(computed) {
            let stated = stated.map_or_else(|| "none".to_owned(), |number| number.to_string());
            return Err(Refusal::new(
                "header_checksum",
                format!("its header's checksum is {stated}; the bytes give {computed}"),
            ));
        }
        let format = match (&block[MAGIC], &block[VERSION]) {
            (b"ustar\0", b"00" | b"\0\0") => Format::Ustar,
            (b"ustar ", b" \0") => Format::Gnu,
            (b"\0\0\0\0\0\0", _) => Format::V7,
            (magic, _) => {
                let magic = magic.escape_ascii();
                return Err(Refusal::new(
                    "header_magic",
                    format!("its header has the magic `{magic}`; expected `ustar`"),
                ));
            }
        };
        if format == Format::Ustar && &block[STAR_MAGIC] == b"tar\0" {
            // Its prefix field contains times.
            return Err(Refusal::new(
                "header_star",
                "its header is in star's own format; expected ustar, pax or GNU",
            )
            .with_hint("pack with `tar --format=pax`"));
        }
        let mut name = Vec::new();
        if format == Format::Ustar {
            name.extend_from_slice(parse_text(&block[PREFIX], "prefix")?);
            if !name.is_empty() {
                name.push(b'/');
            }
        }
        name.extend_from_slice(parse_text(&block[NAME], "name")?);
        Ok(Some(Self {
            format,
            type_flag: block[TYPE_FLAG],
            name,
            link_name: parse_text(&block[LINK_NAME], "linkname")?.to_vec(),
            size_bytes: parse_number(&block[SIZE], "size")?,
            mode: u32::try_from(parse_number(&block[MODE], "mode")? & 0o7777).unwrap_or_default(),
            modified_s: parse_octal(&block[MODIFIED]),
        }))
    }
}

/// Whether all bytes are zero; without early exit, so that the loop is vectorized.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// The checksum of a header, with its checksum field as blanks.
pub(crate) fn checksum(block: &[u8; BLOCK_BYTES]) -> u64 {
    let field: u64 = block[CHECKSUM].iter().copied().map(u64::from).sum();
    let all: u64 = block.iter().copied().map(u64::from).sum();
    all - field + 8 * u64::from(b' ')
}

/// The bytes before the first NUL.
fn parse_text<'a>(field: &'a [u8], name: &'static str) -> Result<&'a [u8], Refusal> {
    let end = field.iter().position(|byte| *byte == 0);
    let (text, rest) = field.split_at(end.unwrap_or(field.len()));
    if !is_zero(rest) {
        return Err(Refusal::new(
            "header_nul_in_name",
            format!("the field `{name}` of its header goes on after a NUL byte"),
        ));
    }
    Ok(text)
}

fn parse_number(field: &[u8], name: &'static str) -> Result<u64, Refusal> {
    let number = match field.first() {
        Some(first) if first & 0x80 != 0 => parse_base_256(field),
        _ => parse_octal(field),
    };
    number.ok_or_else(|| {
        let value = field.escape_ascii();
        Refusal::new(
            "header_number",
            format!("the field `{name}` of its header is `{value}`; expected an octal number"),
        )
    })
}

/// Blanks, octal digits, then only blanks and NUL bytes; an empty field is 0.
fn parse_octal(field: &[u8]) -> Option<u64> {
    let start = field
        .iter()
        .position(|byte| *byte != b' ')
        .unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits
        .iter()
        .position(|byte| !(b'0'..=b'7').contains(byte))
        .unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if !rest.iter().all(|byte| matches!(byte, b' ' | 0)) {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(8)?.checked_add(u64::from(digit - b'0'))
    })
}

/// GNU's binary form of large numbers: 0x80, then big-endian bytes. 0xff starts a negative number, which
/// is invalid here.
fn parse_base_256(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first != 0x80 {
        return None;
    }
    rest.iter().try_fold(0_u64, |number, byte| {
        number.checked_mul(256)?.checked_add(u64::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(change: impl Fn(&mut [u8; BLOCK_BYTES])) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..4].copy_from_slice(b"name");
        block[MODE].copy_from_slice(b"0000755\0");
        block[SIZE].copy_from_slice(b"00000000012\0");
        block[TYPE_FLAG] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        change(&mut block);
        let sum = format!("{:06o}\0 ", checksum(&block));
        block[CHECKSUM].copy_from_slice(sum.as_bytes());
        block
    }

    fn parsed(change: impl Fn(&mut [u8; BLOCK_BYTES])) -> Result<Header, &'static str> {
        Header::parse(&block(change))
            .map(|header| header.expect("not zeros"))
            .map_err(|error| error.code())
    }

    #[test]
    fn every_single_changed_byte_breaks_the_checksum() {
        let good = block(|_| ());
        assert_eq!(Header::parse(&good).map(|found| found.is_some()), Ok(true));
        for at in (0..BLOCK_BYTES).filter(|at| !CHECKSUM.contains(at)) {
            let mut bad = good;
            bad[at] ^= 0x20;
            let error = Header::parse(&bad).expect_err("changed");
            assert_eq!(error.code(), "header_checksum", "byte {at}");
        }
    }

    #[test]
    fn the_prefix_belongs_to_the_name_in_ustar_only() {
        let with_prefix = |magic: &'static [u8; 8]| {
            parsed(move |block| {
                block[257..265].copy_from_slice(magic);
                block[345..349].copy_from_slice(b"some");
            })
            .map(|header| (header.format, header.name))
        };
        let full = b"some/name".to_vec();
        let bare = b"name".to_vec();
        assert_eq!(
            with_prefix(b"ustar\x0000"),
            Ok((Format::Ustar, full.clone()))
        );
        assert_eq!(with_prefix(b"ustar\0\0\0"), Ok((Format::Ustar, full)));
        assert_eq!(with_prefix(b"ustar  \0"), Ok((Format::Gnu, bare.clone())));
        assert_eq!(with_prefix(b"\0\0\0\0\0\0\0\0"), Ok((Format::V7, bare)));
        assert_eq!(with_prefix(b"ustar\x0001"), Err("header_magic"));
        assert_eq!(with_prefix(b"USTAR\x0000"), Err("header_magic"));
        assert_eq!(
            parsed(|block| block[STAR_MAGIC].copy_from_slice(b"tar\0")),
            Err("header_star")
        );
    }

    #[test]
    fn sizes_are_exact_or_refused() {
        let size = |field: &[u8; 12]| {
            let field = *field;
            parsed(move |block| block[SIZE].copy_from_slice(&field)).map(|header| header.size_bytes)
        };
        assert_eq!(size(b"00000000017\0"), Ok(15));
        assert_eq!(size(b"         17 "), Ok(15));
        assert_eq!(size(b"777777777777"), Ok(0o777_777_777_777));
        assert_eq!(size(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Ok(0));
        assert_eq!(size(b"\x80\0\0\0\0\0\0\0\0\0\x01\x02"), Ok(258));
        assert_eq!(
            size(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
            Ok(u64::MAX)
        );
        for bad in [
            b"\x80\0\0\x01\0\0\0\0\0\0\0\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"-0000000001\0",
            b"00000000018\0",
            b"0x000000001\0",
            b"1\x000000000001",
            b"12 34567890\0",
        ] {
            assert_eq!(size(bad), Err("header_number"), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_name_that_goes_on_after_a_nul_is_refused() {
        assert_eq!(parsed(|block| block[50] = b'x'), Err("header_nul_in_name"));
        assert_eq!(parsed(|block| block[200] = b'x'), Err("header_nul_in_name"));
        let full = parsed(|block| block[NAME].fill(b'n')).expect("100 bytes");
        assert_eq!(full.name, [b'n'; 100]);
    }

    #[test]
    fn only_the_permission_bits_of_the_mode_are_used() {
        let mode = |field: &[u8; 8]| {
            let field = *field;
            parsed(move |block| block[MODE].copy_from_slice(&field)).map(|header| header.mode)
        };
        assert_eq!(mode(b"0000100\0"), Ok(0o100));
        assert_eq!(mode(b"0107677\0"), Ok(0o7677));
        assert_eq!(mode(b"garbage\0"), Err("header_number"));
    }

    proptest! {
        #[test]
        fn any_block_is_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), BLOCK_BYTES)) {
            let mut block: [u8; BLOCK_BYTES] = bytes.try_into().expect("a block");
            let sum = format!("{:06o}\0 ", checksum(&block));
            block[CHECKSUM].copy_from_slice(sum.as_bytes());
            if let Ok(Some(header)) = Header::parse(&block) {
                prop_assert!(header.name.len() <= 256 && !header.name.contains(&0));
            }
        }
    }
}
