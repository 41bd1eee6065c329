//! The thread that inflates ahead ends with the unpacking, however that ends.

use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use archive::{UnpackError, UnpackLimits, Unpacked, unpack_ahead};

use crate::arena::{Arena, PERMIT};
use support::tar::Tar;

/// Observations of the reading thread.
#[derive(Clone, Default)]
struct Watch {
    thread: Arc<Mutex<Option<PathBuf>>>,
    is_read: Arc<AtomicBool>,
}

/// Returns a few bytes at each read, records the reading thread, and fails when told to.
struct Watched<'archive> {
    left: &'archive [u8],
    fails_after: usize,
    watch: Watch,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let thread = std::fs::read_link("/proc/thread-self")?;
        *self.watch.thread.lock().expect("whole") = Some(PathBuf::from("/proc").join(thread));
        self.watch.is_read.store(true, Ordering::SeqCst);
        if self.fails_after == 0 {
            return Err(io::Error::from_raw_os_error(125));
        }
        self.fails_after -= 1;
        let count = self.left.len().min(buffer.len()).min(5_000);
        buffer[..count].copy_from_slice(&self.left[..count]);
        self.left = &self.left[count..];
        Ok(count)
    }
}

/// The result, and whether another thread read; that one must have ended.
fn unpack_watched(
    archive: &[u8],
    limits: &UnpackLimits,
    fails_after: usize,
) -> (Result<Unpacked, UnpackError>, bool) {
    let arena = Arena::new();
    let watch = Watch::default();
    let source = Watched {
        left: archive,
        fails_after,
        watch: watch.clone(),
    };
    let target = std::fs::File::open(arena.target()).expect("opened");
    let result = unpack_ahead(&PERMIT, source, target.as_fd(), limits, 0);
    arena.check(&result);
    assert_eq!(
        Arc::strong_count(&watch.is_read),
        1,
        "somebody still holds the archive"
    );
    let own =
        PathBuf::from("/proc").join(std::fs::read_link("/proc/thread-self").expect("a thread"));
    let thread = watch.thread.lock().expect("whole").clone().expect("read");
    let is_other = thread != own;
    if is_other {
        // Joining waits for the thread id to be cleared, a moment before its entry in /proc is removed.
        while thread.exists() {
            std::thread::yield_now();
        }
    }
    (result, is_other)
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 88_172_645_463_325_252;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(bytes / 8).flatten().collect()
}

#[test]
fn the_thread_that_inflates_is_gone_after_success_refusal_and_failure() {
    let limits = UnpackLimits::default();
    let data = noise(3 << 20);
    let good = Tar::new().file("a", &data).file("b", &data);
    let (result, is_other) = unpack_watched(&good.clone().gz(), &limits, usize::MAX);
    result.expect("unpacked");
    assert!(is_other, "nothing was inflated ahead");

    // Refused at once, while all buffers are full, and while more can be read.
    let early = Tar::new()
        .file("../a", b"")
        .file("a", &data)
        .file("b", &data);
    let (result, is_other) = unpack_watched(&early.gz(), &limits, usize::MAX);
    assert_eq!(result.expect_err("refused").code(), "path_parent");
    assert!(is_other);

    let late = good.clone().file("c/../d", b"").file("e", &data);
    let (result, _) = unpack_watched(&late.gz(), &limits, usize::MAX);
    assert_eq!(result.expect_err("refused").code(), "path_parent");

    for reads in [0, 1, 40, 400] {
        let (result, _) = unpack_watched(&good.clone().gz(), &limits, reads);
        let error = result.expect_err("unreadable");
        assert_eq!(error.code(), "archive_unreadable", "after {reads} reads");
    }
}

#[test]
fn a_large_archive_gives_the_same_ahead_as_not() {
    let data = noise(1 << 20);
    let tar = (0..8).fold(Tar::new(), |tar, number| {
        tar.file(&format!("f{number}"), &data[number * 70_001..])
            .file(&format!("e{number}"), b"")
    });
    // The arena unpacks each archive both ways.
    let arena = Arena::new();
    let unpacked = arena
        .unpack(tar.gz().as_slice(), &UnpackLimits::default())
        .expect("unpacked");
    assert_eq!(unpacked.entries, 16);
    assert_eq!(arena.read("f3"), &data[210_003..]);
}
