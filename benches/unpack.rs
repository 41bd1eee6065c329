//! Unpacking for the first time, side by side with tar, bsdtar and pigz.
//!
//! `cargo bench --bench unpack -- --help`. Every peer is a process of its own that unpacks into a
//! fresh directory; ours is the library's function in a child of this program, all checks on: for a
//! bundle, which a confined process unpacks, and for the same archive as a layer of an image. The row `runner exec` is the whole run:
//! the start of the sandbox, the body and the removal of the scratch space included.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

mod support;

use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use archive::{
    AHEAD_FROM_BYTES, Compression, LayerView, OpenedArchive, UnpackLimits, open_archive,
};
use reader::{Documents, Feed, Target, UnpackTask, WaitLimit, unpack_layer};
use support::{Ground, Options, Report, Table, Usage};
use sys::worker::Sent;

const OURS: &str = "runner";
const LAYER: &str = "runner, as a layer of an image";
const TAR: &str = "tar xzf";
const EXEC: &str = "runner exec";
/// Unpack `$1` into `$2`.
const PEERS: [(&str, &str, &str); 3] = [
    (TAR, "tar", r#"exec tar -xzf "$1" -C "$2""#),
    ("bsdtar", "bsdtar", r#"exec bsdtar -xzf "$1" -C "$2""#),
    ("pigz, tar", "pigz", r#"pigz -dc "$1" | tar -xf - -C "$2""#),
];

struct Shape {
    title: &'static str,
    files: usize,
    file_bytes: usize,
    /// With `--sort=name`, which is the canonical order for these names: the digest of the contents is
    /// computed while they are unpacked.
    is_sorted: bool,
}

const SHAPES: [Shape; 3] = [
    Shape {
        title: "2,000 files, 20 MB",
        files: 2_000,
        file_bytes: 10_000,
        is_sorted: true,
    },
    Shape {
        title: "2,000 files, 20 MB, in no order",
        files: 2_000,
        file_bytes: 10_000,
        is_sorted: false,
    },
    Shape {
        title: "5 files, 100 MB",
        files: 5,
        file_bytes: 20_000_000,
        is_sorted: true,
    },
];

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == "--child" || first == "--layer" {
        let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
        return unpack_as_child(&paths[0], &paths[1], first == "--layer");
    }
    let usage = Usage {
        bench: "unpack",
        about: "Unpacking 2,000 files (20 MB) and 5 files (100 MB) for the first time, in memory.",
        rounds: 15,
        quick_rounds: 4,
        own: &["--disk"],
    };
    support::run(&usage, measure);
}

/// What tar does, by the library's means.
fn unpack_as_child(archive: &Path, into: &Path, as_layer: bool) {
    let into = std::fs::File::open(into).unwrap();
    let OpenedArchive::File(archive) = open_archive(archive).unwrap() else {
        return;
    };
    let limits = UnpackLimits::default();
    if as_layer {
        let feed = Feed {
            source: &mut &archive,
            is_cancelled: &|| false,
        };
        let (gzip, below) = (Compression::Gzip, LayerView::default());
        unpack_layer(feed, gzip, into.as_fd(), below, &limits, 60 << 20).unwrap();
        return;
    }
    let target = Target {
        directory: into.as_fd(),
        ids: None,
    };
    let wait_limit = WaitLimit::default();
    let archive = Sent {
        source: &mut &archive,
        descriptor: None,
    };
    let task = UnpackTask {
        target,
        limits: &limits,
        ahead_from_bytes: AHEAD_FROM_BYTES,
        documents: &|_permit, _tree| Documents::default(),
    };
    reader::unpack(archive, task, wait_limit).unwrap();
}

fn measure(options: &Options) -> Report {
    let mut report = Report::new();
    let ground = match options.has("--disk") {
        true => tempfile::tempdir(),
        false => tempfile::tempdir_in(support::in_memory()),
    };
    let ground = ground.unwrap();
    let peers = peers(&mut report);
    for shape in &SHAPES {
        let archive = plant(shape, ground.path());
        let into = ground.path().join("into");
        let names: Vec<&str> = peers.iter().map(|(name, _)| *name).collect();
        let table = Table::new(shape.title, "ms", &[TAR]);
        let table = table.measure(&names, options.rounds, 1, |place| {
            let argv = &peers[place].1;
            std::fs::create_dir(&into).unwrap();
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]).args([&archive, &into]);
            let took_ms = support::wall_us(&mut command) / 1e3;
            std::fs::remove_dir_all(&into).unwrap();
            took_ms
        });
        if shape.title == SHAPES[0].title {
            let ratio = table.ratio(OURS, TAR).map(|ratio| ratio.p50);
            report.mark_if("unpack 2,000 files ÷ tar xzf", ratio, "tar did not run");
        }
        report.tables.push(table);
        std::fs::remove_file(&archive).unwrap();
    }
    report
}

/// Those that are here, each with its words before archive and directory.
fn peers(report: &mut Report) -> Vec<(&'static str, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut peers: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, program, script) in PEERS {
        match support::on_path(program) {
            Some(_) => peers.push((name, owned(&["/bin/sh", "-c", script, "sh"]))),
            None => report.absent(name, "not on the path"),
        }
    }
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    peers.push((OURS, owned(&[own, "--child"])));
    peers.push((LAYER, owned(&[own, "--layer"])));
    let runner = support::runner();
    let script = r#"exec "$0" exec --no-cache "$1""#;
    let words = ["/bin/sh", "-c", script, runner.to_str().unwrap()];
    peers.push((EXEC, owned(&words)));
    peers
}

/// An archive of text like source code, words that come again and numbers that do not; and of a
/// body that does nothing.
fn plant(shape: &Shape, parent: &Path) -> PathBuf {
    const WORDS: [&str; 12] = [
        "return", "value", "const", "import", "from", "index", "result", "error", "await", "name",
        "else", "context",
    ];
    let ground = Ground::new();
    let tree = ground.folder("tree");
    let mut state: u64 = 1;
    for file in 0..shape.files {
        let folder = tree.join(format!("src/{:02}/{}", file % 40, file % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let mut text = String::with_capacity(shape.file_bytes + 64);
        while text.len() < shape.file_bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = WORDS[usize::try_from(state >> 60).unwrap() % WORDS.len()];
            match state >> 58 & 3 {
                0 => writeln!(text, "{word}({:x});", state >> 40).unwrap(),
                _ => write!(text, "{word} ").unwrap(),
            }
        }
        text.truncate(shape.file_bytes);
        std::fs::write(folder.join(format!("{file}.ts")), text).unwrap();
    }
    std::fs::write(tree.join("manifest.yaml"), "run: [./true]\n").unwrap();
    std::fs::rename(ground.nothing("true"), tree.join("true")).unwrap();
    let archive = parent.join("archive.tar.gz");
    let mut tar = Command::new("tar");
    if shape.is_sorted {
        tar.arg("--sort=name");
    }
    tar.arg("-czf").arg(&archive).arg("-C").arg(&tree).arg(".");
    support::run_once(&mut tar);
    archive
}
