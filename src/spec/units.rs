//! Sizes and durations as people write them.

use std::time::Duration;

/// Why a size or a duration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is not a number and a unit.
    #[error("`{found}` is not {expected}")]
    Malformed {
        /// The text as given.
        found: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// The value does not fit into 63 bits of bytes or of nanoseconds.
    #[error("`{found}` is too large")]
    TooLarge {
        /// The text as given.
        found: String,
    },
}

const SIZE: &str = "a size such as 512k, 64m or 1g (powers of 1024)";
const DURATION: &str = "a duration such as 300ms, 2s, 5m or 1h";

/// Reads `512`, `512k`, `64m`, `1g`, `1t`: bytes, units are powers of 1024, either case.
///
/// # Errors
/// [`UnitError`] when the text is something else or overflows.
pub fn parse_size_bytes(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split(text, SIZE)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(malformed(text, SIZE)),
    };
    digits
        .checked_mul(factor)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| UnitError::TooLarge {
            found: text.to_owned(),
        })
}

/// Reads `300ms`, `2s`, `5m`, `1h`.
///
/// # Errors
/// [`UnitError`] when the unit is missing, the text is something else, or it overflows.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (digits, unit) = split(text, DURATION)?;
    let factor_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(malformed(text, DURATION)),
    };
    digits
        .checked_mul(factor_ms)
        .filter(|total_ms| *total_ms <= i64::MAX as u64 / 1_000_000)
        .map(Duration::from_millis)
        .ok_or_else(|| UnitError::TooLarge {
            found: text.to_owned(),
        })
}

fn split<'text>(text: &'text str, expected: &'static str) -> Result<(u64, &'text str), UnitError> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(malformed(text, expected));
    }
    let number = digits.parse().map_err(|_overflow| UnitError::TooLarge {
        found: text.to_owned(),
    })?;
    Ok((number, unit))
}

fn malformed(text: &str, expected: &'static str) -> UnitError {
    UnitError::Malformed {
        found: text.to_owned(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_never_overflow() {
        for (text, bytes) in [
            ("512", 512),
            ("512k", 524_288),
            ("64M", 67_108_864),
            ("1g", 1 << 30),
        ] {
            assert_eq!(parse_size_bytes(text), Ok(bytes));
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5g",
            "1 g",
            "1x",
            "0x10",
            "1e3",
            "18446744073709551616",
            "9t9",
        ] {
            assert!(parse_size_bytes(text).is_err(), "{text}");
        }
        assert!(matches!(
            parse_size_bytes("9007199254740992g"),
            Err(UnitError::TooLarge { .. })
        ));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        for text in ["5", "", "5x", "-5s", "1.5s", "99999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
