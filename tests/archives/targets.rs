//! The target directory and the bundle argument.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
use std::process::Command;

use archive::{OpenedArchive, UnpackError, UnpackLimits, open_archive};
use spec::digest::Digest;

use crate::arena::{Arena, PERMIT, kept};
use support::tar::Tar;

/// existing entries of the target, files or links, are never replaced.
#[test]
fn an_entry_does_not_replace_what_the_runner_put_there() {
    for tar in [
        Tar::new().file(".runner-ok", b"forged"),
        Tar::new().symlink(".runner-ok", "forged"),
        Tar::new().directory(".runner-ok/"),
        Tar::new().file(".runner-ok/x", b"forged"),
    ] {
        let arena = Arena::new();
        fs::write(arena.target().join(".runner-ok"), b"ours").expect("written");
        let error = arena
            .unpack(tar.gz().as_slice(), &UnpackLimits::default())
            .expect_err("in the way");
        assert_eq!(error.code(), "unpack_failed", "{error}");
        assert_eq!(arena.read(".runner-ok"), b"ours");
    }
}

/// a link in the target is not followed.
#[test]
fn an_entry_is_not_written_through_a_link_that_was_there_before() {
    for tar in [
        Tar::new().file("planted", b"forged"),
        Tar::new().file("planted/x", b"forged"),
        Tar::new().directory("planted/"),
        Tar::new().symlink("planted/x", "y"),
    ] {
        for aim in ["secret", "directory", "nothing"] {
            let arena = Arena::new();
            let planted = arena.target().join("planted");
            symlink(arena.canary(aim), &planted).expect("planted");
            let target = fs::File::open(arena.target()).expect("opened");
            let result = archive::unpack(
                &PERMIT,
                tar.clone().gz().as_slice(),
                target.as_fd(),
                &UnpackLimits::default(),
            );
            fs::remove_file(planted).expect("removed");
            arena.check(&result);
            assert_eq!(result.expect_err("in the way").code(), "unpack_failed");
        }
    }
}

/// a manifest that is a link is a link, and one that leads outside is refused.
#[test]
fn the_bundles_own_manifest_is_an_entry_like_any_other() {
    let (arena, _) = kept(&Tar::new().file(".runner/manifest.json", b"{}").gz());
    assert_eq!(arena.read(".runner/manifest.json"), b"{}");
    crate::arena::refused(
        &Tar::new()
            .symlink(".runner/manifest.json", "../../canary/secret")
            .gz(),
        "symlink_escapes",
    );
}

///
#[test]
fn a_bundle_argument_that_is_no_plain_file_is_refused_without_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), Tar::new().gz()).expect("written");
    symlink(at("file"), at("link")).expect("linked");
    let fifo = Command::new("mkfifo")
        .arg(at("fifo"))
        .status()
        .expect("started");
    assert!(fifo.success());
    let _listener = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");
    for (path, found) in [
        (at("link"), "a symlink"),
        (at("fifo"), "a fifo"),
        (at("socket"), "a socket or a device without a driver"),
        ("/dev/zero".into(), "a character device"),
    ] {
        match open_archive(&path) {
            Err(error @ UnpackError::NotAFile { found: what, .. }) => {
                assert_eq!(what, found);
                assert!(error.is_refusal());
            }
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    let missing = open_archive(&at("missing\x1b[31m")).expect_err("missing");
    assert_eq!(missing.code(), "bundle_unopened");
    assert!(!missing.to_string().contains('\x1b'));
    assert!(matches!(
        open_archive(&at("file")),
        Ok(OpenedArchive::File(_))
    ));
    assert!(matches!(
        open_archive(directory.path()),
        Ok(OpenedArchive::Directory(_))
    ));
}

/// the opened file is hashed and unpacked, even if the path changes later.
#[test]
fn a_bundle_that_is_replaced_after_opening_is_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bundle.tar.gz");
    let (good, evil) = (
        Tar::new().file("good", b"1").gz(),
        Tar::new().file("evil", b"1").gz(),
    );
    fs::write(&path, &good).expect("written");
    let Ok(OpenedArchive::File(opened)) = open_archive(&path) else {
        panic!("not opened");
    };
    fs::write(directory.path().join("new"), &evil).expect("written");
    fs::rename(directory.path().join("new"), &path).expect("replaced");
    let arena = Arena::new();
    let unpacked = arena
        .unpack(opened, &UnpackLimits::default())
        .expect("unpacked");
    assert_eq!(arena.found(), ["good"]);
    assert_eq!(unpacked.archive_digest, Some(Digest::of(&good)));
}

///
#[test]
fn every_change_of_contents_or_names_changes_the_digest() {
    let base = || Tar::new().file("a/f", b"1").symlink("l", "a/f");
    let digest = |tar: Tar| kept(&tar.gz()).1.content_digest;
    let original = digest(base());
    let executable = Tar::new()
        .with(b'0', b"a/f", 1, |block| {
            block[100..107].copy_from_slice(b"0000755")
        })
        .data(b"1")
        .symlink("l", "a/f");
    let others = [
        Tar::new().file("a/f", b"2").symlink("l", "a/f"),
        Tar::new().file("a/g", b"1").symlink("l", "a/f"),
        Tar::new().file("a/f", b"1").symlink("l", "./a/f"),
        base().directory("b/"),
        executable,
    ];
    for other in others {
        assert_ne!(digest(other), original);
    }
    let same = [
        base(),
        Tar::new().symlink("l", "a/f").file("a/f", b"1"),
        Tar::new()
            .directory("./")
            .directory("./a/")
            .file("./a/f", b"1")
            .symlink("./l", "a/f"),
        Tar::new()
            .file("a/f", b"0")
            .file("a/f", b"1")
            .symlink("l", "a/f"),
        base().file(".git/config", b"x"),
    ];
    for other in same {
        assert_eq!(digest(other), original);
    }
}

///
#[test]
fn both_digests_are_those_of_the_bytes() {
    let archive = Tar::new().file("f", b"1").gz();
    let (arena, unpacked) = kept(&archive);
    assert_eq!(unpacked.archive_digest, Some(Digest::of(&archive)));
    let target = fs::File::open(arena.target()).expect("opened");
    let mut canonical = Vec::new();
    archive::write_canonical(&unpacked.tree, target.as_fd(), &mut canonical).expect("written");
    assert_eq!(Digest::of(&canonical), unpacked.content_digest);
}
