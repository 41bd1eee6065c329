//! The records of a pax extended header: `length key=value\n` (POSIX.1-2024 pax, "pax Extended Header").

use crate::error::Refusal;
use spec::path::escape;

/// The relevant fields of a pax header; owners and extended attributes are ignored.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PaxRecords {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link_path: Option<Vec<u8>>,
    pub(crate) size_bytes: Option<u64>,
    /// Whole seconds since 1970; `None` if invalid, which never causes a refusal.
    pub modified_s: Option<u64>,
    /// Does not affect unpacking; `git archive` stores the commit here.
    pub comment: Option<Vec<u8>>,
}

impl PaxRecords {
    /// Parses all records.
    ///
    /// # Errors
    /// The first rule that a record breaks.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, Refusal> {
        let mut records = Self::default();
        let mut at = 0;
        while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
            let malformed = |code, what| {
                let message = format!("its pax header has a record {what}, at byte {at}");
                Refusal::new(code, message)
            };
            let wrong_length = || malformed("pax_length", "whose length is wrong");
            let (length, digits) = record_length(rest).ok_or_else(wrong_length)?;
            let record = rest.get(digits..length).ok_or_else(wrong_length)?;
            let (newline, record) = record.split_last().ok_or_else(wrong_length)?;
            if *newline != b'\n' {
                return Err(malformed("pax_newline", "that does not end in a newline"));
            }
            match record.iter().position(|byte| *byte == b'=') {
                Some(cut) if cut > 0 => records.set(&record[..cut], &record[cut + 1..])?,
                _ => return Err(malformed("pax_key", "without a key")),
            }
            at += length;
        }
        Ok(records)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        match key {
            b"path" => set_once(&mut self.path, "path", parse_name(value, "path")?),
            b"linkpath" => set_once(
                &mut self.link_path,
                "linkpath",
                parse_name(value, "linkpath")?,
            ),
            b"size" => set_once(&mut self.size_bytes, "size", parse_size(value)?),
            b"mtime" => {
                let seconds = value.split(|byte| *byte == b'.').next();
                self.modified_s = seconds.and_then(parse_unsigned);
                Ok(())
            }
            b"comment" => {
                self.comment = Some(value.to_vec());
                Ok(())
            }
            b"SCHILY.realsize" | b"SCHILY.filetype" => Err(sparse_file(key)),
            _ if key.starts_with(b"GNU.sparse.") => Err(sparse_file(key)),
            _ => Ok(()),
        }
    }
}

/// Parses the length at the start of a record; also returns the number of bytes before the key.
fn record_length(rest: &[u8]) -> Option<(usize, usize)> {
    // Twenty digits hold any length; the bound prevents repeated scans of a header of digits.
    let blank = rest.iter().take(20).position(|byte| *byte == b' ')?;
    let length = parse_unsigned(&rest[..blank]).and_then(|length| usize::try_from(length).ok())?;
    (length > blank + 1).then_some((length, blank + 1))
}

fn parse_unsigned(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then_some(digit)?;
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn parse_name(value: &[u8], key: &'static str) -> Result<Vec<u8>, Refusal> {
    match value {
        b"" => Err(empty_value(key)),
        _ if value.contains(&0) => Err(Refusal::new(
            "pax_nul",
            format!("its pax header has a NUL byte in `{key}`"),
        )),
        _ => Ok(value.to_vec()),
    }
}

fn parse_size(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() {
        return Err(empty_value("size"));
    }
    parse_unsigned(value).ok_or_else(|| {
        let value = escape(value.get(..40).unwrap_or(value));
        Refusal::new(
            "pax_size",
            format!("its pax header has the size `{value}`; expected a decimal number"),
        )
    })
}

fn empty_value(key: &'static str) -> Refusal {
    Refusal::new(
        "pax_empty_value",
        format!("its pax header has an empty `{key}`"),
    )
}

fn sparse_file(key: &[u8]) -> Refusal {
    let key = escape(key);
    Refusal::new(
        "sparse_file",
        format!("its pax header describes a sparse file (`{key}`), which is not supported"),
    )
    .with_hint("pack without `tar --sparse`")
}

fn set_once<T>(slot: &mut Option<T>, key: &'static str, value: T) -> Result<(), Refusal> {
    match slot.replace(value) {
        Some(_earlier) => Err(Refusal::new(
            "pax_twice",
            format!("its pax header has `{key}` twice"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_path_link_path_and_size_are_used() {
        let data = b"12 path=a/b\n15 linkpath=../c\n9 size=7\n30 mtime=99999999999999999999999\n";
        let error = PaxRecords::parse(data).map_err(|error| error.code());
        assert_eq!(error, Err("pax_newline"), "the second length is wrong");
        let data = b"12 path=a/b\n17 linkpath=../c\n10 size=7\n20 SCHILY.xattr.u=\0\n11 hdr=a=b\n";
        let records = PaxRecords::parse(data).expect("well formed");
        assert_eq!(records.path.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(records.link_path.as_deref(), Some(&b"../c"[..]));
        assert_eq!(records.size_bytes, Some(7));
    }

    #[test]
    fn malformed_records_are_refused() {
        for (data, code) in [
            (&b"x path=a\n"[..], "pax_length"),
            (b"9path=ab\n", "pax_length"),
            (b"0 path=a\n", "pax_length"),
            (b"1 path=a\n", "pax_length"),
            (b"99 path=a\n", "pax_length"),
            (b"-9 path=a\n", "pax_length"),
            (b"18446744073709551616 path=a\n", "pax_length"),
            (b"00000000000000000000000000000010 path=a\n", "pax_length"),
            (b"9 path=a\n\0\0\0", "pax_length"),
            (b"9 path=ab", "pax_newline"),
            (b"8 patha\n", "pax_key"),
            (b"5 =a\n", "pax_key"),
            (b"8 path=\n", "pax_empty_value"),
            (b"12 linkpath=\n", "pax_newline"),
            (b"8 size=\n", "pax_empty_value"),
            (b"9 path=\0\n", "pax_nul"),
            (b"9 path=a\n9 path=b\n", "pax_twice"),
            (b"10 size=-1\n", "pax_newline"),
            (b"11 size=-1\n", "pax_size"),
            (b"13 size=0x10\n", "pax_size"),
            (b"29 size=18446744073709551616\n", "pax_size"),
            (b"22 GNU.sparse.major=1\n", "sparse_file"),
            (b"21 SCHILY.realsize=9\n", "sparse_file"),
        ] {
            let found = PaxRecords::parse(data).map_err(|error| error.code());
            assert_eq!(found, Err(code), "{}", data.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(data in "[0-9 =\\n\0a-z]{0,60}") {
            if let Ok(records) = PaxRecords::parse(data.as_bytes()) {
                prop_assert!(records.path.is_none_or(|path| !path.is_empty()));
            }
        }
    }
}
