//! Run ids: lower-case ULIDs, which sort by time. They are not secret.

/// Crockford's base 32: no `i`, `l`, `o`, `u`.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Formats a ULID: ten digits of milliseconds since 1970 (48 bits) and sixteen digits of `random`
/// (80 bits).
#[must_use]
pub fn ulid(unix_time_ms: u64, random: [u8; 10]) -> String {
    let time = u128::from(unix_time_ms & 0xffff_ffff_ffff);
    let bits = random
        .iter()
        .fold(time, |bits, byte| (bits << 8) | u128::from(*byte));
    (0..26_u32)
        .rev()
        .map(|position| {
            let digit = usize::try_from((bits >> (position * 5)) & 31).unwrap_or_default();
            char::from(DIGITS[digit])
        })
        .collect()
}

/// Milliseconds since 1970 of a name that begins with a ULID; `None` if it does not.
#[must_use]
pub fn unix_time_ms(name: &str) -> Option<u64> {
    let digits = name.as_bytes().get(..26)?;
    let mut time = 0;
    for (index, digit) in digits.iter().enumerate() {
        let value = DIGITS.iter().position(|known| known == digit)?;
        if index < 10 {
            time = time << 5 | u64::try_from(value).ok()?;
        }
    }
    Some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_formatted_in_lower_case() {
        // 01ARYZ6S41 is 1469918176385 in the text of the ULID specification.
        let name = ulid(1_469_918_176_385, [0xff; 10]);
        assert_eq!(name, "01aryz6s41zzzzzzzzzzzzzzzz");
        assert_eq!(ulid(0, [0; 10]), "0".repeat(26));
        assert_eq!(unix_time_ms(&format!("{name}.x")), Some(1_469_918_176_385));
        assert_eq!(unix_time_ms("01aryz6s41"), None);
        assert_eq!(unix_time_ms(&"u".repeat(26)), None);
    }
}
