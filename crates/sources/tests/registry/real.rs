//! Debian's `docker-registry`: push and pull, with TLS and a login.

use std::io::{Cursor, Read as _};
use std::path::Path;

use runner_sources::oci::error::OciError;
use runner_sources::oci::origin::Origin as _;
use runner_sources::oci::registry::Connection;
use spec::digest::Digest;
use spec::oci::media::{EMPTY, MANIFEST};
use spec::oci::reference::Which;

use crate::scripted::{hasty, registry};
use support::registry::{Options, Registry};

const LAYER: &[u8] = b"the bytes of a layer";

/// A manifest with a duplicate layer and the empty config.
pub fn document() -> Vec<u8> {
    let layer = format!(
        "{{\"mediaType\":\"application/octet-stream\",\"digest\":\"{}\",\"size\":{}}}",
        Digest::of(LAYER),
        LAYER.len()
    );
    format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"artifactType\":\"test/artifact\",\
         \"config\":{{\"mediaType\":\"{EMPTY}\",\"digest\":\"{}\",\"size\":2}},\
         \"layers\":[{layer},{layer}]}}",
        Digest::of(b"{}")
    )
    .into_bytes()
}

fn insecure() -> Connection {
    Connection {
        insecure: true,
        timeouts: hasty(),
        ..Connection::default()
    }
}

/// Pushes an artifact and pulls it, by tag and by digest, completely and from the middle.
fn there_and_back(address: &str, connection: &Connection) -> Result<(), OciError> {
    let repository = registry(address, connection.clone());
    for blob in [LAYER, b"{}"] {
        let digest = Digest::of(blob);
        let size = blob.len() as u64;
        let sent = repository.push_blob(&digest, size, &mut Cursor::new(blob))?;
        assert!(sent, "it is not there yet");
        let again = repository.push_blob(&digest, size, &mut Cursor::new(blob))?;
        assert!(!again, "it is there");
    }
    let which = Which::Tag("v1".to_owned());
    let digest = repository.push_manifest(&which, &document(), MANIFEST)?;
    // A client without a connection.
    let repository = registry(address, connection.clone());
    for which in [which, Which::Digest(digest)] {
        let fetched = repository.manifest(&which)?;
        assert_eq!(fetched.bytes, document());
        assert_eq!(fetched.digest, digest);
    }
    for from in [0, 4] {
        let mut stream = repository.blob(&Digest::of(LAYER), from)?;
        let mut bytes = Vec::new();
        stream.reader.read_to_end(&mut bytes).expect("read");
        let at = usize::try_from(from).expect("fits");
        assert_eq!((stream.starts_at, bytes.as_slice()), (from, &LAYER[at..]));
    }
    let missing = Digest::of(b"nowhere");
    assert!(!repository.has_blob(&missing)?);
    let error = repository.blob(&missing, 0).expect_err("not there");
    assert_eq!(error.code(), "registry_not_found");
    let error = repository.manifest(&Which::Unnamed).expect_err("not there");
    let text = error.to_string();
    assert!(
        text.contains("no manifest latest") && text.contains("MANIFEST_UNKNOWN"),
        "{text}"
    );
    Ok(())
}

#[test]
fn an_artifact_goes_to_a_real_registry_and_comes_back() {
    let Some(service) = Registry::start(Options::default()) else {
        return;
    };
    there_and_back(service.address(), &insecure()).expect("there and back");
    let mut strict = insecure();
    strict.insecure = false;
    let error = there_and_back(service.address(), &strict).expect_err("refused");
    assert_eq!(error.code(), "registry_plain_http", "{error}");
}

#[test]
fn a_registry_with_tls_is_trusted_by_the_authority_that_the_host_names_and_by_no_other() {
    let options = Options {
        tls: true,
        login: false,
    };
    let Some(service) = Registry::start(options) else {
        return;
    };
    let connection = Connection {
        ca_file: Some(service.authority().into()),
        timeouts: hasty(),
        ..Connection::default()
    };
    there_and_back(service.address(), &connection).expect("there and back");
    // `insecure` allows plain HTTP, but no unknown certificate.
    for insecure in [false, true] {
        let unknown = Connection {
            insecure,
            timeouts: hasty(),
            ..Connection::default()
        };
        let error = there_and_back(service.address(), &unknown).expect_err("refused");
        assert_eq!(error.code(), "registry_unusable", "{error}");
        assert!(error.to_string().contains("TLS: "), "{error}");
    }
    for (file, part) in [
        (Path::new("/nonexistent/ca.pem"), "No such file"),
        (Path::new("/dev/null"), "not a regular file"),
        (Path::new("/etc/hostname"), "no certificate in PEM"),
    ] {
        let connection = Connection {
            ca_file: Some(file.to_owned()),
            timeouts: hasty(),
            ..Connection::default()
        };
        let error = there_and_back(service.address(), &connection).expect_err("refused");
        assert_eq!(error.code(), "registry_setting", "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_registry_with_a_login_accepts_the_credentials_of_the_docker_config() {
    let options = Options {
        tls: true,
        login: true,
    };
    let Some(service) = Registry::start(options) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let mut connection = Connection {
        ca_file: Some(service.authority().into()),
        timeouts: hasty(),
        ..Connection::default()
    };
    let error = there_and_back(service.address(), &connection).expect_err("refused");
    assert_eq!(error.code(), "registry_unauthorized", "{error}");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("docker login"))
    );
    service.log_in(directory.path());
    connection.docker_config = Some(directory.path().to_owned());
    there_and_back(service.address(), &connection).expect("there and back");
}

#[test]
fn a_login_goes_over_plain_http_where_the_caller_allowed_it_for_the_registry() {
    let options = Options {
        tls: false,
        login: true,
    };
    let Some(service) = Registry::start(options) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    service.log_in(directory.path());
    let mut connection = insecure();
    connection.docker_config = Some(directory.path().to_owned());
    there_and_back(service.address(), &connection).expect("there and back");
}

#[test]
fn a_blob_that_was_changed_in_the_registry_comes_as_it_is_and_a_manifest_does_not() {
    let Some(service) = Registry::start(Options::default()) else {
        return;
    };
    there_and_back(service.address(), &insecure()).expect("there and back");
    let digest = Digest::of(&document());
    let file = service.blob_file(&digest.to_string());
    let changed = String::from_utf8(document())
        .expect("text")
        .replace("test/", "Test/");
    std::fs::write(file, changed).expect("written");
    let repository = registry(service.address(), insecure());
    let error = repository
        .manifest(&Which::Digest(digest))
        .expect_err("refused");
    assert!(
        matches!(
            error.code(),
            "registry_wrong_digest" | "registry_unavailable" | "registry_not_found"
        ),
        "{error}"
    );
}
