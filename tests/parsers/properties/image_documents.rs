//! What a registry says: the config of an image, and how it wants to be told who asks.

use spec::oci::challenge::{Challenge, challenges};
use spec::oci::image_config::ImageConfig;

/// The first byte says which of the two the rest is.
pub(crate) fn check(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else {
        return;
    };
    if kind & 1 == 0 {
        check_config(text);
    } else if let Ok(header) = std::str::from_utf8(text) {
        check_challenges(header);
    }
}

/// A config that is honoured has variables that a program can be given, and a directory.
fn check_config(document: &[u8]) {
    let config = match ImageConfig::parse(document) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            return;
        }
    };
    for (name, value) in &config.environment {
        assert!(!name.is_empty() && !name.contains(&b'=') && !name.contains(&0));
        assert!(!value.contains(&0));
        assert!(config.variable(name).is_some());
    }
    if let Some(directory) = &config.working_directory {
        assert!(directory.starts_with(b"/") && !directory.contains(&0));
    }
    // A key that nobody knows may hold what is no text.
    let text = String::from_utf8_lossy(document);
    let words: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    // What is not said is empty.
    let said = |key: &str| words[key].as_str().unwrap_or_default();
    assert_eq!(said("os"), config.os.as_str());
    assert_eq!(said("architecture"), config.architecture.as_str());
}

/// What is asked for stands in the header, and no line of a request ends in it.
fn check_challenges(header: &str) {
    for challenge in challenges(header) {
        let Challenge::Bearer {
            realm,
            service,
            scope,
        } = challenge
        else {
            continue;
        };
        for value in [Some(realm), service, scope].into_iter().flatten() {
            // Quoted, some of its characters have a backslash in front.
            let plain: String = header.chars().filter(|one| *one != '\\').collect();
            let value: String = value.chars().filter(|one| *one != '\\').collect();
            assert!(plain.contains(&value), "{value:?} out of nowhere");
            assert!(value.len() <= 4096);
        }
    }
}
