//! Images from layouts: unpacked once, shared, and refused for their errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use archive::{Compression, UnpackLimits};
use runner_sources::oci::error::OciError;
use runner_sources::oci::layers::{Image, Kind, LAYERS_MAX, image};
use runner_sources::oci::layout::Layout;
use runner_sources::oci::observer::{NoObserver, Observer};
use runner_sources::oci::pull::{Tags, artifact};
use runner_sources::oci::store::{Store, StorePlace};
use runner_sources::progress::Progress;
use serde_json::{Value, json};
use spec::digest::Digest;
use spec::oci::media::{
    DOCKER_CONFIG, DOCKER_LAYER, DOCKER_MANIFEST, IMAGE_CONFIG, LAYER_GZIP, LAYER_TAR, LAYER_ZSTD,
    MANIFEST, SOURCE_CONFIG,
};
use spec::oci::reference::Which;

use crate::streams::compressed;
use support::confined::await_confined_children;
use support::tar::Tar;

/// A valid image until a test changes it.
struct Made {
    config: Value,
    config_type: &'static str,
    manifest_type: &'static str,
    /// Media type and bytes of each blob.
    layers: Vec<(&'static str, Vec<u8>)>,
    /// The size in each descriptor.
    urls: Vec<&'static str>,
}

impl Made {
    fn of(tars: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let tars: Vec<Vec<u8>> = tars.into_iter().collect();
        let diff_ids: Vec<String> = tars.iter().map(|tar| Digest::of(tar).to_string()).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            _ => "arm64",
        };
        let layers = tars
            .iter()
            .map(|tar| (LAYER_GZIP, compressed(tar, Compression::Gzip)));
        Self {
            config: json!({
                "os": "linux",
                "architecture": architecture,
                "config": { "Env": ["A=b"] },
                "rootfs": { "type": "layers", "diff_ids": diff_ids },
            }),
            config_type: IMAGE_CONFIG,
            manifest_type: MANIFEST,
            layers: layers.collect(),
            urls: Vec::new(),
        }
    }

    fn write(&self, directory: &Path) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("made");
        let blob = |bytes: &[u8], media_type: &str| {
            let digest = Digest::of(bytes).to_string();
            fs::write(blobs.join(&digest[7..]), bytes).expect("written");
            json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
        };
        let config = serde_json::to_vec(&self.config).expect("JSON");
        let layers: Vec<Value> = self
            .layers
            .iter()
            .map(|(media_type, bytes)| {
                let mut layer = blob(bytes, media_type);
                if !self.urls.is_empty() {
                    layer["urls"] = json!(self.urls);
                }
                layer
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": self.manifest_type,
            "config": blob(&config, self.config_type),
            "layers": layers,
        });
        let manifest = blob(
            &serde_json::to_vec(&manifest).expect("JSON"),
            self.manifest_type,
        );
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        fs::write(directory.join("index.json"), index.to_string()).expect("written");
        let mark = r#"{"imageLayoutVersion":"1.0.0"}"#;
        fs::write(directory.join("oci-layout"), mark).expect("written");
    }
}

/// A store, and layouts beside it.
struct Ground {
    directory: tempfile::TempDir,
    store: Store,
    limits: UnpackLimits,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(&StorePlace {
            directory: directory.path().join("store"),
            size_bytes: 1 << 40,
        });
        Self {
            store: store.expect("a store"),
            directory,
            limits: UnpackLimits::default(),
        }
    }

    fn layout(&self, made: &Made) -> PathBuf {
        let count = fs::read_dir(self.directory.path()).expect("listed").count();
        let directory = self.directory.path().join(format!("layout-{count}"));
        made.write(&directory);
        directory
    }

    fn image_of(&self, layout: &Path, observer: &dyn Observer) -> Result<Image, OciError> {
        let origin = Layout::open(layout).expect("a layout");
        let artifact = artifact(
            &self.store,
            &origin,
            &Which::Unnamed,
            Tags::Allowed,
            observer,
        )?;
        image(&self.store, &artifact, &self.limits, observer, &origin)
    }

    fn image(&self, made: &Made) -> Result<Image, OciError> {
        self.image_of(&self.layout(made), &NoObserver)
    }

    #[track_caller]
    fn refused(&self, made: &Made) -> &'static str {
        let error = self.image(made).expect_err("refused");
        assert!(!error.to_string().is_empty());
        assert_eq!(
            self.unpacked(),
            0,
            "a layer of a refused image is kept: {error}"
        );
        error.code()
    }

    /// The number of layers in the store.
    fn unpacked(&self) -> usize {
        self.names("layers/1/trees")
    }

    fn names(&self, part: &str) -> usize {
        let part = self.store.path().join(part);
        fs::read_dir(part).map_or(0, Iterator::count)
    }
}

fn base() -> Vec<u8> {
    Tar::new()
        .directory("usr/bin")
        .symlink("bin", "usr/bin")
        .with(b'0', b"usr/bin/tool", 0, |block| {
            block[100..108].copy_from_slice(b"0000755\0");
        })
        .symlink("usr/bin/link", "/bin/tool")
        .file("etc/passwd", b"root")
        .file("gone", b"below")
        .end()
}

fn next() -> Vec<u8> {
    Tar::new()
        .file("bin/second", b"through")
        .file(".wh.gone", b"")
        .symlink("etc/group", "../../etc/passwd")
        .end()
}

#[test]
fn an_image_is_unpacked_once_and_seen_as_a_whole() {
    let ground = Ground::new();
    let made = Made::of([base(), next()]);
    let layout = ground.layout(&made);
    let first = ground.image_of(&layout, &NoObserver).expect("an image");
    assert!(!first.cached && !first.from_store);
    assert_eq!(first.layers.len(), 2);
    let environment = [(b"A".to_vec(), b"b".to_vec())];
    assert_eq!(first.config.environment, environment);
    let read = |path: &str| first.read_file(path.as_bytes(), 100).expect("looked at");
    assert_eq!(read("/bin/second").as_deref(), Some(&b"through"[..]));
    assert_eq!(read("etc/group").as_deref(), Some(&b"root"[..]));
    assert_eq!(read("gone"), None);
    let kind = |path: &str| first.kind_of(path.as_bytes()).expect("looked at");
    assert_eq!(kind("/usr/bin/link"), Some(Kind::File { executable: true }));
    assert_eq!(kind("etc/passwd"), Some(Kind::File { executable: false }));
    assert_eq!(kind("/"), Some(Kind::Directory));
    assert_eq!(kind("usr/bin/none"), None);
    let second = ground.image_of(&layout, &NoObserver).expect("an image");
    assert!(second.cached);
    let paths = |image: &Image| -> Vec<PathBuf> {
        image
            .layers
            .iter()
            .map(|layer| layer.path.clone())
            .collect()
    };
    assert_eq!(paths(&first), paths(&second));
    assert_eq!(
        first.view().expect("a view"),
        second.view().expect("a view")
    );
    assert_eq!(ground.names("layers/1/building"), 0);
}

#[test]
fn images_share_the_layers_that_they_begin_with() {
    let ground = Ground::new();
    let other = Tar::new().file("other", b"").end();
    let one = ground.image(&Made::of([base(), next()])).expect("an image");
    let two = ground.image(&Made::of([base(), other])).expect("an image");
    assert_eq!(one.layers[0].path, two.layers[0].path);
    assert_eq!(ground.unpacked(), 3);
    // The same layer above another one is a different layer: its links may lead elsewhere.
    let three = ground.image(&Made::of([next(), base()])).expect("an image");
    assert_eq!(ground.unpacked(), 5);
    assert_eq!(
        three.read_file(b"bin/second", 100).expect("looked at"),
        None,
        "a link took the place of the directory"
    );
}

#[test]
fn every_type_of_layer_is_read() {
    let ground = Ground::new();
    let mut made = Made::of([base(), next(), next()]);
    made.layers[0] = (LAYER_ZSTD, compressed(&base(), Compression::Zstd));
    made.layers[1] = (LAYER_TAR, next());
    made.layers[2] = (DOCKER_LAYER, compressed(&next(), Compression::Gzip));
    (made.config_type, made.manifest_type) = (DOCKER_CONFIG, DOCKER_MANIFEST);
    let image = ground.image(&made).expect("an image");
    let read = image.read_file(b"bin/second", 100).expect("looked at");
    assert_eq!(read.as_deref(), Some(&b"through"[..]));
}

#[test]
fn an_invalid_or_foreign_image_is_refused() {
    let ground = Ground::new();
    let changed = |change: &dyn Fn(&mut Made)| {
        let mut made = Made::of([base()]);
        change(&mut made);
        ground.refused(&made)
    };
    for (code, change) in [
        (
            "image_config_type",
            &(|made: &mut Made| made.config_type = SOURCE_CONFIG) as &dyn Fn(&mut Made),
        ),
        ("image_config_invalid", &|made| made.config = json!([])),
        ("image_config_invalid", &|made| {
            made.config["rootfs"]["diff_ids"] = json!(["sha256:x"]);
        }),
        ("image_config_too_large", &|made| {
            made.config["junk"] = json!("x".repeat(5 << 20));
        }),
        ("image_no_platform", &|made| {
            made.config["os"] = json!("windows")
        }),
        ("image_no_platform", &|made| {
            made.config["architecture"] = json!("\u{1b}[31m");
        }),
        ("image_layers_mismatch", &|made| {
            made.config["rootfs"]["diff_ids"] = json!([]);
        }),
        ("image_layer_type", &|made| {
            made.layers[0].0 = "application/zip"
        }),
        ("image_layer_type", &|made| {
            made.layers[0].0 = "application/vnd.oci.image.layer.v1.tar+xz";
        }),
        ("image_layer_foreign", &|made| {
            made.urls = vec!["https://example.org/layer"];
        }),
        ("image_layer_diff_id", &|made| {
            let other = compressed(&next(), Compression::Gzip);
            made.layers[0].1 = other;
        }),
        ("artifact_layer_refused", &|made| {
            made.layers[0].0 = LAYER_ZSTD
        }),
        ("artifact_layer_refused", &|made| {
            made.layers[0].1 = compressed(&base()[..700], Compression::Gzip);
        }),
    ] {
        assert_eq!(changed(change), code);
    }
}

#[test]
fn a_layer_that_is_refused_is_named_and_nothing_of_it_stays() {
    let ground = Ground::new();
    let hostile = Tar::new().file("../../escaped", b"x").end();
    let error = ground.image(&Made::of([hostile])).expect_err("refused");
    assert_eq!(error.code(), "artifact_layer_refused");
    let text = spec::report::with_causes(&error);
    assert!(
        text.contains("../../escaped") && text.contains("sha256:"),
        "{text}"
    );
    assert_eq!(
        (ground.unpacked(), ground.names("layers/1/building")),
        (0, 0)
    );
    assert!(!ground.directory.path().join("escaped").exists());
}

#[test]
fn layers_without_anything_do_not_count_and_too_many_others_are_refused() {
    let ground = Ground::new();
    let full = |n: usize| Tar::new().file(&format!("f{n}"), b"").end();
    let empty = || Tar::new().directory("./").end();
    let mixed = (0..2 * LAYERS_MAX).map(|n| match n % 2 {
        0 => full(n),
        _ => empty(),
    });
    let error = ground
        .image(&Made::of((0..=LAYERS_MAX).map(full)))
        .expect_err("too many");
    assert_eq!(error.code(), "image_layers_too_many");
    let image = ground
        .image(&Made::of(mixed.clone().skip(1)))
        .expect("an image");
    assert_eq!(image.layers.len(), LAYERS_MAX);
    // The last one remains, empty or not.
    let error = ground.image(&Made::of(mixed)).expect_err("one too many");
    assert_eq!(error.code(), "image_layers_too_many");
}

#[test]
fn a_layer_that_hides_all_below_is_the_lowest() {
    let ground = Ground::new();
    let all = Tar::new()
        .file(".wh..wh..opq", b"")
        .file("own", b"own")
        .end();
    let image = ground
        .image(&Made::of([base(), all, next()]))
        .expect("an image");
    assert_eq!(image.layers.len(), 2);
    assert_eq!(image.kind_of(b"etc/passwd").expect("looked at"), None);
    assert!(image.kind_of(b"bin/second").expect("looked at").is_some());
    assert_eq!(image.kind_of(b"usr/bin/second").expect("looked at"), None);
}

#[test]
fn a_blob_that_went_bad_on_the_disk_is_fetched_again() {
    let ground = Ground::new();
    let made = Made::of([base()]);
    let layout = ground.layout(&made);
    drop(ground.image_of(&layout, &NoObserver).expect("an image"));
    let digest = Digest::of(&made.layers[0].1).to_string();
    let blob = ground.store.path().join("blobs").join(&digest[7..]);
    let mut bytes = fs::read(&blob).expect("a blob");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::remove_file(&blob).expect("removed");
    fs::write(&blob, bytes).expect("written");
    fs::remove_dir_all(ground.store.path().join("layers")).expect("removed");
    let image = ground.image_of(&layout, &NoObserver).expect("an image");
    assert!(!image.cached && !image.from_store);
    let read = image.read_file(b"etc/passwd", 100).expect("looked at");
    assert_eq!(read.as_deref(), Some(&b"root"[..]));
}

#[test]
fn processes_that_want_the_same_image_at_once_get_the_same_layers() {
    let ground = Ground::new();
    let made = Made::of([base(), next()]);
    let layout = ground.layout(&made);
    let paths: Vec<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let store = Store::open(&StorePlace {
                        directory: ground.directory.path().join("store"),
                        size_bytes: 1 << 40,
                    });
                    let own = Ground {
                        directory: tempfile::tempdir().expect("a directory"),
                        store: store.expect("a store"),
                        limits: ground.limits,
                    };
                    let image = own.image_of(&layout, &NoObserver).expect("an image");
                    image.layers[1].path.clone()
                })
            })
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("joined"));
        joined.collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
    assert_eq!(
        (ground.unpacked(), ground.names("layers/1/building")),
        (2, 0)
    );
}

#[test]
fn what_was_unpacked_under_larger_limits_is_refused_under_smaller_ones() {
    let mut ground = Ground::new();
    let made = Made::of([base()]);
    drop(ground.image(&made).expect("an image"));
    ground.limits.unpacked_bytes = 3;
    let error = ground.image(&made).expect_err("too large");
    assert_eq!(error.code(), "image_layer_invalid");
    ground.limits = UnpackLimits {
        entries: 2,
        ..UnpackLimits::default()
    };
    let error = ground.image(&made).expect_err("too many");
    assert_eq!(error.code(), "image_layer_invalid");
    ground.limits = UnpackLimits {
        compressed_bytes: 10,
        ..UnpackLimits::default()
    };
    let error = ground.image(&made).expect_err("too large");
    assert_eq!(error.code(), "image_layer_invalid");
}

#[test]
fn layers_in_use_stay_and_unused_ones_are_evicted() {
    let ground = Ground::new();
    let image = ground.image(&Made::of([base()])).expect("an image");
    ground.store.gc(true).expect("collected");
    let read = image.read_file(b"etc/passwd", 100).expect("looked at");
    assert_eq!(read.as_deref(), Some(&b"root"[..]));
    assert_eq!(ground.unpacked(), 1);
    drop(image);
    ground.store.gc(true).expect("collected");
    assert_eq!(ground.unpacked(), 0);
}

/// Requests an end once a layer is being unpacked.
#[derive(Default)]
struct Impatient(AtomicBool);

impl Observer for Impatient {
    fn progress(&self, now: &Progress<'_>) {
        if matches!(now, Progress::Unpacking { .. }) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn cancelling_ends_unpacking_and_leaves_no_partial_layer() {
    let ground = Ground::new();
    let large = Tar::new().file("zeros", &vec![0; 20 << 20]).end();
    let made = Made::of([base(), large]);
    let error = ground
        .image_of(&ground.layout(&made), &Impatient::default())
        .expect_err("cancelled");
    assert_eq!(error.code(), "cancelled");
    assert_eq!(
        (ground.unpacked(), ground.names("layers/1/building")),
        (0, 0)
    );
}

/// Looks at the processes while a layer is unpacked: the one that unpacks waits for the blob meanwhile.
#[derive(Default)]
struct Onlooker(AtomicBool);

impl Observer for Onlooker {
    fn progress(&self, now: &Progress<'_>) {
        if matches!(now, Progress::Unpacking { .. }) && !self.0.swap(true, Ordering::Relaxed) {
            await_confined_children();
        }
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

/// A-61.
#[test]
fn the_process_that_unpacks_a_layer_has_no_rights() {
    let ground = Ground::new();
    let onlooker = Onlooker::default();
    let layout = ground.layout(&Made::of([base(), next()]));
    let image = ground.image_of(&layout, &onlooker).expect("an image");
    assert!(onlooker.0.load(Ordering::Relaxed));
    let read = image.read_file(b"bin/second", 100).expect("looked at");
    assert_eq!(read.as_deref(), Some(&b"through"[..]));
}
