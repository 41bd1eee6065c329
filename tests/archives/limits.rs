//! Archives that exceed limits of counts and sizes.

use std::io::Read;

use archive::UnpackLimits;

use crate::arena::{Arena, kept};
use support::tar::{Tar, gzip, header, record};

fn limits() -> UnpackLimits {
    UnpackLimits::default()
}

#[track_caller]
fn refused_under(limits: &UnpackLimits, archive: impl Read + Send, code: &str) -> Arena {
    let arena = Arena::new();
    let error = arena.unpack(archive, limits).expect_err("too much");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.is_refusal());
    assert!(error.hint().is_some_and(|hint| hint.contains("limits")));
    arena
}

/// Counts the bytes that are read.
struct Counted<R> {
    source: R,
    taken: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.taken += count as u64;
        Ok(count)
    }
}

///
#[test]
fn more_entries_than_allowed_end_the_unpacking_at_the_limit() {
    let files = (0..400).fold(Tar::new(), |tar, number| {
        tar.file(&format!("f{number}"), b"")
    });
    let few = UnpackLimits {
        entries: 300,
        ..limits()
    };
    let arena = refused_under(&few, files.gz().as_slice(), "entries_limit");
    assert_eq!(arena.found().len(), 300);
    let directories = (0..400).fold(Tar::new(), |tar, number| {
        tar.directory(&format!("d{number}/"))
    });
    let arena = refused_under(&few, directories.gz().as_slice(), "entries_limit");
    assert_eq!(arena.found().len(), 300);
    let exactly = (0..300).fold(Tar::new(), |tar, number| {
        tar.symlink(&format!("l{number}"), "x")
    });
    Arena::new()
        .unpack(exactly.gz().as_slice(), &few)
        .expect("as many as allowed");
}

/// implied directories, replaced entries and left-out entries count too.
#[test]
fn no_entry_escapes_the_counting() {
    let few = UnpackLimits {
        entries: 100,
        ..limits()
    };
    let implied = (0..10).fold(Tar::new(), |tar, number| {
        tar.file(&format!("{number}{}/f", "/d".repeat(20)), b"")
    });
    let arena = refused_under(&few, implied.gz().as_slice(), "entries_limit");
    assert!(arena.found().len() <= 100);
    let same = (0..101).fold(Tar::new(), |tar, _| tar.file("f", b""));
    refused_under(&few, same.gz().as_slice(), "entries_limit");
    let left_out = (0..101).fold(Tar::new(), |tar, number| {
        tar.file(&format!(".git/{number}"), b"")
    });
    refused_under(&few, left_out.gz().as_slice(), "entries_limit");
    let roots = (0..101).fold(Tar::new(), |tar, _| tar.directory("./"));
    refused_under(&few, roots.gz().as_slice(), "entries_limit");
}

///
#[test]
fn ten_gibibytes_of_zeros_are_refused_before_the_first_is_written() {
    let tar = Tar::new().with(b'0', b"zeros", 0, |block| {
        block[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\x02\x80\0\0\0");
    });
    let arena = refused_under(&limits(), tar.gz().as_slice(), "unpacked_bytes_limit");
    assert!(arena.found().is_empty());
}

///
#[test]
fn a_bomb_of_many_files_writes_no_more_than_the_limit() {
    let zeros = vec![0; 1 << 14];
    let tar = (0..64).fold(Tar::new(), |tar, number| {
        tar.file(&format!("z{number}"), &zeros)
    });
    let archive = tar.gz();
    assert!(archive.len() < 120_000, "{}", archive.len());
    let small = UnpackLimits {
        unpacked_bytes: 8 << 14,
        ..limits()
    };
    let arena = refused_under(&small, archive.as_slice(), "unpacked_bytes_limit");
    assert_eq!(arena.bytes(), 8 << 14);
    let same = (0..64)
        .fold(Tar::new(), |tar, _| tar.file("same", &zeros))
        .gz();
    let arena = refused_under(&small, same.as_slice(), "unpacked_bytes_limit");
    assert_eq!(arena.bytes(), 1 << 14);
    let left_out = (0..64)
        .fold(Tar::new(), |tar, _| tar.file(".git/pack", &zeros))
        .gz();
    refused_under(&small, left_out.as_slice(), "unpacked_bytes_limit");
    let copies = (0..64).fold(Tar::new().file("f", &zeros), |tar, number| {
        tar.hard_link(&format!("h{number}"), "f")
    });
    let arena = refused_under(&small, copies.gz().as_slice(), "unpacked_bytes_limit");
    assert_eq!(arena.bytes(), 8 << 14);
}

/// bytes that never become a file are limited as well.
#[test]
fn a_bomb_that_hides_in_headers_or_padding_is_refused() {
    let comment = record("comment", &vec![b' '; 900_000]);
    let headers = (0..4).fold(Tar::new(), |tar, _| tar.extended(b'g', &comment));
    let few = UnpackLimits {
        entries: 10,
        ..limits()
    };
    let archive = headers.gz();
    let mut counted = Counted {
        source: archive.as_slice(),
        taken: 0,
    };
    refused_under(&few, &mut counted, "header_bytes_limit");
    let end = Tar::new().file("f", b"x").end();
    let padded = |zeros: usize| gzip(&[&end[..], &vec![0; zeros]].concat());
    kept(&padded(1 << 20));
    let arena = Arena::new();
    let error = arena
        .unpack(padded(3 << 20).as_slice(), &limits())
        .expect_err("padding");
    assert_eq!(error.code(), "tar_data_after_end");
}

#[test]
fn names_that_would_fill_the_memory_are_refused() {
    let few = UnpackLimits {
        entries: 8_000,
        ..limits()
    };
    let tar = (0..400).fold(Tar::new(), |tar, number| {
        let name = format!(
            "{number:04}{}",
            "/n".repeat(100).replace('n', &"n".repeat(39))
        );
        tar.pax(&[("path", name.as_bytes())])
            .raw(&header(b'5', b"d", 0))
    });
    let arena = refused_under(&few, tar.gz().as_slice(), "name_bytes_limit");
    assert!(arena.found().len() < 8_000);
}

#[test]
fn compressed_bytes_are_limited_while_they_are_read() {
    let small = UnpackLimits {
        compressed_bytes: 10_000,
        ..limits()
    };
    let mut state: u64 = 88_172_645_463_325_252;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(50_000)
    .flatten()
    .collect();
    let archive = Tar::new().file("noise", &noise).gz();
    assert!(300_000 < archive.len());
    let mut counted = Counted {
        source: archive.as_slice(),
        taken: 0,
    };
    refused_under(&small, &mut counted, "compressed_bytes_limit");
    assert!(counted.taken <= 128 * 1024, "{}", counted.taken);
}

/// an endless stream ends at the limit and not in memory.
#[test]
fn an_endless_source_is_read_up_to_the_limit_only() {
    let members = gzip(b"").into_iter().collect::<Vec<u8>>();
    let endless = std::iter::repeat_n(members, 100_000)
        .flatten()
        .collect::<Vec<u8>>();
    let small = UnpackLimits {
        compressed_bytes: 100_000,
        ..limits()
    };
    refused_under(&small, endless.as_slice(), "compressed_bytes_limit");
}
