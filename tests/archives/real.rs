//! Archives of real programs: the system's `tar` in its formats, Python's `tarfile`, npm trees.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use archive::{UnpackLimits, Unpacked};
use spec::digest::Digest;

use crate::arena::{Arena, kept, skipped};
use crate::directories::sample;
use support::tar::{Tar, gzip};

/// The standard output of a program; `None` if the program does not exist.
fn output(program: &str, arguments: &[&str], directory: &Path) -> Option<Vec<u8>> {
    let started = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = started else {
        skipped(&format!("{program} is not installed"));
        return None;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    Some(output.stdout)
}

fn canonical(arena: &Arena, unpacked: &Unpacked) -> Vec<u8> {
    let target = fs::File::open(arena.target()).expect("opened");
    let mut bytes = Vec::new();
    archive::write_canonical(&unpacked.tree, target.as_fd(), &mut bytes).expect("written");
    bytes
}

#[test]
fn every_format_of_tar_gives_the_same_bundle() {
    let source = sample();
    let mut digests = Vec::new();
    for arguments in [
        &["-czf", "-", "."][..],
        &["-czf", "-", "--format=pax", "."],
        &["-czf", "-", "--format=gnu", "."],
        &["-czf", "-", "--format=posix", "--sort=name", "."],
        &[
            "-czf",
            "-",
            "--format=gnu",
            "--numeric-owner",
            "--exclude=.git",
            "--no-recursion",
            ".",
        ],
        &[
            "-czf",
            "-",
            "--format=gnu",
            "--sort=name",
            "--transform=s,^\\./,,",
            ".",
        ],
        &["-czf", "-", "-b", "2048", "."],
    ] {
        let Some(archive) = output("tar", arguments, source.path()) else {
            return;
        };
        let (arena, unpacked) = kept(&archive);
        if arguments.contains(&"--no-recursion") {
            assert_eq!(unpacked.entries, 0);
            continue;
        }
        assert_eq!(arena.read("a/b/g"), vec![7; 300_000]);
        assert_eq!(
            arena.read("node_modules/.bin/tool"),
            b"#!/usr/bin/env node\n"
        );
        assert_eq!(arena.mode("node_modules/.bin/tool"), 0o777, "a link");
        assert_eq!(arena.mode("node_modules/tool/cli.js"), 0o755);
        assert!(!arena.target().join(".git").exists());
        digests.push(unpacked.content_digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn old_formats_of_tar_are_read_where_they_can_hold_the_names() {
    let source = tempfile::tempdir().expect("a directory");
    fs::create_dir(source.path().join("d")).expect("made");
    fs::write(source.path().join("d/f"), b"x").expect("written");
    fs::hard_link(source.path().join("d/f"), source.path().join("d/g")).expect("linked");
    std::os::unix::fs::symlink("d/f", source.path().join("l")).expect("linked");
    let mut digests = Vec::new();
    for format in ["v7", "oldgnu", "ustar", "gnu", "pax"] {
        let format = format!("--format={format}");
        let Some(archive) = output("tar", &["-czf", "-", &format, "."], source.path()) else {
            return;
        };
        let (arena, unpacked) = kept(&archive);
        assert_eq!(arena.found(), ["d", "d/f", "d/g", "l"]);
        digests.push(unpacked.content_digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn a_sparse_file_of_tar_is_refused() {
    let source = tempfile::tempdir().expect("a directory");
    let file = fs::File::create(source.path().join("sparse")).expect("created");
    file.set_len(10 << 20).expect("sized");
    for format in ["gnu", "pax"] {
        let format = format!("--format={format}");
        let Some(archive) = output("tar", &["-czSf", "-", &format, "."], source.path()) else {
            return;
        };
        let error = Arena::new()
            .unpack(archive.as_slice(), &UnpackLimits::default())
            .expect_err("sparse");
        assert!(
            ["entry_type", "sparse_file"].contains(&error.code()),
            "{error}"
        );
    }
}

#[test]
fn archives_of_python_are_read() {
    let source = sample();
    let script = include_str!("../bodies/archives/archives_of_python_are_read.py");
    let mut digests = Vec::new();
    for (format, root) in [("pax", "."), ("gnu", "."), ("pax", "")] {
        let Some(archive) = output("python3", &["-c", script, format, root], source.path()) else {
            return;
        };
        digests.push(kept(&archive).1.content_digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn the_canonical_tar_is_read_by_tar_by_python_and_by_us() {
    let source = sample();
    let Some(archive) = output("tar", &["-czf", "-", "."], source.path()) else {
        return;
    };
    let (arena, unpacked) = kept(&archive);
    let bytes = canonical(&arena, &unpacked);
    assert_eq!(Digest::of(&bytes), unpacked.content_digest);
    let (again, second) = kept(&gzip(&bytes));
    assert_eq!(second.content_digest, unpacked.content_digest);
    assert_eq!(second.tree, unpacked.tree);
    assert_eq!(canonical(&again, &second), bytes);
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("canonical.tar"), &bytes).expect("written");
    let expected: Vec<String> = unpacked
        .tree
        .in_archive_order()
        .iter()
        .map(|(path, entry)| match entry {
            archive::Entry::Directory => format!("{path}/"),
            _ => path.to_string(),
        })
        .collect();
    let mut sorted = expected.clone();
    sorted.sort();
    assert_eq!(sorted, expected, "not in the order of bytes");
    let listed = output("tar", &["-tf", "canonical.tar"], place.path()).expect("tar was there");
    let listed = String::from_utf8(listed).expect("UTF-8");
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    let script = "import tarfile\n\
        for member in tarfile.open('canonical.tar'):\n\
        \x20   assert (member.uid, member.gid, member.mtime, member.uname) == (0, 0, 0, ''), member\n\
        \x20   print(member.name + ('/' if member.isdir() else ''))\n";
    if let Some(listed) = output("python3", &["-c", script], place.path()) {
        let listed = String::from_utf8(listed).expect("UTF-8");
        assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    }
    output("tar", &["-xf", "canonical.tar"], place.path()).expect("tar was there");
    let long = format!("{}/{}", "d".repeat(200), "n".repeat(200));
    assert_eq!(
        fs::read(place.path().join(long)).expect("unpacked"),
        b"long"
    );
}

/// The identity of a bundle must not change between versions of this program.
#[test]
fn the_canonical_tar_of_a_known_tree_has_a_known_digest() {
    let tar = Tar::new()
        .symlink("link", "dir/file")
        .file("dir/file", b"contents\n")
        .with(b'0', b"run.sh", 0, |block| {
            block[100..107].copy_from_slice(b"0000755")
        })
        .pax_file("n".repeat(200).as_bytes(), b"");
    let (arena, unpacked) = kept(&tar.gz());
    let bytes = canonical(&arena, &unpacked);
    assert_eq!(bytes.len(), 512 * 10);
    assert_eq!(
        unpacked.content_digest.to_string(),
        "sha256:f5564cf8f2809b6466207affe32acf11ea2be2d5092ed4ec70ceef72426a04ec"
    );
}

#[test]
fn an_npm_tree_with_links_between_its_packages_is_kept() {
    let source = tempfile::tempdir().expect("a directory");
    let at = |name: &str| source.path().join(name);
    for package in ["a", "b", "@scope/c"] {
        fs::create_dir_all(at(&format!("node_modules/{package}/bin"))).expect("made");
        fs::write(at(&format!("node_modules/{package}/bin/cli.js")), package).expect("written");
    }
    fs::create_dir_all(at("node_modules/.bin")).expect("made");
    fs::create_dir_all(at("packages/own")).expect("made");
    for (link, target) in [
        ("node_modules/.bin/a", "../a/bin/cli.js"),
        ("node_modules/.bin/c", "../@scope/c/bin/cli.js"),
        ("node_modules/own", "../packages/own"),
    ] {
        std::os::unix::fs::symlink(target, at(link)).expect("linked");
    }
    let Some(archive) = output("tar", &["-czf", "-", "-C", ".", "."], source.path()) else {
        return;
    };
    let (arena, unpacked) = kept(&archive);
    assert_eq!(arena.read("node_modules/.bin/c"), b"@scope/c");
    assert_eq!(unpacked.warnings, []);
}
