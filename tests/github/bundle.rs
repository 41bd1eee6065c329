//! `runner bundle` with `github` sources.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::service::Service;
use support::{runner, screen};

const CANARY: &str = "canary-of-a-token-0815";

/// A workspace with one tool, whose files come from the service.
struct Workspace<'service> {
    service: &'service Service,
    directory: tempfile::TempDir,
    variables: Vec<(&'static str, OsString)>,
}

/// The result of a call of the program.
struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl<'service> Workspace<'service> {
    fn new(service: &'service Service, sources: &Value) -> Self {
        let workspace = Self {
            service,
            directory: tempfile::tempdir().expect("a directory"),
            variables: Vec::new(),
        };
        workspace.configure(&json!({}));
        workspace.write(sources, &json!([]));
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the manifest.
    fn write(&self, sources: &Value, egress: &Value) {
        let manifest = json!({
            "kind": "tool",
            "name": "fetched",
            "run": "cat lib/a",
            "code": {"sources": sources},
            "network": {"egress": egress},
        });
        std::fs::create_dir_all(self.path("tool")).expect("made");
        std::fs::write(self.path("tool/manifest.json"), manifest.to_string()).expect("written");
    }

    /// Writes the configuration: the service, the cache, and the `github` settings of the case.
    fn configure(&self, github: &Value) {
        let mut settings = json!({
            "github": {"base_url": self.service.base_url()},
            "cache": {"directory": self.service.cache()},
        });
        for (key, value) in github.as_object().expect("a map") {
            settings["github"][key] = value.clone();
        }
        std::fs::write(self.path("policy.yaml"), settings.to_string()).expect("written");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(runner());
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.directory.path())
            .envs(self.variables.iter().cloned())
            .arg("bundle")
            .args(words)
            .arg("--policy")
            .arg(self.path("policy.yaml"))
            .arg(self.path("tool"));
        command
    }

    fn bundle(&self, words: &[&str]) -> Said {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(words).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said {
            code: status.code().expect("an exit code"),
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }

    fn done(&self, words: &[&str]) -> String {
        let said = self.bundle(words);
        assert_eq!(said.code, 0, "{}", said.stderr);
        said.stdout
    }

    fn refused(&self, words: &[&str], code: &str) -> String {
        let said = self.bundle(words);
        assert_eq!(said.code, 125, "{}", said.stderr);
        assert!(said.stderr.contains(&format!("({code}")), "{}", said.stderr);
        said.stderr
    }
}

fn inflated(archive: &Path) -> Vec<u8> {
    let file = std::fs::File::open(archive).expect("there");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .expect("gzip");
    bytes
}

fn manifest_in(archive: &Path) -> Value {
    let mut command = Command::new("tar");
    command
        .arg("-xzOf")
        .arg(archive)
        .arg(".runner/manifest.json");
    let output = command.output().expect("tar runs");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The report of a run of the bundle.
fn report_of(archive: &Path) -> Value {
    let mut command = Command::new(runner());
    command.args(["exec", "--json"]).arg(archive);
    let output = command.output().expect("the program starts");
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn holds(bytes: &[u8], part: &str) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window == part.as_bytes())
}

fn github(reference: &str) -> Value {
    json!([{"github": {"repo": "org/repo", "ref": reference, "path": "lib"}}])
}

/// A service with `lib/a` in two commits of `org/repo`; the first one is tagged `v1`.
fn with_two_commits() -> Option<(Service, [String; 2])> {
    let service = Service::start()?;
    let repository = service.repository("org/repo");
    let first = repository.commit_file("lib/a", "of the first commit");
    repository.git(&["tag", "v1"]);
    let second = repository.commit_file("lib/a", "of the second commit");
    Some((service, [first, second]))
}

#[test]
fn an_unchanged_second_build_fetches_nothing_and_is_identical() {
    let Some((service, [first, second])) = with_two_commits() else {
        return;
    };
    for (reference, content, references) in [
        (first.as_str(), "of the first commit", 0),
        ("v1", "of the first commit", 0),
        ("main", "of the second commit", 2),
    ] {
        let workspace = Workspace::new(&service, &github(reference));
        workspace.done(&["-o", "one.tar.gz", "--lock", "one.lock"]);
        service.forget();
        workspace.done(&["-o", "two.tar.gz", "--lock", "two.lock"]);
        assert_eq!(service.count("/git/refs/"), references, "{reference}");
        assert_eq!(
            service.paths().len(),
            references,
            "{reference}: nothing else"
        );
        let [one, two] = ["one.tar.gz", "two.tar.gz"]
            .map(|name| std::fs::read(workspace.path(name)).expect("written"));
        assert_eq!(one, two);
        assert!(holds(&inflated(&workspace.path("one.tar.gz")), content));
        let [one, two] = ["one.lock", "two.lock"]
            .map(|name| std::fs::read_to_string(workspace.path(name)).expect("written"));
        assert_eq!(one, two);
        let lock: Value = serde_json::from_str(&one).expect("JSON");
        let sha = if reference == "main" { &second } else { &first };
        let commits = json!([{"repository": "org/repo", "reference": reference, "sha": sha}]);
        let list: Value =
            serde_json::from_str(&workspace.done(&["--list", "--json"])).expect("JSON");
        assert_eq!(list["sources"], commits);
        let manifest = manifest_in(&workspace.path("one.tar.gz"));
        assert_eq!(manifest["metadata"]["runner"]["sources"], commits);
        let report = report_of(&workspace.path("one.tar.gz"));
        assert_eq!(report["bundle"]["sources"], commits);
        let told = workspace.bundle(&["--print-digest", "-v"]).stderr;
        let line = format!("runner: org/repo {reference} is the commit {sha}\n");
        assert!(told.contains(&line), "{told}");
        assert_eq!(lock["sources"][0]["sha"], json!(sha));
        assert!(lock["sources"][0]["archive_bytes"].as_u64() > Some(0));
    }
}

#[test]
fn with_a_lock_file_a_moved_branch_stays_where_it_was() {
    let Some((service, [_, second])) = with_two_commits() else {
        return;
    };
    let workspace = Workspace::new(&service, &github("main"));
    workspace.done(&["-o", "one.tar.gz", "--lock", "l"]);
    let lock = std::fs::read_to_string(workspace.path("l")).expect("written");
    assert!(lock.contains(&second));
    service
        .repository("org/repo")
        .commit_file("lib/a", "of the third commit");
    // On a host that never fetched anything.
    std::fs::remove_dir_all(service.cache()).expect("removed");
    service.forget();
    workspace.done(&["-o", "two.tar.gz", "--lock", "l", "--locked"]);
    assert_eq!(
        service.count("/git/refs/"),
        0,
        "nobody was asked where it is"
    );
    assert_eq!(service.count("/tarball/"), 1);
    let [one, two] = ["one.tar.gz", "two.tar.gz"]
        .map(|name| std::fs::read(workspace.path(name)).expect("written"));
    assert_eq!(one, two);
    assert_eq!(
        std::fs::read_to_string(workspace.path("l")).expect("there"),
        lock
    );
    workspace.done(&["-o", "three.tar.gz"]);
    assert!(holds(
        &inflated(&workspace.path("three.tar.gz")),
        "of the third commit"
    ));
}

#[test]
fn drift_from_the_lock_file_is_named_and_nothing_is_written() {
    let Some((service, _)) = with_two_commits() else {
        return;
    };
    let workspace = Workspace::new(&service, &github("main"));
    workspace.done(&["-o", "one.tar.gz", "--lock", "l"]);
    let locked = ["-o", "two.tar.gz", "--lock", "l", "--locked"];
    workspace.write(&github("main"), &json!(["api.example.org"]));
    let said = workspace.refused(&locked, "lock_drift");
    assert!(
        said.contains("egress: the lock file has none, the manifest now has `api.example.org`"),
        "{said}"
    );
    let mut sources = github("main");
    let inline = json!({"inline": {"path": "b", "content": "2"}});
    sources.as_array_mut().expect("a list").push(inline);
    workspace.write(&sources, &json!([]));
    let said = workspace.refused(&locked, "lock_drift");
    assert!(
        said.contains(
            "sources: the lock file has none, the manifest now has `tool/manifest.json#/code/sources/1`"
        ),
        "{said}"
    );
    service.forget();
    let mut sources = github("v1");
    let inline = json!({"inline": {"path": "b", "content": "2"}});
    sources.as_array_mut().expect("a list").push(inline);
    workspace.write(&sources, &json!(["api.example.org"]));
    let said = workspace.refused(&locked, "lock_drift");
    for part in [
        "sources/0: reference: the lock file has `main`, the manifest now has `v1`",
        "the manifest now has `tool/manifest.json#/code/sources/1`",
        "egress: the lock file has none, the manifest now has `api.example.org`",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!said.contains("bytes") && !said.contains("sha"), "{said}");
    assert_eq!(
        service.paths().len(),
        0,
        "what is not locked is not even asked for"
    );
    assert!(!workspace.path("two.tar.gz").exists());
    std::fs::write(workspace.path("l"), "{}").expect("written");
    let said = workspace.refused(&locked, "lock_invalid");
    assert!(
        said.contains("l:1:1: the key `version` is missing"),
        "{said}"
    );
}

#[test]
fn where_pins_are_required_a_branch_is_refused_before_anything_is_asked() {
    let Some((service, [first, _])) = with_two_commits() else {
        return;
    };
    let mut workspace = Workspace::new(&service, &github("main"));
    let words = ["-o", "b.tar.gz", "--require-pin"];
    let said = workspace.refused(&words, "pin_required");
    assert!(
        said.contains("tool/manifest.json"),
        "the source is named: {said}"
    );
    workspace.variables = vec![("WORKSPACE_TOOLS_REQUIRE_PIN", "true".into())];
    workspace.refused(&words[..2], "pin_required");
    workspace.write(&github(&first[..8]), &json!([]));
    let said = workspace.refused(&words[..2], "pin_required");
    assert!(said.contains("abbreviated"), "{said}");
    assert_eq!(service.paths().len(), 0);
    workspace.write(&github(&first), &json!([]));
    workspace.done(&words[..2]);
}

#[test]
fn the_token_appears_in_no_output() {
    let Some((service, [first, _])) = with_two_commits() else {
        return;
    };
    let mut workspace = Workspace::new(&service, &github("main"));
    let file = workspace.path("token");
    std::fs::write(&file, format!("{CANARY}\n")).expect("written");
    let file = format!("file:{}", file.display());
    service.demand_token(CANARY);
    let words = ["-v", "-o", "b.tar.gz", "--lock", "l", "--list"];
    let mut told = String::new();
    let mut tell = |said: Said| {
        told.push_str(&said.stdout);
        told.push_str(&said.stderr);
        said.code
    };
    for reference in ["env:SOME_TOKEN", &file] {
        workspace.configure(&json!({ "token": reference }));
        workspace.variables = vec![("SOME_TOKEN", CANARY.into())];
        assert_eq!(tell(workspace.bundle(&words)), 0, "{reference}");
        assert!(
            service
                .log()
                .iter()
                .any(|request| !request["authorization"].is_null())
        );
        for fault in [
            json!({"status": 500}),
            json!({"status": 401}),
            json!({"close": true}),
        ] {
            service.times(5, "/git/refs/", fault);
            assert_eq!(tell(workspace.bundle(&words)), 125);
            service.forget();
            service.demand_token(CANARY);
        }
        // A value that is not a token: it is not repeated either.
        workspace.variables = vec![("SOME_TOKEN", format!("{CANARY} and more").into())];
        if reference.starts_with("env:") {
            assert_eq!(tell(workspace.bundle(&words)), 125);
        }
    }
    assert!(!holds(told.as_bytes(), "canary"), "{told}");
    assert!(!holds(&inflated(&workspace.path("b.tar.gz")), "canary"));
    let lock = std::fs::read(workspace.path("l")).expect("written");
    assert!(!holds(&lock, "canary") && holds(&lock, "org/repo"));
    crate::token::no_canary_below(&service.cache());
    // Nothing is fetched, so the token is not read.
    workspace.configure(&json!({"token": "env:NOT_SET"}));
    workspace.write(
        &json!([{"inline": {"path": "b", "content": "2"}}]),
        &json!([]),
    );
    workspace.done(&["-o", "c.tar.gz"]);
    workspace.write(&github(&first), &json!([]));
    let said = workspace.bundle(&["-o", "c.tar.gz"]);
    assert_eq!(said.code, 125);
    assert!(
        said.stderr.contains("github.token") && said.stderr.contains("NOT_SET"),
        "{}",
        said.stderr
    );
}

#[test]
fn an_error_of_the_service_names_the_source_and_what_to_do() {
    let Some((service, _)) = with_two_commits() else {
        return;
    };
    let workspace = Workspace::new(&service, &github("mian"));
    let said = workspace.refused(&["-o", "b.tar.gz"], "github_not_found");
    assert!(said.contains("tool/manifest.json"), "{said}");
    assert!(said.contains("/code/sources/0"), "{said}");
    assert!(said.contains("did you mean `main`"), "{said}");
    assert!(!workspace.path("b.tar.gz").exists());
}

/// Bundles with a terminal as standard error; returns its output.
fn shown(workspace: &Workspace<'_>, words: &[&str]) -> String {
    let (screen, shown) = screen::open();
    let status = workspace
        .command(words)
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(screen)
        .status()
        .expect("the program starts");
    assert!(status.success());
    shown.join().expect("joined")
}

#[test]
fn progress_is_shown_on_a_terminal_only_and_is_gone_in_the_end() {
    let Some((service, _)) = with_two_commits() else {
        return;
    };
    let workspace = Workspace::new(&service, &github("main"));
    // What is quick has no status line.
    service.times(1, "/archive/", json!({"drip_s": 0.1}));
    let text = shown(&workspace, &["-o", "b.tar.gz"]);
    assert!(text.contains("runner: org/repo at "), "{text:?}");
    assert!(text.ends_with("\r\u{1b}[K"), "{text:?}");
    for words in [&["-q", "-o", "b.tar.gz"][..], &["-o", "b.tar.gz"]] {
        std::fs::remove_dir_all(service.cache()).expect("removed");
        if words[0] == "-q" {
            assert_eq!(shown(&workspace, words), "");
        } else {
            assert_eq!(
                workspace.bundle(words).stderr,
                "",
                "no terminal, no progress"
            );
        }
    }
}

#[test]
fn requests_are_sent_only_under_a_certificate_that_the_host_trusts() {
    let Some(service) = Service::start_with_tls() else {
        return;
    };
    let sha = service
        .repository("org/repo")
        .commit_file("lib/a", "over TLS");
    let mut workspace = Workspace::new(&service, &github(&sha));
    let github = json!({"base_url": service.tls_base_url(), "token": "env:SOME_TOKEN"});
    workspace.configure(&github);
    service.demand_token(CANARY);
    let token = ("SOME_TOKEN", OsString::from(CANARY));
    workspace.variables = vec![token.clone()];
    let said = workspace.refused(&["-o", "b.tar.gz"], "github_");
    assert!(
        said.contains("TLS") || said.contains("certificate"),
        "{said}"
    );
    assert_eq!(service.paths().len(), 0);
    let certificate = service.certificate().into_os_string();
    workspace.variables = vec![token, ("SSL_CERT_FILE", certificate)];
    workspace.done(&["-o", "b.tar.gz"]);
    assert!(holds(&inflated(&workspace.path("b.tar.gz")), "over TLS"));
    assert_eq!(service.count("/tarball/"), 1);
    // The name in the certificate differs.
    let other = service.tls_base_url().replace("localhost", "127.0.0.1");
    workspace.configure(&json!({"base_url": other, "token": "env:SOME_TOKEN"}));
    service.forget();
    workspace.refused(&["-o", "b.tar.gz"], "github_");
    assert_eq!(service.paths().len(), 0);
}
