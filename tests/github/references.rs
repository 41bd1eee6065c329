//! From tags and branches to commits.

use serde_json::json;
use sources::github::{Client, GitHub as _, RefShape};

use crate::service::{NOWHERE, Service};

#[test]
fn a_branch_and_a_tag_become_their_commits() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let first = repository.commit_file("a", "1");
    repository.git(&["tag", "release"]);
    repository.git(&["tag", "-a", "annotated", "-m", "words"]);
    repository.git(&["tag", "-a", "of-a-tag", "annotated", "-m", "words"]);
    repository.git(&["branch", "feature/one-thing"]);
    let second = repository.commit_file("a", "2");
    let client = service.client();
    for (reference, sha) in [
        ("main", &second),
        ("feature/one-thing", &first),
        ("release", &first),
        ("annotated", &first),
        ("of-a-tag", &first),
    ] {
        let resolved = client.resolve_ref("org/repo", reference).expect("there");
        assert_eq!(&resolved.sha, sha, "{reference}");
        assert_eq!(resolved.shape, RefShape::Floating);
        assert!(!resolved.cached && resolved.warnings.is_empty());
    }
}

#[test]
fn a_full_commit_is_used_without_a_request() {
    let Some(service) = Service::start() else {
        return;
    };
    let client = service.client();
    let resolved = client.resolve_ref("org/repo", NOWHERE).expect("a commit");
    assert_eq!((resolved.sha.as_str(), resolved.cached), (NOWHERE, true));
    assert_eq!(resolved.shape, RefShape::Commit);
    assert_eq!(service.paths().len(), 0);
    assert!(
        !service.cache().exists(),
        "nothing is made before it is needed"
    );
}

#[test]
fn where_a_tag_and_a_branch_have_one_name_the_tag_wins_with_a_warning() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let first = repository.commit_file("a", "1");
    for name in ["both", "v1.0"] {
        repository.git(&["tag", name]);
        repository.git(&["branch", name]);
    }
    let second = repository.commit_file("a", "2");
    for name in ["both", "v1.0"] {
        repository.git(&["branch", "-f", name]);
        let resolved = service
            .client()
            .resolve_ref("org/repo", name)
            .expect("there");
        assert_eq!(resolved.sha, first);
        let [warning] = resolved.warnings.as_slice() else {
            panic!("{:?}", resolved.warnings);
        };
        assert_eq!(warning.code, "reference_ambiguous");
        assert!(warning.message.contains(&first) && warning.message.contains(&second));
    }
}

#[test]
fn only_an_exact_name_counts_where_the_service_answers_with_all_that_begin_so() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    repository.commit_file("a", "1");
    repository.git(&["tag", "v1.0"]);
    repository.git(&["branch", "maintenance"]);
    let client = service.client();
    for (reference, near) in [("v1", "v1.0"), ("maint", "maintenance"), ("mian", "main")] {
        let error = client
            .resolve_ref("org/repo", reference)
            .expect_err("no such name");
        assert_eq!(error.code(), "github_not_found");
        let text = error.to_string();
        assert!(text.contains(&format!("no branch `{reference}`")), "{text}");
        assert!(text.contains(&format!("did you mean `{near}`")), "{text}");
    }
}

#[test]
fn a_moved_branch_is_seen_by_the_next_process_and_not_in_the_middle_of_one() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let first = repository.commit_file("a", "1");
    let client = service.client();
    let sha = |client: &Client| client.resolve_ref("org/repo", "main").expect("there").sha;
    assert_eq!(sha(&client), first);
    let second = repository.commit_file("a", "2");
    assert_eq!(sha(&client), first);
    assert_eq!(sha(&service.client()), second);
}

#[test]
fn a_version_tag_is_asked_for_once_a_day() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let first = repository.commit_file("a", "1");
    repository.git(&["tag", "v1.2.3"]);
    let resolve = || {
        let resolved = service.client().resolve_ref("org/repo", "v1.2.3");
        let resolved = resolved.expect("there");
        assert_eq!(resolved.shape, RefShape::VersionTag);
        (resolved.sha, resolved.cached)
    };
    assert_eq!(resolve(), (first.clone(), false));
    let second = repository.commit_file("a", "2");
    repository.git(&["tag", "-f", "v1.2.3"]);
    service.forget();
    assert_eq!(resolve(), (first.clone(), true));
    assert_eq!(service.paths().len(), 0);
    // A record of a day ago, one of tomorrow, and an invalid one.
    let records: Vec<_> = std::fs::read_dir(service.cache().join("github/1/refs"))
        .expect("records")
        .map(|entry| entry.expect("readable").path())
        .collect();
    let [record] = records.as_slice() else {
        panic!("{records:?}");
    };
    let mut written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(record).expect("readable")).expect("JSON");
    let since = written["since_unix_s"].as_u64().expect("a time");
    for (since, cached) in [
        (since - 86_300, true),
        (since - 86_401, false),
        (since + 3_600, false),
    ] {
        written["since_unix_s"] = json!(since);
        written["sha"] = json!(first);
        std::fs::write(record, written.to_string()).expect("written");
        let sha = if cached { &first } else { &second };
        assert_eq!(resolve(), (sha.clone(), cached), "{since}");
    }
    for damage in ["", "{", "{}", "null"] {
        std::fs::write(record, damage).expect("written");
        assert_eq!(resolve(), (second.clone(), false), "{damage}");
        assert_eq!(resolve(), (second.clone(), true), "{damage}");
    }
}

#[test]
fn required_pins_accept_only_commits_without_a_request() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let sha = repository.commit_file("a", "1");
    repository.git(&["tag", "v1"]);
    let mut settings = service.settings();
    settings.require_pin = true;
    let client = Client::new(settings).expect("a client");
    for (reference, kind, hint) in [
        ("main", "is the name of a branch or tag", "git ls-remote"),
        ("v1", "is a version tag", "git ls-remote"),
        (&sha[..8], "is an abbreviated commit", "all 40 digits"),
        (
            &sha.to_uppercase(),
            "is the name of a branch",
            "git ls-remote",
        ),
    ] {
        let error = client
            .resolve_ref("org/repo", reference)
            .expect_err("not pinned");
        assert_eq!(error.code(), "pin_required");
        let text = error.to_string();
        assert!(text.contains(kind), "{text}");
        assert!(error.hint().is_some_and(|text| text.contains(hint)));
    }
    assert_eq!(service.paths().len(), 0);
    client.resolve_ref("org/repo", &sha).expect("pinned");
    client.fetch("org/repo", &sha, None).expect("there");
}

#[test]
fn an_abbreviated_commit_is_reported_as_such() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let sha = repository.commit_file("a", "1");
    let client = service.client();
    let error = client
        .resolve_ref("org/repo", &sha[..8])
        .expect_err("no branch");
    assert_eq!(error.code(), "github_not_found");
    let hint = error.hint().expect("a hint");
    assert!(
        hint.contains("all 40 digits") && hint.contains("org/repo"),
        "{hint}"
    );
    // The name is that of a branch, if such a branch exists.
    repository.git(&["branch", &sha[..7]]);
    let resolved = client.resolve_ref("org/repo", &sha[..7]).expect("a branch");
    assert_eq!((resolved.sha, resolved.shape), (sha, RefShape::Abbreviated));
}

#[test]
fn a_missing_repository_is_distinguished_from_a_missing_reference() {
    let Some(service) = Service::start() else {
        return;
    };
    service.repository("org/empty");
    let client = service.client();
    let error = client
        .resolve_ref("org/other", "main")
        .expect_err("missing");
    assert_eq!(error.code(), "github_not_found");
    let text = error.to_string();
    assert!(
        text.contains("org/other") && text.contains("not found at"),
        "{text}"
    );
    let hint = error.hint().expect("a hint");
    assert!(
        hint.contains("private") && hint.contains("github.token"),
        "{hint}"
    );
    let error = client.resolve_ref("org/empty", "main").expect_err("empty");
    assert!(
        error.to_string().contains("no tag and no branch `main`"),
        "{error}"
    );
    for name in ["org", "a/b/c", "../x", "a/../b", "a b/c", "org/repo?x"] {
        let before = service.paths().len();
        let error = client.resolve_ref(name, "main").expect_err("no name");
        assert_eq!(error.code(), "github_not_found");
        let error = client.fetch(name, NOWHERE, None).expect_err("no name");
        assert_eq!(error.code(), "github_not_found");
        assert_eq!(service.paths().len(), before, "{name}");
    }
}

#[test]
fn a_tag_of_a_non_commit_object_is_refused() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    repository.commit_file("a", "1");
    repository.git(&["tag", "of-a-tree", "HEAD^{tree}"]);
    repository.git(&["tag", "-a", "of-a-blob", "HEAD:a", "-m", "words"]);
    let client = service.client();
    for (reference, found) in [("of-a-tree", "tree"), ("of-a-blob", "blob")] {
        let error = client
            .resolve_ref("org/repo", reference)
            .expect_err("refused");
        assert_eq!(error.code(), "github_not_found");
        assert!(
            error.to_string().contains(&format!("refers to a {found}")),
            "{error}"
        );
    }
}

#[test]
fn names_with_characters_of_their_own_reach_the_service_as_they_are() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let sha = repository.commit_file("a", "1");
    for name in ["ümläut/x", "a#b", "50%", "a+b&c=d"] {
        repository.git(&["branch", name]);
        let resolved = service.client().resolve_ref("org/repo", name);
        assert_eq!(resolved.expect(name).sha, sha);
    }
}
