//! Images whose names are chosen so that they would reach files of the host.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::json;

use super::Stored;
use super::layout::{Entry, Layer, base, file, image, layer, link};

/// All files of a directory of the host: targets of links in an image must not change.
fn contents(directory: &Path) -> BTreeMap<String, (u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("readable").flatten() {
        let status = entry.path().symlink_metadata().expect("there");
        let bytes = if status.is_file() {
            std::fs::read(entry.path()).expect("readable")
        } else {
            Vec::new()
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        found.insert(name, (status.mode(), status.uid(), bytes));
    }
    found
}

/// Layers above the base, each with its own attack; `host` is a directory of the host.
fn traps(host: &Path) -> Vec<(&'static str, Layer)> {
    let to_host = || link(host);
    let into = |name: &str| link(host.join(name));
    vec![
        ("etc leads out", layer([("etc", to_host())])),
        ("proc leads out", layer([("proc", to_host())])),
        ("dev leads out", layer([("dev", to_host())])),
        ("tmp leads out", layer([("tmp", to_host())])),
        ("home leads out", layer([("home", to_host())])),
        (
            "home/runner leads out",
            layer([("home", Entry::Directory), ("home/runner", to_host())]),
        ),
        ("workspace leads out", layer([("workspace", to_host())])),
        (
            "a place in it leads out",
            layer([("workspace", Entry::Directory), ("workspace/a", to_host())]),
        ),
        (
            "files of etc lead out",
            layer([
                ("etc/resolv.conf", into("victim")),
                ("etc/hosts", into("victim")),
                ("etc/nsswitch.conf", into("new")),
            ]),
        ),
        (
            "users lead out",
            layer([
                ("etc/passwd", into("victim")),
                ("etc/group", link("../../../../../../etc/group")),
                ("etc/own", to_host()),
            ]),
        ),
        (
            "all of ours are files",
            layer([
                ("bundle", file("x")),
                ("scratch", file("x")),
                ("runner", file("x")),
                ("proc", file("x")),
                ("dev", file("x")),
                ("tmp", file("x")),
                ("home", file("x")),
                ("workspace", file("x")),
            ]),
        ),
        (
            "all of ours lead up",
            layer([
                ("bundle", link("..")),
                ("scratch", link("../../..")),
                ("runner", link("/")),
                ("proc", link("dev")),
                ("dev", link("proc")),
                ("workspace", link(".")),
            ]),
        ),
        (
            "what we mount on beneath ours leads out",
            layer([
                ("dev", Entry::Directory),
                ("dev/pts", to_host()),
                ("dev/shm", to_host()),
                ("dev/null", into("victim")),
                ("proc", Entry::Directory),
                ("proc/keys", into("victim")),
                ("runner", Entry::Directory),
                ("runner/out", to_host()),
                ("runner/overlays", to_host()),
            ]),
        ),
        (
            "a root full of devices",
            layer([
                ("mem", Entry::Device(1, 1)),
                ("kmsg", Entry::Device(1, 11)),
                ("null", Entry::Device(1, 3)),
                ("dev", Entry::Directory),
                ("dev/mem", Entry::Device(1, 1)),
                ("pipe", Entry::Fifo),
            ]),
        ),
        (
            "the root of the layer is hidden",
            layer([("etc/.wh..wh..opq", file("")), ("etc/new", file("new"))]),
        ),
    ]
}

/// The paths that the body reads, and the expected output.
const LOOK: &str = include_str!("../bodies/image/hostile_look.sh");

#[test]
fn no_name_in_an_image_leads_to_the_host() {
    let Some(base) = base() else { return };
    for read_only in [false, true] {
        let stored = Stored::new();
        let host = stored.ground.path("host");
        std::fs::create_dir(&host).expect("made");
        for name in ["victim", "passwd", "group", "hosts", "resolv.conf", "null"] {
            std::fs::write(host.join(name), format!("host's own {name}\n")).expect("written");
        }
        let lent = stored.ground.path("lent");
        std::fs::create_dir(&lent).expect("made");
        std::fs::write(lent.join("of-lent"), "lent").expect("written");
        let mount = |place: &str| format!("{}:{place}:ro", lent.display());
        let (beside, in_etc) = (mount("/workspace/a"), mount("/etc/own"));
        let mounts = ["--mount", &beside, "--mount", &in_etc];
        if read_only {
            stored.policy("oci: { root_read_only: true }\n");
        }
        let before = contents(&host);
        for (number, (what, trap)) in traps(&host).into_iter().enumerate() {
            let name = format!("image-{number}");
            let image = image(&stored.ground, &name, &[base.clone(), trap], json!({}));
            let done = stored.run(&image, &mounts, &["sh", "-c", LOOK]);
            assert_eq!(contents(&host), before, "{what}");
            done.assert_exited(0);
            assert_eq!(
                done.text(),
                "of-lent\nof-lent\ninit\ndone\n",
                "{what}: {}",
                done.stderr
            );
            let root = if read_only { "read_only" } else { "writable" };
            assert_eq!(done.report["image"]["root"], root, "{what}");
        }
    }
}
