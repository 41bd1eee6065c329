//! Unpacking for the first time, side by side with tar, bsdtar and pigz.
//!
//! `cargo bench --bench unpack -- [--quick] [--rounds N] [--json] [--disk]`. Two archives: 2,000
//! files (20 MB) and 5 files (100 MB). Every peer is a process of its own that unpacks into a fresh
//! directory, ours the library's `unpack` in a child of this program, all checks on; in each round
//! each runs once, in an order that rotates, so that what else the machine does meets all alike:
//! read the ratios, never the milliseconds. `runner exec` is the whole run, the start of the
//! sandbox and the removal of the scratch space included. The directories lie in `/dev/shm`, with
//! `--disk` beneath TMPDIR. `RUNNER_BIN` names another program for the last row.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use runner::bundle::{AHEAD_FROM_BYTES, OpenedArchive, UnpackLimits, open_archive, unpack_ahead};

/// The body of the bundles: ends at once, without a C library.
#[cfg(target_arch = "x86_64")]
const BODY: &str = r#"void _start(void) {
    __asm__ volatile("mov $231, %eax; xor %edi, %edi; syscall");
}"#;
#[cfg(target_arch = "aarch64")]
const BODY: &str = r#"void _start(void) {
    __asm__ volatile("mov x8, #94; mov x0, #0; svc #0");
}"#;
/// Of `tar xzf`, for the archive of many files.
const MARK: f64 = 0.6;
const OURS: &str = "unpack";
const TAR: &str = "tar xzf";

struct Options {
    rounds: usize,
    json: bool,
    disk: bool,
}

struct Shape {
    name: &'static str,
    files: usize,
    file_bytes: usize,
    is_marked: bool,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "2,000 files, 20 MB",
        files: 2_000,
        file_bytes: 10_000,
        is_marked: true,
    },
    Shape {
        name: "5 files, 100 MB",
        files: 5,
        file_bytes: 20_000_000,
        is_marked: false,
    },
];

struct Peer {
    name: &'static str,
    /// Unpacks `$1` into `$2`.
    argv: Vec<PathBuf>,
    wall: Vec<Duration>,
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "--child") {
        let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
        return unpack_as_child(&paths[0], &paths[1]);
    }
    let options = options();
    let parent = match options.disk {
        true => std::env::temp_dir(),
        false => PathBuf::from("/dev/shm"),
    };
    let ground = parent.join(format!("runner-bench-{}", std::process::id()));
    std::fs::create_dir(&ground).unwrap();
    let measured: Vec<(&Shape, Vec<Peer>)> = SHAPES
        .iter()
        .map(|shape| (shape, measure(shape, &ground, options.rounds)))
        .collect();
    std::fs::remove_dir_all(&ground).unwrap();
    let text = match options.json {
        true => as_json(&measured),
        false => as_table(&measured, options.disk),
    };
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

/// What the last peer but one is.
fn unpack_as_child(archive: &Path, into: &Path) {
    let into = std::fs::File::open(into).unwrap();
    let OpenedArchive::File(archive) = open_archive(archive).unwrap() else {
        return;
    };
    let limits = UnpackLimits::default();
    unpack_ahead(archive, into.as_fd(), &limits, AHEAD_FROM_BYTES).unwrap();
}

fn options() -> Options {
    let mut options = Options {
        rounds: 20,
        json: false,
        disk: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => {
                options.rounds = arguments.next().unwrap().parse::<usize>().unwrap().max(1);
            }
            "--quick" => options.rounds = 5,
            "--json" => options.json = true,
            "--disk" => options.disk = true,
            // Cargo's own.
            "--bench" => (),
            other => assert_eq!(
                other, "",
                "known are --quick, --rounds N, --json and --disk"
            ),
        }
    }
    options
}

fn measure(shape: &Shape, ground: &Path, rounds: usize) -> Vec<Peer> {
    let archive = plant(shape, ground);
    let mut peers = peers();
    // The first round fills caches.
    for round in 0..=rounds {
        for place in 0..peers.len() {
            let peer = (place + round) % peers.len();
            let into = ground.join("into");
            std::fs::create_dir(&into).unwrap();
            let took = time(&peers[peer].argv, &archive, &into);
            std::fs::remove_dir_all(&into).unwrap();
            if 0 < round {
                peers[peer].wall.push(took);
            }
        }
    }
    std::fs::remove_file(&archive).unwrap();
    for peer in &mut peers {
        peer.wall.sort_unstable();
    }
    peers
}

/// Those that are installed.
fn peers() -> Vec<Peer> {
    let there = |name: &str| {
        let mut probe = Command::new(name);
        probe.arg("--version").stdout(Stdio::null());
        probe.stderr(Stdio::null()).status().is_ok()
    };
    let shell = |name, script: &str| Peer::new(name, &["/bin/sh", "-c", script, "sh"]);
    let mut peers = vec![shell(TAR, r#"exec tar -xzf "$1" -C "$2""#)];
    if there("bsdtar") {
        peers.push(shell("bsdtar", r#"exec bsdtar -xzf "$1" -C "$2""#));
    }
    if there("pigz") {
        peers.push(shell("pigz, tar", r#"pigz -dc "$1" | tar -xf - -C "$2""#));
    }
    let own = std::env::current_exe().unwrap();
    peers.push(Peer::new(OURS, &[own.to_str().unwrap(), "--child"]));
    let runner = std::env::var_os("RUNNER_BIN").map_or_else(
        || env!("CARGO_BIN_EXE_runner").to_owned(),
        |path| path.into_string().unwrap(),
    );
    let help = Command::new(&runner).args(["exec", "--help"]).output();
    let cacheless = String::from_utf8_lossy(&help.unwrap().stdout).contains("--no-cache");
    let script = match cacheless {
        true => r#"exec "$0" exec --no-cache "$1""#,
        false => r#"exec "$0" exec "$1""#,
    };
    peers.push(Peer::new(
        "runner exec, whole",
        &["/bin/sh", "-c", script, &runner],
    ));
    peers
}

impl Peer {
    fn new(name: &'static str, argv: &[&str]) -> Self {
        Self {
            name,
            argv: argv.iter().map(PathBuf::from).collect(),
            wall: Vec::new(),
        }
    }

    fn percentile(&self, percent: usize) -> Duration {
        self.wall[(self.wall.len() - 1) * percent / 100]
    }

    /// Of medians and of minima.
    fn ratios(&self, peers: &[Self]) -> (f64, f64) {
        let tar = peers.iter().find(|peer| peer.name == TAR).unwrap();
        let ratio =
            |percent| (self.percentile(percent)).div_duration_f64(tar.percentile(percent));
        (ratio(50), ratio(0))
    }
}

/// Text like source code, words that come again and numbers that do not; and the body.
fn plant(shape: &Shape, ground: &Path) -> PathBuf {
    const WORDS: [&str; 12] = [
        "return", "value", "const", "import", "from", "index", "result", "error", "await", "name",
        "else", "context",
    ];
    let tree = ground.join("tree");
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
    let source = ground.join("body.c");
    std::fs::write(&source, BODY).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-static", "-nostdlib", "-s", "-o"]);
    succeed(cc.args([&tree.join("true"), &source]));
    let archive = ground.join("archive.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "-czf"]).arg(&archive).arg("-C");
    succeed(tar.arg(&tree).arg("."));
    std::fs::remove_dir_all(&tree).unwrap();
    archive
}

fn succeed(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// From just before the start to the end, which must be a success.
fn time(argv: &[PathBuf], archive: &Path, into: &Path) -> Duration {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).arg(archive).arg(into);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    succeed(&mut command);
    start.elapsed()
}

fn as_table(measured: &[(&Shape, Vec<Peer>)], disk: bool) -> String {
    let place = if disk { "disk" } else { "tmpfs" };
    let mut text = String::new();
    for (shape, peers) in measured {
        writeln!(
            text,
            "| {}, {place} | min ms | p50 ms | p90 ms | p50 ÷ tar | min ÷ tar |\n\
             | --- | --- | --- | --- | --- | --- |",
            shape.name
        )
        .unwrap();
        for peer in peers {
            let [min, p50, p90] =
                [0, 50, 90].map(|percent| peer.percentile(percent).as_secs_f64() * 1e3);
            let (of_p50, of_min) = peer.ratios(peers);
            writeln!(
                text,
                "| {} | {min:.1} | {p50:.1} | {p90:.1} | {of_p50:.2} | {of_min:.2} |",
                peer.name
            )
            .unwrap();
        }
        text.push('\n');
    }
    for (name, value, met) in marks(measured) {
        let verdict = if met { "met" } else { "missed" };
        writeln!(text, "mark | {name} | ≤ {MARK} | {value:.2} | {verdict}").unwrap();
    }
    text
}

fn as_json(measured: &[(&Shape, Vec<Peer>)]) -> String {
    let mut rows = Vec::new();
    for (shape, peers) in measured {
        for peer in peers {
            let [min, p50, p90] = [0, 50, 90].map(|percent| peer.percentile(percent).as_micros());
            let (ratio, min_ratio) = peer.ratios(peers);
            rows.push(format!(
                "{{\"name\": \"{}: {}\", \"min_us\": {min}, \"p50_us\": {p50}, \"p90_us\": {p90}, \
                 \"p50_to_tar\": {ratio:.3}, \"min_to_tar\": {min_ratio:.3}}}",
                shape.name, peer.name
            ));
        }
    }
    let marks: Vec<String> = marks(measured)
        .map(|(name, value, met)| {
            format!(
                "{{\"name\": \"{name}\", \"limit\": {MARK}, \"value\": {value:.3}, \"met\": {met}}}"
            )
        })
        .collect();
    format!(
        "{{\"bench\": \"unpack\", \"rows\": [\n  {}\n], \"marks\": [\n  {}\n]}}\n",
        rows.join(",\n  "),
        marks.join(",\n  ")
    )
}

/// Name, value, whether it is met.
fn marks(measured: &[(&Shape, Vec<Peer>)]) -> impl Iterator<Item = (String, f64, bool)> {
    measured
        .iter()
        .filter(|(shape, _)| shape.is_marked)
        .filter_map(|(shape, peers)| {
            let ours = peers.iter().find(|peer| peer.name == OURS)?;
            let (value, _) = ours.ratios(peers);
            Some((format!("unpack, {} ÷ tar xzf", shape.name), value, value <= MARK))
        })
}
