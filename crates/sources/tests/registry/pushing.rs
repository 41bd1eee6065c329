//! What is pushed, where to, and errors of a registry during a push.

use std::io::{Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;

use runner_sources::oci::error::OciError;
use spec::digest::Digest;
use spec::oci::media::MANIFEST;
use spec::oci::reference::Which;

use crate::faults::DOCUMENT;
use crate::scripted::{Reply, Scripted, Seen, Way};

const BLOB: &[u8] = b"what is sent";

fn pushed(service: &Scripted) -> Result<bool, OciError> {
    let size = BLOB.len() as u64;
    let mut source = Cursor::new(BLOB);
    let registry = service.registry();
    registry.push_blob(&Digest::of(BLOB), size, &mut source)
}

/// A registry that accepts blobs; `place` is the location of an upload.
fn taking(place: &'static str, put: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |asked: &Seen, before| match asked.method.as_str() {
        "HEAD" => Reply::of(404),
        "POST" => Reply::of(202).with("Location", place),
        _ => put(before),
    })
}

#[test]
fn an_existing_blob_is_not_uploaded() {
    let service = Scripted::start(|_, _| Reply::of(200));
    assert!(!pushed(&service).expect("asked"));
    assert_eq!(service.seen().len(), 1);
    assert_eq!(service.count("HEAD", "/blobs/sha256:"), 1);
}

#[test]
fn a_blob_goes_where_the_registry_says_with_its_size_and_digest() {
    for place in ["/v2/team/name/blobs/uploads/1?_state=a%2Fb", "1"] {
        let service = taking(place, |_| Reply::of(201));
        assert!(pushed(&service).expect("sent"));
        let seen = service.seen();
        let put = seen.last().expect("sent");
        let digest = Digest::of(BLOB);
        let path = match place.starts_with('/') {
            true => format!("{place}&digest={digest}"),
            false => format!("/v2/team/name/blobs/uploads/1?digest={digest}"),
        };
        assert_eq!(
            (put.method.as_str(), put.path.as_str()),
            ("PUT", path.as_str())
        );
        assert_eq!(put.body, BLOB);
        assert_eq!(put.header("content-type"), Some("application/octet-stream"));
        assert_eq!(put.header("content-length"), Some("12"));
        assert_eq!(put.header("transfer-encoding"), None);
        let post = seen.iter().find(|seen| seen.method == "POST");
        let length = post.and_then(|post| post.header("content-length"));
        assert_eq!(length, Some("0"));
    }
}

#[test]
fn an_upload_that_fails_is_begun_anew_with_the_first_byte() {
    let service = taking("/up", |before| match before {
        0 => Reply::of(500),
        1 => Reply::of(201).body("cut").way(Way::Cut(0)),
        _ => Reply::of(201),
    });
    assert!(pushed(&service).expect("sent"));
    let puts: Vec<Seen> = service.seen();
    let puts: Vec<&Seen> = puts.iter().filter(|seen| seen.method == "PUT").collect();
    assert!(2 <= puts.len() && puts.iter().all(|put| put.body == BLOB));
}

#[test]
fn an_upload_that_another_host_takes_has_no_password() {
    let directory = tempfile::tempdir().expect("a directory");
    let elsewhere = Arc::new(Scripted::start(|_, _| Reply::of(201)));
    let place = elsewhere.url("/up");
    let service = Scripted::start(move |asked: &Seen, _| {
        match (asked.header("authorization"), asked.method.as_str()) {
            (None, _) => Reply::of(401).with("WWW-Authenticate", "Basic realm=\"x\""),
            (_, "POST") => Reply::of(202).with("Location", place.clone()),
            _ => Reply::of(404),
        }
    });
    let text = format!(
        "{{\"auths\":{{\"{}\":{{\"auth\":\"dTpw\"}}}}}}",
        service.address()
    );
    std::fs::write(directory.path().join("config.json"), text).expect("written");
    let mut connection = service.connection();
    connection.docker_config = Some(directory.path().to_owned());
    let registry = service.registry_with(connection);
    let size = BLOB.len() as u64;
    let sent = registry.push_blob(&Digest::of(BLOB), size, &mut Cursor::new(BLOB));
    assert!(sent.expect("sent"));
    let seen = elsewhere.seen();
    assert_eq!((seen.len(), seen[0].body.as_slice()), (1, BLOB));
    assert_eq!(seen[0].header("authorization"), None);
}

#[test]
fn a_rejected_push_is_reported() {
    let other = Digest::of(b"something else").to_string();
    let says = "{\"errors\":[{\"code\":\"DIGEST_INVALID\",\"message\":\"m\"}]}";
    for (reply, code, part) in [
        (
            Reply::of(400).body(says),
            "registry_refused",
            "answered 400; it says: DIGEST_INVALID: m",
        ),
        (Reply::of(413), "registry_refused", "answered 413"),
        (Reply::of(202), "registry_unusable", "the answer was 202"),
        (
            Reply::of(201).with("Docker-Content-Digest", other),
            "registry_wrong_digest",
            "found a blob with the digest",
        ),
    ] {
        let service = taking("/up", move |_| reply.clone());
        let error = pushed(&service).expect_err("refused");
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(service.count("PUT", "/up"), 1);
    }
    let service = Scripted::start(|_, _| Reply::of(404));
    let error = pushed(&service).expect_err("refused");
    assert_eq!(error.code(), "registry_not_found", "{error}");
    let part = "the registry has no repository of this name";
    assert!(error.to_string().contains(part), "{error}");
    let service = taking("ftp://x/up", |_| Reply::of(201));
    let error = pushed(&service).expect_err("refused");
    assert!(
        error.to_string().contains("is not a usable http"),
        "{error}"
    );
}

/// A blob that is shorter than stated, or cannot be read.
struct Short(bool);

impl Read for Short {
    fn read(&mut self, _buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0 {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => Ok(0),
        }
    }
}

impl Seek for Short {
    fn seek(&mut self, _place: SeekFrom) -> std::io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn an_unreadable_or_truncated_file_is_reported() {
    for fails in [true, false] {
        let service = taking("/up", |_| Reply::of(201));
        let registry = service.registry();
        let error = registry.push_blob(&Digest::of(BLOB), 12, &mut Short(fails));
        let error = error.expect_err("refused");
        assert_eq!(error.code(), "registry_source", "{error}");
    }
}

/// A blob whose first read fails.
struct FailsOnce(Cursor<&'static [u8]>, bool);

impl Read for FailsOnce {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match std::mem::replace(&mut self.1, true) {
            true => self.0.read(buffer),
            false => Err(std::io::Error::from_raw_os_error(5)),
        }
    }
}

impl Seek for FailsOnce {
    fn seek(&mut self, place: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(place)
    }
}

#[test]
fn a_blob_that_was_uploaded_after_a_failed_read_is_no_error() {
    let service = taking("/up", |_| Reply::of(201));
    let mut source = FailsOnce(Cursor::new(BLOB), false);
    let sent = service
        .registry()
        .push_blob(&Digest::of(BLOB), 12, &mut source);
    assert!(sent.expect("sent"));
}

#[test]
fn a_manifest_is_sent_under_its_tag_and_its_digest_comes_back() {
    let service = Scripted::start(|asked: &Seen, _| {
        let digest = Digest::of(&asked.body).to_string();
        Reply::of(201).with("Docker-Content-Digest", digest)
    });
    let which = Which::Tag("v1".to_owned());
    let digest = service.registry().push_manifest(&which, DOCUMENT, MANIFEST);
    assert_eq!(digest.expect("sent"), Digest::of(DOCUMENT));
    let seen = service.seen();
    assert_eq!(seen[0].path, "/v2/team/name/manifests/v1");
    assert_eq!(seen[0].header("content-type"), Some(MANIFEST));
    assert_eq!(seen[0].body, DOCUMENT);
}

#[test]
fn a_registry_that_confirms_another_digest_is_an_error() {
    let other = Digest::of(b"something else").to_string();
    let service =
        Scripted::start(move |_, _| Reply::of(201).with("Docker-Content-Digest", other.clone()));
    let error = service
        .registry()
        .push_manifest(&Which::Unnamed, DOCUMENT, MANIFEST);
    assert_eq!(error.expect_err("refused").code(), "registry_wrong_digest");
}
