//! Launch to exit of a body that does nothing, side by side with a bare exec and with bubblewrap.
//!
//! `cargo bench --bench launch -- [--rounds N] [--idle MS] [--json]`. In each round every peer runs
//! once, in an order that rotates, so that what else the machine does meets all alike: read the
//! ratios, never the milliseconds. `RUNNER_BIN` names another program to measure.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Ends at once, without a C library: the start of one would be the larger part of the time.
#[cfg(target_arch = "x86_64")]
const BODY: &str = r#"void _start(void) {
    __asm__ volatile("mov $231, %eax; xor %edi, %edi; syscall");
}"#;
#[cfg(target_arch = "aarch64")]
const BODY: &str = r#"void _start(void) {
    __asm__ volatile("mov x8, #94; mov x0, #0; svc #0");
}"#;

/// The namespaces that a run has, the host's /usr, and the usual mounts. No Landlock, no system
/// call filter, no cgroup, no report.
const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];

struct Options {
    rounds: usize,
    idle: Duration,
    json: bool,
}

struct Peer {
    name: &'static str,
    argv: Vec<PathBuf>,
    wall_us: Vec<u64>,
}

fn main() {
    let options = options();
    let ground = std::env::temp_dir().join(format!("runner-bench-{}", std::process::id()));
    std::fs::create_dir(&ground).unwrap();
    let mut peers = peers(&ground);
    // The first launches fill caches and make the runtime directory.
    for round in 0..options.rounds + 5 {
        for place in 0..peers.len() {
            let place = (place + round) % peers.len();
            std::thread::sleep(options.idle);
            let took = launch(&peers[place].argv);
            if 5 <= round {
                let took_us = u64::try_from(took.as_micros()).unwrap();
                peers[place].wall_us.push(took_us);
            }
        }
    }
    std::fs::remove_dir_all(&ground).unwrap();
    for peer in &mut peers {
        peer.wall_us.sort_unstable();
    }
    let text = if options.json {
        as_json(&peers)
    } else {
        as_table(&peers)
    };
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

fn options() -> Options {
    let mut options = Options {
        rounds: 100,
        idle: Duration::ZERO,
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().unwrap().parse().unwrap();
        match argument.as_str() {
            "--rounds" => options.rounds = usize::try_from(number()).unwrap().max(1),
            "--idle" => options.idle = Duration::from_millis(number()),
            "--json" => options.json = true,
            // Cargo's own.
            "--bench" => (),
            other => {
                assert_eq!(other, "", "known are --rounds N, --idle MS and --json");
            }
        }
    }
    options
}

fn peers(ground: &Path) -> Vec<Peer> {
    let (body, bundle) = make_body(ground);
    let runner = std::env::var_os("RUNNER_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_runner")),
        PathBuf::from,
    );
    let mut peers = vec![Peer::new("bare", &[&body])];
    if Command::new("bwrap").arg("--version").output().is_ok() {
        let mut argv: Vec<&Path> = vec![Path::new("bwrap")];
        argv.extend(BWRAP.iter().map(Path::new));
        argv.extend([Path::new("--ro-bind"), &body, Path::new("/true")]);
        argv.push(Path::new("/true"));
        peers.push(Peer::new("bwrap", &argv));
    }
    let words = |words: [&'static str; 2]| words.map(Path::new);
    let [run, end] = words(["run", "--"]);
    peers.push(Peer::new("runner run", &[&runner, run, end, &body]));
    let [exec, _] = words(["exec", ""]);
    peers.push(Peer::new("runner exec", &[&runner, exec, &bundle]));
    peers
}

impl Peer {
    fn new(name: &'static str, argv: &[&Path]) -> Self {
        Self {
            name,
            argv: argv.iter().map(PathBuf::from).collect(),
            wall_us: Vec::new(),
        }
    }

    fn percentile(&self, percent: usize) -> u64 {
        self.wall_us[(self.wall_us.len() - 1) * percent / 100]
    }
}

/// The body, and a bundle that holds nothing else.
fn make_body(ground: &Path) -> (PathBuf, PathBuf) {
    let (source, folder) = (ground.join("body.c"), ground.join("bundle"));
    let (body, bundle) = (folder.join("true"), ground.join("hello.tar.gz"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&source, BODY).unwrap();
    let succeeded = |command: &mut Command| command.status().unwrap().success();
    let compiled = Command::new("cc")
        .args(["-O2", "-static", "-nostdlib", "-s", "-o"])
        .args([&body, &source])
        .status();
    assert!(compiled.unwrap().success(), "cc");
    std::fs::write(folder.join("manifest.yaml"), "run: [./true]\n").unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&bundle).arg("-C").arg(&folder).arg(".");
    assert!(succeeded(&mut tar), "tar");
    (body, bundle)
}

/// From just before the start to the end, which must be a success.
fn launch(argv: &[PathBuf]) -> Duration {
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    let start = Instant::now();
    let status = command.status().unwrap();
    let took = start.elapsed();
    assert!(status.success(), "{argv:?}: {status}");
    took
}

/// Of medians and of minima, against the peer of this name.
fn ratios(peer: &Peer, peers: &[Peer], against: &str) -> Option<(f64, f64)> {
    let other = peers.iter().find(|peer| peer.name == against)?;
    let ratio = |percent| {
        let [own, theirs] =
            [peer, other].map(|peer| Duration::from_micros(peer.percentile(percent)));
        own.div_duration_f64(theirs)
    };
    Some((ratio(50), ratio(0)))
}

fn as_table(peers: &[Peer]) -> String {
    let mut text = String::from(
        "| launch to exit | min µs | p50 µs | p90 µs | p50 ÷ bare | p50 ÷ bwrap | min ÷ bwrap |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for peer in peers {
        let [min, p50, p90] = [0, 50, 90].map(|percent| peer.percentile(percent));
        write!(text, "| {} | {min} | {p50} | {p90} |", peer.name).unwrap();
        let bare = ratios(peer, peers, "bare").map(|(p50, _)| p50);
        let (bwrap, bwrap_min) = ratios(peer, peers, "bwrap").unzip();
        for ratio in [bare, bwrap, bwrap_min] {
            match ratio {
                Some(ratio) => write!(text, " {ratio:.2} |").unwrap(),
                None => text.push_str(" – |"),
            }
        }
        text.push('\n');
    }
    text
}

fn as_json(peers: &[Peer]) -> String {
    let lines: Vec<String> = peers
        .iter()
        .map(|peer| {
            let [min, p50, p90] = [0, 50, 90].map(|percent| peer.percentile(percent));
            let name = peer.name;
            let mut line = format!(
                "  {{\"name\": \"{name}\", \"min_us\": {min}, \"p50_us\": {p50}, \"p90_us\": {p90}"
            );
            if let Some((p50, min)) = ratios(peer, peers, "bwrap") {
                write!(
                    line,
                    ", \"p50_to_bwrap\": {p50:.3}, \"min_to_bwrap\": {min:.3}"
                )
                .unwrap();
            }
            line.push('}');
            line
        })
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}
