//! The demonstration: which bodies are run under which limits, and what their reports mean.
#![forbid(unsafe_code)]

pub mod network;

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use spec::demonstration::{Held, Part, Row};
use spec::limits::Limit;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::Report;
use spec::request::{BundleArgument, Caller, LimitOptions, LimitsMode, Request, Subject};

/// The manifest of the bundle that is built in.
pub const MANIFEST: &str = include_str!("../../../demo/manifest.yaml");
/// Its body.
pub const ATTEMPTS: &str = include_str!("../../../demo/attempts.sh");

const MIB: u64 = 1 << 20;
/// Processes that the fork bomb may have.
const PROCESSES: u64 = 32;
/// Files of one MiB that fit.
const DISK_MIB: u64 = 8;
const OUTPUT_BYTES: u64 = 64 << 10;

/// One body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// Everything that is allowed or denied at once.
    Tour,
    /// Too many processes, too many files.
    ProcessesAndDisk,
    Memory,
    /// Too much CPU time.
    CpuTime,
    WallTime,
    Output,
    /// A list of one host.
    Network,
}

/// What a run is told besides its report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Processes of it that still lived after its end.
    pub survivors: usize,
    /// What the host on the list heard.
    pub heard: Vec<u8>,
}

impl Scene {
    /// In the order in which they are run.
    pub const ALL: [Self; 7] = [
        Self::Tour,
        Self::ProcessesAndDisk,
        Self::Memory,
        Self::CpuTime,
        Self::WallTime,
        Self::Output,
        Self::Network,
    ];

    fn argument(self) -> &'static str {
        match self {
            Self::Tour => "tour",
            Self::ProcessesAndDisk => "processes_and_disk",
            Self::Memory => "memory",
            Self::CpuTime => "cpu_time",
            Self::WallTime => "wall_time",
            Self::Output => "output",
            Self::Network => "network",
        }
    }

    /// The request for this scene's run of the bundle in `directory`; `port` of 127.0.0.1 listens
    /// for the scene of the network.
    #[must_use]
    pub fn request(self, directory: PathBuf, caller: &Caller, port: u16) -> Request {
        let subject = Subject::Bundle(BundleArgument::Path(directory));
        let mut request = Request::captured(subject, caller.clone());
        request.bundle.arguments = vec![
            self.argument().as_bytes().to_vec(),
            home_to_look_for(caller),
            port.to_string().into_bytes(),
        ];
        if self == Self::Network {
            request.network = network::options(port);
        }
        let mut limits = LimitOptions {
            values: [(Limit::WallTime, 60_000)].into(),
            // Where a limit cannot be held the table says so, and the rest is shown all the same.
            mode: LimitsMode::BestEffort,
            ..LimitOptions::default()
        };
        match self {
            Self::Tour | Self::Network => (),
            Self::ProcessesAndDisk => {
                limits.values.set(Limit::Processes, PROCESSES);
                limits.values.set(Limit::Disk, DISK_MIB * MIB);
            }
            Self::Memory => limits.values.set(Limit::Memory, 64 * MIB),
            Self::CpuTime => limits.values.set(Limit::CpuTime, 300),
            Self::WallTime => {
                limits.values.set(Limit::WallTime, 500);
                limits.grace = Some(Duration::ZERO);
            }
            Self::Output => limits.values.set(Limit::Output, OUTPUT_BYTES),
        }
        request.limits = limits;
        request
    }

    /// What the report of this scene's run shows.
    #[must_use]
    pub fn rows(self, report: &Report, seen: &Seen) -> Vec<Row> {
        match self {
            Self::Tour => tour(report, seen.survivors),
            Self::Network => network::rows(report, &seen.heard),
            Self::ProcessesAndDisk => vec![
                counted(report, "processes", "start 2000 processes", PROCESSES, ""),
                counted(
                    report,
                    "disk",
                    "write 64 MiB to a disk of 8",
                    DISK_MIB,
                    " MiB",
                ),
            ],
            Self::Memory => {
                // Without a group the kernel refuses the memory, and the body ends by itself.
                let refused = report.exit.is_some_and(|exit| exit.code != Some(0));
                vec![ended(
                    report,
                    "use 320 MiB of memory of 64",
                    report.outcome == Outcome::OutOfMemory || refused,
                    Limit::Memory,
                )]
            }
            Self::CpuTime => vec![ended(
                report,
                "compute on and on",
                report.outcome == Outcome::CpuExhausted,
                Limit::CpuTime,
            )],
            Self::WallTime => vec![ended(
                report,
                "wait on and on",
                report.outcome == Outcome::TimedOut,
                Limit::WallTime,
            )],
            Self::Output => {
                let passed = report
                    .stdout
                    .bytes
                    .saturating_sub(report.stdout.dropped_bytes);
                vec![Row {
                    part: Part::Limited,
                    held: held(0 < report.stdout.dropped_bytes && passed <= OUTPUT_BYTES),
                    what: "print 4 MiB of output",
                    answer: format!("cut after {} KiB", passed >> 10),
                    mechanism: enforced_by(report, Limit::Output),
                }]
            }
        }
    }
}

/// Name, part, what was tried, what stands there first.
const TOUR: [(&str, Part, &str, &str); 23] = [
    (
        "write_scratch",
        Part::Allowed,
        "write to /scratch",
        "space of its own",
    ),
    (
        "write_tmp",
        Part::Allowed,
        "write to /tmp",
        "space of its own",
    ),
    ("compute", Part::Allowed, "compute", ""),
    (
        "loopback",
        Part::Allowed,
        "serve on its loopback",
        "network namespace",
    ),
    (
        "read_shadow",
        Part::Denied,
        "read /etc/shadow",
        "mount namespace",
    ),
    (
        "see_root",
        Part::Denied,
        "look into /root",
        "mount namespace",
    ),
    (
        "see_home",
        Part::Denied,
        "look into your home",
        "mount namespace",
    ),
    (
        "write_usr",
        Part::Denied,
        "write to /usr",
        "read-only mount",
    ),
    (
        "write_kernel",
        Part::Denied,
        "set a kernel parameter",
        "user namespace",
    ),
    (
        "see_disks",
        Part::Denied,
        "list the host's disks",
        "mount namespace",
    ),
    (
        "see_processes",
        Part::Denied,
        "list the host's processes",
        "pid namespace",
    ),
    (
        "see_variables",
        Part::Denied,
        "read your environment",
        "fresh environment",
    ),
    (
        "connect_out",
        Part::Denied,
        "connect to another host",
        "network namespace",
    ),
    (
        "raw_socket",
        Part::Denied,
        "open a raw socket",
        "seccomp filter",
    ),
    ("mount", Part::Denied, "mount something", "seccomp filter"),
    (
        "unshare",
        Part::Denied,
        "make a user namespace",
        "seccomp filter",
    ),
    ("ptrace", Part::Denied, "trace its init", "not dumpable"),
    (
        "read_init",
        Part::Denied,
        "read its init's memory",
        "not dumpable",
    ),
    ("bpf", Part::Denied, "load a BPF program", "seccomp filter"),
    (
        "io_uring",
        Part::Denied,
        "set up an io_uring",
        "seccomp filter",
    ),
    ("setuid", Part::Denied, "become uid 0", "user namespace"),
    (
        "kill_all",
        Part::Denied,
        "kill every process it sees",
        "pid namespace",
    ),
    (
        "leave_behind",
        Part::Denied,
        "leave a process behind",
        "pid namespace",
    ),
];

/// The caller's home, where the body would not see that path anyway; else nothing.
fn home_to_look_for(caller: &Caller) -> Vec<u8> {
    const VISIBLE: [&[u8]; 13] = [
        b"usr", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"etc", b"dev", b"proc",
        b"bundle", b"scratch", b"runner",
    ];
    let Some(home) = &caller.home else {
        return Vec::new();
    };
    let bytes = home.as_os_str().as_bytes();
    let mut parts = bytes
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty());
    match (parts.next(), parts.next()) {
        (Some(b"root"), _) => bytes.to_vec(),
        (Some(first), Some(_)) if !VISIBLE.contains(&first) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

fn tour(report: &Report, survivors: usize) -> Vec<Row> {
    let came_to_its_end = report.outcome == Outcome::Exited;
    TOUR.iter()
        .map(|(name, part, what, mechanism)| {
            let (held, answer) = match answer_of(report, name) {
                Some(("skip", why)) => (Held::NotTried, why.to_owned()),
                Some(_) if *name == "leave_behind" && 0 < survivors => {
                    (Held::Broken, format!("{survivors} still there"))
                }
                Some((said, answer)) => {
                    let expected = match part {
                        Part::Allowed => "yes",
                        Part::Denied | Part::Limited => "no",
                    };
                    (held(said == expected && came_to_its_end), answer.to_owned())
                }
                None => (Held::Broken, "no answer".to_owned()),
            };
            Row {
                part: *part,
                held,
                what,
                answer: escape(answer.as_bytes()),
                mechanism: (*mechanism).to_owned(),
            }
        })
        .collect()
}

/// The line `name<TAB>said<TAB>answer` of the body's output.
fn answer_of<'report>(report: &'report Report, name: &str) -> Option<(&'report str, &'report str)> {
    let text = report.stdout.text()?;
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, '\t');
        (parts.next()? == name).then_some((parts.next()?, parts.next()?))
    })
}

fn counted(report: &Report, name: &str, what: &'static str, limit: u64, unit: &'static str) -> Row {
    let (held, answer) = match answer_of(report, name) {
        Some(("skip", why)) => (Held::NotTried, escape(why.as_bytes())),
        Some((_, count)) => match count.parse::<u64>() {
            Ok(count) => (
                held(0 < count && count <= limit),
                format!("stopped at {count}{unit}"),
            ),
            Err(_) => (Held::Broken, "no number".to_owned()),
        },
        None => (Held::Broken, "no answer".to_owned()),
    };
    let mechanism = match name {
        "disk" => enforced_by(report, Limit::Disk),
        _ => enforced_by(report, Limit::Processes),
    };
    Row {
        part: Part::Limited,
        held,
        what,
        answer,
        mechanism,
    }
}

fn ended(report: &Report, what: &'static str, as_promised: bool, limit: Limit) -> Row {
    let after = report.usage.wall_time_ms;
    let killed = report.usage.oom_kills.is_some_and(|kills| 0 < kills);
    let answer = match report.outcome {
        Outcome::Exited if killed => "out of memory".to_owned(),
        Outcome::OutOfMemory => "out of memory".to_owned(),
        Outcome::TimedOut => format!("ended after {after} ms"),
        Outcome::CpuExhausted => "out of CPU time".to_owned(),
        Outcome::Exited if as_promised => "memory refused".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    };
    Row {
        part: Part::Limited,
        held: held(as_promised),
        what,
        answer,
        mechanism: enforced_by(report, limit),
    }
}

fn enforced_by(report: &Report, limit: Limit) -> String {
    let found = report.limits.iter().find(|one| one.limit == limit);
    found.map_or_else(String::new, |one| one.enforced_by.to_owned())
}

fn held(as_promised: bool) -> Held {
    match as_promised {
        true => Held::AsPromised,
        false => Held::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Report {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.stdout.captured = Some(text.as_bytes().to_vec());
        report
    }

    fn row<'rows>(rows: &'rows [Row], what: &str) -> &'rows Row {
        rows.iter().find(|row| row.what == what).expect("a row")
    }

    #[test]
    fn an_attempt_holds_only_where_the_body_says_what_was_promised() {
        let rows = Scene::Tour.rows(
            &said(
                "write_tmp\tyes\tit worked\nwrite_usr\tyes\tit worked\nbpf\tno\tno\u{1b}way\n\
             mount\tskip\tthere is no perl\n",
            ),
            &Seen::default(),
        );
        for (what, expected) in [
            ("write to /tmp", Held::AsPromised),
            ("write to /usr", Held::Broken),
            ("load a BPF program", Held::AsPromised),
            ("mount something", Held::NotTried),
            ("compute", Held::Broken),
        ] {
            assert_eq!(row(&rows, what).held, expected, "{what}");
        }
        assert!(!row(&rows, "load a BPF program").answer.contains('\u{1b}'));
    }

    #[test]
    fn a_process_that_outlives_its_run_breaks_the_promise() {
        let report = said("leave_behind\tno\tended with the run\n");
        for (survivors, expected) in [(0, Held::AsPromised), (1, Held::Broken)] {
            let rows = Scene::Tour.rows(
                &report,
                &Seen {
                    survivors,
                    ..Seen::default()
                },
            );
            assert_eq!(row(&rows, "leave a process behind").held, expected);
        }
    }

    #[test]
    fn a_home_is_looked_for_only_where_the_body_would_not_see_that_path_anyway() {
        for (home, expected) in [
            (Some("/home/u"), "/home/u"),
            (Some("/root"), "/root"),
            (Some("/"), ""),
            (Some("/home"), ""),
            (Some("/tmp"), ""),
            (Some("/usr/sbin"), ""),
            (None, ""),
        ] {
            let caller = Caller {
                home: home.map(PathBuf::from),
                ..Caller::default()
            };
            assert_eq!(home_to_look_for(&caller), expected.as_bytes(), "{home:?}");
        }
    }

    #[test]
    fn nothing_of_the_tour_holds_where_its_body_was_ended() {
        let mut report = said("write_tmp\tyes\tit worked\n");
        report.outcome = Outcome::TimedOut;
        let rows = Scene::Tour.rows(&report, &Seen::default());
        assert!(rows.iter().all(|row| row.held == Held::Broken));
    }

    #[test]
    fn a_count_beyond_its_limit_or_of_nothing_does_not_hold() {
        for (count, expected) in [
            ("0", Held::Broken),
            ("8", Held::AsPromised),
            ("9", Held::Broken),
            ("x", Held::Broken),
        ] {
            let report = said(&format!("disk\tno\t{count}\n"));
            let rows = Scene::ProcessesAndDisk.rows(&report, &Seen::default());
            assert_eq!(row(&rows, "write 64 MiB to a disk of 8").held, expected);
        }
    }

    #[test]
    fn a_limit_holds_where_it_ended_the_body() {
        for (scene, outcome) in [
            (Scene::Memory, Outcome::OutOfMemory),
            (Scene::CpuTime, Outcome::CpuExhausted),
            (Scene::WallTime, Outcome::TimedOut),
        ] {
            let rows = scene.rows(&Report::new("id".to_owned(), outcome), &Seen::default());
            assert_eq!(rows[0].held, Held::AsPromised);
            let rows = scene.rows(
                &Report::new("id".to_owned(), Outcome::Exited),
                &Seen::default(),
            );
            assert_eq!(rows[0].held, Held::Broken);
        }
    }

    #[test]
    fn every_attempt_of_the_table_is_made_by_the_script() {
        for (name, ..) in TOUR {
            assert!(ATTEMPTS.contains(&format!(" {name} ")), "{name}");
        }
    }
}
