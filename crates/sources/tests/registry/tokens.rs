//! Authentication: tokens, passwords, and which servers receive them.

use std::path::Path;
use std::sync::{Arc, Mutex};

use runner_sources::oci::origin::Origin as _;
use runner_sources::oci::registry::Connection;
use spec::digest::Digest;
use spec::oci::reference::Which;

use crate::faults::{DOCUMENT, manifest_reply};
use crate::scripted::{Reply, Scripted, Seen};

/// `user:canary-word`.
const AUTH: &str = "dXNlcjpjYW5hcnktd29yZA==";

fn tag() -> Which {
    Which::Tag("v1".to_owned())
}

/// Writes a `config.json` with this entry for the service.
fn logged_in(service: &Scripted, directory: &Path, entry: &str) -> Connection {
    let text = format!("{{\"auths\":{{\"{}\":{entry}}}}}", service.address());
    std::fs::write(directory.join("config.json"), text).expect("written");
    Connection {
        docker_config: Some(directory.to_owned()),
        ..service.connection()
    }
}

fn with_password(service: &Scripted, directory: &Path) -> Connection {
    logged_in(service, directory, &format!("{{\"auth\":\"{AUTH}\"}}"))
}

/// A registry that requires the token `canary-1`, then `canary-2` …, which it issues itself; the
/// number in the cell is the accepted one.
fn with_tokens(wanted: Arc<Mutex<u32>>) -> Scripted {
    Scripted::start(move |asked: &Seen, _| {
        let wanted = *wanted.lock().expect("locked");
        if asked.path.starts_with("/token") {
            return Reply::of(200).body(format!(
                "{{\"token\":\"\",\"access_token\":\"canary-{wanted}\"}}"
            ));
        }
        if asked.header("authorization") == Some(&format!("Bearer canary-{wanted}")) {
            return manifest_reply();
        }
        let host = asked.header("host").expect("a host");
        Reply::of(401).with(
            "WWW-Authenticate",
            format!(
                "Bearer realm=\"http://{host}/token?x=y\",service=\"the service\",\
                 scope=\"repository:team/name:pull\""
            ),
        )
    })
}

#[test]
fn a_token_is_fetched_once_and_anew_when_it_has_ended() {
    let wanted = Arc::new(Mutex::new(1));
    let service = with_tokens(Arc::clone(&wanted));
    let registry = service.registry();
    for _ in 0..3 {
        assert_eq!(registry.manifest(&tag()).expect("there").bytes, DOCUMENT);
    }
    assert_eq!(service.count("GET", "/token"), 1);
    *wanted.lock().expect("locked") = 2;
    assert_eq!(registry.manifest(&tag()).expect("there").bytes, DOCUMENT);
    assert_eq!(service.count("GET", "/token"), 2);
    let seen = service.seen();
    let asked = seen.iter().find(|seen| seen.path.starts_with("/token"));
    let asked = asked.expect("asked");
    assert_eq!(
        asked.path,
        "/token?x=y&service=the%20service&scope=repository%3Ateam%2Fname%3Apull"
    );
    assert_eq!(asked.header("authorization"), None);
    let shown = format!("{registry:?}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn the_password_goes_to_the_token_service_and_the_token_to_the_registry() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = with_tokens(Arc::new(Mutex::new(1)));
    let registry = service.registry_with(with_password(&service, directory.path()));
    registry.manifest(&tag()).expect("there");
    for asked in service.seen() {
        let sent = asked.header("authorization");
        match asked.path.starts_with("/token") {
            true => {
                assert_eq!(sent, Some(format!("Basic {AUTH}").as_str()));
                assert!(asked.path.ends_with("&account=user"), "{}", asked.path);
            }
            false => assert!(
                sent.is_none_or(|sent| sent == "Bearer canary-1"),
                "{sent:?}"
            ),
        }
    }
}

#[test]
fn an_identity_token_is_given_for_a_token_in_a_form_and_in_no_url() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = with_tokens(Arc::new(Mutex::new(1)));
    let entry = "{\"auth\":\"dXNlcjo=\",\"identitytoken\":\"canary=identity\"}";
    let registry = service.registry_with(logged_in(&service, directory.path(), entry));
    registry.manifest(&tag()).expect("there");
    let seen = service.seen();
    let asked = seen.iter().find(|seen| seen.method == "POST");
    let asked = asked.expect("a form");
    assert_eq!(asked.path, "/token?x=y");
    let form = String::from_utf8_lossy(&asked.body).into_owned();
    assert_eq!(
        form,
        "grant_type=refresh_token&client_id=runner&refresh_token=canary%3Didentity&\
         service=the%20service&scope=repository%3Ateam%2Fname%3Apull"
    );
}

#[test]
fn a_password_is_sent_only_once_the_registry_asked_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = Scripted::start(|asked: &Seen, _| match asked.header("authorization") {
        Some(sent) if sent == format!("Basic {AUTH}") => manifest_reply(),
        _ => Reply::of(401).with("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let registry = service.registry_with(with_password(&service, directory.path()));
    registry.manifest(&tag()).expect("there");
    registry.manifest(&tag()).expect("there");
    let seen = service.seen();
    let sent: Vec<bool> = seen
        .iter()
        .map(|seen| seen.header("authorization").is_some())
        .collect();
    assert_eq!(sent, [false, true, true]);
}

#[test]
fn a_refused_login_is_named_by_where_it_was_found_and_is_not_tried_again() {
    let directory = tempfile::tempdir().expect("a directory");
    for challenge in ["Basic realm=\"x\"", "Bearer realm=\"http://HOST/token\""] {
        let service = Scripted::start(move |asked: &Seen, _| {
            let host = asked.header("host").expect("a host");
            let challenge = challenge.replace("HOST", host);
            Reply::of(401)
                .with("WWW-Authenticate", challenge)
                .body("{\"errors\":[{\"code\":\"UNAUTHORIZED\",\"message\":\"no\"}]}")
        });
        let registry = service.registry_with(with_password(&service, directory.path()));
        let error = registry.manifest(&tag()).expect_err("refused");
        assert_eq!(error.code(), "registry_unauthorized");
        let text = format!("{error} {error:?} {:?}", error.hint());
        assert!(text.contains("config.json"), "{text}");
        assert!(text.contains("UNAUTHORIZED: no"), "{text}");
        assert!(!text.contains("canary") && !text.contains(AUTH), "{text}");
        assert_eq!(service.seen().len(), 2);
    }
}

#[test]
fn credentials_that_a_registry_echoes_are_in_no_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = Scripted::start(|asked: &Seen, before| match asked.header("authorization") {
        None => Reply::of(401).with("WWW-Authenticate", "Basic realm=\"x\""),
        Some(sent) => {
            let said = format!("{sent} and canary-word");
            let body = format!("{{\"errors\":[{{\"code\":\"C\",\"message\":\"{said}\"}}]}}");
            match before {
                1 => Reply::of(403).body(body),
                2 => Reply::of(400).body(body),
                _ => manifest_reply().with("Docker-Content-Digest", format!("sha256:{said}")),
            }
        }
    });
    let registry = service.registry_with(with_password(&service, directory.path()));
    for code in ["registry_denied", "registry_refused", "registry_unusable"] {
        let error = registry.manifest(&tag()).expect_err("refused");
        let text = format!("{error} {error:?}");
        assert_eq!(error.code(), code, "{text}");
        assert!(text.contains("***"), "{text}");
        assert!(!text.contains("canary") && !text.contains(AUTH), "{text}");
    }
}

#[test]
fn credentials_that_a_token_service_echoes_are_in_no_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = Scripted::start(|asked: &Seen, _| {
        let host = asked.header("host").expect("a host");
        if asked.path.starts_with("/token") {
            let sent = asked.header("authorization").expect("a password");
            let body = format!("{{\"errors\":[{{\"code\":\"C\",\"message\":\"{sent}\"}}]}}");
            return Reply::of(403).body(body);
        }
        let challenge = format!("Bearer realm=\"http://{host}/token\"");
        Reply::of(401).with("WWW-Authenticate", challenge)
    });
    let registry = service.registry_with(with_password(&service, directory.path()));
    let error = registry.manifest(&tag()).expect_err("refused");
    let text = format!("{error} {error:?}");
    assert_eq!(error.code(), "registry_unauthorized", "{text}");
    assert!(text.contains("***") && !text.contains(AUTH), "{text}");
}

#[test]
fn a_token_service_that_fails_is_tried_again_or_named() {
    for (reply, code, tokens) in [
        (Reply::of(500), "registry_unavailable", 4),
        (Reply::of(403), "registry_unauthorized", 1),
        (Reply::of(404), "registry_refused", 1),
        (
            Reply::of(302).with("Location", "/x"),
            "registry_unusable",
            1,
        ),
        (Reply::of(200).body("canary"), "registry_unusable", 1),
        (Reply::of(200).body("{}"), "registry_unusable", 1),
        (
            Reply::of(200).body("{\"token\":\"canary canary\"}"),
            "registry_unusable",
            1,
        ),
        (
            Reply::of(200).body("{\"token\":[\"canary\"]}"),
            "registry_unusable",
            1,
        ),
        (
            Reply::of(200).body(format!("[{}0]", "0,".repeat((128 << 10) / 2 - 2))),
            "registry_unusable",
            1,
        ),
        (
            Reply::of(200).body(vec![b' '; (128 << 10) + 1]),
            "registry_unusable",
            1,
        ),
    ] {
        let shown = format!("{}", reply.status);
        let service = Scripted::start(move |asked: &Seen, _| {
            let host = asked.header("host").expect("a host");
            match asked.path.starts_with("/token") {
                true => reply.clone(),
                false => Reply::of(401).with(
                    "WWW-Authenticate",
                    format!("Bearer realm=\"http://{host}/token\""),
                ),
            }
        });
        let error = service.registry().manifest(&tag()).expect_err("refused");
        let text = format!("{error} {error:?}");
        assert_eq!(error.code(), code, "{shown}: {text}");
        let request = format!("GET {}", service.url("/token: "));
        assert!(text.starts_with(&request), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(service.count("GET", "/token"), tokens, "{shown}");
    }
}

#[test]
fn an_unreachable_token_service_is_named_instead_of_the_registry() {
    let plain = Arc::new(Scripted::start(|_, _| Reply::of(200)));
    let closed = Scripted::start(|_, _| Reply::of(200)).address();
    for (realm, code) in [
        (format!("http://{closed}/token"), "registry_unavailable"),
        (
            format!("https://{}/token", plain.address()),
            "registry_unusable",
        ),
    ] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let service =
            Scripted::start(move |_, _| Reply::of(401).with("WWW-Authenticate", challenge.clone()));
        let error = service.registry().manifest(&tag()).expect_err("refused");
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(text.starts_with(&format!("GET {realm}: ")), "{text}");
    }
}

#[test]
fn credentials_that_the_challenge_cannot_use_are_not_blamed_for_the_refusal() {
    let directory = tempfile::tempdir().expect("a directory");
    let identity = "{\"identitytoken\":\"canary-identity\"}";
    let password = format!("{{\"auth\":\"{AUTH}\"}}");
    for (challenge, entry, code, part) in [
        (
            "Basic realm=\"x\"",
            identity,
            "registry_credentials",
            "has an identity token, but the registry asks for a user and a password",
        ),
        (
            "Negotiate",
            &password,
            "registry_unauthorized",
            "refuses a caller without credentials",
        ),
    ] {
        let service =
            Scripted::start(move |_, _| Reply::of(401).with("WWW-Authenticate", challenge));
        let registry = service.registry_with(logged_in(&service, directory.path(), entry));
        let error = registry.manifest(&tag()).expect_err("refused");
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(text.contains(part) && !text.contains("canary"), "{text}");
        assert_eq!(service.seen().len(), 1);
    }
}

#[test]
fn a_failing_server_behind_a_redirect_is_named() {
    let elsewhere = Arc::new(Scripted::start(|_, _| Reply::of(503)));
    for (scheme, code, part) in [
        ("https", "registry_unusable", "TLS: the server does not"),
        ("http", "registry_unavailable", "the answer was 503"),
    ] {
        let origin = format!("{scheme}://{}", elsewhere.address());
        let location = format!("{origin}/blob");
        let service =
            Scripted::start(move |_, _| Reply::of(307).with("Location", location.clone()));
        let registry = service.registry();
        let error = registry.blob(&Digest::of(b"x"), 0).expect_err("refused");
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(text.contains(&format!("{origin}: {part}")), "{text}");
    }
}

#[test]
fn no_token_is_requested_over_plain_http_from_another_host() {
    let directory = tempfile::tempdir().expect("a directory");
    for realm in [
        "http://auth.example.org/token",
        "http://127.0.0.1.example.org/token",
        "ftp://127.0.0.1/token",
        "http://user:word@127.0.0.1/token",
        "/token",
        "file:///etc/passwd",
    ] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let service =
            Scripted::start(move |_, _| Reply::of(401).with("WWW-Authenticate", challenge.clone()));
        let registry = service.registry_with(with_password(&service, directory.path()));
        let error = registry.manifest(&tag()).expect_err("refused");
        assert_eq!(error.code(), "registry_unusable", "{realm}: {error}");
        let text = error.to_string();
        assert!(text.contains("token service"), "{text}");
        assert_eq!(service.seen().len(), 1);
    }
}

#[test]
fn credentials_are_dropped_on_a_redirect_to_another_host() {
    let directory = tempfile::tempdir().expect("a directory");
    let elsewhere = Arc::new(Scripted::start(|_, _| Reply::of(200).body("blob")));
    let place = elsewhere.url("/blob?signature=canary-signature");
    let service = Scripted::start(move |asked: &Seen, _| match asked.header("authorization") {
        Some(_) => Reply::of(307).with("Location", place.clone()),
        None => Reply::of(401).with("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let registry = service.registry_with(with_password(&service, directory.path()));
    let mut stream = registry.blob(&Digest::of(b"blob"), 0).expect("begun");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream.reader, &mut bytes).expect("read");
    assert_eq!(bytes, b"blob");
    let seen = elsewhere.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("authorization"), None);
}

#[test]
fn a_refusal_of_another_host_is_reported_without_its_exact_location() {
    let elsewhere =
        Scripted::start(|_, _| Reply::of(401).with("WWW-Authenticate", "Basic realm=\"give me\""));
    let place = elsewhere.url("/blob?signature=canary");
    let service = Scripted::start(move |_, _| Reply::of(302).with("Location", place.clone()));
    let directory = tempfile::tempdir().expect("a directory");
    let registry = service.registry_with(with_password(&service, directory.path()));
    let error = registry.blob(&Digest::of(b"x"), 0).expect_err("refused");
    let text = format!("{error} {error:?}");
    assert!(text.contains(&elsewhere.address()), "{text}");
    assert!(!text.contains("canary"), "{text}");
    assert_eq!(elsewhere.seen().len(), 1);
    assert_eq!(elsewhere.seen()[0].header("authorization"), None);
}
