//! HTTP dates (RFC 9110, 5.6.7) in the preferred form.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT` to seconds since 1970. Times before 1970 are refused. The
/// day of the week is not checked.
#[must_use]
pub fn unix_s_of(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let is_shaped = bytes.len() == 29
        && text.is_ascii()
        && DAYS.contains(&&text[..3])
        && &text[3..5] == ", "
        && &text[25..] == " GMT"
        && [7, 11, 16].iter().all(|at| bytes[*at] == b' ')
        && [19, 22].iter().all(|at| bytes[*at] == b':');
    if !is_shaped {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = &text[range];
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse().ok()).flatten()
    };
    let month = MONTHS.iter().position(|name| *name == &text[8..11])?;
    let month = u64::try_from(month).ok()? + 1;
    let (day, year) = (number(5..7)?, number(12..16)?);
    let (hour, minute, second) = (number(17..19)?, number(20..22)?, number(23..25)?);
    let is_time = (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !is_time || year < 1970 {
        return None;
    }
    let days = days_since_1970(year, month, day);
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Gregorian days. Years begin in March, so that the leap day is the last one.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400;
    // 719,468 days are between 1 March of year 0 and 1 January 1970.
    before + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_to_the_second() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Tue, 14 Nov 2023 22:13:20 GMT", 1_700_000_000),
        ] {
            assert_eq!(unix_s_of(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_of_that_form_is_none() {
        for text in [
            "",
            "120",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1869 08:49:37 GMT",
            "Sün, 06 Nov 1994 08:49:37 GM",
        ] {
            assert_eq!(unix_s_of(text), None, "{text}");
        }
    }
}
