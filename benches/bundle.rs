//! Bundling 2,000 small files, side by side with `tar --sort=name -cf - | gzip -6`.
//!
//! `cargo bench --bench bundle -- [--rounds N] [--json]`. In each round both make an archive of the
//! same tree, in an order that alternates, so that what else the machine does meets both alike: read
//! the ratio, never the milliseconds. The mark is 1.2. `RUNNER_BIN` names another program to
//! measure.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 2_000;
const FILE_BYTES: usize = 10_000;

struct Options {
    rounds: usize,
    json: bool,
}

fn main() {
    let options = options();
    let ground = std::env::temp_dir().join(format!("runner-bench-{}", std::process::id()));
    std::fs::create_dir(&ground).unwrap();
    let tree = ground.join("tree");
    plant(&tree);
    let runner = std::env::var_os("RUNNER_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_runner")),
        PathBuf::from,
    );
    let (ours, theirs) = (ground.join("runner.tar.gz"), ground.join("tar.tar.gz"));
    let mut bundle = Command::new(runner);
    bundle.arg("bundle").arg(&tree).arg("-o").arg(&ours);
    let mut tar = Command::new("sh");
    tar.args([
        "-c",
        "tar --sort=name -C \"$1\" -cf - . | gzip -6 >\"$2\"",
        "sh",
    ]);
    tar.arg(&tree).arg(&theirs);
    let mut commands = [bundle, tar];
    let mut wall: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
    // The first round fills the page cache.
    for round in 0..=options.rounds {
        for place in 0..2 {
            let place = (place + round) % 2;
            let took = time(&mut commands[place]);
            if 0 < round {
                wall[place].push(took);
            }
        }
    }
    let bytes = [&ours, &theirs].map(|file| std::fs::metadata(file).unwrap().len());
    std::fs::remove_dir_all(&ground).unwrap();
    for times in &mut wall {
        times.sort_unstable();
    }
    let text = told(&wall, bytes, options.json);
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

fn options() -> Options {
    let mut options = Options {
        rounds: 10,
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => {
                options.rounds = arguments.next().unwrap().parse::<usize>().unwrap().max(1)
            }
            "--json" => options.json = true,
            // Cargo's own.
            "--bench" => (),
            other => assert_eq!(other, "", "known are --rounds N and --json"),
        }
    }
    options
}

/// 20 MB of text like source code: words that come again, and numbers that do not.
fn plant(tree: &Path) {
    const WORDS: [&str; 12] = [
        "return", "value", "const", "import", "from", "index", "result", "error", "await", "name",
        "else", "context",
    ];
    let mut state: u64 = 1;
    for file in 0..FILES {
        let folder = tree.join(format!("src/{:02}/{}", file % 40, file % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let mut text = String::with_capacity(FILE_BYTES + 64);
        while text.len() < FILE_BYTES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = WORDS[usize::try_from(state >> 60).unwrap() % WORDS.len()];
            match state >> 58 & 3 {
                0 => writeln!(text, "{word}({:x});", state >> 40).unwrap(),
                _ => write!(text, "{word} ").unwrap(),
            }
        }
        text.truncate(FILE_BYTES);
        std::fs::write(folder.join(format!("{file}.ts")), text).unwrap();
    }
    std::fs::write(tree.join("manifest.yaml"), "run: [echo]\n").unwrap();
}

/// From just before the start to the end, which must be a success.
fn time(command: &mut Command) -> Duration {
    command.stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().unwrap();
    let took = start.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}

fn told(wall: &[Vec<Duration>; 2], bytes: [u64; 2], json: bool) -> String {
    let median = |times: &[Duration]| times[(times.len() - 1) / 2];
    let [ours, theirs] = [&wall[0], &wall[1]].map(|times| median(times));
    let [least, their_least] = [&wall[0], &wall[1]].map(|times| times[0]);
    let p50 = ours.div_duration_f64(theirs);
    let min = least.div_duration_f64(their_least);
    if json {
        return format!(
            "{{\"p50_ms\": {}, \"tar_p50_ms\": {}, \"p50_ratio\": {p50:.3}, \"min_ratio\": {min:.3}}}\n",
            ours.as_millis(),
            theirs.as_millis()
        );
    }
    format!(
        "| 2,000 files, 20 MB | min ms | p50 ms | bytes |\n| --- | --- | --- | --- |\n\
         | runner bundle | {} | {} | {} |\n| tar, gzip -6 | {} | {} | {} |\n\n\
         p50 ÷ tar: {p50:.2}, min ÷ tar: {min:.2} (mark: 1.2)\n",
        least.as_millis(),
        ours.as_millis(),
        bytes[0],
        their_least.as_millis(),
        theirs.as_millis(),
        bytes[1],
    )
}
