//! Snapshots of sources: bundles without a link.

use std::fs;
use std::os::fd::AsFd as _;

use archive::{UnpackError, UnpackLimits, Unpacked, unpack_snapshot};

use crate::arena::{Arena, PERMIT};
use support::tar::Tar;

fn unpack(arena: &Arena, tar: Tar) -> Result<Unpacked, UnpackError> {
    let target = fs::File::open(arena.target()).expect("opened");
    let archive = tar.gz();
    let result = unpack_snapshot(
        &PERMIT,
        &archive[..],
        target.as_fd(),
        &UnpackLimits::default(),
    );
    arena.check(&result);
    result
}

#[test]
fn anything_but_a_file_or_a_directory_is_refused_by_its_name_and_not_made() {
    let plain = || Tar::new().file("before", b"x");
    for (tar, what) in [
        (plain().symlink("entry", "before"), "a symlink"),
        (plain().symlink(".git/entry", "before"), "a symlink"),
        (plain().hard_link("entry", "before"), "a hard link"),
        (
            plain().with(b'3', b"entry", 0, |_| ()),
            "a character device",
        ),
        (plain().with(b'4', b"entry", 0, |_| ()), "a block device"),
        (plain().with(b'6', b"entry", 0, |_| ()), "a fifo"),
        (plain().with(b'7', b"entry", 0, |_| ()), "a contiguous file"),
    ] {
        let arena = Arena::new();
        let error = unpack(&arena, tar).expect_err(what);
        assert_eq!(error.code(), "snapshot_entry_type", "{what}");
        let text = error.to_string();
        assert!(text.contains("entry`") && text.contains(what), "{text}");
        assert_eq!(arena.found(), ["before"], "{what}");
    }
}

#[test]
fn files_and_directories_are_unpacked_as_those_of_a_bundle() {
    let tar = || {
        Tar::new()
            .directory("d")
            .file("d/x", b"data")
            .file(".git/config", b"")
    };
    let arena = Arena::new();
    let snapshot = unpack(&arena, tar()).expect("unpacked");
    assert_eq!(arena.read("d/x"), b"data");
    let bundle = Arena::new().unpack(&tar().gz()[..], &UnpackLimits::default());
    let bundle = bundle.expect("unpacked");
    assert_eq!(snapshot.content_digest, bundle.content_digest);
    assert_eq!(snapshot.warnings, bundle.warnings);
}
