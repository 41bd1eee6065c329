//! How late limits come, how long a storm of forks lives on, and what hostile bodies make the
//! supervisor's memory grow to.
//!
//! `cargo bench --bench limits -- --help`. Times are the report's own: from the start of the watch
//! to the end of init, which the kernel lets go only when nothing is left in its namespace. Memory
//! is the peak of the supervisor's process alone (VmHWM, read by `limits/peak.c` as it exits).

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

mod support;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Ground, Options, Report, Table, Usage};

const HOSTILE: &str = include_str!("limits/hostile.c");
const PEAK: &str = include_str!("limits/peak.c");

/// Kind of body, limit in ms, what it is.
const DEADLINES: [(&str, u64, &str); 4] = [
    ("idle", 40, "waits, deaf to SIGTERM"),
    ("spin", 40, "computes"),
    ("bomb", 300, "fork bomb up to 512 processes"),
    ("storm", 300, "200 chains, each process forks its successor"),
];

/// Kind of body, flags of the runner's, what it is.
const HOSTILES: [(&str, &[&str], &str); 14] = [
    ("nothing", &[], "nothing"),
    ("output", &[], "400 MB of output, passed through"),
    ("single", &[], "100,000 lines of one byte"),
    (
        "controls",
        &["--json"],
        "130 MB of control characters, captured",
    ),
    (
        "bytes",
        &["--json"],
        "400 MB of bytes that are no text, captured",
    ),
    (
        "descriptors",
        &[],
        "as many descriptors as it may, sockets full",
    ),
    (
        "events",
        &["--report-denials"],
        "20,000 denied connections, datagrams, names",
    ),
    (
        "connections",
        &["--report-denials"],
        "4,000 connections that say half of something",
    ),
    ("numbers", &[], "output document: a list of numbers"),
    ("lists", &[], "output document: lists of one number"),
    ("objects", &[], "output document: objects of one number"),
    ("text", &[], "output document: 16 MiB of text"),
    (
        "all",
        &["--json"],
        "output document of text, both streams captured",
    ),
    ("names", &[], "40,000 long names, 2,000 levels"),
];

fn main() {
    let usage = Usage {
        bench: "limits",
        about: "How late limits come, how long a fork storm lives on, the supervisor's peak of memory.",
        rounds: 100,
        quick_rounds: 12,
        own: &[],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let mut report = Report::new();
    let ground = Ground::new();
    let bodies = Bodies::new(&ground);
    let [overshoot, emptied] = [0, 2].map(|first| {
        let kinds = &DEADLINES[first..first + 2];
        let names: Vec<&str> = kinds.iter().map(|(.., name)| *name).collect();
        let title = if first == 0 {
            "wall limit: how late the body is gone"
        } else {
            "fork storms: from the limit to nobody left"
        };
        Table::new(title, "ms", &[]).measure(&names, options.rounds, 1, |place| {
            let (kind, limit_ms, _) = kinds[place];
            bodies.late_ms(kind, limit_ms)
        })
    });
    let worst = |table: &Table| {
        let late = table.rows.iter().map(|row| row.percentile(99));
        late.fold(0.0, f64::max)
    };
    report.mark("wall limit overshoot, p99", worst(&overshoot));
    report.mark("kill to empty under a fork storm, p99", worst(&emptied));
    writeln!(
        report.text,
        "p99: {:.1} ms over the wall limit, {:.1} ms from kill to empty. Groups: {}.",
        worst(&overshoot),
        worst(&emptied),
        bodies.back_end()
    )
    .unwrap();
    report.tables.extend([overshoot, emptied]);

    let rounds = if options.quick { 1 } else { 3 };
    let names: Vec<&str> = HOSTILES.iter().map(|(.., name)| *name).collect();
    let memory = Table::new("peak of the supervisor's memory", "MiB", &[]).measure(
        &names,
        rounds,
        0,
        |place| {
            let (kind, flags, _) = HOSTILES[place];
            bodies.peak_mib(kind, flags)
        },
    );
    let most = memory.rows.iter().map(|row| row.percentile(100));
    report.mark("own memory under a hostile body", most.fold(0.0, f64::max));
    report.tables.push(memory);
    report
}

struct Bodies<'ground> {
    ground: &'ground Ground,
    hostile: PathBuf,
    peak: PathBuf,
}

impl<'ground> Bodies<'ground> {
    fn new(ground: &'ground Ground) -> Self {
        Self {
            ground,
            hostile: ground.compile("hostile", HOSTILE, &["-static", "-Wno-unused-result"]),
            peak: ground.compile("peak", PEAK, &["-static"]),
        }
    }

    fn run(&self, program: &mut Command, kind: &str, flags: &[&str]) -> Option<i32> {
        program
            .args(["run", "--quiet", "--ro"])
            .arg(&self.hostile)
            .args(flags)
            .arg("--")
            .args([&self.hostile, &PathBuf::from(kind)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        program.status().unwrap().code()
    }

    /// A run to its limit; the report.
    fn timed_out(&self, kind: &str, limit_ms: u64) -> Value {
        let report = self.ground.path("report.json");
        let timeout = format!("--timeout={limit_ms}ms");
        let json = format!("--json={}", report.display());
        let flags = [&timeout, "--grace=0s", "--pids=512", &json];
        let code = self.run(&mut Command::new(support::runner()), kind, &flags);
        assert_eq!(code, Some(124), "{kind}");
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap()
    }

    /// How long after its wall limit the whole tree was gone.
    fn late_ms(&self, kind: &str, limit_ms: u64) -> f64 {
        let report = self.timed_out(kind, limit_ms);
        assert_eq!(report["outcome"], "timed_out");
        let phases = report["timings_us"].as_array().unwrap();
        let body = phases
            .iter()
            .find(|phase| phase["phase"] == "body")
            .unwrap();
        let took_ms = body["duration_us"].as_f64().unwrap() / 1e3;
        took_ms - f64::from(u32::try_from(limit_ms).unwrap())
    }

    fn back_end(&self) -> String {
        let report = self.timed_out("idle", 1);
        report["cgroup_backend"].as_str().unwrap().to_owned()
    }

    fn peak_mib(&self, kind: &str, flags: &[&str]) -> f64 {
        let told = self.ground.path("peak.txt");
        let mut program = Command::new(&self.peak);
        program.arg(&told).arg(support::runner());
        // What the body ends with is its own affair; a limit may end it.
        let code = self.run(&mut program, kind, flags);
        assert!(code.is_some(), "{kind}");
        let kib: f64 = std::fs::read_to_string(&told)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        std::fs::remove_file(told).unwrap();
        kib / 1024.0
    }
}
