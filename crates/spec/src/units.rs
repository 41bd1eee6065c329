//! Sizes and durations in human-readable form.

use std::time::Duration;

/// Why a size or a duration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{found}` is not {expected}{}", suggestion(found, expected))]
    Malformed {
        found: String,
        expected: &'static str,
    },
    /// More than 63 bits of bytes or nanoseconds.
    #[error("`{found}` is too large")]
    TooLarge { found: String },
}

const SIZE: &str = "a size such as 512k, 64m or 1g (powers of 1024)";
const DURATION: &str = "a duration such as 300ms, 2s, 5m, 1h30m or 1d";

/// Completes the message with the number and a valid unit that starts like the invalid one.
fn suggestion(found: &str, expected: &str) -> String {
    let unit_at = found
        .find(|sign: char| !sign.is_ascii_digit())
        .unwrap_or(found.len());
    let (number, unit) = found.split_at(unit_at);
    // `1h30`: what the second number means is unclear.
    if unit.contains(|sign: char| sign.is_ascii_digit()) {
        return String::new();
    }
    let first = unit.trim_start().to_ascii_lowercase().chars().next();
    let unit = match (expected == SIZE, first) {
        (true, Some(first @ ('k' | 'm' | 'g' | 't')))
        | (false, Some(first @ ('s' | 'm' | 'h' | 'd'))) => first,
        (false, None) => 's',
        _ => return String::new(),
    };
    // Every flag refuses 0 with a reason of its own.
    match number.trim_start_matches('0') {
        "" => String::new(),
        _ => format!("; did you mean {number}{unit}?"),
    }
}

/// Writes a number with its noun, which `noun` has in the singular: `1 entry`, `2 entries`.
#[must_use]
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        _ if noun.ends_with('s') => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// Parses bytes: `512`, `512k`, `64m`, `1g`, `1t`. Units are powers of 1024, in either case.
///
/// # Errors
/// [`UnitError`]: malformed or too large.
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

/// Parses `300ms`, `2s`, `5m`, `1h`, `1d`, and combinations from the largest unit to the smallest:
/// `1h30m`.
///
/// # Errors
/// [`UnitError`]: a missing unit, units out of order, malformed, or too large.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let too_large = || UnitError::TooLarge {
        found: text.to_owned(),
    };
    let mut total_ms: u64 = 0;
    let mut last_factor_ms = u64::MAX;
    let mut rest = text;
    while !rest.is_empty() || last_factor_ms == u64::MAX {
        let (number, after) = split(rest, DURATION).map_err(|error| match error {
            UnitError::Malformed { .. } => malformed(text, DURATION),
            UnitError::TooLarge { .. } => too_large(),
        })?;
        let unit_end = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, others) = after.split_at(unit_end);
        let factor_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(malformed(text, DURATION)),
        };
        if factor_ms >= last_factor_ms {
            return Err(malformed(text, DURATION));
        }
        total_ms = number
            .checked_mul(factor_ms)
            .and_then(|part_ms| total_ms.checked_add(part_ms))
            .filter(|total_ms| *total_ms <= i64::MAX as u64 / 1_000_000)
            .ok_or_else(too_large)?;
        last_factor_ms = factor_ms;
        rest = others;
    }
    Ok(Duration::from_millis(total_ms))
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

/// Formats a value. `name` ends with the unit: `memory_bytes`, `wall_time_ms`, `cpu_millis`, else a
/// count.
#[must_use]
pub fn amount(name: &str, value: u64) -> String {
    match name.rsplit('_').next() {
        Some("bytes") => bytes(value),
        Some("ms") => milliseconds(value),
        Some("millis") => format!("{}.{:03}", value / 1_000, value % 1_000),
        _ => value.to_string(),
    }
}

/// Formats bytes in the largest unit without a fraction: `64 MiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units
        .into_iter()
        .find(|(_, unit)| value > 0 && value.is_multiple_of(*unit));
    match whole {
        Some((name, unit)) => format!("{} {name}", value / unit),
        None => format!("{value} bytes"),
    }
}

/// Formats a limit in bytes for messages.
#[must_use]
pub fn limit<Number: Copy + TryInto<u64>>(max: &Number) -> String {
    bytes((*max).try_into().unwrap_or(u64::MAX))
}

/// Parses a number of processors, such as `1.5`, into thousandths.
///
/// # Errors
/// What is expected.
pub fn parse_cpus(text: &str) -> Result<u64, String> {
    /// A larger number is a typing error.
    const CPUS_MAX: f64 = 65_536.0;
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let cpus: Option<f64> = text.parse().ok().filter(|_| plain);
    cpus
        // A hundredth of a processor is the smallest share that cpu.max can express.
        .filter(|cpus| (0.01..=CPUS_MAX).contains(cpus))
        // Formatting converts without wrapping or saturating.
        .and_then(|cpus| format!("{:.0}", (cpus * 1000.0).round()).parse().ok())
        .ok_or_else(|| "expected a number of processors such as 0.5, 1 or 1.5".to_owned())
}

/// Formats milliseconds in the largest unit without a fraction: `90 s`.
#[must_use]
pub fn milliseconds(value: u64) -> String {
    let units = [("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let whole = units
        .into_iter()
        .find(|(_, unit)| value > 0 && value.is_multiple_of(*unit));
    match whole {
        Some((name, unit)) => format!("{} {name}", value / unit),
        None => format!("{value} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_agrees_with_its_noun() {
        let written = [0, 1, 2].map(|number: u64| count(number, "file"));
        assert_eq!(written, ["0 files", "1 file", "2 files"]);
        assert_eq!(
            [count(1, "entry"), count(3, "entry")],
            ["1 entry", "3 entries"]
        );
        assert_eq!(count(2, "process"), "2 processes");
        assert_eq!(count(2, "byte"), "2 bytes");
    }

    #[test]
    fn a_known_unit_is_suggested_for_an_unknown_one() {
        for (text, suggested) in [
            ("64mbb", Some("64m")),
            ("2 GB", Some("2g")),
            ("lots", None),
            ("5x", None),
        ] {
            let error = parse_size_bytes(text).expect_err(text).to_string();
            let expected = suggested.map(|text| format!("did you mean {text}?"));
            assert_eq!(
                error.split_once("; ").map(|(_, question)| question),
                expected.as_deref(),
                "{error}"
            );
        }
        for (text, suggested) in [
            ("5", Some("5s")),
            ("5min", Some("5m")),
            ("2 hours", Some("2h")),
            ("soon", None),
            ("0", None),
            ("1h30", None),
            ("30m1h", None),
        ] {
            let error = parse_duration(text).expect_err(text).to_string();
            let expected = suggested.map(|text| format!("did you mean {text}?"));
            assert_eq!(
                error.split_once("; ").map(|(_, question)| question),
                expected.as_deref(),
                "{error}"
            );
        }
    }

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
        for (text, seconds) in [("1h30m", 5_400), ("1d", 86_400), ("1d1s", 86_401)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in [
            "5",
            "",
            "5x",
            "-5s",
            "1.5s",
            "99999999999999999h",
            "30m1h",
            "1h1h",
            "1h30",
            "106751d9999999999h",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
