//! What the artifact says about a git checkout.

use serde_json::json;

use super::artifacts::Source;
use support::bundling::output_of;
use support::git::git;

const FILES: [(&str, &str); 2] = [("a", "a"), ("d/b", "b")];

#[test]
fn origin_and_version_come_from_the_commit() {
    let source = Source::checkout(&FILES);
    let commit = source.git(&["rev-parse", "HEAD"]);
    source.git(&[
        "remote",
        "add",
        "origin",
        "https://git.example.org/acme/backend.git",
    ]);
    let artifact = source.build(&["no-version"]);
    let config = artifact.config();
    assert_eq!(
        config["origin"],
        json!({
            "url": "https://git.example.org/acme/backend.git", "repo": "acme/backend",
            "ref": "refs/heads/main", "commit": commit,
        })
    );
    assert_eq!(config["version"], format!("2023.11.14-{}", &commit[..7]));
    assert_eq!(config["sourceType"], "git");
    assert_eq!(
        config["snapshot"],
        json!({"fileCount": 2, "submodules": "excluded"})
    );
    assert_eq!(artifact.report["warnings"], json!([]));
    assert_eq!(artifact.files.names(), ["a", "d/", "d/b"]);
}

#[test]
fn credentials_of_the_remote_and_paths_of_this_host_are_nowhere() {
    let source = Source::checkout(&FILES);
    source.git(&[
        "remote",
        "add",
        "origin",
        "https://me:s3cret-canary@git.example.org/a/b",
    ]);
    let artifact = source.build(&[]);
    assert_eq!(
        artifact.config()["origin"]["url"],
        "https://git.example.org/a/b"
    );
    let here = source.directory().to_string_lossy().into_owned();
    for text in [&artifact.config, &artifact.manifest] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains("s3cret") && !text.contains(&here), "{text}");
    }
    assert!(!format!("{:?}", artifact.ended).contains("s3cret"));
    source.git(&["remote", "set-url", "origin", "/srv/private/repo.git"]);
    let config = source.build(&[]).config();
    assert_eq!(config["origin"].get("url"), None, "{config}");
}

#[test]
fn a_detached_head_has_a_commit_and_no_branch() {
    let source = Source::checkout(&FILES);
    source.git(&["checkout", "-q", "--detach"]);
    let origin = source.build(&[]).config()["origin"].clone();
    assert_eq!(
        origin,
        json!({"commit": source.git(&["rev-parse", "HEAD"])})
    );
}

#[test]
fn packed_references_and_longer_names_of_objects_are_read() {
    let source = Source::checkout(&FILES);
    let commit = source.git(&["rev-parse", "HEAD"]);
    source.git(&["pack-refs", "--all"]);
    source.git(&["gc", "-q"]);
    assert_eq!(source.build(&[]).config()["origin"]["commit"], commit);
    let other = Source::with(&FILES);
    other.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    let commit = other.commit();
    let artifact = other.build(&["no-version"]);
    assert_eq!(artifact.config()["origin"]["commit"], commit);
    assert_eq!(commit.len(), 64);
    assert_eq!(artifact.report["warnings"], json!([]));
}

#[test]
fn without_a_commit_a_version_is_needed() {
    let source = Source::with(&FILES);
    source.git(&["init", "-q", "-b", "new"]);
    let ended = source.try_build(&["no-version"]);
    ended.assert_refused(
        "source_version_missing",
        &["a git checkout without a commit", "--version"],
    );
    let artifact = source.build(&[]);
    assert_eq!(
        artifact.config()["origin"],
        json!({"ref": "refs/heads/new"})
    );
    assert_eq!(artifact.report["created"], "1970-01-01T00:00:00Z");
    artifact.warning("source_untracked");
}

#[test]
fn uncommitted_changes_are_reported_and_marked_in_the_version() {
    let source = Source::checkout(&[("a", "a"), ("d/b", "b"), (".gitignore", "*.o\n")]);
    let clean = source.build(&["no-version"]);
    assert_eq!(clean.find_warning("source_dirty"), None);
    // The same bytes with another time are no change.
    source.file("a", "a");
    assert_eq!(source.build(&["no-version"]).digest(), clean.digest());
    source.file("a", "changed");
    std::fs::remove_file(source.directory().join("d/b")).expect("removed");
    source.file("new.o", "built");
    let artifact = source.build(&["no-version"]);
    assert_eq!(
        artifact.warning("source_dirty"),
        "files differ from the commit: `a`, `d/b`"
    );
    assert!(artifact.warning("source_untracked").ends_with(": `new.o`"));
    let version = artifact.config()["version"]
        .as_str()
        .map(str::to_owned)
        .expect("text");
    assert!(version.ends_with("-dirty"), "{version}");
    source.git(&["checkout", "-q", "."]);
    source.file(".staxignore", "*.o\n.staxignore\n");
    assert_eq!(source.build(&["no-version"]).digest(), clean.digest());
}

#[test]
fn a_folder_of_a_checkout_is_recorded_with_its_path() {
    let source = Source::checkout(&[
        ("a", "a"),
        ("services/api/b", "b"),
        ("services/api/c/d", "d"),
    ]);
    source.file("a", "changed, elsewhere");
    let folder = source.directory().join("services/api");
    let artifact = source.artifact(source.command(&folder, &[]));
    let config = artifact.config();
    assert_eq!(config["snapshot"]["preparedFromPath"], "services/api");
    assert_eq!(
        (&config["name"], &config["sourceType"]),
        (&json!("api"), &json!("git"))
    );
    assert_eq!(artifact.files.names(), ["b", "c/", "c/d"]);
    assert_eq!(artifact.report["warnings"], json!([]));
    source.file("services/api/b", "changed");
    let artifact = source.artifact(source.command(&folder, &[]));
    assert!(
        artifact
            .warning("source_dirty")
            .ends_with(": `services/api/b`")
    );
}

#[test]
fn another_working_tree_of_a_repository_is_a_checkout_of_its_own() {
    let source = Source::checkout(&FILES);
    let other = source.ground.path("other");
    let path = other.to_str().expect("plain");
    source.git(&["worktree", "add", "-q", "-b", "topic", path]);
    source.git(&["remote", "add", "origin", "git@git.example.org:a/b.git"]);
    git(&other, &["commit", "-q", "--allow-empty", "-m", "second"]);
    let artifact = source.artifact(source.command(&other, &["--name", "it"]));
    let origin = artifact.config()["origin"].clone();
    assert_eq!(origin["ref"], "refs/heads/topic");
    assert_eq!(origin["commit"], git(&other, &["rev-parse", "HEAD"]));
    assert_eq!(origin["url"], "git@git.example.org:a/b.git");
    assert_eq!(artifact.report["warnings"], json!([]));
}

#[test]
fn a_directory_that_is_no_checkout_needs_a_version_and_keeps_its_empty_folders() {
    let source = Source::with(&FILES);
    std::fs::create_dir_all(source.directory().join("empty/er")).expect("made");
    let ended = source.try_build(&["no-version"]);
    ended.assert_refused("source_version_missing", &["not a git checkout"]);
    let artifact = source.build(&["--description", "x \"y\""]);
    assert_eq!(
        artifact.config(),
        json!({
            "description": "x \"y\"", "kind": "source", "name": "it", "version": "1",
            "snapshot": {"fileCount": 2}, "sourceType": "directory", "specVersion": "1.0.0",
        })
    );
    assert_eq!(
        artifact.files.names(),
        ["a", "d/", "d/b", "empty/", "empty/er/"]
    );
}

#[test]
fn no_git_takes_a_checkout_as_a_directory() {
    let source = Source::checkout(&FILES);
    let config = source.build(&["--no-git"]).config();
    assert_eq!(
        (config.get("origin"), &config["sourceType"]),
        (None, &json!("directory"))
    );
    let ended = source.try_build(&["--no-git", "--submodules"]);
    ended.assert_refused("source_no_submodules", &["--submodules"]);
}

#[test]
fn without_the_program_git_a_checkout_is_refused() {
    let source = Source::checkout(&FILES);
    let mut command = source.command(&source.directory(), &["--name", "it"]);
    // A relative directory in PATH is not searched for programs.
    command.env("PATH", "/nonexistent:work::.");
    source.file("git", "#!/bin/sh\necho no\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(source.directory().join("git"), mode).expect("set");
    output_of(&mut command).assert_refused("source_git_missing", &["--no-git"]);
}

#[test]
fn invalid_names_are_refused() {
    let source = Source::with(&FILES);
    for words in [
        ["--name", "a b"],
        ["--name", "a/b"],
        ["--name", ""],
        ["--version", "a+b"],
        ["--version", "é"],
    ] {
        source
            .try_build(&words)
            .assert_refused("source_name", &["expected at most 128 letters"]);
    }
    let odd = source.ground.path("odd name");
    std::fs::create_dir(&odd).expect("made");
    let ended = output_of(&mut source.command(&odd, &["--version", "1"]));
    ended.assert_refused("source_name", &["found the name `odd name`", "--name"]);
}
