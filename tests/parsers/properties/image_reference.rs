//! The reference of an image or an artifact.

use spec::host_name::HostName;
use spec::oci::reference::{Place, Reference, ReferenceError};

/// An accepted reference is written as it was; its parts are those that a client would send.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Reference::parse(text) {
        Ok(reference) => check_reference(text, &reference),
        Err(error) => check_refusal(&error),
    }
    match Place::parse(text) {
        Ok(Place::Registry(reference)) => {
            check_reference(
                text.strip_prefix("docker://").expect("a registry"),
                &reference,
            );
        }
        Ok(place) => {
            assert!(text.starts_with("oci:"));
            let is_plain = !place.to_string().contains('\\');
            assert!(!is_plain || Place::parse(&place.to_string()).as_ref() == Ok(&place));
        }
        Err(error) => check_refusal(&error),
    }
}

fn check_refusal(error: &ReferenceError) {
    let text = error.to_string();
    assert!(
        !text.contains(char::is_control) && text.len() < 2_000,
        "{text}"
    );
}

fn check_reference(text: &str, reference: &Reference) {
    assert_eq!(reference.to_string(), text);
    assert_eq!(Reference::parse(text).as_ref(), Ok(reference));
    // The characters that the distribution specification allows: they need no escaping in a URL.
    let is_plain = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
    };
    assert!(is_plain(&reference.repository) && !reference.repository.contains(".."));
    assert!(reference.repository.split('/').all(|part| !part.is_empty()));
    assert!(
        reference
            .tag
            .as_deref()
            .is_none_or(|tag| is_plain(tag) && !tag.contains('/'))
    );
    let uri = format!("http://{}/v2/{}/", reference.registry, reference.repository);
    let uri: http::Uri = uri.parse().expect("a URL");
    let host = uri.host().unwrap_or_default();
    assert_eq!(
        host.trim_start_matches('[').trim_end_matches(']'),
        reference.host()
    );
    assert_eq!(uri.path(), format!("/v2/{}/", reference.repository));
    let is_address = reference.host().parse::<std::net::IpAddr>().is_ok();
    assert!(is_address || HostName::parse(reference.host().as_bytes()).is_ok());
}
