//! From commits to files.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use archive::UnpackLimits;
use serde_json::json;
use sources::github::{Client, GitHub as _};
use spec::digest::Digest;

use crate::service::{NOWHERE, Service, files, pairs, path, refused};

#[test]
fn the_files_are_those_of_the_commit() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(130));
    repository.write("a", "old");
    repository.commit();
    repository.write("a", "1");
    repository.write("empty", "");
    repository.write("d/run.sh", "#!/bin/sh\n");
    repository.write("d/ü x", "2");
    repository.write(&long, "3");
    repository.write(".github/x", "4");
    let program = repository.path.join("d/run.sh");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("changed");
    symlink("../a", repository.path.join("d/link")).expect("linked");
    let sha = repository.commit();
    repository.commit_file("a", "new");
    let tree = service
        .client()
        .fetch("org/repo", &sha, None)
        .expect("there");
    assert_eq!(
        files(&tree),
        pairs(&[
            (".github/x", "4"),
            ("a", "1"),
            ("d/link", "-> ../a"),
            ("d/ü x", "2"),
            (&long, "3"),
            ("empty", ""),
            ("x d/run.sh", "#!/bin/sh\n"),
        ])
    );
    assert!(!tree.from_cache);
    let archive = Command::new("git")
        .arg("-C")
        .arg(&repository.path)
        .args(["archive", "--format=tar.gz"])
        .arg(format!("--prefix=org-repo-{}/", &sha[..7]))
        .arg(&sha)
        .output()
        .expect("git starts")
        .stdout;
    assert_eq!(tree.archive_bytes, archive.len() as u64);
    assert_eq!(tree.archive_digest, Digest::of(&archive));
}

#[test]
fn a_fetched_commit_needs_no_request_for_any_of_its_folders() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    repository.write("lib/a", "1");
    repository.write("tools/b", "2");
    let sha = repository.commit();
    let fetch = |folder: Option<&str>| {
        let folder = folder.map(path);
        let tree = service.client().fetch("org/repo", &sha, folder.as_ref());
        let tree = tree.expect("there");
        (files(&tree), tree.from_cache, tree.archive_digest)
    };
    let (lib, from_cache, digest) = fetch(Some("lib"));
    assert_eq!((lib, from_cache), (pairs(&[("a", "1")]), false));
    assert_eq!(
        (service.count("/tarball/"), service.count("/archive/")),
        (1, 1)
    );
    service.forget();
    for (folder, expected) in [
        (Some("lib"), pairs(&[("a", "1")])),
        (Some("tools"), pairs(&[("b", "2")])),
        (None, pairs(&[("lib/a", "1"), ("tools/b", "2")])),
        (None, pairs(&[("lib/a", "1"), ("tools/b", "2")])),
    ] {
        assert_eq!(fetch(folder), (expected, true, digest));
    }
    assert_eq!(service.paths().len(), 0);
}

#[test]
fn a_folder_is_extracted_alone_and_a_missing_one_is_named() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    repository.write("lib/core/a", "1");
    repository.write("library", "2");
    symlink("/etc/passwd", repository.path.join("outside")).expect("linked");
    symlink("../library", repository.path.join("lib/up")).expect("linked");
    let sha = repository.commit();
    let client = service.client();
    let fetch = |folder: &str| client.fetch("org/repo", &sha, Some(&path(folder)));
    let core = fetch("lib/core").expect("there");
    assert_eq!(files(&core), pairs(&[("a", "1")]));
    for (folder, problem) in [
        ("lib/none", "does not exist"),
        ("li", "does not exist"),
        ("library", "is a file; expected a folder"),
        ("outside", "is a symlink; expected a folder"),
    ] {
        let error = fetch(folder).expect_err("no folder");
        assert_eq!(error.code(), "github_not_found");
        assert!(error.to_string().contains(problem), "{error}");
    }
    // A link is judged relative to its folder: from `lib` it leads outside, from the top it does not.
    let error = fetch("lib").expect_err("a link leaves");
    assert_eq!(error.code(), "github_archive_refused");
    assert!(error.to_string().contains("leaves the bundle"), "{error}");
    assert_eq!(service.count("/tarball/"), 1, "one archive for all of them");
}

#[test]
fn a_hostile_archive_is_refused_early_and_not_kept() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let sha = repository.commit_file("a", "1");
    let made = service.directory().join("made");
    std::fs::create_dir_all(made.join("t")).expect("made");
    std::fs::create_dir_all(made.join("u")).expect("made");
    std::fs::write(made.join("t/a"), "1").expect("written");
    std::fs::write(made.join("u/b"), "2").expect("written");
    std::fs::write(made.join("top"), "2").expect("written");
    symlink("/etc/passwd", made.join("t/absolute")).expect("linked");
    symlink("../../x", made.join("t/up")).expect("linked");
    for (words, problem) in [
        (&["t/a", "u/b"][..], "lies outside of `t`"),
        (&["top"], "lies outside of `top`"),
        (&["t/absolute"], "absolute path"),
        (&["t/up"], "leaves the bundle"),
        (&["-P", "../made/t/a"], "`..` segment"),
    ] {
        let archive = service.directory().join("hostile.tar.gz");
        let packed = Command::new("tar")
            .arg("-C")
            .arg(&made)
            .arg("-czf")
            .arg(&archive)
            .args(words)
            .status()
            .expect("tar starts");
        assert!(packed.success(), "{words:?}");
        service.forget();
        service.times(1, "/tarball/", json!({ "body_file": archive }));
        let error = refused(&service.client(), &sha);
        assert_eq!(error.code(), "github_archive_refused", "{error}");
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(
            service.count("/tarball/"),
            1,
            "another try would be the same"
        );
    }
    for part in ["trees", "building"] {
        let left = std::fs::read_dir(service.cache().join("github/1").join(part));
        assert_eq!(left.expect("readable").count(), 0, "{part}");
    }
    service
        .client()
        .fetch("org/repo", &sha, None)
        .expect("the real one");
}

#[test]
fn an_archive_of_another_commit_is_refused() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    let first = repository.commit_file("a", "1");
    let second = repository.commit_file("a", "2");
    let location = format!("/archive/org/repo/{second}");
    service.always("/tarball/", json!({ "location": location }));
    let error = refused(&service.client(), &first);
    assert_eq!(error.code(), "github_archive_refused");
    assert!(error.to_string().contains(&second), "{error}");
    assert_eq!(service.count("/tarball/"), 1);
}

#[test]
fn an_oversized_archive_is_refused_during_the_download() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    // Digests of numbers, which stay large when they are compressed.
    let noise: Vec<u8> = (0..200_000_u32)
        .flat_map(|number| Digest::of(&number.to_le_bytes()).to_string().into_bytes())
        .take(300_000)
        .collect();
    repository.write("noise", noise);
    repository.write("zeros", vec![0; 3_000_000]);
    let sha = repository.commit();
    for (fault, limits, problem) in [
        (json!({}), (100_000, 1 << 30), "larger than 100000 bytes"),
        (
            json!({"chunked": true}),
            (100_000, 1 << 30),
            "larger than 100000 bytes",
        ),
        (
            json!({}),
            (1 << 20, 2_000_000),
            "more than 2000000 bytes in all files",
        ),
    ] {
        service.forget();
        service.always("/archive/", fault);
        let mut settings = service.settings();
        settings.limits = UnpackLimits {
            compressed_bytes: limits.0,
            unpacked_bytes: limits.1,
            ..UnpackLimits::default()
        };
        let error = refused(&Client::new(settings).expect("a client"), &sha);
        assert_eq!(error.code(), "github_archive_refused", "{error}");
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(service.count("/tarball/"), 1);
    }
}

#[test]
fn a_missing_commit_is_named() {
    let Some(service) = Service::start() else {
        return;
    };
    service.repository("org/repo").commit_file("a", "1");
    let client = service.client();
    for sha in [NOWHERE, "main", "../../x", "abc"] {
        let error = refused(&client, sha);
        assert_eq!(error.code(), "github_not_found");
        assert!(error.to_string().contains(sha), "{error}");
    }
    assert_eq!(
        service.count("/tarball/"),
        1,
        "only one of them is a commit"
    );
}
