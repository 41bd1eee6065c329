//! The token is sent only to the service.

use std::path::Path;

use serde_json::json;
use sources::github::{Client, ClientSettings, GitHub as _, Token};

use crate::service::{NOWHERE, Service};

const CANARY: &str = "canary-of-a-token-4711";

fn client(service: &Service) -> Client {
    let token = Token::new(CANARY.as_bytes(), "env:SOME_TOKEN").expect("a token");
    Client::new(ClientSettings {
        token: Some(token),
        ..service.settings()
    })
    .expect("a client")
}

/// The requests that carried the token, by host and path.
fn with_token(service: &Service) -> Vec<String> {
    let log = service.log();
    let sent = log
        .iter()
        .filter(|request| !request["authorization"].is_null());
    sent.map(|request| {
        assert_eq!(request["authorization"], format!("Bearer {CANARY}"));
        let word = |name: &str| request[name].as_str().expect("text").to_owned();
        format!("{} {}", word("host"), word("path"))
    })
    .collect()
}

#[test]
fn the_token_goes_to_the_service_and_to_no_other_host() {
    let Some(service) = Service::start() else {
        return;
    };
    let sha = service.repository("org/repo").commit_file("a", "1");
    service.demand_token(CANARY);
    let here = format!("127.0.0.1:{}", service.port());
    client(&service)
        .resolve_ref("org/repo", "main")
        .expect("there");
    assert_eq!(
        with_token(&service),
        ["tags", "heads"].map(|kind| format!("{here} /repos/org/repo/git/refs/{kind}/main"))
    );
    // The other host differs in its name or port.
    let other = Service::start().expect("started once already");
    other.repository("org/repo").commit_file("a", "other");
    for (elsewhere, seen_by) in [
        (format!("http://localhost:{}", service.port()), &service),
        (other.base_url(), &other),
    ] {
        service.forget();
        other.forget();
        let location = format!("{elsewhere}/archive/org/repo/{sha}");
        service.always("/tarball/", json!({ "location": location }));
        // The result does not matter here: the two services have different commits.
        let _outcome = client(&service).fetch("org/repo", &sha, None);
        let sent = with_token(&service);
        assert_eq!(sent, [format!("{here} /repos/org/repo/tarball/{sha}")]);
        assert_eq!(seen_by.count("/archive/"), 1, "{elsewhere} was asked");
        assert_eq!(with_token(&other).len(), 0);
        std::fs::remove_dir_all(service.cache()).expect("removed");
    }
}

pub fn no_canary_below(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        assert!(
            !path.display().to_string().contains("canary"),
            "{}",
            path.display()
        );
        if path.is_dir() {
            no_canary_below(&path);
        } else {
            let bytes = std::fs::read(&path).expect("readable");
            for canary in [CANARY, "canary-of-a-redirect"] {
                let found = bytes
                    .windows(canary.len())
                    .any(|window| window == canary.as_bytes());
                assert!(!found, "{canary} in {}", path.display());
            }
        }
    }
}

#[test]
fn neither_the_token_nor_the_credential_of_a_redirect_is_in_an_error_or_in_the_cache() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let sha = repository.commit_file("a", "1");
    repository.git(&["tag", "v1"]);
    let mut told = String::new();
    let mut tell = |client: &Client| {
        told.push_str(&format!("{client:?}"));
        for reference in ["main", "v1", "none"] {
            told.push_str(&format!("{:?}", client.resolve_ref("org/repo", reference)));
        }
        for sha in [&sha, NOWHERE] {
            match client.fetch("org/repo", sha, None) {
                Ok(tree) => told.push_str(&format!("{tree:?}")),
                Err(error) => told.push_str(&format!("{error} {error:?} {:?}", error.hint())),
            }
        }
    };
    service.demand_token(CANARY);
    tell(&client(&service));
    service.demand_token("another");
    tell(&client(&service));
    for (path, fault) in [
        ("", json!({"status": 500})),
        (
            "",
            json!({"status": 429, "headers": {"Retry-After": "3600"}}),
        ),
        ("", json!({"close": true})),
        ("/archive/", json!({"status": 404})),
        ("/archive/", json!({"status": 403})),
        ("/archive/", json!({"cut": 3})),
        (
            "/archive/",
            json!({"location": "/archive/x?token=canary-of-a-redirect"}),
        ),
        (
            "/archive/",
            json!({"location": "nowhere://canary-of-a-redirect"}),
        ),
        (
            "/archive/",
            json!({"location": "http://127.0.0.1:1/canary-of-a-redirect"}),
        ),
        (
            "/archive/",
            json!({"location": "http://canary-of-a-redirect:x/"}),
        ),
    ] {
        service.forget();
        service.always(path, fault);
        let trees = service.cache().join("github/1/trees");
        if trees.exists() {
            std::fs::remove_dir_all(trees).expect("removed");
        }
        tell(&client(&service));
        no_canary_below(&service.cache());
    }
    assert!(told.contains("github.token") || told.contains("env:SOME_TOKEN"));
    assert!(!told.contains("canary"), "{told}");
}
