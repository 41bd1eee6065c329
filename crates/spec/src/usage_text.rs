//! What a run uses, beside its limits, as text for people.

/// Limits of what is shown; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default)]
pub struct UsageLimits {
    pub memory_bytes: Option<u64>,
    pub cpu_millis: Option<u64>,
    pub processes: Option<u64>,
}

/// `memory 12.5 MiB of 256.0 MiB`; `text` formats both numbers.
#[must_use]
pub fn of_limit(
    what: &str,
    used: Option<u64>,
    limit: Option<u64>,
    text: impl Fn(u64) -> String,
) -> String {
    let Some(used) = used.map(&text) else {
        return format!("{what} not measured");
    };
    match limit.map(&text) {
        Some(limit) => format!("{what} {used} of {limit}"),
        None => format!("{what} {used}"),
    }
}

/// Formats bytes to a tenth: `12.5 MiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    let (unit, name) = [(1_u64 << 30, "GiB"), (1 << 20, "MiB")]
        .into_iter()
        .find(|(unit, _)| *unit <= value)
        .unwrap_or((1 << 10, "KiB"));
    let tenths = u128::from(value) * 10 / u128::from(unit);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// Formats thousandths of a processor: `0.82`.
#[must_use]
pub fn cpus(millis: u64) -> String {
    format!("{}.{:02}", millis / 1_000, millis % 1_000 / 10)
}

/// Formats milliseconds in seconds: `1.25 s`.
#[must_use]
pub fn seconds(ms: u64) -> String {
    format!("{} s", cpus(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_have_their_limits() {
        for (value, text) in [
            (0, "0.0 KiB"),
            (1_600, "1.5 KiB"),
            (13_107_200, "12.5 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!((&*cpus(1_829), &*seconds(60)), ("1.82", "0.06 s"));
        let shown = |used, limit| of_limit("processes", used, limit, |count| count.to_string());
        assert_eq!(shown(Some(3), Some(512)), "processes 3 of 512");
        assert_eq!(shown(Some(3), None), "processes 3");
        assert_eq!(shown(None, Some(512)), "processes not measured");
    }
}
