//! The result of unpacking as one number: trees in the cache from another version must not be used
//! if this version would unpack differently.

use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use archive::{UnpackLimits, unpack};
use spec::digest::Digest;
use store::UNPACK_RULES;

use crate::arena::PERMIT;
use support::tar::{Tar, gzip};

/// Archives with every feature that a rule covers.
fn archives() -> Vec<Tar> {
    let mode =
        |bits: &'static [u8; 7]| move |block: &mut [u8; 512]| block[100..107].copy_from_slice(bits);
    vec![
        Tar::new()
            .directory("a/")
            .file("a/plain", b"plain")
            .with(b'0', b"./a/program", 0, mode(b"0004711"))
            .with(b'0', b"a/closed", 0, mode(b"0000000"))
            .with(b'5', b"wide/", 0, mode(b"0001777"))
            .file("implied/deep/file", b"deep")
            .symlink("a/link", "../implied/deep")
            .symlink("dangling", "nowhere")
            .hard_link("copy", "a/plain")
            .file("a/plain", b"replaced")
            .pax_file("näme".as_bytes(), b"pax")
            .file(".git/config", b"left out")
            .file("A/plain", b"twin")
            .file("empty", b""),
        Tar::new().file("../out", b"x"),
        Tar::new().file("/absolute", b"x"),
        Tar::new().symlink("escape", "../../etc/passwd"),
        Tar::new().symlink("one", "two").symlink("two", "one"),
        Tar::new().symlink("d", "a").file("d/x", b"through"),
        Tar::new().hard_link("h", "missing"),
        Tar::new().file("f", b"x").directory("f/"),
        Tar::new().with(b'3', b"device", 0, |_| ()),
        Tar::new().with(b'6', b"fifo", 0, |_| ()),
    ]
}

fn describe(root: &Path, path: &Path, text: &mut String) {
    let mut entries: Vec<_> = std::fs::read_dir(path)
        .expect("listed")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for entry in entries {
        let status = std::fs::symlink_metadata(&entry).expect("looked at");
        let name = entry.strip_prefix(root).expect("beneath");
        let contents = match status.file_type() {
            kind if kind.is_dir() => String::new(),
            kind if kind.is_symlink() => format!("{:?}", std::fs::read_link(&entry).expect("read")),
            _ => format!("{:?}", std::fs::read(&entry).expect("read")),
        };
        let mode = status.mode();
        writeln!(
            text,
            "{name:?} {mode:o} {} {contents}",
            status.nlink() * u64::from(!status.is_dir())
        )
        .expect("written");
        if status.is_dir() {
            describe(root, &entry, text);
        }
    }
}

#[test]
fn the_unpacked_tree_changes_only_with_the_rules_version() {
    let mut text = String::new();
    for archive in archives() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = std::fs::File::open(directory.path()).expect("opened");
        let bytes = gzip(&archive.end());
        match unpack(&PERMIT, &bytes[..], root.as_fd(), &UnpackLimits::default()) {
            Ok(unpacked) => {
                let codes: Vec<_> = unpacked.warnings.iter().map(|one| &one.code).collect();
                writeln!(text, "{} {codes:?}", unpacked.content_digest).expect("written");
                describe(directory.path(), directory.path(), &mut text);
            }
            Err(error) => writeln!(text, "refused {}", error.is_refusal()).expect("written"),
        }
    }
    let found = Digest::of(text.as_bytes()).to_string();
    let expected = (
        1,
        "sha256:e781de72a0eb4ee65b75c5398b555ef17bf70bdec91c1118418b766aa9847a33",
    );
    assert_eq!(
        (UNPACK_RULES, &*found),
        expected,
        "unpacking makes something else of archives than before: raise cache::UNPACK_RULES, so that \
         kept trees are made anew, and put the new number here\n{text}"
    );
}
