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

#[path = "limits/archives.rs"]
mod archives;
mod support;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Ground, Options, Report, Table, Usage};

const HOSTILE: &str = include_str!("limits/hostile.c");
const PEAK: &str = include_str!("limits/peak.c");

const BOMB: &str = "fork bomb up to 512 processes";
const STORM: &str = "200 chains, each process forks its successor";

/// Kind of body, limit in ms, what it is.
const DEADLINES: [(&str, u64, &str); 4] = [
    ("idle", 40, "waits, deaf to SIGTERM"),
    ("spin", 40, "computes"),
    ("bomb", 300, BOMB),
    ("storm", 300, STORM),
];

/// Something that takes as much as it may of something, and what the supervisor's memory is then.
struct Hostile {
    kind: &'static str,
    flags: &'static [&'static str],
    /// Exit codes that show that it was what it is called; none: what it ends with is its own affair.
    ends: &'static [i32],
    name: &'static str,
}

const fn hostile(
    kind: &'static str,
    flags: &'static [&'static str],
    name: &'static str,
) -> Hostile {
    let ends = &[];
    Hostile {
        kind,
        flags,
        ends,
        name,
    }
}

impl Hostile {
    const fn ends(mut self, ends: &'static [i32]) -> Self {
        self.ends = ends;
        self
    }
}

/// What ended processes still hold of the kernel's memory came to the 256 MiB of the default before the
/// limit of time.
const ROOM_FOR_THE_ENDED: &str = "--memory=1g";
/// Run to their limit of time, which ends those that nothing else ends.
const STORMY: &[&str] = &[
    "--pids=512",
    ROOM_FOR_THE_ENDED,
    "--timeout=300ms",
    "--grace=0s",
];
/// Room for the files, and for what the kernel keeps of each.
const ROOMY: &[&str] = &["--memory=512m", "--disk=128m"];

/// Bodies of [`HOSTILE`].
const HOSTILES: [Hostile; 20] = [
    hostile("nothing", &[], "nothing"),
    hostile("bomb", STORMY, BOMB).ends(&[124]),
    hostile("storm", STORMY, STORM).ends(&[124]),
    hostile("threads", STORMY, "thread bomb up to 512 threads").ends(&[124]),
    // Without groups a body is told that it may have no more, and not ended.
    hostile("memory", &["--memory=256m"], "memory up to its limit").ends(&[137, 3]),
    hostile("disk", ROOMY, "disk filled to its limit").ends(&[0]),
    hostile("inodes", ROOMY, "inodes used up, 65,536").ends(&[0]),
    hostile("output", &[], "400 MB of output, passed through"),
    hostile("single", &[], "100,000 lines of one byte"),
    hostile(
        "controls",
        &["--json"],
        "130 MB of control characters, captured",
    ),
    hostile(
        "bytes",
        &["--json"],
        "400 MB of bytes that are no text, captured",
    ),
    hostile(
        "descriptors",
        &[],
        "as many descriptors as it may, sockets full",
    ),
    hostile(
        "events",
        &["--report-denials"],
        "20,000 denied connections, datagrams, names",
    ),
    hostile(
        "connections",
        &["--report-denials"],
        "4,000 connections that say half of something",
    ),
    hostile("numbers", &[], "output document: a list of numbers").ends(&[0]),
    hostile("lists", &[], "output document: lists of one number").ends(&[0]),
    hostile("objects", &[], "output document: objects of one number").ends(&[0]),
    hostile("text", &[], "output document: 16 MiB of text").ends(&[0]),
    hostile(
        "all",
        &["--json"],
        "output document of text, both streams captured",
    ),
    hostile("names", &[], "40,000 long names, 2,000 levels"),
];

/// Archives of [`archives`], for `runner exec`: too much is refused, as much as is allowed is run.
const ARCHIVES: [Hostile; 2] = [
    hostile("bomb.tar.gz", &[], "archive: gzip bomb, refused at 1 GiB").ends(&[125]),
    hostile(
        "entries.tar.gz",
        &[],
        "archive: 100,000 entries with long names",
    )
    .ends(&[0]),
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
    let everybody: Vec<&Hostile> = HOSTILES.iter().chain(&ARCHIVES).collect();
    let names: Vec<&str> = everybody.iter().map(|one| one.name).collect();
    let memory = Table::new("peak of the supervisor's memory", "MiB", &[]).measure(
        &names,
        rounds,
        0,
        |place| bodies.peak_mib(everybody[place], HOSTILES.len() <= place),
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
        archives::plant(ground.path("bomb.tar.gz"), ground.path("entries.tar.gz"));
        Self {
            ground,
            hostile: ground.compile(
                "hostile",
                HOSTILE,
                &["-static", "-pthread", "-Wno-unused-result"],
            ),
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
        let flags = [
            &timeout,
            "--grace=0s",
            "--pids=512",
            ROOM_FOR_THE_ENDED,
            &json,
        ];
        let code = self.run(&mut Command::new(support::runner()), kind, &flags);
        assert_eq!(code, Some(124), "{kind}");
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap()
    }

    /// How long after its wall limit the whole tree was gone.
    fn late_ms(&self, kind: &str, limit_ms: u64) -> f64 {
        let report = self.timed_out(kind, limit_ms);
        assert_eq!(report["outcome"], "timed_out");
        let took_ms = report["timings_ms"]["body"].as_f64().unwrap();
        took_ms - f64::from(u32::try_from(limit_ms).unwrap())
    }

    fn back_end(&self) -> String {
        let report = self.timed_out("idle", 1);
        report["cgroup_backend"].as_str().unwrap().to_owned()
    }

    /// An archive is unpacked into a cache of its own, so that each time is the first. The runner
    /// makes it: one that others may look into is not used.
    fn exec(&self, program: &mut Command, archive: &str, flags: &[&str]) -> Option<i32> {
        let cache = self.ground.path("cache");
        program
            .args(["exec", "--quiet"])
            .args(flags)
            .arg(self.ground.path(archive))
            .env("RUNNER_OPT_CACHE_DIRECTORY", &cache)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let code = program.status().unwrap().code();
        std::fs::remove_dir_all(cache).unwrap();
        code
    }

    fn peak_mib(&self, hostile: &Hostile, is_archive: bool) -> f64 {
        let told = self.ground.path("peak.txt");
        let mut program = Command::new(&self.peak);
        program.arg(&told).arg(support::runner());
        let (kind, flags) = (hostile.kind, hostile.flags);
        let code = if is_archive {
            self.exec(&mut program, kind, flags)
        } else {
            self.run(&mut program, kind, flags)
        };
        let name = hostile.name;
        let is_expected = |code| hostile.ends.is_empty() || hostile.ends.contains(&code);
        assert!(
            code.is_some_and(is_expected),
            "{name}: ended with {code:?} and not with one of {:?}",
            hostile.ends
        );
        let kib: f64 = std::fs::read_to_string(&told)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        std::fs::remove_file(told).unwrap();
        kib / 1024.0
    }
}
