//! Credential helpers: with credentials, without, and with every kind of error.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runner_sources::oci::error::OciError;
use runner_sources::oci::origin::Origin as _;
use runner_sources::oci::registry::Connection;
use spec::oci::reference::Which;

use crate::faults::manifest_reply;
use crate::scripted::{Ending, Reply, Scripted, Seen};

/// `helped:canary-word`.
const AUTH: &str = "aGVscGVkOmNhbmFyeS13b3Jk";

/// A registry that accepts `helped`.
fn closed() -> Scripted {
    Scripted::start(|asked: &Seen, _| match asked.header("authorization") {
        Some(sent) if sent == format!("Basic {AUTH}") => manifest_reply(),
        _ => Reply::of(401).with("WWW-Authenticate", "Basic realm=\"x\""),
    })
}

/// Writes the program `docker-credential-test` and a `config.json` with `entry`.
fn with_helper(service: &Scripted, directory: &Path, script: &str, entry: &str) -> Connection {
    let program = directory.join("docker-credential-test");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
    std::fs::write(directory.join("config.json"), entry).expect("written");
    let path = format!("{}:/usr/bin:/bin", directory.display());
    Connection {
        docker_config: Some(directory.to_owned()),
        environment: [
            (b"PATH".to_vec(), path.into_bytes()),
            (b"SETTING".to_vec(), b"of the caller".to_vec()),
        ]
        .into(),
        ..service.connection()
    }
}

fn for_this(service: &Scripted) -> String {
    format!("{{\"credHelpers\":{{\"{}\":\"test\"}}}}", service.address())
}

fn asked(service: &Scripted, connection: Connection) -> Result<(), OciError> {
    let registry = service.registry_with(connection);
    registry.manifest(&Which::Unnamed).map(drop)
}

const GIVES: &str = "printf '{\"ServerURL\":\"x\",\"Username\":\"helped\",\
                     \"Secret\":\"canary-word\"}\\n'";

#[test]
fn a_helper_gets_the_registry_and_returns_the_login() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let heard = directory.path().join("heard");
    let script = format!("(echo \"$1 $SETTING\"; cat) >{}\n{GIVES}", heard.display());
    let for_all = "{\"credsStore\":\"test\"}".to_owned();
    for entry in [for_this(&service), for_all] {
        let connection = with_helper(&service, directory.path(), &script, &entry);
        asked(&service, connection).expect("let in");
        let heard = std::fs::read_to_string(&heard).expect("heard");
        assert_eq!(heard, format!("get of the caller\n{}", service.address()));
    }
}

#[test]
fn a_file_that_everybody_may_write_to_names_no_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let mark = directory.path().join("asked");
    let script = format!("touch {}", mark.display());
    let connection = with_helper(&service, directory.path(), &script, &for_this(&service));
    let file = directory.path().join("config.json");
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&file, open).expect("set");
    let error = asked(&service, connection).expect_err("refused");
    assert_eq!(error.code(), "registry_credentials", "{error}");
    assert!(error.to_string().contains("0666"), "{error}");
    assert!(!mark.exists());
}

#[test]
fn a_helper_is_not_started_before_the_registry_requires_a_login() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = Scripted::start(|_, _| manifest_reply());
    let mark = directory.path().join("asked");
    let script = format!("touch {}", mark.display());
    let connection = with_helper(&service, directory.path(), &script, &for_this(&service));
    asked(&service, connection).expect("there");
    assert!(!mark.exists());
}

#[test]
fn where_a_helper_has_nothing_the_file_counts_unless_it_is_the_registrys_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let nothing = "echo credentials not found in native keychain; exit 1";
    let auths = format!(
        "\"auths\":{{\"{}\":{{\"auth\":\"{AUTH}\"}}}}",
        service.address()
    );
    let of_all = format!("{{\"credsStore\":\"test\",{auths}}}");
    let connection = with_helper(&service, directory.path(), nothing, &of_all);
    asked(&service, connection).expect("let in");
    let own = for_this(&service).replacen('{', &format!("{{{auths},"), 1);
    let connection = with_helper(&service, directory.path(), nothing, &own);
    let error = asked(&service, connection).expect_err("refused");
    assert_eq!(error.code(), "registry_unauthorized");
    assert!(error.to_string().contains("a caller without credentials"));
}

#[test]
fn a_failing_helper_is_named_without_its_output() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    for (script, part) in [
        (
            "echo canary; echo canary >&2; exit 3",
            "ended with exit code 3",
        ),
        ("kill -9 $$", "ended with signal 9"),
        ("echo canary", "did not print a JSON object"),
        (
            "echo '{\"Username\":[\"canary\"]}'",
            "did not print a JSON object",
        ),
        ("while :; do echo canary; done", "returned more than 64 KiB"),
    ] {
        let connection = with_helper(&service, directory.path(), script, &for_this(&service));
        let error = asked(&service, connection).expect_err("refused");
        let text = format!("{error} {error:?}");
        assert_eq!(error.code(), "registry_credentials", "{text}");
        assert!(text.contains("`docker-credential-test`"), "{text}");
        assert!(text.contains(part), "{script}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
fn a_helper_that_is_not_there_or_has_the_name_of_a_path_is_not_started() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    for (name, part) in [
        ("nowhere", "cannot be started"),
        ("../../x", "expected letters"),
        ("x y", "expected letters"),
    ] {
        let entry = for_this(&service).replace("\"test\"", &format!("\"{name}\""));
        let connection = with_helper(&service, directory.path(), GIVES, &entry);
        let error = asked(&service, connection).expect_err("refused");
        assert_eq!(error.code(), "registry_credentials", "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_helper_that_hangs_is_killed_when_its_time_is_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let entry = for_this(&service);
    let mut connection = with_helper(&service, directory.path(), "sleep 600", &entry);
    connection.timeouts.program = Duration::from_secs(1);
    let error = asked(&service, connection).expect_err("refused");
    assert!(error.to_string().contains("within 1 s"), "{error}");
}

#[test]
fn a_helper_that_hangs_is_left_soon_after_the_caller_wants_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let mark = directory.path().join("started");
    let script = format!("touch {}; sleep 600", mark.display());
    let ending = Arc::new(Ending::default());
    let mut connection = with_helper(&service, directory.path(), &script, &for_this(&service));
    connection.timeouts.program = Duration::from_secs(500);
    connection.observer = ending.clone();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !mark.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            ending.wanted.store(true, Ordering::SeqCst);
        });
        asked(&service, connection).expect_err("ended")
    });
    assert!(matches!(error, OciError::Cancelled { .. }), "{error}");
}

#[test]
fn an_invalid_credentials_file_is_refused_without_showing_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let large = format!("{{\"x\":\"{}\"}}", "canary".repeat(200_000));
    for (text, part) in [
        ("canary", "is not valid: line 1"),
        ("{\"auths\":[\"canary\"]}", "is not valid"),
        (large.as_str(), "has more than 1 MiB"),
    ] {
        let connection = with_helper(&service, directory.path(), GIVES, text);
        let error = asked(&service, connection).expect_err("refused");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(part), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
    }
    let file = directory.path().join("config.json");
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("made");
    let connection = Connection {
        docker_config: Some(directory.path().to_owned()),
        ..service.connection()
    };
    let error = asked(&service, connection).expect_err("refused");
    assert!(
        error.to_string().contains("is not a regular file"),
        "{error}"
    );
}

#[test]
fn a_credentials_file_of_another_owner_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = closed();
    let connection = with_helper(&service, directory.path(), GIVES, &for_this(&service));
    let file = directory.path().join("config.json");
    if std::os::unix::fs::chown(&file, Some(40_151), None).is_err() {
        support::needs_root("only root gives a file away");
        return;
    }
    let error = asked(&service, connection).expect_err("refused");
    assert_eq!(error.code(), "registry_credentials");
    assert!(
        error.to_string().contains("is a file of uid 40151"),
        "{error}"
    );
}
