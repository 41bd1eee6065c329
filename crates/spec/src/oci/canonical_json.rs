//! Canonical JSON: equal values have equal bytes.
//!
//! Keys are sorted by bytes. There is no white space and no trailing newline. The text is UTF-8 with
//! only the required escapes.

use serde::Serialize;

/// Formats `value` as canonical JSON.
///
/// # Errors
/// The error of serde_json: a map of `value` has keys that are not text.
pub fn canonical_json(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    serde_json::to_vec(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_by_bytes_at_every_depth_without_white_space() {
        let value = json!({
            "b": [{"z": 1, "a": null}],
            "é": "é\u{1F600}/\u{7f}",
            "a.b": true,
            "B": "\n\"\\\u{1}",
            "a": {"10": 0, "9": 0}
        });
        let text = String::from_utf8(canonical_json(&value).expect("written")).expect("UTF-8");
        assert_eq!(
            text,
            "{\"B\":\"\\n\\\"\\\\\\u0001\",\"a\":{\"10\":0,\"9\":0},\"a.b\":true,\
             \"b\":[{\"a\":null,\"z\":1}],\"é\":\"é\u{1F600}/\u{7f}\"}"
        );
    }
}
