//! Blobs are complete and correct or absent; they are downloaded once, and interrupted downloads
//! are resumed.

use std::io::Read as _;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sources::oci::error::OciError;
use sources::oci::observer::NoObserver;
use sources::oci::store::{BlobDescriptor, Store};
use spec::digest::Digest;

use crate::ground::{Artifact, Ending, Fake, Ground, Sends, noise, wanted};

const BYTES: usize = 700_000;

fn one_blob() -> (Artifact, BlobDescriptor) {
    let bytes = noise(1, BYTES);
    (Artifact::default().with_blob(&bytes), wanted(&bytes))
}

fn code(fetched: Result<sources::oci::store::Blob, OciError>) -> &'static str {
    match fetched {
        Ok(_) => "fetched",
        Err(error) => error.code(),
    }
}

fn bytes_of(store: &Store, digest: &Digest) -> Vec<u8> {
    let mut blob = store.blob(digest).expect("looked at").expect("there");
    let mut bytes = Vec::new();
    blob.file.read_to_end(&mut bytes).expect("read");
    bytes
}

#[test]
fn a_blob_is_asked_for_once_and_read_only_afterwards() {
    let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
    let store = ground.store();
    let fake = Fake::new(&artifact, Sends::Whole);
    for _ in 0..3 {
        let blob = store.fetch(&wanted, &fake, &NoObserver).expect("fetched");
        assert_eq!((blob.digest, blob.bytes), (wanted.digest, wanted.bytes));
    }
    assert_eq!(fake.asked(), (0, 1));
    assert_eq!(bytes_of(&store, &wanted.digest), noise(1, BYTES));
    let file = std::fs::metadata(ground.blob_file(&wanted.digest)).expect("there");
    assert!(file.permissions().readonly());
    assert!(!ground.partial_file(&wanted.digest).exists());
}

#[test]
fn a_download_that_ends_early_or_breaks_is_gone_on_with_where_it_was() {
    for sends in [Sends::AtMost(300_000), Sends::Breaks(300_000)] {
        let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
        let fake = Fake::new(&artifact, sends);
        let fetched = ground.store().fetch(&wanted, &fake, &NoObserver);
        assert_eq!(code(fetched), "fetched", "{sends:?}");
        // Twice 300,000 bytes and the rest, with no byte sent twice.
        assert_eq!((fake.asked().1, fake.sent()), (3, BYTES), "{sends:?}");
        assert_eq!(ground.assert_untorn(), 1);
    }
}

#[test]
fn an_incomplete_blob_is_an_error_and_its_part_is_kept_for_the_next_attempt() {
    let (ground, (mut artifact, wanted)) = (Ground::new(), one_blob());
    let whole = artifact.clone();
    let cut = noise(1, BYTES)[..200_000].to_vec();
    artifact.blobs.insert(wanted.digest, cut);
    let store = ground.store();
    let short = Fake::new(&artifact, Sends::Whole);
    let fetched = store.fetch(&wanted, &short, &NoObserver);
    assert_eq!(code(fetched), "store_blob_truncated");
    assert_eq!(ground.assert_untorn(), 0);
    let left = std::fs::metadata(ground.partial_file(&wanted.digest));
    assert_eq!(left.expect("kept").len(), 200_000);
    let fake = Fake::new(&whole, Sends::Whole);
    store.fetch(&wanted, &fake, &NoObserver).expect("fetched");
    assert_eq!(fake.sent(), BYTES - 200_000);
}

#[test]
fn an_empty_download_leaves_no_file() {
    let (ground, (mut artifact, wanted)) = (Ground::new(), one_blob());
    artifact.blobs.remove(&wanted.digest);
    let nobody = Fake::new(&artifact, Sends::Whole);
    let fetched = ground.store().fetch(&wanted, &nobody, &NoObserver);
    assert_eq!(code(fetched), "store_blob_gone");
    assert!(!ground.partial_file(&wanted.digest).exists());
}

#[test]
fn a_server_without_ranges_is_read_from_the_start() {
    let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
    let store = ground.store();
    let cancelled = Ending {
        after_bytes: Some(1),
        ..Ending::default()
    };
    let fake = Fake::new(&artifact, Sends::FromStart);
    assert_eq!(code(store.fetch(&wanted, &fake, &cancelled)), "cancelled");
    assert!(ground.partial_file(&wanted.digest).exists());
    assert_eq!(code(store.fetch(&wanted, &fake, &NoObserver)), "fetched");
    assert_eq!(ground.assert_untorn(), 1);
}

#[test]
fn bytes_that_are_not_the_blob_are_refused_and_thrown_away() {
    for (sends, expected) in [
        (Sends::Other, "store_blob_wrong_digest"),
        (Sends::More, "store_blob_wrong_size"),
    ] {
        let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
        let store = ground.store();
        let fake = Fake::new(&artifact, sends);
        assert_eq!(code(store.fetch(&wanted, &fake, &NoObserver)), expected);
        assert_eq!(ground.assert_untorn(), 0);
        assert!(!ground.partial_file(&wanted.digest).exists());
        assert_eq!(
            fake.asked().1,
            1,
            "nothing was there that could be to blame"
        );
        let fake = Fake::new(&artifact, Sends::Whole);
        assert_eq!(code(store.fetch(&wanted, &fake, &NoObserver)), "fetched");
    }
}

#[test]
fn a_wrong_partial_download_is_restarted_once() {
    let longer = noise(3, BYTES + 1);
    let other = noise(3, 100_000);
    for (left, requests) in [(&other, 2), (&longer, 1)] {
        let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
        let store = ground.store();
        std::fs::create_dir(ground.path("oci/1/partial")).expect("made");
        std::fs::write(ground.partial_file(&wanted.digest), left).expect("written");
        let fake = Fake::new(&artifact, Sends::Whole);
        assert_eq!(code(store.fetch(&wanted, &fake, &NoObserver)), "fetched");
        assert_eq!(fake.asked().1, requests);
        assert_eq!(ground.assert_untorn(), 1);
    }
}

#[test]
fn a_blob_of_the_wrong_size_in_the_store_is_removed_and_one_that_is_right_stays() {
    let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
    let store = ground.store();
    let fake = Fake::new(&artifact, Sends::Whole);
    store.fetch(&wanted, &fake, &NoObserver).expect("fetched");
    let lie = BlobDescriptor {
        bytes: wanted.bytes - 1,
        ..wanted
    };
    let refused = store.fetch(&lie, &fake, &NoObserver);
    assert_eq!(code(refused), "store_blob_wrong_size");
    assert_eq!(
        fake.asked().1,
        1,
        "the blob is right: the descriptor is not"
    );
    let file = ground.blob_file(&wanted.digest);
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, b"torn").expect("written");
    assert_eq!(code(store.fetch(&wanted, &fake, &NoObserver)), "fetched");
    assert_eq!((fake.asked().1, ground.assert_untorn()), (2, 1));
}

#[test]
fn a_small_blob_whose_bytes_changed_is_never_read() {
    let ground = Ground::new();
    let store = ground.store();
    let digest = store.put(b"{\"a\":1}").expect("put");
    let file = ground.blob_file(&digest);
    assert_eq!(
        store.read(&digest, 100).expect("read").as_deref(),
        Some(&b"{\"a\":1}"[..])
    );
    assert_eq!(store.read(&digest, 6).expect("read"), None);
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, b"{\"a\":2}").expect("written");
    assert_eq!(store.peek(&digest, 100).expect("read"), None);
    assert_eq!(store.read(&digest, 100).expect("read"), None);
    assert!(!file.exists(), "what is damaged is removed");
}

#[test]
fn a_draft_becomes_a_blob_or_is_removed() {
    use std::io::Write as _;
    let ground = Ground::new();
    let store = ground.store();
    let mut draft = store.draft().expect("begun");
    draft.write_all(b"one ").expect("written");
    draft.write_all(b"two").expect("written");
    let finished = draft.finish().expect("finished");
    assert_eq!(finished, (Digest::of(b"one two"), 7));
    assert_eq!(bytes_of(&store, &finished.0), b"one two");
    let mut dropped = store.draft().expect("begun");
    dropped.write_all(b"three").expect("written");
    drop(dropped);
    assert_eq!(ground.assert_untorn(), 1);
    let building = std::fs::read_dir(ground.path("oci/1/building"));
    assert_eq!(building.expect("there").count(), 0);
}

#[test]
fn sixteen_concurrent_readers_request_a_blob_once() {
    let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
    let fake = Fake::new(&artifact, Sends::Slowly);
    let all = Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let store = ground.store();
                all.wait();
                let blob = store.fetch(&wanted, &fake, &NoObserver).expect("fetched");
                assert_eq!(blob.digest, wanted.digest);
            });
        }
    });
    assert_eq!((fake.asked().1, fake.sent()), (1, BYTES));
    assert_eq!(ground.assert_untorn(), 1);
}

#[test]
fn waiting_for_another_download_can_be_cancelled() {
    let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
    let (first, second) = (Ending::default(), Ending::default());
    let stuck = Fake::new(&artifact, Sends::Nothing);
    std::thread::scope(|scope| {
        let (ground, stuck) = (&ground, &stuck);
        let (first, second) = (&first, &second);
        let holder = scope.spawn(move || code(ground.store().fetch(&wanted, stuck, first)));
        while stuck.asked().1 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waiter = scope.spawn(move || code(ground.store().fetch(&wanted, stuck, second)));
        while second.heard.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        second.now.store(true, Ordering::SeqCst);
        assert_eq!(waiter.join().expect("ended"), "cancelled");
        first.now.store(true, Ordering::SeqCst);
        assert_eq!(holder.join().expect("ended"), "cancelled");
    });
    assert_eq!(stuck.asked().1, 1);
}

#[test]
fn a_cancelled_download_is_gone_on_with_by_the_next_one() {
    let (ground, (artifact, wanted)) = (Ground::new(), one_blob());
    let store = ground.store();
    let fake = Fake::new(&artifact, Sends::Slowly);
    let ending = Ending {
        after_bytes: Some(100_000),
        ..Ending::default()
    };
    assert_eq!(code(store.fetch(&wanted, &fake, &ending)), "cancelled");
    assert_eq!(ground.assert_untorn(), 0);
    assert_eq!(code(store.fetch(&wanted, &fake, &NoObserver)), "fetched");
    assert!(
        fake.sent() < BYTES + 4096,
        "{} bytes were sent",
        fake.sent()
    );
}
