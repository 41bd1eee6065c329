//! Paths with tokens; sizes and durations.

use spec::tokens::{Token, TokenPath, TokenValues, is_segment, iso_date};
use spec::units::{parse_duration, parse_size_bytes};

/// Lines: a path with tokens, the run's id, the manifest's id; a size or a duration.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (path, run_id, manifest_id, amount) = (next(), next(), next(), next());
    check_path(path, run_id, manifest_id);
    check_amount(amount);
}

fn check_path(text: &str, run_id: &str, manifest_id: &str) {
    let path = match TokenPath::parse(text) {
        Ok(path) => path,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            return;
        }
    };
    assert_eq!(path.written(), text.strip_prefix("./").unwrap_or(text));
    assert_eq!(TokenPath::parse(&path.written()).as_ref(), Ok(&path));
    let start_unix_s = i64::from(crate::properties::gzip::crc_32(text.as_bytes())) * 40;
    let values = TokenValues {
        run_id,
        manifest_id,
        start_unix_s,
    };
    let used = |token: Token| path.tokens().any(|other| other == token);
    let names_manifest = used(Token::WorkflowId) || used(Token::ToolId);
    let fit =
        (!used(Token::RunId) || is_segment(run_id)) && (!names_manifest || is_segment(manifest_id));
    let Ok(resolved) = path.resolve(values) else {
        return;
    };
    assert!(fit, "a value of more than one segment");
    // The number of segments stays the same: no value adds one.
    let written = path.written();
    let segments = || written.as_bytes().split(|byte| *byte == b'/');
    assert_eq!(resolved.segments().count(), segments().count());
    for (one, other) in segments().zip(resolved.segments()) {
        assert_eq!(replaced(one, values), other);
    }
}

/// Replaces the tokens of one segment from left to right, once each.
fn replaced(segment: &[u8], values: TokenValues<'_>) -> Vec<u8> {
    let date = iso_date(values.start_unix_s);
    let known: [(&[u8], &str); 4] = [
        (b"<runId>", values.run_id),
        (b"<workflowId>", values.manifest_id),
        (b"<toolId>", values.manifest_id),
        (b"<isoDate>", &date),
    ];
    let (mut made, mut rest) = (Vec::new(), segment);
    while let Some((first, after)) = rest.split_first() {
        match known.iter().find(|(token, _)| rest.starts_with(token)) {
            Some((token, value)) => {
                made.extend_from_slice(value.as_bytes());
                rest = &rest[token.len()..];
            }
            None => {
                made.push(*first);
                rest = after;
            }
        }
    }
    made
}

/// A number and a unit, computed in wider arithmetic.
fn check_amount(text: &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: Option<u128> = number.parse().ok();
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kb" | "kib" => Some(1_u128 << 10),
        "m" | "mb" | "mib" => Some(1 << 20),
        "g" | "gb" | "gib" => Some(1 << 30),
        "t" | "tb" | "tib" => Some(1 << 40),
        _ => None,
    };
    let whole = |factor: Option<u128>| number?.checked_mul(factor?);
    let bytes = whole(factor).filter(|bytes| *bytes <= i64::MAX as u128);
    assert_eq!(parse_size_bytes(text).ok().map(u128::from), bytes);
    assert_eq!(
        parse_duration(text).ok().map(|time| time.as_nanos()),
        nanoseconds(text)
    );
}

/// Numbers with decreasing units.
fn nanoseconds(text: &str) -> Option<u128> {
    let (mut rest, mut total, mut last) = (text, 0_u128, u128::MAX);
    while !rest.is_empty() || last == u128::MAX {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit = after
            .bytes()
            .take_while(|byte| !byte.is_ascii_digit())
            .count();
        let (unit, others) = after.split_at(unit);
        let factor = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        let part = number.parse::<u128>().ok()?.checked_mul(factor)?;
        total = total.checked_add(part).filter(|_| factor < last)?;
        (rest, last) = (others, factor);
    }
    Some(total).filter(|total| *total <= i64::MAX as u128)
}
