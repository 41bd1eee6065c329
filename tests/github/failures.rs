//! Errors of the service, and their results.

use std::io::{Read as _, Seek as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use sources::Timeouts;
use sources::github::{Client, ClientSettings, GitHub as _, GitHubError, Token};
use tracing::level_filters::LevelFilter;

use crate::service::{NOWHERE, Service, files, pairs, refused};

/// A service with one commit of one file in `org/repo`.
fn with_a_commit() -> Option<(Service, String)> {
    let service = Service::start()?;
    let sha = service.repository("org/repo").commit_file("a", "1");
    Some((service, sha))
}

fn resolve(client: &Client) -> Result<String, GitHubError> {
    client
        .resolve_ref("org/repo", "main")
        .map(|resolved| resolved.sha)
}

fn fetch_is_whole(service: &Service, sha: &str) {
    let tree = service
        .client()
        .fetch("org/repo", sha, None)
        .expect("there");
    assert_eq!(files(&tree), pairs(&[("a", "1")]));
}

#[test]
fn transient_errors_are_retried_until_success() {
    let Some((service, sha)) = with_a_commit() else {
        return;
    };
    for (times, fault) in [
        (1, json!({"status": 500})),
        (3, json!({"status": 502})),
        (2, json!({"status": 503, "headers": {"Retry-After": "0"}})),
        (
            1,
            json!({"status": 503, "headers": {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}}),
        ),
        (1, json!({"status": 429, "headers": {"Retry-After": "0"}})),
        (1, json!({"status": 403, "headers": {"Retry-After": "0"}})),
        (1, json!({"status": 408})),
        (2, json!({"close": true})),
        (1, json!({"garbage": true})),
    ] {
        service.forget();
        service.times(times, "/git/refs/heads/", fault.clone());
        assert_eq!(resolve(&service.client()).expect("passes"), sha, "{fault}");
        let tries = usize::try_from(times + 1).expect("few");
        // The library may repeat a request on a reused connection once.
        let made = service.count("/git/refs/heads/");
        assert!((tries..=tries + 1).contains(&made), "{fault}: {made}");
    }
}

#[test]
fn an_archive_that_ends_too_early_is_fetched_again() {
    let Some((service, sha)) = with_a_commit() else {
        return;
    };
    for fault in [
        json!({"cut": 0}),
        json!({"cut": 1}),
        json!({"cut": 60}),
        json!({"cut": 60, "chunked": true}),
        json!({"cut": 0, "unsized": true}),
        json!({"cut": 60, "unsized": true}),
        json!({"status": 500}),
        json!({"close": true}),
    ] {
        // Even where an empty body is complete, it is not an archive: a repeated request would
        // return the same.
        let may_pass = fault != json!({"cut": 0, "unsized": true});
        service.forget();
        clear(&service);
        service.times(1, "/archive/", fault.clone());
        if may_pass {
            fetch_is_whole(&service, &sha);
            assert_eq!(service.count("/archive/"), 2, "{fault}");
        } else {
            let error = refused(&service.client(), &sha);
            assert_eq!(error.code(), "github_archive_refused", "{error}");
        }
        service.forget();
        clear(&service);
        service.always("/archive/", fault.clone());
        if may_pass {
            let error = refused(&service.client(), &sha);
            assert_eq!(error.code(), "github_unavailable", "{fault}: {error}");
            assert!(error.to_string().contains("after 4 tries"), "{error}");
            assert!(error.to_string().contains("/tarball/"), "{error}");
        }
    }
}

fn clear(service: &Service) {
    if service.cache().exists() {
        std::fs::remove_dir_all(service.cache()).expect("removed");
    }
}

#[test]
fn retries_end_after_four_attempts_with_the_cause() {
    let Some((service, _)) = with_a_commit() else {
        return;
    };
    for (fault, cause) in [
        (json!({"status": 500}), "the answer was 500"),
        (json!({"status": 503}), "the answer was 503"),
        (json!({"close": true}), ""),
        (json!({"garbage": true}), "no HTTP"),
        (
            json!({"body": "{\"ref\": \"refs/heads/main\"", "cut": 3}),
            "",
        ),
    ] {
        service.forget();
        service.always("/git/refs/heads/", fault.clone());
        let error = resolve(&service.client()).expect_err("fails");
        assert_eq!(error.code(), "github_unavailable");
        let text = error.to_string();
        assert!(
            text.contains("after 4 tries") && text.contains(cause),
            "{text}"
        );
        assert!(text.starts_with("GET http://127.0.0.1:"), "{text}");
    }
}

#[test]
fn permanent_errors_are_not_retried() {
    let Some((service, _)) = with_a_commit() else {
        return;
    };
    let html = json!({"body": "<html>", "headers": {"Content-Type": "text/html"}});
    for (fault, code, cause) in [
        (
            json!({"status": 401}),
            "github_unauthorized",
            "requests without a token",
        ),
        (
            json!({"status": 403}),
            "github_unauthorized",
            "requests without a token",
        ),
        (
            json!({"status": 418}),
            "github_unavailable",
            "the answer was 418",
        ),
        (
            json!({"body": "{"}),
            "github_unavailable",
            "not a JSON document",
        ),
        (
            json!({"body": "[{}]"}),
            "github_unavailable",
            "has no `ref`",
        ),
        (
            json!({"body": "{\"ref\": \"refs/heads/main\", \"object\": {\"type\": \"commit\", \"sha\": \"../x\"}}"}),
            "github_unavailable",
            "no `sha` of 40",
        ),
        (
            html,
            "github_unavailable",
            "of the type `text/html`, expected a JSON document",
        ),
        (
            json!({"location": "ftp://elsewhere/"}),
            "github_unavailable",
            "is not a usable http",
        ),
        (
            json!({"location": ""}),
            "github_unavailable",
            "is not a usable http",
        ),
        (
            json!({"location": "http://user:canary-word@127.0.0.1/"}),
            "github_unavailable",
            "is not a usable http",
        ),
    ] {
        service.forget();
        service.always("/git/refs/heads/", fault.clone());
        let error = resolve(&service.client()).expect_err("fails");
        assert_eq!(error.code(), code, "{fault}: {error}");
        assert!(error.to_string().contains(cause), "{error}");
        assert!(
            !format!("{error:?} {error}").contains("canary-word"),
            "{error}"
        );
        assert_eq!(service.count("/git/refs/heads/"), 1, "{fault}");
        let once = error.to_string().contains("after one try");
        assert_eq!(once, code == "github_unavailable", "{error}");
    }
    service.forget();
    service.always(
        "/archive/",
        json!({"body": "<html>", "headers": {"Content-Type": "text/html"}}),
    );
    let error = refused(&service.client(), &sha_of(&service));
    assert_eq!(error.code(), "github_unavailable");
    assert!(
        error.to_string().contains("expected a gzip-compressed tar"),
        "{error}"
    );
}

fn sha_of(service: &Service) -> String {
    resolve(&service.client()).expect("there")
}

#[test]
fn a_refused_token_is_named_by_where_it_was_found() {
    let Some((service, sha)) = with_a_commit() else {
        return;
    };
    service.demand_token("right");
    let client = |token: Option<&str>| {
        let mut settings = service.settings();
        settings.token =
            token.map(|token| Token::new(token.as_bytes(), "env:SOME_TOKEN").expect("a token"));
        Client::new(settings).expect("a client")
    };
    let error = resolve(&client(Some("wrong"))).expect_err("refused");
    assert_eq!(error.code(), "github_unauthorized");
    assert!(
        error
            .to_string()
            .contains("`env:SOME_TOKEN` (github.token)"),
        "{error}"
    );
    let error = resolve(&client(None)).expect_err("refused");
    let hint = error.hint().expect("a hint");
    assert!(hint.contains("set github.token"), "{hint}");
    assert_eq!(service.paths().len(), 2, "neither is tried again");
    assert_eq!(resolve(&client(Some("right"))).expect("there"), sha);
    let tree = client(Some("right")).fetch("org/repo", &sha, None);
    assert_eq!(files(&tree.expect("there")), pairs(&[("a", "1")]));
}

#[test]
fn a_rate_limit_tells_when_it_ends_and_is_not_waited_for_where_that_is_long() {
    let Some((service, _)) = with_a_commit() else {
        return;
    };
    let in_an_hour = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
        + 3_600;
    let used_up = json!({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in_an_hour});
    for (status, headers, tries) in [
        (403, used_up.clone(), 1),
        (429, used_up, 1),
        (429, json!({"Retry-After": "3600"}), 1),
        (403, json!({"Retry-After": "3600"}), 1),
    ] {
        service.forget();
        let fault = json!({"status": status, "headers": headers});
        service.always("/git/refs/heads/", fault.clone());
        let error = resolve(&service.client()).expect_err("limited");
        assert_eq!(error.code(), "github_rate_limited", "{fault}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("accepts requests again at 20") && text.ends_with('Z'),
            "{text}"
        );
        let hint = error.hint().expect("a hint");
        assert!(hint.contains("github.token"), "{hint}");
        assert_eq!(service.count("/git/refs/heads/"), tries, "{fault}");
    }
    service.forget();
    service.always("/git/refs/heads/", json!({"status": 429}));
    let error = resolve(&service.client()).expect_err("limited");
    assert_eq!(error.code(), "github_rate_limited");
    assert_eq!(service.count("/git/refs/heads/"), 4, "it may pass");
    // A rate limit with many requests left does not explain a refusal.
    service.forget();
    let headers = json!({"X-RateLimit-Remaining": "4000", "X-RateLimit-Reset": in_an_hour});
    service.always(
        "/git/refs/heads/",
        json!({"status": 403, "headers": headers}),
    );
    let error = resolve(&service.client()).expect_err("refused");
    assert_eq!(error.code(), "github_unauthorized");
}

/// A client with short timeouts.
fn hasty(service: &Service) -> Client {
    let mut settings = service.settings();
    settings.timeouts = Timeouts {
        connect: Duration::from_secs(20),
        head: Duration::from_millis(300),
        stall: Duration::from_millis(300),
        whole: Duration::from_millis(700),
        first_delay: Duration::from_millis(1),
        wait_max: Duration::from_secs(1),
        ..Timeouts::default()
    };
    Client::new(settings).expect("a client")
}

#[test]
fn a_stalled_or_dripping_service_times_out() {
    let Some((service, sha)) = with_a_commit() else {
        return;
    };
    for (path, fault, cause) in [
        ("/git/refs/heads/", json!({"stall_s": 30}), "300ms"),
        (
            "/archive/",
            json!({"stall_body_s": 30}),
            "nothing was sent or received for 300ms",
        ),
        (
            "/archive/",
            json!({"drip_s": 0.2}),
            "the request took longer than 700ms",
        ),
    ] {
        service.forget();
        service.always(path, fault.clone());
        let client = hasty(&service);
        let error = match path {
            "/archive/" => refused(&client, &sha),
            _ => resolve(&client).expect_err("stalls"),
        };
        assert_eq!(error.code(), "github_unavailable", "{fault}: {error}");
        assert!(error.to_string().contains(cause), "{fault}: {error}");
        assert!(
            error.to_string().contains("after 4 tries"),
            "{fault}: {error}"
        );
    }
}

#[test]
fn a_redirect_is_followed_a_few_times_on_one_host_and_to_another() {
    let Some((service, sha)) = with_a_commit() else {
        return;
    };
    let there = "/repos/org/repo/git/refs/heads/main";
    let other_host = format!("http://localhost:{}{there}", service.port());
    let no_scheme = format!("//127.0.0.1:{}{there}", service.port());
    for location in [there, "main?again", &other_host, &no_scheme] {
        for status in [301, 302, 303, 307, 308] {
            service.forget();
            let fault = json!({"location": location, "status": status});
            service.times(1, "/git/refs/heads/main$", fault);
            assert_eq!(
                resolve(&service.client()).expect("there"),
                sha,
                "{location}"
            );
            assert_eq!(service.count("/git/refs/heads/"), 2);
        }
    }
    service.forget();
    service.always("/git/refs/heads/", json!({ "location": there }));
    let error = resolve(&service.client()).expect_err("a loop");
    assert_eq!(error.code(), "github_unavailable");
    assert!(
        error.to_string().contains("more than 5 redirects"),
        "{error}"
    );
    assert_eq!(service.count("/git/refs/heads/"), 6);
}

#[test]
fn an_unreachable_service_is_named() {
    let Some((service, _)) = with_a_commit() else {
        return;
    };
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound").port()
    };
    let base = format!("http://127.0.0.1:{port}");
    let mut settings = service.settings();
    settings.base_url.clone_from(&base);
    let client = Client::new(settings).expect("a client");
    let error = resolve(&client).expect_err("nobody listens");
    assert_eq!(error.code(), "github_unavailable");
    let text = error.to_string();
    assert!(text.contains(&base) && text.contains("refused"), "{text}");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("github.base_url"))
    );
}

#[test]
fn an_invalid_base_url_is_refused_before_any_request() {
    let Some((service, _)) = with_a_commit() else {
        return;
    };
    let made = |base: &str, token: bool| {
        let settings = ClientSettings {
            base_url: base.to_owned(),
            token: token.then(|| Token::new(b"canary-token", "env:T").expect("a token")),
            ..service.settings()
        };
        Client::new(settings).map(|_client| ())
    };
    for base in [
        "",
        "api.example.org",
        "ftp://api.example.org",
        "https://",
        "https://user:canary-word@api.example.org",
        "https://api.example.org/?a=b",
        "https://api.example.org/#a",
    ] {
        let error = made(base, false).expect_err("no base URL");
        assert_eq!(error.code(), "github_setting", "{base}");
        assert!(
            error.to_string().starts_with("github.base_url: "),
            "{error}"
        );
    }
    for base in [
        "http://api.example.org",
        "http://10.0.0.1",
        "http://127.0.0.1.example.org",
    ] {
        made(base, false).expect("without a token");
        let error = made(base, true).expect_err("a token in the open");
        assert!(error.to_string().contains("plain HTTP"), "{error}");
    }
    for base in [
        "https://api.example.org/api/v3/",
        "http://[::1]:80",
        "http://localhost:1",
    ] {
        made(base, true).expect("a private way");
    }
}

#[test]
fn a_base_url_with_a_path_comes_before_every_request() {
    let Some((service, _)) = with_a_commit() else {
        return;
    };
    let mut settings = service.settings();
    settings.base_url = format!("{}/api/v3/", service.base_url());
    let client = Client::new(settings).expect("a client");
    let error = resolve(&client).expect_err("this service has no such path");
    assert_eq!(error.code(), "github_not_found");
    assert!(
        service
            .paths()
            .iter()
            .all(|path| path.starts_with("/api/v3/repos/org/repo"))
    );
}

#[test]
fn progress_is_an_event_from_the_first_request_to_the_end() {
    let Some((service, sha)) = with_a_commit() else {
        return;
    };
    service.times(1, "/git/refs/heads/", json!({"status": 500}));
    let log = Arc::new(tempfile::tempfile().expect("a file"));
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(Arc::clone(&log))
        .with_level(false)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .finish();
    // With a single dispatcher, tracing-core asks that of the thread which meets an event first, and
    // another test may be that thread.
    let _second = tracing::Dispatch::new(
        tracing_subscriber::fmt()
            .with_writer(std::io::sink)
            .finish(),
    );
    tracing::subscriber::with_default(subscriber, || {
        let client = service.client();
        resolve(&client).expect("there");
        client.fetch("org/repo", &sha, None).expect("there");
        let error = refused(&client, NOWHERE);
        assert_eq!(error.code(), "github_not_found");
    });
    let mut text = String::new();
    (&*log).rewind().expect("seeks");
    (&*log).read_to_string(&mut text).expect("text");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let (there, nowhere) = (&sha[..12], &NOWHERE[..12]);
    let (received, lines): (Vec<&str>, Vec<&str>) = lines
        .into_iter()
        .partition(|line| line.contains(" KiB of "));
    assert!(!received.is_empty(), "{text}");
    assert!(received.iter().all(|line| line.contains(there)), "{text}");
    assert_eq!(
        lines,
        [
            "org/repo: looking for main",
            "the answer was 500; trying again in 1ms",
            "transfer ended is_over=true",
            &format!("org/repo at {there}: asking"),
            "transfer ended is_over=true",
            &format!("org/repo at {nowhere}: asking"),
            "transfer ended is_over=true",
        ]
    );
}
