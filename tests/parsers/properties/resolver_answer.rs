//! What the resolver says about the addresses of a name.

use egress::dialler::read_resolver_answer;
use serde_json::Value;

/// Maximum length of a message, and number of the addresses of a name.
const MESSAGE_BYTES_MAX: usize = 2 << 10;
const ADDRESSES_MAX: usize = 16;

/// What is accepted is an id, and few addresses that it contains as text.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let Some((id, addresses)) = read_resolver_answer(bytes) else {
        return false;
    };
    assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    let value: Value = serde_json::from_slice(bytes).expect("JSON");
    // A struct may also be written as a list.
    let (said_id, said) = match &value {
        Value::Array(list) => (&list[0], &list[1]),
        other => (&other["id"], &other["addresses"]),
    };
    assert_eq!(said_id, id);
    let said: Option<Vec<Option<std::net::IpAddr>>> = said.as_array().map(|list| {
        let texts = list.iter().map(Value::as_str);
        texts.map(|text| text?.parse().ok()).collect()
    });
    assert!(said.as_ref().map_or(0, Vec::len) <= ADDRESSES_MAX);
    assert_eq!(
        said,
        addresses.map(|list| list.into_iter().map(Some).collect())
    );
    true
}
