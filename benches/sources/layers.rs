//! An image of 2,000 files, and who else unpacks it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::planted::only_digest;
use super::support::{self, Ground, Options, Report, Table};

const OURS: &str = "runner";
const TAR: &str = "tar xzf";
const UMOCI: &str = "umoci unpack";

/// A layout with one image of one layer.
pub(super) struct Planted {
    layout: PathBuf,
    /// The layer's blob.
    layer: PathBuf,
}

impl Planted {
    /// None, and a word in the report, where there is no umoci to write it.
    pub(super) fn new(ground: &Ground, report: &mut Report) -> Option<Self> {
        if support::on_path("umoci").is_none() {
            report.absent(UMOCI, "not on the path");
            return None;
        }
        let tree = ground.folder("image");
        for file in 0..2_000 {
            let folder = tree.join(format!("usr/lib/{:02}", file % 40));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{file}.js")), contents(file, 10_000)).unwrap();
        }
        let archive = ground.path("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".");
        support::run_once(&mut tar);
        let layout = ground.path("image.oci");
        let umoci = |words: &[&str]| {
            let mut umoci = Command::new("umoci");
            umoci.args(words).stdout(Stdio::null());
            support::run_once(&mut umoci);
        };
        let image = format!("{}:latest", layout.display());
        umoci(&["init", "--layout", layout.to_str().unwrap()]);
        umoci(&["new", "--image", &image]);
        umoci(&[
            "raw",
            "add-layer",
            "--image",
            &image,
            archive.to_str().unwrap(),
        ]);
        umoci(&["gc", "--layout", layout.to_str().unwrap()]);
        let blob = |digest: &str| layout.join("blobs").join(digest.replace(':', "/"));
        let manifest = std::fs::read(blob(&only_digest(&layout))).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let layer = blob(manifest["layers"][0]["digest"].as_str().unwrap());
        Some(Self { layout, layer })
    }

    pub(super) fn place(&self) -> String {
        format!("oci:{}:latest", self.layout.display())
    }

    /// Everybody into a fresh directory, as a process of its own.
    /// In memory, where there is a file system in it: a disk would be what is measured.
    pub(super) fn unpack(&self, options: &Options, report: &mut Report) {
        let directory = tempfile::Builder::new()
            .prefix("runner-bench-")
            .tempdir_in(support::in_memory());
        let directory = directory.unwrap();
        let own = std::env::current_exe().unwrap();
        let names = [TAR, UMOCI, OURS];
        let into = directory.path().join("into");
        let table = Table::new("2,000 files, 20 MB in one layer", "ms", &[TAR, UMOCI]);
        let table = table.measure(&names, options.rounds, 1, |place| {
            let mut command = match names[place] {
                TAR => {
                    std::fs::create_dir(&into).unwrap();
                    let mut tar = Command::new("tar");
                    tar.arg("-xzf").arg(&self.layer).arg("-C").arg(&into);
                    tar
                }
                UMOCI => {
                    let mut umoci = Command::new("umoci");
                    umoci.args(["unpack", "--rootless", "--image"]);
                    umoci.arg(format!("{}:latest", self.layout.display()));
                    umoci.arg(&into).stdout(Stdio::null());
                    umoci
                }
                _ => {
                    std::fs::create_dir(&into).unwrap();
                    let mut ours = Command::new(&own);
                    ours.arg("--child").arg(&self.layer).arg(&into);
                    ours
                }
            };
            let took_ms = support::wall_us(&mut command) / 1e3;
            std::fs::remove_dir_all(&into).unwrap();
            took_ms
        });
        for (peer, mark) in [
            (TAR, "unpack an image ÷ tar xzf"),
            (UMOCI, "unpack an image ÷ umoci unpack"),
        ] {
            let ratio = table.ratio(OURS, peer).map(|ratio| ratio.p50);
            report.mark_if(mark, ratio, "it did not run");
        }
        report.tables.push(table);
    }
}

/// What tar does with a layer, by the library's means: in a process without rights, all checks on, digests made.
pub(super) fn unpack_as_child(layer: &Path, into: &Path) {
    let mut layer = std::fs::File::open(layer).unwrap();
    let into = std::fs::File::open(into).unwrap();
    let feed = reader::Feed {
        source: &mut layer,
        is_cancelled: &|| false,
    };
    reader::unpack_layer(
        feed,
        archive::Compression::Gzip,
        into.as_fd(),
        archive::LayerView::default(),
        &archive::UnpackLimits::default(),
        60 << 20,
    )
    .unwrap();
}

/// Half text, half not.
fn contents(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(bytes + 64);
    while data.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(format!("{state:016x}").as_bytes());
        data.extend_from_slice(b"function value(name) { return 1; }\n");
    }
    data.truncate(bytes);
    data
}
