//! Images that umoci and skopeo wrote, compared with what umoci unpacks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use archive::UnpackLimits;
use runner_sources::oci::layers::Image as Unpacked;
use runner_sources::oci::layers::image;
use runner_sources::oci::layout::Layout;
use runner_sources::oci::observer::NoObserver;
use runner_sources::oci::pull::{Tags, artifact};
use runner_sources::oci::store::{Store, StorePlace};
use spec::digest::Digest;
use spec::oci::reference::Which;

use crate::mounted;
use crate::stack::walk;
use support::images::Image;
use support::{self, packages};

/// Type, target of a link, and digest of a file, as in [`mounted::mounted`].
fn listed(root: &Path) -> mounted::Listing {
    let all = walk(root).into_iter().map(|path| {
        let status = fs::symlink_metadata(&path).expect("status");
        let name = path.strip_prefix(root).expect("beneath");
        let name = name.to_str().expect("UTF-8").to_owned();
        let seen = match status.file_type() {
            kind if kind.is_symlink() => {
                let target = fs::read_link(&path).expect("read");
                (
                    'l',
                    target.to_str().expect("UTF-8").to_owned(),
                    String::new(),
                )
            }
            kind if kind.is_dir() => ('d', String::new(), String::new()),
            _ => {
                let digest = Digest::of(&fs::read(&path).expect("read"));
                ('f', String::new(), digest.to_string())
            }
        };
        (name, seen)
    });
    all.collect()
}

/// The mode of every directory and file.
fn bits(root: &Path) -> BTreeMap<PathBuf, u32> {
    let all = walk(root).into_iter().filter_map(|path| {
        let status = fs::symlink_metadata(&path).expect("status");
        let name = path.strip_prefix(root).expect("beneath").to_path_buf();
        (!status.is_symlink()).then_some((name, status.mode() & 0o1777))
    });
    all.collect()
}

fn unpacked(store: &Path, layout: &Path, name: &str) -> Unpacked {
    let store = Store::open(&StorePlace {
        directory: store.to_owned(),
        size_bytes: 1 << 40,
    })
    .expect("a store");
    let origin = Layout::open(layout).expect("a layout");
    let which = Which::Tag(name.to_owned());
    let artifact =
        artifact(&store, &origin, &which, Tags::Allowed, &NoObserver).expect("a manifest");
    image(
        &store,
        &artifact,
        &UnpackLimits::default(),
        &NoObserver,
        &origin,
    )
    .expect("an image")
}

fn umoci(arguments: &[&str]) {
    let output = packages::tool("umoci")
        .args(arguments)
        .output()
        .expect("umoci");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
}

/// Our layers under overlayfs equal what umoci unpacks: names, links, contents.
fn compare(image: &Unpacked, rootfs: &Path) {
    let layers: Vec<PathBuf> = image
        .layers
        .iter()
        .map(|layer| layer.path.clone())
        .collect();
    let shown = mounted::check(&layers, &image.merged());
    assert_eq!(shown, listed(rootfs));
}

#[test]
fn an_image_that_umoci_made_is_what_umoci_unpacks_of_it() {
    let Some(tiny) = support::images::tiny() else {
        return;
    };
    let ground = tempfile::tempdir().expect("a directory");
    let image = unpacked(&ground.path().join("store"), &tiny.layout, tiny.name);
    let bundle = ground.path().join("umoci");
    let place = format!("{}:{}", tiny.layout.display(), tiny.name);
    umoci(&[
        "unpack",
        "--rootless",
        "--image",
        &place,
        bundle.to_str().expect("UTF-8"),
    ]);
    compare(&image, &bundle.join("rootfs"));
    let read = image.read_file(b"lib/second", 100).expect("looked at");
    assert_eq!(read.as_deref(), Some(&b"second\n"[..]));
}

#[test]
fn what_umoci_repacks_after_changes_is_what_is_seen_afterwards() {
    if !packages::has("umoci") || !packages::has("skopeo") {
        return;
    }
    let ground = tempfile::tempdir().expect("a directory");
    let path = |name: &str| ground.path().join(name);
    let text = |name: &str| path(name).to_str().expect("UTF-8").to_owned();
    let place = format!("{}:made", text("layout"));
    umoci(&["init", "--layout", &text("layout")]);
    umoci(&["new", "--image", &place]);
    let changes: [&dyn Fn(&Path); 3] = [
        &|root| {
            fs::create_dir_all(root.join("usr/lib")).expect("made");
            fs::create_dir_all(root.join("d/s")).expect("made");
            fs::write(root.join("usr/lib/a"), "a").expect("written");
            for name in ["d/keep", "d/gone", "d/s/x", "type", "hard"] {
                fs::write(root.join(name), name).expect("written");
            }
            fs::hard_link(root.join("hard"), root.join("d/hard")).expect("linked");
            std::os::unix::fs::symlink("usr/lib", root.join("lib")).expect("linked");
            std::os::unix::fs::symlink("/no/where", root.join("dangling")).expect("linked");
        },
        &|root| {
            fs::remove_file(root.join("d/gone")).expect("removed");
            fs::remove_dir_all(root.join("d/s")).expect("removed");
            fs::remove_file(root.join("type")).expect("removed");
            fs::create_dir(root.join("type")).expect("made");
            fs::write(root.join("type/inside"), "2").expect("written");
            fs::write(root.join("lib/b"), "b").expect("written");
        },
        &|root| {
            fs::remove_dir_all(root.join("type")).expect("removed");
            fs::write(root.join("type"), "a file again").expect("written");
            fs::create_dir(root.join("d/s")).expect("made");
            fs::write(root.join("d/s/y"), "y").expect("written");
            fs::remove_file(root.join("dangling")).expect("removed");
        },
    ];
    for (index, change) in changes.iter().enumerate() {
        let bundle = text(&format!("bundle-{index}"));
        umoci(&["unpack", "--rootless", "--image", &place, &bundle]);
        change(&Path::new(&bundle).join("rootfs"));
        umoci(&["repack", "--image", &place, &bundle]);
    }
    let last = path("bundle-2").join("rootfs");
    let image = unpacked(&path("store"), &path("layout"), "made");
    assert_eq!(image.layers.len(), 3);
    compare(&image, &last);
    let lowest = bits(&image.layers[0].path);
    for (name, bits) in bits(&path("bundle-2").join("rootfs")) {
        let kept = lowest.get(&name).is_none_or(|found| *found == bits);
        assert!(kept, "{}: {bits:o}", name.display());
    }
    // The same through skopeo, with recompressed layers.
    for format in ["oci", "v2s2"] {
        let from = format!("oci:{place}");
        let to = match format {
            "oci" => format!("oci:{}:made", text("copied")),
            _ => format!("dir:{}", text("docker")),
        };
        let copied = packages::tool("skopeo")
            .args(["--insecure-policy", "copy", "--format", format, &from, &to])
            .output()
            .expect("skopeo");
        let error = String::from_utf8_lossy(&copied.stderr);
        assert!(copied.status.success(), "{error}");
    }
    let image = unpacked(&path("store-2"), &path("copied"), "made");
    compare(&image, &last);
}

#[test]
fn layers_that_skopeo_compressed_with_zstd_are_read() {
    let Some(tiny) = support::images::tiny() else {
        return;
    };
    let ground = tempfile::tempdir().expect("a directory");
    let copied = ground.path().join("copied");
    let output: Result<std::process::Output, _> = Command::new("skopeo")
        .args([
            "--insecure-policy",
            "copy",
            "--dest-compress-format",
            "zstd",
            "--dest-compress",
        ])
        .arg(tiny.place())
        .arg(format!("oci:{}:tiny", copied.display()))
        .output();
    let output = output.expect("skopeo");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let copy = Image {
        layout: copied.clone(),
        name: "tiny",
    };
    for layer in copy.layers() {
        let start = fs::read(layer).expect("a layer");
        assert!(start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "no zstd");
    }
    let one = unpacked(&ground.path().join("one"), &tiny.layout, tiny.name);
    let other = unpacked(&ground.path().join("other"), &copied, "tiny");
    let paths = |image: &Unpacked| -> Vec<PathBuf> {
        image
            .layers
            .iter()
            .map(|layer| layer.path.clone())
            .collect()
    };
    let shown = |image: &Unpacked| mounted::check(&paths(image), &image.merged());
    assert_eq!(shown(&one), shown(&other));
}
