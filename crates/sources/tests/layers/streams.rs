//! The streams of layers: compressed in four ways, truncated, damaged, endless, refused.

use std::cell::Cell;
use std::io::Read;
use std::process::{Command, Stdio};

use archive::{Compression, UnpackLimits};
use spec::digest::Digest;

use crate::stack::Stack;
use support::tar::{Tar, gzip};

const ALL: [Compression; 4] = [
    Compression::Plain,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Xz,
];

pub(crate) fn compressed(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::Plain => bytes.to_vec(),
        Compression::Gzip => gzip(bytes),
        Compression::Zstd => piped("zstd", &["-q", "-c"], bytes),
        Compression::Xz => piped("xz", &["-c"], bytes),
    }
}

fn piped(program: &str, arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &bytes));
    let output = child.wait_with_output().expect("ended");
    writer.join().expect("joined").expect("written");
    assert!(output.status.success(), "{program}");
    output.stdout
}

fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = std::iter::from_fn(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Some(state.to_be_bytes()[0])
    });
    next.take(count).collect()
}

fn tar() -> Vec<u8> {
    Tar::new()
        .file("a/noise", &noise(1_500_000))
        .file("zeros", &vec![0; 1_000_000])
        .end()
}

#[test]
fn every_compression_gives_the_same_layer_and_the_digest_of_its_tar() {
    for compression in ALL {
        let mut stack = Stack::new();
        let archive = compressed(&tar(), compression);
        let unpacked = stack
            .push_compressed(&archive[..], compression, &|| false)
            .unwrap_or_else(|error| panic!("{compression:?}: {error:?}"));
        assert_eq!(unpacked.diff_id, Digest::of(&tar()), "{compression:?}");
        assert_eq!((unpacked.files, unpacked.entries), (2, 3));
        let found = std::fs::read(stack.path(0).join("a/noise")).expect("read");
        assert!(found == noise(1_500_000), "{compression:?}");
    }
}

#[test]
fn several_frames_and_streams_are_one_layer_and_skippable_frames_are_none_of_it() {
    let whole = tar();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Xz] {
        let (first, second) = whole.split_at(700_000);
        let mut archive = compressed(first, compression);
        if compression == Compression::Zstd {
            archive.extend_from_slice(&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        }
        archive.extend(compressed(second, compression));
        let mut stack = Stack::new();
        let unpacked = stack
            .push_compressed(&archive[..], compression, &|| false)
            .unwrap_or_else(|error| panic!("{compression:?}: {error:?}"));
        assert_eq!(unpacked.diff_id, Digest::of(&whole), "{compression:?}");
    }
}

#[test]
fn an_archive_that_is_cut_is_refused_but_for_the_blocks_of_zeros_at_its_end() {
    for compression in ALL {
        let archive = compressed(&tar(), compression);
        let cuts = [
            1,
            100,
            archive.len() / 2,
            archive.len() - 1_025,
            archive.len() - 1,
        ];
        for cut in cuts {
            let mut stack = Stack::new();
            match stack.push_compressed(&archive[..cut], compression, &|| false) {
                // Only zeros are missing, which the digest shows.
                Ok(unpacked) => {
                    assert!(compression == Compression::Plain && archive.len() - 2_048 < cut);
                    assert_ne!(unpacked.diff_id, Digest::of(&tar()));
                }
                Err(error) => {
                    assert!(error.is_refusal(), "{compression:?} at {cut}: {error:?}");
                }
            }
        }
    }
    let whole = Tar::new().file("x", b"data");
    // umoci 0.4 also leaves out the padding of the last block.
    let bare = whole.0.len() - 508;
    for zeros in [0, 508, 1_020, 1_532, 10_240, 1 << 20] {
        let archive = [&whole.0[..bare], &vec![0; zeros]].concat();
        let mut stack = Stack::new();
        stack
            .push(&archive)
            .unwrap_or_else(|error| panic!("{zeros}: {error}"));
        assert_eq!(stack.seen("x"), "data");
    }
    for tail in [&b"more"[..], &[1; 512], &vec![0; 3 << 20]] {
        let archive = whole.clone().raw(&[0; 1_024]).raw(tail).0;
        let code = Stack::new().push(&archive).expect_err("more").code();
        assert_eq!(code, "tar_data_after_end");
    }
}

#[test]
fn bytes_that_are_damaged_or_of_another_kind_are_refused() {
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Xz] {
        let mut archive = compressed(&tar(), compression);
        let middle = archive.len() / 2;
        archive[middle] ^= 0x55;
        let mut stack = Stack::new();
        // Without a checksum, a change may leave the stream readable; its digest differs.
        match stack.push_compressed(&archive[..], compression, &|| false) {
            Ok(unpacked) => assert_ne!(unpacked.diff_id, Digest::of(&tar())),
            Err(error) => assert!(error.is_refusal(), "{error:?}"),
        }
        for other in ALL.into_iter().filter(|other| *other != compression) {
            let archive = compressed(&tar(), other);
            let mut stack = Stack::new();
            let result = stack.push_compressed(&archive[..], compression, &|| false);
            let error = result.expect_err("of another kind");
            assert!(error.is_refusal(), "{error:?}");
            assert!(!error.code().is_empty());
        }
    }
}

#[test]
fn an_empty_archive_is_refused_and_an_empty_layer_is_one() {
    for compression in ALL {
        let mut stack = Stack::new();
        let result = stack.push_compressed(&b""[..], compression, &|| false);
        assert!(result.expect_err("nothing").is_refusal());
        let archive = compressed(&[0; 1_024], compression);
        let unpacked = stack
            .push_compressed(&archive[..], compression, &|| false)
            .expect("empty");
        assert_eq!(unpacked.entries, 0);
    }
    let archive = Tar::new().directory("./").gz();
    let unpacked = Stack::new().push_compressed(&archive[..], Compression::Gzip, &|| false);
    assert_eq!(unpacked.expect("empty").entries, 0);
}

#[test]
fn a_bomb_is_refused_at_the_limit_and_not_after_it() {
    let limits = UnpackLimits {
        compressed_bytes: 64 << 10,
        unpacked_bytes: 1 << 20,
        entries: 100,
    };
    for compression in ALL {
        let archive = compressed(&tar(), compression);
        let mut stack = Stack::new();
        stack.limits = limits;
        let error = stack
            .push_compressed(&archive[..], compression, &|| false)
            .expect_err("too large");
        let codes = ["compressed_bytes_limit", "unpacked_bytes_limit"];
        assert!(codes.contains(&error.code()), "{compression:?}: {error:?}");
    }
    let bomb = Tar::new().file("zeros", &vec![0; 50 << 20]).end();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Xz] {
        let archive = compressed(&bomb, compression);
        let mut stack = Stack::new();
        stack.limits = limits;
        let error = stack
            .push_compressed(&archive[..], compression, &|| false)
            .expect_err("too large");
        assert_eq!(error.code(), "unpacked_bytes_limit", "{compression:?}");
    }
}

#[test]
fn a_window_or_a_dictionary_that_takes_too_much_memory_is_refused() {
    // A frame of zstd whose header asks for a window of 1 GiB: RFC 8878, 3.1.1.1.2.
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0, 0x01, 0x00, 0x00];
    let mut stack = Stack::new();
    let error = stack
        .push_compressed(&zstd[..], Compression::Zstd, &|| false)
        .expect_err("too large");
    assert_eq!(error.code(), "zstd_malformed");
    let xz = piped("xz", &["-c", "--lzma2=dict=1GiB"], &tar());
    let error = stack
        .push_compressed(&xz[..], Compression::Xz, &|| false)
        .expect_err("too large");
    assert_eq!(error.code(), "xz_malformed");
}

/// Returns bytes until it fails.
struct Failing<'bytes>(&'bytes [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(std::io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_source_that_fails_is_not_taken_for_a_bad_layer() {
    for compression in ALL {
        let archive = compressed(&tar(), compression);
        let mut stack = Stack::new();
        let half = Failing(&archive[..archive.len() / 2]);
        let error = stack
            .push_compressed(half, compression, &|| false)
            .expect_err("failed");
        assert!(!error.is_refusal(), "{compression:?}: {error:?}");
        assert_eq!(error.code(), "archive_unreadable");
    }
}

#[test]
fn cancelling_is_noticed_during_decompression() {
    for compression in ALL {
        let archive = compressed(&tar(), compression);
        let asked = Cell::new(0);
        let is_cancelled = || {
            asked.set(asked.get() + 1);
            5 < asked.get()
        };
        let mut stack = Stack::new();
        let error = stack
            .push_compressed(&archive[..], compression, &is_cancelled)
            .expect_err("cancelled");
        assert_eq!(error.code(), "unpack_cancelled", "{compression:?}");
        assert_eq!(asked.get(), 6, "it was asked again");
    }
}
