//! A directory of the host, read as a bundle with the rules for archives.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use archive::{UnpackError, UnpackLimits, Unpacked, unpack_directory};

use crate::arena::Arena;

fn pack(source: &Path, arena: &Arena, limits: &UnpackLimits) -> Result<Unpacked, UnpackError> {
    let from = fs::File::open(source).expect("opened");
    let into = fs::File::open(arena.target()).expect("opened");
    let result = unpack_directory(from.as_fd(), into.as_fd(), limits);
    arena.check(&result);
    result
}

/// A directory with every kind of entry that bundles may have.
pub(crate) fn sample() -> tempfile::TempDir {
    let source = tempfile::tempdir().expect("a directory");
    let at = |name: &str| source.path().join(name);
    for directory in [
        "a/b",
        "a.b",
        "empty",
        ".git/objects",
        "node_modules/.bin",
        "node_modules/tool",
    ] {
        fs::create_dir_all(at(directory)).expect("made");
    }
    for (name, contents) in [
        ("a/f", &b"1"[..]),
        ("a/b/g", &[7; 300_000]),
        ("a-b", b"sorts before a/"),
        ("a.b/x", b"x"),
        (".gitignore", b"*"),
        (".git/config", b"secret"),
        ("node_modules/tool/cli.js", b"#!/usr/bin/env node\n"),
        ("zero", b""),
    ] {
        fs::write(at(name), contents).expect("written");
    }
    let long = format!("{}/{}", "d".repeat(200), "n".repeat(200));
    fs::create_dir(at(&"d".repeat(200))).expect("made");
    fs::write(at(&long), b"long").expect("written");
    symlink("../tool/cli.js", at("node_modules/.bin/tool")).expect("linked");
    let program = fs::Permissions::from_mode(0o4711);
    fs::set_permissions(at("node_modules/tool/cli.js"), program).expect("mode set");
    source
}

fn digest_of(source: &Path) -> Result<Unpacked, UnpackError> {
    pack(source, &Arena::new(), &UnpackLimits::default())
}

#[test]
fn a_directory_is_the_same_bundle_as_its_archive() {
    let source = sample();
    let arena = Arena::new();
    let packed = pack(source.path(), &arena, &UnpackLimits::default()).expect("packed");
    assert_eq!(packed.archive_digest, None);
    assert_eq!(arena.mode("node_modules/tool/cli.js"), 0o755);
    assert!(!arena.target().join(".git").exists());
    assert_eq!(packed.warnings.len(), 1);
    let output = Command::new("tar")
        .args(["-czf", "-", "-C"])
        .arg(source.path())
        .arg(".")
        .output()
        .expect("tar");
    let (_, unpacked) = crate::arena::kept(&output.stdout);
    assert_eq!(unpacked.content_digest, packed.content_digest);
    assert_eq!(unpacked.tree, packed.tree);
    let target = fs::File::open(arena.target()).expect("opened");
    let second = archive::canonical::content_digest(&packed.tree, target.as_fd());
    assert_eq!(
        second.expect("computed"),
        packed.content_digest,
        "streamed and read back"
    );
}

#[test]
fn special_files_are_refused_in_a_directory_too() {
    let fifo = |path: &Path| {
        let made = Command::new("mkfifo").arg(path.join("fifo")).status();
        assert!(made.expect("started").success());
    };
    type Spoil<'case> = &'case dyn Fn(&Path);
    let cases: [(&str, Spoil<'_>); 6] = [
        ("entry_type", &fifo),
        ("entry_type", &|path| {
            drop(std::os::unix::net::UnixListener::bind(path.join("socket")).expect("bound"));
        }),
        ("symlink_absolute", &|path| {
            symlink("/etc/passwd", path.join("l")).expect("linked")
        }),
        ("symlink_escapes", &|path| {
            symlink("../x", path.join("l")).expect("linked")
        }),
        ("symlink_loop", &|path| {
            symlink("l", path.join("l")).expect("linked")
        }),
        ("symlink_chained", &|path| {
            symlink("f", path.join("a")).expect("linked");
            symlink("a", path.join("b")).expect("linked");
        }),
    ];
    for (code, spoil) in cases {
        let source = tempfile::tempdir().expect("a directory");
        spoil(source.path());
        let error = digest_of(source.path()).expect_err(code);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.is_refusal());
    }
}

#[test]
fn the_limits_hold_for_directories() {
    let source = sample();
    let few = UnpackLimits {
        entries: 5,
        ..UnpackLimits::default()
    };
    let arena = Arena::new();
    let error = pack(source.path(), &arena, &few).expect_err("too many");
    assert_eq!(error.code(), "entries_limit");
    assert!(arena.found().len() <= 5);
    let small = UnpackLimits {
        unpacked_bytes: 1_000,
        ..UnpackLimits::default()
    };
    let arena = Arena::new();
    let error = pack(source.path(), &arena, &small).expect_err("too large");
    assert_eq!(error.code(), "unpacked_bytes_limit");
    assert!(arena.bytes() <= 1_000);
    let deep = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(deep.path().join(vec!["d"; 129].join("/"))).expect("made");
    assert_eq!(
        digest_of(deep.path()).expect_err("deep").code(),
        "path_too_deep"
    );
}

#[test]
fn files_of_two_names_are_copied_twice() {
    let source = tempfile::tempdir().expect("a directory");
    fs::write(source.path().join("f"), b"one").expect("written");
    fs::hard_link(source.path().join("f"), source.path().join("g")).expect("linked");
    let arena = Arena::new();
    let unpacked = pack(source.path(), &arena, &UnpackLimits::default()).expect("packed");
    assert_eq!((unpacked.bytes, arena.read("g")), (6, b"one".to_vec()));
    assert_eq!(arena.read("f"), b"one");
}

/// The supervisor of root reads with its own rights what the body may not read, and creates files
/// as the body.
#[test]
fn what_is_created_belongs_to_the_ids_that_were_named() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let source = tempfile::tempdir().expect("a directory");
    fs::create_dir(source.path().join("d")).expect("made");
    fs::write(source.path().join("d/f"), b"private").expect("written");
    std::os::unix::fs::symlink("d/f", source.path().join("l")).expect("linked");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(source.path().join("d/f"), private).expect("mode set");
    let arena = Arena::new();
    let own = fs::metadata(arena.target()).expect("status");
    let (uid, gid) = match own.uid() {
        0 => (12_345, 12_346),
        ordinary => (ordinary, own.gid()),
    };
    chown(arena.target(), Some(uid), Some(gid)).expect("chowned");
    let ids = sys::credentials::HostIds { uid, gid };
    let from = fs::File::open(source.path()).expect("opened");
    let into = fs::File::open(arena.target()).expect("opened");
    let limits = UnpackLimits::default();
    let result = archive::unpack_directory_as(from.as_fd(), into.as_fd(), &limits, Some(ids));
    arena.check(&result);
    result.expect("packed");
    for name in ["d", "d/f", "l"] {
        let status = fs::symlink_metadata(arena.target().join(name)).expect("status");
        assert_eq!((status.uid(), status.gid()), (uid, gid), "{name}");
    }
    fs::write(source.path().join("after"), b"").expect("written");
    let after = fs::metadata(source.path().join("after")).expect("status");
    assert_eq!(after.uid(), own.uid(), "the ids were not given back");
}
