//! Errors in the stream around the entries.

use std::io::Read;

use archive::UnpackLimits;

use crate::arena::{Arena, PERMIT, kept, refused, refused_in};
use support::tar::{Tar, gzip};

fn simple() -> Tar {
    Tar::new().directory("d/").file("d/f", b"contents")
}

///
#[test]
fn gzip_within_gzip_is_no_tar() {
    let error = refused(&gzip(&simple().gz()), "not_tar");
    assert_eq!(
        error.to_string(),
        "the archive holds gzip data; expected a tar archive"
    );
}

///
#[test]
fn an_archive_cut_anywhere_is_refused() {
    let whole = simple().gz();
    for end in 2..whole.len() {
        let error = Arena::new()
            .unpack(&whole[..end], &UnpackLimits::default())
            .expect_err("cut");
        assert_eq!(error.code(), "gzip_truncated", "cut at {end}");
        assert!(error.hint().is_some());
    }
}

/// the gzip is complete, the tar in it is not.
#[test]
fn a_tar_cut_at_any_block_is_refused() {
    let whole = simple().end();
    for end in (1..whole.len()).filter(|end| end % 128 == 0) {
        let error = Arena::new()
            .unpack(gzip(&whole[..end]).as_slice(), &UnpackLimits::default())
            .expect_err("cut");
        let expected = match end {
            ..512 => "not_tar",
            1024..1536 if end != 1024 => "tar_truncated",
            1024 => "tar_truncated",
            _ => "tar_end_missing",
        };
        assert_eq!(error.code(), expected, "cut at {end}: {error}");
    }
    refused(
        &gzip(&[&simple().0[..], &[0; 512], &simple().0[..512]].concat()),
        "tar_data_after_end",
    );
}

///
#[test]
fn a_wrong_checksum_or_length_in_the_trailer_is_refused_and_leaves_no_link() {
    let whole = simple().symlink("l", "d/f").gz();
    for from_end in [8, 5, 4, 1] {
        let mut bad = whole.clone();
        let at = bad.len() - from_end;
        bad[at] ^= 1;
        refused(&bad, "gzip_malformed");
    }
}

/// every wrong bit in the data is detected.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let whole = simple().gz();
    let (_, good) = kept(&whole);
    for at in 10..whole.len() {
        for bit in [at % 4, 4 + at % 4] {
            let mut bad = whole.clone();
            bad[at] ^= 1 << bit;
            let arena = Arena::new();
            let target = std::fs::File::open(arena.target()).expect("opened");
            let into = std::os::fd::AsFd::as_fd(&target);
            match archive::unpack(&PERMIT, bad.as_slice(), into, &UnpackLimits::default()) {
                Err(_) => (),
                // Two encodings of one stream are one archive.
                Ok(unpacked) => assert_eq!(unpacked.content_digest, good.content_digest),
            }
        }
    }
}

///
#[test]
fn anything_after_the_archive_is_refused() {
    let whole = simple().gz();
    for tail in [&b"garbage"[..], b"\0", &[0; 512], b"\x1f", b"PK\x03\x04"] {
        refused(&[&whole[..], tail].concat(), "gzip_trailing_bytes");
    }
    let second = Tar::new().file("second", b"x").end();
    let arena = Arena::new();
    let joined = gzip(&[simple().end(), second].concat());
    refused_in(&arena, &joined, "tar_data_after_end");
    assert_eq!(
        arena.found(),
        ["d", "d/f"],
        "the second archive was unpacked"
    );
}

/// all members are one stream, so the result is that of one member.
#[test]
fn a_tar_split_over_gzip_members_is_one_archive() {
    let tar = simple().file("g", &[7; 5_000]).end();
    let (_, one) = kept(&gzip(&tar));
    for cut in [1, 511, 512, 700, tar.len() - 1] {
        let two = [gzip(&tar[..cut]), gzip(b""), gzip(&tar[cut..])].concat();
        let (_, unpacked) = kept(&two);
        assert_eq!(unpacked.content_digest, one.content_digest);
        assert_ne!(unpacked.archive_digest, one.archive_digest);
    }
    let evil = Tar::new().file("../x", b"x").end();
    refused(&[gzip(&simple().0), gzip(&evil)].concat(), "path_parent");
    let arena = Arena::new();
    refused_in(
        &arena,
        &[simple().gz(), gzip(&evil)].concat(),
        "tar_data_after_end",
    );
    refused(
        &[simple().gz(), simple().gz()].concat(),
        "tar_data_after_end",
    );
}

///
#[test]
fn names_in_the_gzip_header_are_never_used() {
    let deflated = &simple().gz()[10..];
    let mut head = vec![
        0x1f,
        0x8b,
        8,
        0x04 | 0x08 | 0x10,
        0,
        0,
        0,
        0,
        0,
        3,
        0xff,
        0xff,
    ];
    head.resize(head.len() + 0xffff, b'x');
    head.extend_from_slice(b"../../x\0/etc/comment\0");
    let (arena, _) = kept(&[&head[..], deflated].concat());
    assert_eq!(arena.found(), ["d", "d/f"]);
    let unterminated = [
        &[0x1f, 0x8b, 8, 0x10, 0, 0, 0, 0, 0, 3][..],
        &[b'c'; 40_000],
    ]
    .concat();
    refused(&unterminated, "gzip_truncated");
    let endless = [
        &[0x1f, 0x8b, 8, 0x10, 0, 0, 0, 0, 0, 3][..],
        &[b'c'; 100_000],
    ]
    .concat();
    refused(&endless, "gzip_malformed");
}

///
#[test]
fn something_else_by_the_name_of_tar_gz_is_named() {
    let plain = simple().end();
    for (bytes, found) in [
        (plain.as_slice(), "a plain tar archive"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\xfd7zXZ\0rest", "an xz archive"),
        (b"\x28\xb5\x2f\xfdrest", "a zstd archive"),
        (b"BZh91AY&SY", "a bzip2 archive"),
        (b"<!DOCTYPE html>", "an HTML or XML text"),
        (b"", "an empty file"),
        (b"x", "no gzip file"),
        (b"hello there", "no gzip file"),
    ] {
        let error = refused(bytes, "not_gzip");
        let text = format!("this is {found}; expected a gzip-compressed tar");
        assert_eq!(error.to_string(), text);
        assert!(error.hint().is_some_and(|hint| hint.contains("`tar -czf")));
    }
    refused(b"\x1f", "not_gzip");
    refused(b"\x1f\x8b", "gzip_truncated");
    for bytes in [&b""[..], b"hello", &[b'x'; 600]] {
        let error = refused(&gzip(bytes), "not_tar");
        assert!(error.hint().is_some());
    }
}

#[test]
fn an_archive_without_entries_is_an_empty_bundle() {
    let (arena, unpacked) = kept(&Tar::new().gz());
    assert_eq!((unpacked.entries, unpacked.bytes), (0, 0));
    assert!(unpacked.tree.is_empty() && arena.found().is_empty());
}

/// Returns one byte at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else {
            return Ok(0);
        };
        buffer[0] = *first;
        self.0 = rest;
        Ok(1)
    }
}

#[test]
fn a_slow_source_gives_the_same_bundle() {
    let archive = simple().file("g", &[9; 10_000]).gz();
    let (_, fast) = kept(&archive);
    let slow = Arena::new()
        .unpack(Trickle(&archive), &UnpackLimits::default())
        .expect("unpacked");
    assert_eq!(slow.content_digest, fast.content_digest);
    assert_eq!(slow.archive_digest, fast.archive_digest);
}
