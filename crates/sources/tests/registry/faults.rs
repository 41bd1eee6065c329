//! Errors of a registry during a fetch, and their results.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runner_sources::oci::error::OciError;
use runner_sources::oci::origin::{BlobStream, Origin as _};
use runner_sources::oci::registry::Registry;
use runner_sources::oci::registry::error::RegistryError;
use spec::digest::Digest;
use spec::oci::media::{MANIFEST, MANIFEST_BYTES_MAX};
use spec::oci::reference::Which;

use crate::scripted::{Ending, Reply, Scripted, Seen, Way};

pub const DOCUMENT: &[u8] = b"{\"schemaVersion\":2}";

pub fn manifest_reply() -> Reply {
    Reply::of(200).with("Content-Type", MANIFEST).body(DOCUMENT)
}

fn tag() -> Which {
    Which::Tag("v1".to_owned())
}

fn refused(registry: &Registry) -> OciError {
    registry.manifest(&tag()).expect_err("refused")
}

/// Reads a blob to its end.
fn rest(stream: BlobStream<'_>) -> Result<(u64, Vec<u8>), OciError> {
    let mut bytes = Vec::new();
    let BlobStream {
        starts_at,
        mut reader,
    } = stream;
    match reader.read_to_end(&mut bytes) {
        Ok(_) => Ok((starts_at, bytes)),
        Err(error) => Err(OciError::of_read(error).expect("an error of ours")),
    }
}

#[test]
fn a_manifest_comes_with_its_digest_and_is_asked_for_in_every_form() {
    let service = Scripted::start(|_, _| manifest_reply());
    for which in [tag(), Which::Digest(Digest::of(DOCUMENT)), Which::Unnamed] {
        let fetched = service.registry().manifest(&which).expect("there");
        assert_eq!(fetched.bytes, DOCUMENT);
        assert_eq!(fetched.digest, Digest::of(DOCUMENT));
    }
    let seen = service.seen();
    let paths: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).collect();
    let by_digest = format!("/v2/team/name/manifests/{}", Digest::of(DOCUMENT));
    assert_eq!(
        paths,
        [
            "/v2/team/name/manifests/v1",
            &by_digest,
            "/v2/team/name/manifests/latest"
        ]
    );
    let accept = seen[0].header("accept").expect("accepted");
    for part in [
        "oci.image.manifest.v1+json",
        "oci.image.index.v1+json",
        "docker.distribution.manifest.v2+json",
        "docker.distribution.manifest.list.v2+json",
    ] {
        assert!(accept.contains(part), "{accept}");
    }
}

#[test]
fn transient_errors_are_retried_until_success() {
    let past = "Wed, 21 Oct 2015 07:28:00 GMT";
    for (times, reply) in [
        (1, Reply::of(500)),
        (3, Reply::of(502)),
        (2, Reply::of(503).with("Retry-After", "0")),
        (1, Reply::of(429).with("Retry-After", "0")),
        (1, Reply::of(429).with("Retry-After", past)),
        (1, Reply::of(408)),
        (2, manifest_reply().way(Way::Cut(3))),
    ] {
        let shown = format!("{reply:?}");
        let service = Scripted::start(move |_, before| match before < times {
            true => reply.clone(),
            false => manifest_reply(),
        });
        let fetched = service.registry().manifest(&tag()).expect(&shown);
        assert_eq!(fetched.bytes, DOCUMENT);
        assert_eq!(service.count("GET", "/manifests/"), times + 1, "{shown}");
    }
}

#[test]
fn retries_end_after_four_attempts_with_the_cause() {
    for (reply, cause) in [
        (Reply::of(500), "the answer was 500"),
        (manifest_reply().way(Way::Cut(3)), ""),
    ] {
        let service = Scripted::start(move |_, _| reply.clone());
        let error = refused(&service.registry());
        assert_eq!(error.code(), "registry_unavailable", "{error}");
        let text = error.to_string();
        assert!(
            text.contains("after 4 tries") && text.contains(cause),
            "{text}"
        );
        assert!(text.starts_with("GET http://127.0.0.1:"), "{text}");
        assert_eq!(service.count("GET", "/manifests/"), 4);
    }
}

#[test]
fn a_registry_that_asks_for_a_long_wait_is_not_waited_for() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let later = now.expect("after 1970").as_secs() + 7200;
    for wait in ["7200".to_owned(), http_date(later)] {
        let reply = Reply::of(429).with("Retry-After", wait.clone());
        let service = Scripted::start(move |_, _| reply.clone());
        let error = refused(&service.registry());
        assert_eq!(error.code(), "registry_rate_limited", "{wait}: {error}");
        assert!(error.to_string().contains("it accepts requests again at"));
        assert_eq!(service.count("GET", "/manifests/"), 1);
    }
}

/// Header dates, written by the C library's own `date`.
fn http_date(unix_s: u64) -> String {
    let mut date = std::process::Command::new("date");
    date.args([
        "-u",
        "+%a, %d %b %Y %H:%M:%S GMT",
        "-d",
        &format!("@{unix_s}"),
    ]);
    let said = date.env("LC_ALL", "C").output().expect("date starts");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[test]
fn permanent_errors_are_not_retried() {
    let says = r#"{"errors":[{"code":"DENIED\u001b[31m","message":"ask \u202enobody"}]}"#;
    let other = Digest::of(b"something else");
    for (reply, code, part) in [
        (
            Reply::of(404).body(says),
            "registry_not_found",
            "manifest v1; it says: DENIED\\x1b[31m: ask \\u{202e}nobody",
        ),
        (
            Reply::of(404),
            "registry_not_found",
            "team/name: the registry has no manifest v1",
        ),
        (
            Reply::of(403).body(says),
            "registry_denied",
            "denies the request to a caller without credentials; it says",
        ),
        (
            Reply::of(401),
            "registry_unauthorized",
            "refuses a caller without credentials",
        ),
        (
            Reply::of(400).body("<html>"),
            "registry_refused",
            "the server answered 400",
        ),
        (Reply::of(204), "registry_unusable", "the answer was 204"),
        (
            Reply::of(206).body("x"),
            "registry_unusable",
            "the answer was 206",
        ),
        (
            manifest_reply().with("Docker-Content-Digest", other.to_string()),
            "registry_wrong_digest",
            "expected sha256:",
        ),
        (
            manifest_reply().with("Docker-Content-Digest", "sha256:xyz"),
            "registry_unusable",
            "expected sha256: and 64 digits",
        ),
        (
            Reply::of(200).body(vec![
                b'x';
                usize::try_from(MANIFEST_BYTES_MAX).expect("fits") + 1
            ]),
            "registry_too_large",
            "the manifest has more than 4 MiB",
        ),
        (
            Reply::of(200).way(Way::EndlessBody),
            "registry_too_large",
            "more than 4 MiB",
        ),
        (
            Reply::of(200).way(Way::EndlessHead),
            "registry_unusable",
            "the head of the answer",
        ),
        (
            Reply::of(302).with("Location", "ftp://x/"),
            "registry_unusable",
            "is not a usable http",
        ),
        (
            Reply::of(302).with("Location", "http://user:canary@127.0.0.1/"),
            "registry_unusable",
            "is not a usable http",
        ),
    ] {
        let shown = format!("{} {:?}", reply.status, reply.way);
        let service = Scripted::start(move |_, _| reply.clone());
        let error = refused(&service.registry());
        let text = error.to_string();
        assert_eq!(error.code(), code, "{shown}: {text}");
        assert!(text.contains(part), "{shown}: {text}");
        assert!(!text.contains("canary") && text.len() < 600, "{text}");
        assert_eq!(service.count("GET", "/manifests/"), 1, "{shown}");
    }
}

/// A-60: of the manifest.
#[test]
fn a_manifest_with_another_digest_than_the_one_asked_for_is_refused() {
    let service = Scripted::start(|_, _| manifest_reply());
    let asked = Digest::of(b"something else");
    let error = service.registry().manifest(&Which::Digest(asked));
    let error = error.expect_err("refused");
    assert_eq!(error.code(), "registry_wrong_digest");
    let text = error.to_string();
    let found = Digest::of(DOCUMENT).to_string();
    assert!(
        text.contains(&found) && text.contains(&asked.to_string()),
        "{text}"
    );
}

/// A service with one blob, which resumes at the requested offset.
fn with_blob(bytes: Vec<u8>, first: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |asked: &Seen, before| {
        let from = asked
            .header("range")
            .and_then(|range| range.strip_prefix("bytes="))
            .and_then(|range| range.strip_suffix('-'))
            .map(|from| from.parse::<usize>().expect("a number"));
        let reply = match from {
            Some(from) => Reply::of(206)
                .with(
                    "Content-Range",
                    format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len()),
                )
                .body(&bytes[from..]),
            None => Reply::of(200).body(bytes.clone()),
        };
        match before {
            0 => first(reply),
            _ => reply,
        }
    })
}

fn content() -> Vec<u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_body_that_breaks_off_is_gone_on_with_where_it_ended() {
    let bytes = content();
    let digest = Digest::of(&bytes);
    let service = with_blob(bytes.clone(), |reply| reply.way(Way::Cut(300_000)));
    let registry = service.registry();
    let BlobStream { mut reader, .. } = registry.blob(&digest, 0).expect("begun");
    let mut had = Vec::new();
    let error = reader.read_to_end(&mut had).expect_err("broken off");
    let error = OciError::of_read(error).expect("an error of ours");
    assert!(error.is_temporary(), "{error}");
    assert_eq!(error.code(), "registry_truncated");
    assert_eq!(had, bytes[..had.len()]);
    let from = had.len() as u64;
    let (starts_at, rest) = rest(registry.blob(&digest, from).expect("gone on")).expect("read");
    assert_eq!(starts_at, from);
    had.extend(rest);
    assert_eq!(Digest::of(&had), digest);
}

#[test]
fn a_registry_that_ignores_the_range_begins_anew_and_says_so() {
    let service = Scripted::start(|_, _| Reply::of(200).body(content()));
    let digest = Digest::of(&content());
    let registry = service.registry();
    let (starts_at, bytes) = rest(registry.blob(&digest, 1000).expect("begun")).expect("read");
    assert_eq!((starts_at, bytes.len()), (0, content().len()));
    assert_eq!(service.seen()[0].header("range"), Some("bytes=1000-"));
}

#[test]
fn a_part_that_was_not_asked_for_is_refused() {
    for (range, part) in [
        (
            "bytes 0-9/10",
            "`bytes 0-9/10`, expected one from byte 5 on",
        ),
        ("bytes 6-9/10", "expected one from byte 5 on"),
        ("bytes */10", "expected one from byte 5 on"),
        ("", "expected one from byte 5 on"),
        ("5-9/10", "expected one from byte 5 on"),
    ] {
        let reply = Reply::of(206).with("Content-Range", range).body("56789");
        let service = Scripted::start(move |_, _| reply.clone());
        let registry = service.registry();
        let error = registry.blob(&Digest::of(b"x"), 5).expect_err("refused");
        assert_eq!(error.code(), "registry_unusable", "{range}: {error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let service = Scripted::start(|_, _| Reply::of(206).body("x"));
    let registry = service.registry();
    let error = registry.blob(&Digest::of(b"x"), 0).expect_err("refused");
    assert!(error.to_string().contains("the answer was 206"), "{error}");
}

#[test]
fn a_range_beyond_the_end_restarts_the_download() {
    let service = Scripted::start(|asked: &Seen, _| match asked.header("range") {
        Some(_) => Reply::of(416),
        None => Reply::of(200).body("whole"),
    });
    let registry = service.registry();
    let stream = registry.blob(&Digest::of(b"whole"), 99).expect("begun");
    assert_eq!(rest(stream).expect("read"), (0, b"whole".to_vec()));
}

#[test]
fn a_body_that_was_packed_on_the_way_is_refused() {
    let reply = Reply::of(200).with("Content-Encoding", "gzip").body("x");
    let service = Scripted::start(move |_, _| reply.clone());
    let registry = service.registry();
    let error = registry.blob(&Digest::of(b"x"), 0).expect_err("refused");
    assert!(error.to_string().contains("encoded as `gzip`"), "{error}");
}

#[test]
fn redirects_end_somewhere_and_stay_in_the_bounds_of_the_connection() {
    let service =
        Scripted::start(|_, _| Reply::of(307).with("Location", "/v2/team/name/manifests/again"));
    let error = refused(&service.registry());
    assert!(
        error.to_string().contains("more than 5 redirects"),
        "{error}"
    );
}

#[test]
fn a_stalled_body_ends_soon_after_the_caller_wants_it() {
    let service = with_blob(content(), |reply| reply.way(Way::Stall(100)));
    ends_when_wanted(&service, 0, |registry| {
        let stream = registry.blob(&Digest::of(b"x"), 0)?;
        rest(stream).map(drop)
    });
}

#[test]
fn cancelling_ends_a_request_to_a_silent_registry() {
    let service = Scripted::start(|_, _| Reply::of(200).way(Way::Silence));
    ends_when_wanted(&service, 0, |registry| registry.manifest(&tag()).map(drop));
}

#[test]
fn a_pause_between_two_tries_ends_soon_after_the_caller_wants_it() {
    let service = Scripted::start(|_, _| Reply::of(429).with("Retry-After", "29"));
    ends_when_wanted(&service, 1, |registry| registry.manifest(&tag()).map(drop));
}

/// Runs `what`, which would take half a minute, and requests its end while it waits. A further
/// retry would show that only a timeout ended it.
fn ends_when_wanted(
    service: &Scripted,
    tried_again: u32,
    what: impl FnOnce(&Registry) -> Result<(), OciError>,
) {
    let ending = Arc::new(Ending::default());
    let mut connection = service.connection();
    connection.observer = ending.clone();
    let registry = service.registry_with(connection);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while service.seen().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // So that it is already waiting.
            std::thread::sleep(Duration::from_millis(500));
            ending.wanted.store(true, Ordering::SeqCst);
        });
        what(&registry).expect_err("ended")
    });
    assert!(matches!(error, OciError::Cancelled { .. }), "{error}");
    assert_eq!(ending.waited.load(Ordering::SeqCst), tried_again);
}

#[test]
fn a_stalled_download_times_out_and_can_be_resumed() {
    let service = with_blob(content(), |reply| reply.way(Way::Stall(100)));
    let mut connection = service.connection();
    connection.timeouts.stall = Duration::from_millis(300);
    let registry = service.registry_with(connection);
    let stream = registry.blob(&Digest::of(b"x"), 0).expect("begun");
    let error = rest(stream).expect_err("given up");
    assert!(error.is_temporary(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("after 100 bytes: nothing was sent or received for 300ms"),
        "{text}"
    );
}

#[test]
fn an_unreachable_registry_is_named() {
    let address = {
        let service = Scripted::start(|_, _| Reply::of(200));
        service.address()
    };
    let connection = runner_sources::oci::registry::Connection {
        timeouts: crate::scripted::hasty(),
        ..Default::default()
    };
    let registry = crate::scripted::registry(&address, connection);
    let error = refused(&registry);
    assert_eq!(error.code(), "registry_unavailable");
    let text = error.to_string();
    assert!(
        text.contains(&address) && text.contains("Connection refused"),
        "{text}"
    );
}

#[test]
fn a_download_that_drips_bytes_times_out() {
    let service = Scripted::start(|_, _| Reply::of(200).body(vec![b' '; 10_000]).way(Way::Drip));
    let mut connection = service.connection();
    connection.timeouts.document = Duration::from_millis(200);
    connection.timeouts.slow = Duration::from_millis(200);
    connection.timeouts.slow_bytes = 1 << 20;
    let registry = service.registry_with(connection);
    let error = registry.manifest(&tag()).expect_err("given up");
    assert_eq!(error.code(), "registry_unavailable", "{error}");
    assert!(error.to_string().contains("longer than 200ms"), "{error}");
    let stream = registry.blob(&Digest::of(b"x"), 0).expect("begun");
    let error = rest(stream).expect_err("given up");
    assert!(error.is_temporary(), "{error}");
    assert!(error.to_string().contains("expected 1048576"), "{error}");
}

#[test]
fn without_insecure_no_request_is_made_over_plain_http_not_even_to_this_machine() {
    let service = Scripted::start(|_, _| manifest_reply());
    let mut connection = service.connection();
    connection.insecure = false;
    let error = refused(&service.registry_with(connection));
    assert_eq!(error.code(), "registry_plain_http", "{error}");
    let is_plain = |error: &OciError| {
        matches!(error, OciError::Registry(error)
            if matches!(**error, RegistryError::PlainHttp { .. }))
    };
    assert!(is_plain(&error), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("--insecure")));
    assert_eq!(service.seen().len(), 0);
}
