//! The lock file of a bundle.

use super::PERMIT;
use spec::document::{self, Format};
use spec::lock::{Lock, LockError};

fn parse(text: &[u8]) -> Result<Lock, LockError> {
    Lock::read(document::parse(&PERMIT, text, Format::Json), "bundle.lock")
}

/// An accepted file has one written form, which is parsed to the same value.
pub(crate) fn check(bytes: &[u8]) {
    let lock = match parse(bytes) {
        Ok(lock) => lock,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            return;
        }
    };
    let written = lock.to_json().expect("written");
    let again = parse(written.as_bytes()).expect("read back");
    assert_eq!(again, lock);
    // A duplicate source is a difference by itself.
    let mut from: Vec<&str> = lock.sources.iter().map(|one| one.from.as_str()).collect();
    from.sort_unstable();
    let is_once = from.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(!is_once || lock.differences(&again).is_empty());
    assert_eq!(again.to_json().expect("written"), written);
    let document: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
    assert_eq!(
        document,
        serde_json::from_str::<serde_json::Value>(&written).expect("JSON")
    );
}
