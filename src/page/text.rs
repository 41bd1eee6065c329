//! Texts and numbers as people read them, each of bounded length.

use std::fmt;

use serde::{Deserialize, Deserializer};

use spec::plan_report::{BUILT_IN_MAXIMUM, DEFAULT, FLAG, HOST_POLICY};

/// A text of the report, cut to `MAX` characters when it is read: a page has a bounded size, whatever
/// a body makes of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bounded<const MAX: usize>(String);

pub(super) type Text = Bounded<240>;
pub(super) type LongText = Bounded<2_000>;

impl<const MAX: usize> Bounded<MAX> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<const MAX: usize> From<&str> for Bounded<MAX> {
    fn from(text: &str) -> Self {
        Self(match text.char_indices().nth(MAX) {
            None => text.to_owned(),
            Some((end, _)) => {
                let left = text[end..].chars().count();
                format!("{}… ({} more)", &text[..end], count(left, "character"))
            }
        })
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Bounded<MAX> {
    fn deserialize<From: Deserializer<'de>>(from: From) -> Result<Self, From::Error> {
        let text = String::deserialize(from)?;
        Ok(Self::from(text.as_str()))
    }
}

impl<const MAX: usize> fmt::Display for Bounded<MAX> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The rows of a list that are shown, and how many are not.
#[derive(Debug)]
pub(super) struct Rows<Row> {
    pub(super) shown: Vec<Row>,
    pub(super) beyond: Option<String>,
}

impl<Row> Rows<Row> {
    pub(super) fn new<Of>(all: &[Of], max: usize, row: impl Fn(&Of) -> Row) -> Self {
        Self {
            shown: all.iter().take(max).map(row).collect(),
            beyond: beyond(all.len(), max, 0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

/// Says how many of `all` rows are not among the first `max`, with those that the report counts only.
pub(super) fn beyond(all: usize, max: usize, counted: u64) -> Option<String> {
    let hidden = u64::try_from(all.saturating_sub(max)).unwrap_or(u64::MAX);
    let hidden = hidden.saturating_add(counted);
    (hidden > 0).then(|| format!("and {} more", grouped(hidden)))
}

/// `1 file`, `12,345 files`.
pub(super) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let words = spec::units::count(number, noun);
    match words.split_once(' ') {
        Some((_, noun)) => format!("{} {noun}", grouped(number)),
        None => words,
    }
}

/// `12,345`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 MiB`: three digits at most, unlike [`spec::units::bytes`], which is exact.
pub(super) fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = as_f64(value);
    let mut unit = None;
    for name in UNITS {
        if scaled < 1_000.0 {
            break;
        }
        scaled /= 1_024.0;
        unit = Some(name);
    }
    match unit {
        None => count(value, "byte"),
        Some(name) => format!("{} {name}", rounded(scaled)),
    }
}

/// `850 ms`, `1.24 s`, `2 min 5 s`.
pub(super) fn duration(ms: f64) -> String {
    if ms < 1.0 {
        return format!("{ms:.2} ms");
    }
    if ms < 1_000.0 {
        return format!("{} ms", rounded(ms));
    }
    if ms < 60_000.0 {
        return format!("{} s", rounded(ms / 1_000.0));
    }
    let minutes = (ms / 60_000.0).floor();
    let seconds = ((ms - minutes * 60_000.0) / 1_000.0).floor();
    if minutes < 60.0 {
        return format!("{minutes:.0} min {seconds:.0} s");
    }
    let hours = (minutes / 60.0).floor();
    format!("{hours:.0} h {:.0} min", minutes - hours * 60.0)
}

/// At most two decimals, without zeros at their end.
pub(super) fn rounded(number: f64) -> String {
    let text = if number < 10.0 {
        format!("{number:.2}")
    } else if number < 100.0 {
        format!("{number:.1}")
    } else {
        return format!("{number:.0}");
    };
    let text = text.trim_end_matches('0');
    text.trim_end_matches('.').to_owned()
}

#[expect(clippy::cast_precision_loss, reason = "for people and pixels")]
pub(super) fn as_f64(value: u64) -> f64 {
    value as f64
}

/// Who set a limit, for a sentence.
pub(super) fn source(name: &str) -> &str {
    match name {
        DEFAULT => "default",
        FLAG => "a flag",
        HOST_POLICY => "the host's policy",
        BUILT_IN_MAXIMUM => "the built-in maximum",
        key => key,
    }
}

/// `name` of the report with spaces.
pub(super) fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_three_digits_and_a_unit() {
        for (value, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_000, "0.98 KiB"),
            (64 << 20, "64 MiB"),
            (1_600_000, "1.53 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (ms, text) in [
            (0.0, "0.00 ms"),
            (0.256, "0.26 ms"),
            (3.4, "3.4 ms"),
            (850.0, "850 ms"),
            (1_240.0, "1.24 s"),
            (59_950.0, "60 s"),
            (125_000.0, "2 min 5 s"),
            (7_380_000.0, "2 h 3 min"),
        ] {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(count(1_u64, "denial"), "1 denial");
        assert_eq!(count(12_345_u64, "denial"), "12,345 denials");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_the_rest_is_counted() {
        let text = Bounded::<3>::from("äöüß!");
        assert_eq!(text.as_str(), "äöü… (2 characters more)");
        assert_eq!(Bounded::<5>::from("äöüß!").as_str(), "äöüß!");
    }
}
