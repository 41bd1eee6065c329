//! Formats UTC times as in RFC 3339.

use core::time::Duration;

use crate::tokens::iso_date;

/// Formats to the second: `2026-05-03T09:08:07Z`.
#[must_use]
pub fn text_of_seconds(unix_s: i64) -> String {
    format!("{}Z", date_and_time(unix_s))
}

/// Formats to the millisecond: `2026-05-03T09:08:07.006Z`.
#[must_use]
pub fn text_of_milliseconds(unix_ms: u64) -> String {
    let unix_s = i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX);
    format!("{}.{:03}Z", date_and_time(unix_s), unix_ms % 1_000)
}

/// Formats the time since 1970 to the millisecond.
#[must_use]
pub fn text_since_1970(time: Duration) -> String {
    text_of_milliseconds(u64::try_from(time.as_millis()).unwrap_or_default())
}

fn date_and_time(unix_s: i64) -> String {
    let second = unix_s.rem_euclid(86_400);
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{}T{hours:02}:{minutes:02}:{seconds:02}", iso_date(unix_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(text_of_seconds(unix_s), text);
        }
        assert_eq!(
            text_of_milliseconds(1_700_000_000_007),
            "2023-11-14T22:13:20.007Z"
        );
    }
}
