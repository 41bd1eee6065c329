//! What the collector removes and keeps: the oldest first, above the size limit, and nothing in use.

use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use sources::oci::observer::NoObserver;
use sources::oci::pull::{self, Tags};
use sources::oci::store::{Removed, Store};
use spec::digest::Digest;
use store::Label;

use crate::ground::{Ending, Fake, Ground, Sends, hex, limits, noise, source};

/// Sets the last use of a file to this many seconds ago.
fn used(path: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    let file = std::fs::File::open(path).expect("opened");
    file.set_modified(then).expect("set");
}

fn put(store: &Store, seed: u64, bytes: usize) -> Digest {
    store.put(&noise(seed, bytes)).expect("put")
}

#[test]
fn least_recently_used_blobs_are_evicted_first() {
    let ground = Ground::new();
    let store = ground.store();
    let digests = [3, 1, 2].map(|seed| put(&store, seed, 100_000));
    for (digest, seconds) in digests.iter().zip([300, 100, 200]) {
        used(&ground.blob_file(digest), seconds);
    }
    let gone = ground.store_of(250_000).gc(false).expect("collected");
    assert_eq!((gone.blobs, gone.bytes), (1, 100_000));
    assert_eq!(
        digests.map(|digest| store.has(&digest)),
        [false, true, true]
    );
    // A new blob makes room for itself: the oldest is removed.
    put(&ground.store_of(250_000), 4, 100_000);
    assert_eq!(
        digests.map(|digest| store.has(&digest)),
        [false, true, false]
    );
}

#[test]
fn a_lookup_counts_as_use_and_a_listing_does_not() {
    let ground = Ground::new();
    let store = ground.store();
    let digests = [1, 2].map(|seed| put(&store, seed, 1000));
    for digest in &digests {
        used(&ground.blob_file(digest), 500);
        store
            .set_name(&format!("name:{digest}"), digest)
            .expect("named");
    }
    assert!(store.blob(&digests[1]).expect("looked at").is_some());
    let listed = store.list().expect("listed");
    assert_eq!(listed[0].digest, digests[1]);
    assert!(store.peek(&digests[0], 1000).expect("read").is_some());
    let gone = ground.store_of(1000).gc(false).expect("collected");
    assert_eq!(gone.blobs, 1);
    assert_eq!(digests.map(|digest| store.has(&digest)), [false, true]);
}

#[test]
fn blobs_in_use_are_never_evicted() {
    let (ground, artifact) = (Ground::new(), source(1, 200_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let store = ground.store();
    let which = artifact.which();
    let pulled = || {
        let pulled = pull::snapshot(&store, &fake, &which, Tags::Refused, &limits(), &NoObserver);
        pulled.expect("pulled")
    };
    let snapshot = pulled();
    let layer = artifact.layer().digest;
    let mut blob = store.blob(&layer).expect("looked at").expect("there");
    let gone = ground.store().gc(true).expect("collected");
    assert_eq!(
        (gone.blobs, gone.trees),
        (2, 0),
        "the manifest and the config"
    );
    assert!(snapshot.tree.path.join("a/noise").exists() && store.has(&layer));
    assert_eq!(store.names().expect("listed"), [], "names of what is gone");
    let mut bytes = Vec::new();
    blob.file.read_to_end(&mut bytes).expect("read");
    assert_eq!(Digest::of(&bytes), layer);
    // What a process that another thread forks has until it closes its files.
    let _inherited = blob.file.try_clone().expect("a second descriptor");
    drop((blob, snapshot));
    let gone = ground.store().gc(true).expect("collected");
    assert_eq!((gone.blobs, gone.trees), (1, 1));
    assert_eq!(
        ground.store().gc(true).expect("collected"),
        Removed::default()
    );
    assert_eq!(store.used_bytes().expect("counted"), 0);
    assert!(!pulled().cached);
}

#[test]
fn active_downloads_stay_and_abandoned_ones_are_removed() {
    let ground = Ground::new();
    let bytes = noise(1, 400_000);
    let artifact = crate::ground::Artifact::default().with_blob(&bytes);
    let wanted = crate::ground::wanted(&bytes);
    let ending = Ending::default();
    let fake = Fake::new(&artifact, Sends::Slowly);
    let partial = ground.partial_file(&wanted.digest);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| ground.store().fetch(&wanted, &fake, &ending).is_err());
        while !partial.exists() || fake.sent() < 10_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(
            ground.store().gc(true).expect("collected"),
            Removed::default()
        );
        assert!(partial.exists());
        ending.now.store(true, Ordering::SeqCst);
        assert!(thread.join().expect("ended"));
    });
    assert_eq!(
        ground.store().gc(false).expect("collected"),
        Removed::default()
    );
    assert!(partial.exists(), "the next one goes on with it");
    assert_eq!(ground.store().gc(true).expect("collected").blobs, 1);
    assert!(!partial.exists());
}

#[test]
fn pulls_and_collections_at_once_never_meet_in_the_middle() {
    let ground = Ground::new();
    let sources = [source(1, 60_000), source(2, 90_000)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ground, done) = (&ground, &done);
        let collector = scope.spawn(move || {
            let mut trees = 0;
            while !done.load(Ordering::SeqCst) {
                trees += ground.store().gc(true).expect("collected").trees;
            }
            trees
        });
        let pullers: Vec<_> = sources
            .iter()
            .cycle()
            .take(4)
            .map(|artifact| scope.spawn(move || pull_again_and_again(ground, artifact)))
            .collect();
        let ended: Vec<_> = pullers.into_iter().map(|puller| puller.join()).collect();
        // Also after a failure: otherwise the collector would not end.
        done.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok));
        assert!(0 < collector.join().expect("ended"), "nothing was removed");
    });
    ground.assert_untorn();
}

fn pull_again_and_again(ground: &Ground, artifact: &crate::ground::Artifact) {
    let fake = Fake::new(artifact, Sends::Whole);
    let which = artifact.which();
    for _ in 0..15 {
        let store = ground.store();
        let pulled = pull::snapshot(&store, &fake, &which, Tags::Refused, &limits(), &NoObserver);
        let snapshot = pulled.expect("pulled");
        let noise = std::fs::read(snapshot.tree.path.join("a/noise")).expect("read");
        assert_eq!(noise.len() as u64 + 5, snapshot.bytes);
        assert_eq!(snapshot.tree.tree().expect("listed").len(), 3);
    }
}

fn label(bytes: u64, disk_bytes: u64, note: &[u8]) -> Label<'_> {
    Label {
        bytes,
        disk_bytes,
        note,
        is_verified_on_use: false,
    }
}

#[test]
fn a_layer_is_found_by_its_key_with_its_note_and_stays_while_it_is_used() {
    let ground = Ground::new();
    let store = ground.store();
    let layers = store.layers().expect("opened");
    let key = Digest::of(b"a chain");
    assert!(layers.find(&key).expect("looked at").is_none());
    for round in 0..2 {
        let building = layers.begin().expect("begun");
        std::fs::write(building.directory().path().join("file"), format!("{round}"))
            .expect("written");
        let kept = layers.publish(building, &key, label(1, 4096, b"a note\nof two lines"));
        let kept = kept.expect("kept");
        // The second process finds the first one's result.
        assert_eq!(std::fs::read(kept.path.join("file")).expect("read"), b"0");
        assert_eq!(kept.note().expect("read"), b"a note\nof two lines");
        assert_eq!((kept.bytes, kept.disk_bytes), (1, 4096));
    }
    let held = layers.find(&key).expect("looked at").expect("there");
    assert_eq!(
        ground.store().gc(true).expect("collected"),
        Removed::default()
    );
    assert!(held.path.join("file").exists());
    drop(held);
    assert_eq!(ground.store().gc(true).expect("collected").trees, 1);
    assert!(layers.find(&key).expect("looked at").is_none());
    // A snapshot whose record has another key does not count.
    let building = layers.begin().expect("begun");
    drop(
        layers
            .publish(building, &key, label(0, 0, b""))
            .expect("kept"),
    );
    let trees = ground.path("oci/1/layers/1/trees");
    let other = Digest::of(b"another");
    std::fs::rename(trees.join(hex(&key)), trees.join(hex(&other))).expect("renamed");
    assert!(layers.find(&other).expect("looked at").is_none());
}
