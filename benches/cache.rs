//! The same bundle again: from the cache by its file's identity, by its digest, and not at all.
//!
//! Two bundles, 20 MB in 2,000 files and 100 MB in 5 files, beside one that holds nothing but the
//! body. The cache lies in memory and is this bench's own.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

#[path = "support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Ground, Options, Report, Table, Usage, median, runner};

/// Longer than the cache wants a file to be left alone before it trusts its identity.
const SETTLE: Duration = Duration::from_millis(3_100);

fn main() {
    let usage = Usage {
        bench: "cache",
        about: "Launch to exit of bundles that were unpacked before.",
        rounds: 20,
        quick_rounds: 4,
        own: &[],
    };
    support::run(&usage, measure);
}

/// Half of it is text that repeats, half is not, as in trees of programs.
fn contents(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(bytes + 64);
    while data.len() < bytes {
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            data.extend_from_slice(&state.to_le_bytes());
        }
        data.extend_from_slice(b"function value(name) { return 1;");
    }
    data.truncate(bytes);
    data
}

fn bundle(ground: &Ground, body: &Path, name: &str, files: usize, bytes: usize) -> PathBuf {
    let folder = ground.folder(name);
    std::fs::write(folder.join("manifest.yaml"), "run: [./nothing]\n").unwrap();
    std::fs::copy(body, folder.join("nothing")).unwrap();
    for number in 0..files {
        let directory = folder.join(format!("d{}", number % 40));
        std::fs::create_dir_all(&directory).unwrap();
        let data = contents(number as u64 + 1, bytes);
        std::fs::write(directory.join(format!("f{number}")), data).unwrap();
    }
    let archive = ground.archive(&format!("{name}.tar.gz"), &folder);
    std::fs::remove_dir_all(folder).unwrap();
    archive
}

fn exec(cache: &Path, flags: &[&str], bundle: &Path) -> Command {
    let mut command = Command::new(runner());
    command.args(["exec", "-q"]).args(flags).arg(bundle);
    command.env("RUNNER_OPT_CACHE_DIRECTORY", cache);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Where the report says that the tree came from.
fn found(mut command: Command) -> String {
    let output = command.stdout(Stdio::piped()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["bundle"]["cache"]["found"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A directory in memory where there is one; removed on drop.
fn cache_directory() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("runner-bench-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(support::in_memory())
        .unwrap()
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let cache = cache_directory();
    let body = ground.nothing("nothing");
    let hello = bundle(&ground, &body, "hello", 0, 0);
    let sizes = [("2,000 files", 2_000, 10 << 10), ("5 files", 5, 20 << 20)];
    let bundles = sizes.map(|(name, files, bytes)| {
        let archive = bundle(&ground, &body, &format!("b{files}"), files, bytes);
        let mb = std::fs::metadata(&archive).unwrap().len() as f64 / 1e6;
        (name, archive, mb)
    });
    std::thread::sleep(SETTLE);
    let mut names = vec!["hello".to_owned()];
    let mut commands = vec![exec(cache.path(), &[], &hello)];
    for (name, archive, _) in &bundles {
        for (how, flags) in [
            ("identity", &[][..]),
            ("hashed", &["--no-trust-mtime"]),
            ("not cached", &["--no-cache"]),
        ] {
            names.push(format!("{name}, {how}"));
            commands.push(exec(cache.path(), flags, archive));
        }
    }
    for (_, archive, _) in &bundles {
        // Once to fill it; then what is measured must be what its row says.
        for wanted in ["miss", "identity"] {
            let told = exec(cache.path(), &["--json"], archive);
            assert_eq!(found(told), wanted, "{}", archive.display());
        }
    }
    let table = Table::new("launch to exit", "µs", &["hello"]).measure(
        &names,
        options.rounds,
        1,
        |place| support::wall_us(&mut commands[place]),
    );
    let mut first = Table::new("the first time", "µs", &[]);
    for (name, archive, _) in &bundles {
        let times = (0..options.rounds.min(5)).map(|_| {
            let fresh = cache_directory();
            support::wall_us(&mut exec(fresh.path(), &[], archive))
        });
        first.add(&format!("{name}, miss"), times.collect());
    }
    let mut report = Report::new();
    // Round by round, since what else the machine does meets both of a round alike.
    let over = |name: &str, allowed_ms: f64| {
        let (own, hello) = (table.row(name)?, table.row("hello")?);
        let each = own.values.iter().zip(&hello.values);
        let over: Vec<f64> = each
            .map(|(own, hello)| (own - hello) / 1e3 - allowed_ms)
            .collect();
        Some(median(&over))
    };
    let worst = |how: &str, per_mb: f64| {
        bundles
            .iter()
            .filter_map(|(name, _, mb)| over(&format!("{name}, {how}"), per_mb * mb))
            .reduce(f64::max)
    };
    report.mark_if(
        "cached, hashed: over hello + 0.7 ms per MB",
        worst("hashed", 0.7),
        "no rounds",
    );
    report.mark_if(
        "cached, by identity: over hello",
        worst("identity", 0.0),
        "no rounds",
    );
    for (name, _, mb) in &bundles {
        writeln!(report.text, "{name}: {mb:.1} MB compressed").unwrap();
    }
    report.tables.push(table);
    report.tables.push(first);
    report
}
