//! Documents of a registry: the config of an image, and the challenge for a token.

use spec::oci::challenge::{Challenge, challenges};
use spec::oci::image_config::ImageConfig;

/// The first byte selects the type of the document.
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

/// The variables and the directory of an accepted config can be passed to a program.
fn check_config(document: &[u8]) {
    let Ok(parsed) = serde_json::from_slice(document) else {
        return;
    };
    let config = match ImageConfig::read(parsed) {
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
    // An unknown key may contain invalid text.
    let text = String::from_utf8_lossy(document);
    let words: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    // Missing values are empty.
    let said = |key: &str| words[key].as_str().unwrap_or_default();
    assert_eq!(said("os"), config.os.as_str());
    assert_eq!(said("architecture"), config.architecture.as_str());
}

/// The values are those of the header, and contain no line end.
fn check_challenges(header: &str) {
    for challenge in challenges(&super::PERMIT, header) {
        let Challenge::Bearer {
            realm,
            service,
            scope,
        } = challenge
        else {
            continue;
        };
        for value in [Some(realm), service, scope].into_iter().flatten() {
            // In quoted strings, some characters are escaped with a backslash.
            let plain: String = header.chars().filter(|one| *one != '\\').collect();
            let value: String = value.chars().filter(|one| *one != '\\').collect();
            assert!(plain.contains(&value), "{value:?} out of nowhere");
            assert!(value.len() <= 4096);
        }
    }
}
