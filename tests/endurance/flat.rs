//! What many runs may not use up: looked at before and after.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
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
/// Memory of the kernel that others may take meanwhile, KiB: some 6 for each of 10,000 runs.
const OTHERS_SLAB_KIB_MAX: u64 = 64 << 10;
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
    namespaces: usize,
    temporary_files: usize,
    shared_files: usize,
    cache_files: usize,
    inodes: usize,
    objects: Objects,
    slab_kib: u64,
    resident_kib: u64,
}

impl Counted {
    /// Looks.
    pub fn look(place: &Place) -> Self {
        let [temporary, cache] = [place.temporary(), place.cache()].map(|path| below(&path));
        let shared: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"]
            .into_iter()
            .flat_map(named_by_a_run)
            .collect();
        Self {
            descriptors: entries(Path::new("/proc/self/fd")),
            groups: groups(),
            mounts: std::fs::read_to_string("/proc/self/mountinfo")
                .expect("readable")
                .lines()
                .filter(|line| line.contains("endurance-"))
                .count(),
            records: records(place),
            namespaces: namespaces(),
            temporary_files: temporary.len(),
            shared_files: shared.len(),
            cache_files: cache.len(),
            inodes: inodes(temporary.iter().chain(&shared).chain(&cache)),
            objects: Objects::look(),
            slab_kib: kib("/proc/meminfo", "SUnreclaim:"),
            resident_kib: kib("/proc/self/status", "VmRSS:"),
        }
    }

    /// Looks again and again until nothing is there more than before, which the kernel and sandboxes
    /// that are kept ready may take a while for, or until there is no more patience.
    pub fn settled(&self, place: &Place) -> Self {
        let started = Instant::now();
        loop {
            let now = Self::look(place);
            // The sandboxes that are kept ready have records as long as they are.
            let judged = Self {
                records: now.records.saturating_sub(self.records),
                ..now.clone()
            };
            if judged.more_than(self).is_empty() || PATIENCE < started.elapsed() {
                return now;
            }
            std::thread::sleep(Duration::from_millis(50));
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

    /// What is more or less now, as `name=+0`, and how the kernel's objects were counted. Told, not
    /// judged: the kernel frees some of it later.
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
            (
                "namespaces",
                signed(now.namespaces),
                signed(self.namespaces),
            ),
            ("files", signed(now.files()), signed(self.files())),
            ("inodes", signed(now.inodes), signed(self.inodes)),
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
        .into_iter()
        .chain([now.objects.told()])
        .collect::<Vec<String>>()
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
            ("inodes", self.inodes, before.inodes),
            ("namespaces", self.namespaces, before.namespaces),
        ]
        .into_iter()
        .filter(|(_, now, then)| then < now)
        .map(|(what, now, then)| format!("{what}: {then} before, {now} after"))
        .collect();
        leaks.extend(self.objects.more_than(&before.objects));
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

/// Namespaces that a process of this harness is in or has open. Runs of others on the machine have no
/// part in them, so that a single one counts, and so it does on kernels that do not show their number
/// in slabinfo.
fn namespaces() -> usize {
    let mut found = BTreeSet::new();
    for pid in family(std::process::id()) {
        for directory in ["ns", "fd"] {
            let entries = std::fs::read_dir(format!("/proc/{pid}/{directory}"));
            // It may have ended meanwhile, or be one that only root may look at.
            let entries = entries.into_iter().flatten().flatten();
            let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            found.extend(links.filter(|link| is_namespace(link)));
        }
    }
    found.len()
}

/// `pid:[4026531836]`; a pipe and a socket have names of the same shape.
fn is_namespace(link: &Path) -> bool {
    let text = link.to_str().unwrap_or_default();
    let kind = text.split_once(":[").map(|(kind, _)| kind);
    matches!(
        kind,
        Some("cgroup" | "ipc" | "mnt" | "net" | "pid" | "time" | "user" | "uts")
    )
}

/// A process, its children and theirs.
fn family(first: u32) -> Vec<u32> {
    let mut family = vec![first];
    let mut at = 0;
    while let Some(pid) = family.get(at).copied() {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            let pids = children.split_whitespace();
            family.extend(pids.map(|pid| pid.parse::<u32>().expect("a pid")));
        }
        at += 1;
    }
    family
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

/// Everything below a directory.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

/// How many inodes these files have: two names may be of one file.
fn inodes<'path>(paths: impl Iterator<Item = &'path PathBuf>) -> usize {
    // One that is gone meanwhile has none.
    let facts = paths.filter_map(|path| std::fs::symlink_metadata(path).ok());
    let inodes: BTreeSet<(u64, u64)> = facts.map(|facts| (facts.dev(), facts.ino())).collect();
    inodes.len()
}

/// Notes the id of a run: nothing in a directory that everybody uses may bear its name afterwards.
pub fn note_run(report: &Value) {
    let id = report["run_id"].as_str().expect("an id").to_owned();
    let new = RUNS.lock().expect("unbroken").insert(id);
    assert!(new, "two runs have one id: {}", report["run_id"]);
}

/// What bears the id of a run there, and everything below it.
fn named_by_a_run(directory: &str) -> Vec<PathBuf> {
    let runs = RUNS.lock().expect("unbroken");
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            runs.iter().any(|run| name.contains(run.as_str()))
        })
        .flat_map(|entry| {
            let mut found = below(&entry.path());
            found.push(entry.path());
            found
        })
        .collect()
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

/// How many kernel objects of each kind of [`OBJECTS`] live, as far as the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Objects {
    /// /proc/slabinfo is root's, and some kernels have none.
    Unreadable,
    /// `None`: kinds of one size may share a place, which the kernel then shows under another name.
    Counted([Option<u64>; OBJECTS.len()]),
}

impl Objects {
    fn look() -> Self {
        let text = std::fs::read_to_string("/proc/slabinfo");
        text.map_or(Self::Unreadable, |text| Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let count = |name: &str| {
            let mut lines = text.lines().map(str::split_whitespace);
            let mut words = lines.find_map(|mut words| (words.next()? == name).then_some(words))?;
            let number = words.next().and_then(|word| word.parse().ok());
            Some(number.expect("a number after the name"))
        };
        Self::Counted(OBJECTS.map(count))
    }

    /// One word that says what was counted here. What is missing here is not unseen: namespaces are
    /// counted by their links as well, and all of it is part of the kernel's memory.
    fn told(&self) -> String {
        let Self::Counted(counts) = self else {
            return "slab_objects=unreadable".to_owned();
        };
        let missing = OBJECTS.iter().zip(counts).filter(|(_, one)| one.is_none());
        let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
        if missing.is_empty() {
            "slab_objects=counted".to_owned()
        } else {
            format!("slab_objects=counted,without:{}", missing.join(","))
        }
    }

    fn more_than(&self, before: &Self) -> Vec<String> {
        let (now, then) = match (self, before) {
            (Self::Counted(now), Self::Counted(then)) => (now, then),
            (Self::Unreadable, Self::Unreadable) => return Vec::new(),
            _ => return vec!["slabinfo: readable once, and once not".to_owned()],
        };
        let each = OBJECTS.iter().zip(then.iter().zip(now));
        each.filter_map(|(name, counts)| match counts {
            (Some(then), Some(now)) if then + OTHERS_OBJECTS_MAX < *now => {
                Some(format!("{name}: {then} before, {now} after"))
            }
            (Some(_), None) | (None, Some(_)) => {
                Some(format!("{name}: in slabinfo once, and once not"))
            }
            _ => None,
        })
        .collect()
    }
}

/// A figure of a file of /proc, KiB.
pub fn kib(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).expect("readable");
    let found = text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    // What is not there is not zero.
    found.unwrap_or_else(|| panic!("{path} has no {name}"))
}

#[test]
fn an_object_type_missing_in_slabinfo_is_reported() {
    let whole = "slabinfo - version: 2.1\nnet_namespace 28 63\npid_namespace 138 138\n\
                 user_namespace 108 108\nmnt_cache 174 189\n";
    let objects = Objects::of(whole);
    let counts = [28, 138, 108, 174].map(Some);
    assert_eq!(objects, Objects::Counted(counts));
    assert_eq!(objects.told(), "slab_objects=counted");
    let merged = Objects::of(&whole.replace("pid_namespace", "another"));
    assert_eq!(merged.told(), "slab_objects=counted,without:pid_namespace");
    assert_eq!(Objects::Unreadable.told(), "slab_objects=unreadable");
    // What cannot be compared is no proof that nothing is left.
    assert_eq!(merged.more_than(&merged), [""; 0]);
    assert_eq!(merged.more_than(&objects).len(), 1);
    assert_eq!(objects.more_than(&Objects::Unreadable).len(), 1);
}

#[test]
fn more_objects_than_others_may_make_are_a_leak() {
    let [then, now] =
        [0, OTHERS_OBJECTS_MAX + 1].map(|more| Objects::Counted([7, 7, 7, 7 + more].map(Some)));
    assert_eq!(now.more_than(&then), ["mnt_cache: 7 before, 408 after"]);
    assert_eq!(then.more_than(&now), [""; 0]);
}

#[test]
fn the_namespaces_of_this_process_and_of_its_children_are_counted() {
    let is = |link: &str| is_namespace(Path::new(link));
    assert!(is("net:[4026531840]") && is("pid:[4026531836]"));
    assert!(!is("pipe:[12345]") && !is("/dev/null"));
    let own = std::fs::read_dir("/proc/self/ns").expect("readable");
    let own: BTreeSet<PathBuf> = own
        .map(|entry| std::fs::read_link(entry.expect("readable").path()).expect("a link"))
        .collect();
    assert!(own.len() <= namespaces());
    let mut child = std::process::Command::new("/bin/cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    assert!(family(std::process::id()).contains(&child.id()));
    drop(child.stdin.take());
    child.wait().expect("waited");
}
