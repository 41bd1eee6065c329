//! What many runs may not use up: looked at before and after.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Place, hierarchies};

/// What the kernel frees later is waited for this long. A hang guard.
const PATIENCE: Duration = Duration::from_secs(60);
/// Emptied records that are kept for the next run.
const SPARE_RECORDS_MAX: usize = 4;
/// Kernel objects that others on the machine may make meanwhile; a leak is one for each run.
const OTHERS_OBJECTS_MAX: u64 = 400;
/// Memory of the kernel that others may take meanwhile, KiB.
const OTHERS_SLAB_KIB_MAX: u64 = 512 << 10;
/// What the harness itself may grow by, KiB: the allocator keeps what it once had.
const HARNESS_GROWTH_KIB_MAX: u64 = 16 << 10;
/// Kernel objects of which a run has some.
const OBJECTS: [&str; 4] = [
    "net_namespace",
    "pid_namespace",
    "user_namespace",
    "mnt_cache",
];

/// The ids of the runs of this process.
static RUNS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// All of it, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    descriptors: usize,
    groups: usize,
    mounts: usize,
    records: usize,
    temporary_files: usize,
    shared_files: usize,
    cache_files: usize,
    objects: Option<Vec<u64>>,
    slab_kib: u64,
    resident_kib: u64,
}

impl Counted {
    /// Looks.
    pub fn look(place: &Place) -> Self {
        Self {
            descriptors: entries(Path::new("/proc/self/fd")),
            groups: groups(),
            mounts: std::fs::read_to_string("/proc/self/mountinfo")
                .expect("readable")
                .lines()
                .filter(|line| line.contains("endurance-"))
                .count(),
            records: records(place),
            temporary_files: below(&place.temporary()),
            shared_files: ["/tmp", "/var/tmp", "/dev/shm"]
                .map(named_by_a_run)
                .iter()
                .sum(),
            cache_files: below(&place.cache()),
            objects: objects(),
            slab_kib: kib("/proc/meminfo", "SUnreclaim:"),
            resident_kib: kib("/proc/self/status", "VmRSS:"),
        }
    }

    /// Ends and reaps whatever the runs of this process left, waits for what the kernel frees later,
    /// and gives what is there more than before, by name.
    pub fn leaks(&self, place: &Place) -> Vec<String> {
        let started = Instant::now();
        loop {
            let mut leaks = Self::look(place).more_than(self);
            if let Some(process) = living_child() {
                leaks.push(process);
            }
            if leaks.is_empty() || PATIENCE < started.elapsed() {
                return leaks;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What is more or less now, as `name=+0`. Told, not judged: the kernel frees some of it later.
    pub fn difference(&self, now: &Self) -> String {
        let signed = |number: usize| i64::try_from(number).expect("small");
        [
            (
                "descriptors",
                signed(now.descriptors),
                signed(self.descriptors),
            ),
            ("groups", signed(now.groups), signed(self.groups)),
            ("mounts", signed(now.mounts), signed(self.mounts)),
            ("records", signed(now.records), signed(self.records)),
            ("files", signed(now.files()), signed(self.files())),
            (
                "slab_kib",
                now.slab_kib.cast_signed(),
                self.slab_kib.cast_signed(),
            ),
            (
                "harness_kib",
                now.resident_kib.cast_signed(),
                self.resident_kib.cast_signed(),
            ),
        ]
        .map(|(name, now, then)| format!("{name}={:+}", now - then))
        .join(" ")
    }

    fn files(&self) -> usize {
        self.temporary_files + self.shared_files + self.cache_files
    }

    fn more_than(&self, before: &Self) -> Vec<String> {
        let mut leaks: Vec<String> = [
            ("descriptors", self.descriptors, before.descriptors),
            ("groups", self.groups, before.groups),
            ("mounts", self.mounts, before.mounts),
            ("records", self.records, 0),
            (
                "temporary files",
                self.temporary_files,
                before.temporary_files,
            ),
            ("shared files", self.shared_files, before.shared_files),
            ("cache files", self.cache_files, before.cache_files),
        ]
        .into_iter()
        .filter(|(_, now, then)| then < now)
        .map(|(what, now, then)| format!("{what}: {then} before, {now} after"))
        .collect();
        let objects = self.objects.iter().flatten();
        let then = before.objects.iter().flatten();
        for ((now, then), name) in objects.zip(then).zip(OBJECTS) {
            if then + OTHERS_OBJECTS_MAX < *now {
                leaks.push(format!("{name}: {then} before, {now} after"));
            }
        }
        for (what, now, then, most) in [
            ("slab", self.slab_kib, before.slab_kib, OTHERS_SLAB_KIB_MAX),
            (
                "harness",
                self.resident_kib,
                before.resident_kib,
                HARNESS_GROWTH_KIB_MAX,
            ),
        ] {
            if then + most < now {
                leaks.push(format!("{what}: {then} KiB before, {now} KiB after"));
            }
        }
        leaks
    }
}

/// Orphans of runs are given to this process, so that none can live on unseen.
pub fn adopt_orphans() {
    let this = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(this)).expect("a reaper");
}

/// Waits until no child of this process lives.
pub fn await_orphans() {
    let started = Instant::now();
    while let Some(process) = living_child() {
        assert!(started.elapsed() < PATIENCE, "never ends: {process}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reaps every child that has ended; tells of one that has not. Nobody else may wait for children of
/// this process meanwhile.
fn living_child() -> Option<String> {
    use rustix::process::{WaitOptions, wait};
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => (),
            Ok(None) => {
                let children = std::fs::read_to_string("/proc/thread-self/children");
                return Some(format!("processes: {children:?}"));
            }
            Err(_none_left) => return None,
        }
    }
}

/// Directories below the groups that are this harness's own.
fn groups() -> usize {
    let Ok(parent) = std::env::var("RUNNER_OPT_CGROUP_PARENT") else {
        return 0;
    };
    hierarchies()
        .iter()
        .map(|top| directories(&top.join(parent.trim_matches('/'))))
        .sum()
}

fn directories(path: &Path) -> usize {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| 1 + directories(&entry.path()))
        .sum()
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

/// Everything below a directory.
fn below(path: &Path) -> usize {
    let mut count = 0;
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            count += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
    count
}

/// Notes the id of a run: nothing in a directory that everybody uses may bear its name afterwards.
pub fn note_run(report: &Value) {
    let id = report["run_id"].as_str().expect("an id").to_owned();
    let new = RUNS.lock().expect("unbroken").insert(id);
    assert!(new, "two runs have one id: {}", report["run_id"]);
}

fn named_by_a_run(directory: &str) -> usize {
    let runs = RUNS.lock().expect("unbroken");
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            runs.iter().any(|run| name.contains(run.as_str()))
        })
        .count()
}

/// Records of runs, without those that are kept empty.
fn records(place: &Place) -> usize {
    let names: Vec<PathBuf> = std::fs::read_dir(place.runtime().join("runs"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let is_spare = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(".spare-")
    };
    let spare = names.iter().filter(is_spare).count();
    names.len() - spare.min(SPARE_RECORDS_MAX)
}

/// How many objects of each kind of [`OBJECTS`] live; `None`: only root may know.
fn objects() -> Option<Vec<u64>> {
    let text = std::fs::read_to_string("/proc/slabinfo").ok()?;
    let of = |name: &str| {
        let line = text.lines().find(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(' '))
        });
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        // Kinds of one size may share a place under another name.
        number.unwrap_or(0)
    };
    Some(OBJECTS.map(of).to_vec())
}

/// A figure of a file of /proc, KiB.
pub fn kib(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}
