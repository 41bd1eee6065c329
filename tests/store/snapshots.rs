//! Snapshots are unpacked once, are then available without a request, and contain only files.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use archive::UnpackLimits;
use sources::oci::error::OciError;
use sources::oci::observer::{NoObserver, Observer};
use sources::oci::pull::{self, Snapshot, Tags};
use sources::oci::store::Store;
use sources::progress::Progress;

use crate::ground::{
    Artifact, Ending, Fake, Ground, Sends, limits, noise, snapshot, source, source_of,
};
use support::confined::await_confined_children;
use support::invariants::eventually;
use support::tar::{Tar, gzip};

fn pulled(store: &Store, fake: &Fake, artifact: &Artifact) -> Result<Snapshot, OciError> {
    let which = artifact.which();
    pull::snapshot(store, fake, &which, Tags::Refused, &limits(), &NoObserver)
}

#[test]
fn a_source_is_unpacked_once_and_had_without_a_request_afterwards() {
    let (ground, artifact) = (Ground::new(), source(1, 300_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let first = pulled(&ground.store(), &fake, &artifact).expect("pulled");
    assert_eq!((first.cached, first.from_store), (false, false));
    assert_eq!((first.bytes, first.files), (300_005, Some(2)));
    assert_eq!(first.warnings, []);
    assert_eq!(fake.asked(), (1, 2));
    assert_eq!(
        std::fs::read(first.tree.path.join("a/noise")).expect("read"),
        noise(1, 300_000)
    );
    let again = pulled(&ground.store(), &fake, &artifact).expect("pulled");
    assert_eq!((again.cached, again.from_store), (true, true));
    assert_eq!((again.bytes, again.files), (300_005, Some(2)));
    assert_eq!(again.tree.path, first.tree.path);
    assert_eq!(fake.asked(), (1, 2));
    let listed = again.tree.tree().expect("listed");
    assert_eq!((listed.len(), listed.file_bytes()), (3, 300_005));
}

#[test]
fn a_kept_snapshot_is_had_without_its_list_and_without_its_layer() {
    let (ground, artifact) = (Ground::new(), source(1, 50_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let first = pulled(&ground.store(), &fake, &artifact).expect("pulled");
    let facts = first.tree.path.with_file_name("facts");
    let text = std::fs::read(&facts).expect("read");
    let end = text.iter().position(|byte| *byte == b'\n').expect("a line");
    std::fs::write(&facts, &text[..=end]).expect("written");
    ground
        .store()
        .remove_damaged(&artifact.layer().digest)
        .expect("removed");
    let again = pulled(&ground.store(), &fake, &artifact).expect("pulled");
    assert!(again.cached && again.from_store);
    assert_eq!(again.tree.tree().expect("an empty list").len(), 0);
    assert_eq!(fake.asked(), (1, 2));
}

#[test]
fn a_layer_with_special_files_is_refused_and_cleaned_up() {
    let plain = Tar::new().directory("d/").file("d/plain", b"x");
    let layers = [
        plain.clone().symlink("d/link", "/etc/passwd"),
        plain.clone().hard_link("d/link", "d/plain"),
        plain.clone().with(b'3', b"d/link", 0, |_| ()),
        plain.clone().with(b'6', b"d/link", 0, |_| ()),
        plain.file("d/../../link", b"x"),
    ];
    for layer in layers {
        let artifact = source_of(&gzip(&layer.end()), 1);
        let ground = Ground::new();
        let fake = Fake::new(&artifact, Sends::Whole);
        let error = pulled(&ground.store(), &fake, &artifact).expect_err("refused");
        assert_eq!(error.code(), "artifact_layer_refused");
        let text = spec::report::with_causes(&error);
        assert!(text.contains("link"), "{text}");
        for part in ["trees", "building"] {
            let left = std::fs::read_dir(ground.path("oci/1/snapshots/1").join(part));
            assert_eq!(left.expect("there").count(), 0, "{part}");
        }
    }
}

#[test]
fn an_oversized_or_non_gzip_layer_is_refused() {
    let artifact = source(1, 300_000);
    let fake = Fake::new(&artifact, Sends::Whole);
    let store = Ground::new();
    let store = store.store();
    let small = UnpackLimits {
        unpacked_bytes: 1000,
        ..limits()
    };
    let which = artifact.which();
    let error = pull::snapshot(&store, &fake, &which, Tags::Refused, &small, &NoObserver);
    assert_eq!(error.expect_err("refused").code(), "artifact_layer_refused");
    let artifact = source_of(b"no gzip at all", 1);
    let fake = Fake::new(&artifact, Sends::Whole);
    let error = pulled(&store, &fake, &artifact).expect_err("refused");
    assert_eq!(error.code(), "artifact_layer_refused");
}

#[test]
fn a_layer_that_went_bad_on_the_disk_is_fetched_again() {
    let (ground, artifact) = (Ground::new(), source(1, 300_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let store = ground.store();
    drop(pulled(&store, &fake, &artifact).expect("pulled"));
    let trees = store.snapshots().expect("opened");
    let remove_trees = || {
        for tree in trees.entries().expect("listed") {
            // A process that another case is just starting may hold a copy of its lock for a moment.
            eventually("the tree is not in use", || {
                trees.remove(&tree.key).expect("removed")
            });
        }
    };
    remove_trees();
    let file = ground.blob_file(&artifact.layer().digest);
    let bytes = std::fs::read(&file).expect("read");
    for at in [bytes.len() / 2, bytes.len() - 5, 3] {
        std::fs::remove_file(&file).expect("removed");
        let mut bad = std::fs::File::create(&file).expect("made");
        bad.write_all(&bytes).expect("written");
        bad.seek(SeekFrom::Start(at as u64)).expect("sought");
        bad.write_all(&[bytes[at] ^ 0x40]).expect("written");
        drop(bad);
        let before = fake.asked().1;
        drop(pulled(&store, &fake, &artifact).expect("pulled"));
        assert_eq!(fake.asked().1, before + 1, "byte {at}");
        ground.assert_untorn();
        remove_trees();
    }
}

#[test]
fn a_wrong_count_of_files_is_a_warning_each_time() {
    let layer = snapshot(&[("a", b"a"), ("b", b"b")]);
    let artifact = source_of(&layer, 7);
    let (ground, fake) = (Ground::new(), Fake::new(&artifact, Sends::Whole));
    for cached in [false, true] {
        let snapshot = pulled(&ground.store(), &fake, &artifact).expect("pulled");
        assert_eq!(snapshot.cached, cached);
        let [warning] = snapshot.warnings.as_slice() else {
            panic!("{:?}", snapshot.warnings);
        };
        assert_eq!(warning.code, "source_file_count");
        assert!(
            warning.message.contains("says 7 files"),
            "{}",
            warning.message
        );
    }
}

#[test]
fn a_snapshot_that_is_larger_than_the_store_is_used_once_and_gone_afterwards() {
    let (ground, artifact) = (Ground::new(), source(1, 300_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let store = ground.store_of(100_000);
    let snapshot = pulled(&store, &fake, &artifact).expect("pulled");
    let path = snapshot.tree.path.clone();
    assert!(!snapshot.tree.is_kept());
    assert_eq!(snapshot.tree.tree().expect("listed").len(), 3);
    assert_eq!(std::fs::read(path.join("b.txt")).expect("read"), b"text\n");
    drop(snapshot);
    assert!(!path.exists());
}

#[test]
fn cancelled_unpacking_leaves_nothing_usable() {
    let (ground, artifact) = (Ground::new(), source(1, 3_000_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let store = ground.store();
    let layer = artifact.layer();
    store.fetch(&layer, &fake, &NoObserver).expect("fetched");
    let ending = Ending {
        after_bytes: Some(1_000_000),
        ..Ending::default()
    };
    let which = artifact.which();
    let error = pull::snapshot(&store, &fake, &which, Tags::Refused, &limits(), &ending);
    assert_eq!(error.expect_err("cancelled").code(), "cancelled");
    let trees = std::fs::read_dir(ground.path("oci/1/snapshots/1/trees"));
    assert_eq!(trees.expect("there").count(), 0);
    drop(pulled(&store, &fake, &artifact).expect("pulled"));
}

#[test]
fn threads_that_pull_one_source_at_once_unpack_it_once() {
    let (ground, artifact) = (Ground::new(), source(1, 2_000_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let cached = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    pulled(&ground.store(), &fake, &artifact)
                        .expect("pulled")
                        .cached
                })
            })
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("ended"));
        ended.filter(|cached| *cached).count()
    });
    assert_eq!(cached, 7);
    assert_eq!(fake.asked().1, 2, "the config and the layer");
    let claims = std::fs::read_dir(ground.path("oci/1/claims")).expect("there");
    assert_eq!(claims.count(), 0);
}

/// Looks at the processes while a snapshot is unpacked: the one that unpacks waits for the blob meanwhile.
#[derive(Default)]
struct Onlooker(AtomicBool);

impl Observer for Onlooker {
    fn progress(&self, now: &Progress<'_>) {
        if matches!(now, Progress::Unpacking { .. }) && !self.0.swap(true, Ordering::SeqCst) {
            await_confined_children();
        }
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

///
#[test]
fn the_process_that_unpacks_a_snapshot_has_no_rights() {
    let (ground, artifact) = (Ground::new(), source(1, 3_000_000));
    let fake = Fake::new(&artifact, Sends::Whole);
    let (onlooker, which) = (Onlooker::default(), artifact.which());
    let store = ground.store();
    let pulled = pull::snapshot(&store, &fake, &which, Tags::Refused, &limits(), &onlooker);
    assert_eq!(pulled.expect("pulled").files, Some(2));
    assert!(onlooker.0.load(Ordering::SeqCst));
}
