//! The records of a pax extended header: `length key=value\n` (POSIX.1-2024 pax, "pax Extended Header").

use spec::path::escape;

/// Why the records of a pax header are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaxError {
    /// A record's length is not a number, or does not fit.
    #[error("its pax header has a record whose length is wrong, at byte {at}")]
    Length {
        /// Offset of the record in the header's data.
        at: usize,
    },
    /// A record does not end in a newline.
    #[error("its pax header has a record that does not end in a newline, at byte {at}")]
    Newline {
        /// Offset of the record in the header's data.
        at: usize,
    },
    /// A record has no `=`, or nothing before it.
    #[error("its pax header has a record without a key, at byte {at}")]
    Key {
        /// Offset of the record in the header's data.
        at: usize,
    },
    /// A key that decides what is unpacked has no value.
    #[error("its pax header has an empty `{key}`")]
    EmptyValue { key: &'static str },
    /// A key that decides what is unpacked comes twice.
    #[error("its pax header has `{key}` twice")]
    Twice { key: &'static str },
    /// A name contains a NUL byte.
    #[error("its pax header has a NUL byte in `{key}`")]
    Nul { key: &'static str },
    /// `size` is not a number.
    #[error("its pax header has the size `{value}`; expected a decimal number")]
    Size {
        /// What was found, escaped.
        value: String,
    },
    /// A key of a sparse file.
    #[error("its pax header describes a sparse file (`{key}`), which is not supported")]
    Sparse { key: String },
}

impl PaxError {
    /// Stable name of the cause.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Length { .. } => "pax_length",
            Self::Newline { .. } => "pax_newline",
            Self::Key { .. } => "pax_key",
            Self::EmptyValue { .. } => "pax_empty_value",
            Self::Twice { .. } => "pax_twice",
            Self::Nul { .. } => "pax_nul",
            Self::Size { .. } => "pax_size",
            Self::Sparse { .. } => "sparse_file",
        }
    }
}

/// What is used of a pax header; owners and extended attributes are not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PaxRecords {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link_path: Option<Vec<u8>>,
    pub(crate) size_bytes: Option<u64>,
    /// Whole seconds since 1970. Decides nothing: none where it is no such number.
    pub modified_s: Option<u64>,
    /// Decides nothing about what is unpacked; `git archive` writes the commit here.
    pub comment: Option<Vec<u8>>,
}

impl PaxRecords {
    /// Reads all records.
    ///
    /// # Errors
    /// The first [`PaxError`].
    pub fn parse(data: &[u8]) -> Result<Self, PaxError> {
        let mut records = Self::default();
        let mut at = 0;
        while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
            let (length, digits) = record_length(rest).ok_or(PaxError::Length { at })?;
            let record = rest.get(digits..length).ok_or(PaxError::Length { at })?;
            let (newline, record) = record.split_last().ok_or(PaxError::Length { at })?;
            if *newline != b'\n' {
                return Err(PaxError::Newline { at });
            }
            match record.iter().position(|byte| *byte == b'=') {
                Some(cut) if 0 < cut => records.take(&record[..cut], &record[cut + 1..])?,
                _ => return Err(PaxError::Key { at }),
            }
            at += length;
        }
        Ok(records)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxError> {
        match key {
            b"path" => put(&mut self.path, "path", name(value, "path")?),
            b"linkpath" => put(&mut self.link_path, "linkpath", name(value, "linkpath")?),
            b"size" => put(&mut self.size_bytes, "size", decimal(value)?),
            b"mtime" => {
                let whole = value.split(|byte| *byte == b'.').next();
                self.modified_s = whole.and_then(unsigned);
                Ok(())
            }
            b"comment" => {
                self.comment = Some(value.to_vec());
                Ok(())
            }
            b"SCHILY.realsize" | b"SCHILY.filetype" => Err(PaxError::Sparse { key: escape(key) }),
            _ if key.starts_with(b"GNU.sparse.") => Err(PaxError::Sparse { key: escape(key) }),
            _ => Ok(()),
        }
    }
}

/// The number that opens a record, and how many bytes it and its blank take.
fn record_length(rest: &[u8]) -> Option<(usize, usize)> {
    // Twenty digits hold any length; without a bound, a header of digits is read again and again.
    let blank = rest.iter().take(20).position(|byte| *byte == b' ')?;
    let length = unsigned(&rest[..blank]).and_then(|length| usize::try_from(length).ok())?;
    (blank + 1 < length).then_some((length, blank + 1))
}

fn unsigned(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then_some(digit)?;
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn name(value: &[u8], key: &'static str) -> Result<Vec<u8>, PaxError> {
    match value {
        b"" => Err(PaxError::EmptyValue { key }),
        _ if value.contains(&0) => Err(PaxError::Nul { key }),
        _ => Ok(value.to_vec()),
    }
}

fn decimal(value: &[u8]) -> Result<u64, PaxError> {
    if value.is_empty() {
        return Err(PaxError::EmptyValue { key: "size" });
    }
    unsigned(value).ok_or_else(|| PaxError::Size {
        value: escape(value.get(..40).unwrap_or(value)),
    })
}

fn put<T>(slot: &mut Option<T>, key: &'static str, value: T) -> Result<(), PaxError> {
    match slot.replace(value) {
        Some(_earlier) => Err(PaxError::Twice { key }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn path_link_path_and_size_are_taken_and_the_rest_is_not() {
        let data = b"12 path=a/b\n15 linkpath=../c\n9 size=7\n30 mtime=99999999999999999999999\n";
        let error = PaxRecords::parse(data);
        assert_eq!(
            error,
            Err(PaxError::Newline { at: 12 }),
            "the second length is wrong"
        );
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
