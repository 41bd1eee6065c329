//! Resources that must not grow over many runs, counted before and after.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Place, hierarchies};

/// How long to wait for what the kernel frees later. A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Empty records that are kept for the next run.
const SPARE_RECORDS_MAX: usize = 4;
/// Kernel objects that other processes may create meanwhile; a leak is one for each run.
const OTHERS_OBJECTS_MAX: u64 = 400;
/// Kernel memory that other processes may use meanwhile, in KiB: about 6 for each of 10,000 runs.
const OTHERS_SLAB_KIB_MAX: u64 = 64 << 10;
/// How much the harness itself may grow, in KiB: the allocator keeps its memory.
const HARNESS_GROWTH_KIB_MAX: u64 = 16 << 10;
/// Kernel objects that a run uses.
const OBJECTS: [&str; 4] = [
    "net_namespace",
    "pid_namespace",
    "user_namespace",
    "mnt_cache",
];

/// The ids of the runs of this process.
static RUNS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// All counts at one time.
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
    /// Counts everything.
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

    /// Counts again until nothing has grown, or until the timeout: the kernel frees some objects
    /// later, and prestarted sandboxes may still end.
    pub fn settled(&self, place: &Place) -> Self {
        let started = Instant::now();
        loop {
            let now = Self::look(place);
            // Prestarted sandboxes have records as long as they live.
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

    /// Kills and reaps leftover processes of this process's runs, waits for what the kernel frees
    /// later, and returns what has grown, by name.
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

    /// The differences as `name=+0`, and how the kernel objects were counted. Printed only: the
    /// kernel frees some of them later.
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

/// Orphans of runs become children of this process, so that none can survive unnoticed.
pub fn adopt_orphans() {
    let this = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(this)).expect("a reaper");
}

/// Waits until this process has no living child.
pub fn await_orphans() {
    let started = Instant::now();
    while let Some(process) = living_child() {
        assert!(started.elapsed() < PATIENCE, "never ends: {process}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The living children of this process, sorted: also orphans, see [`adopt_orphans`]. No other thread may
/// wait for children meanwhile.
pub fn children() -> Vec<i32> {
    let _living = living_child();
    let parent = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Fields of proc_pid_stat(5) after the name: state, parent.
        let fields = status.rsplit(") ").next();
        fields.and_then(|fields| fields.split(' ').nth(1)?.parse::<u32>().ok())
    };
    let this = std::process::id();
    let family = family(this).into_iter();
    let children = family.filter(|pid| parent(*pid) == Some(this));
    let mut found: Vec<i32> = children.map(u32::cast_signed).collect();
    found.sort_unstable();
    found
}

/// Reaps every child that has ended; returns whether one lives. No other thread may wait for
/// children meanwhile.
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

/// Directories below the harness's own groups.
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

/// Namespaces that a process of this harness is in or has open. Other runs on the machine do not
/// count, so a single one is a leak, also on kernels without their number in slabinfo.
fn namespaces() -> usize {
    let mut found = BTreeSet::new();
    for pid in family(std::process::id()) {
        for directory in ["ns", "fd"] {
            let entries = std::fs::read_dir(format!("/proc/{pid}/{directory}"));
            // It may have ended meanwhile, or only root may read it.
            let entries = entries.into_iter().flatten().flatten();
            let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            found.extend(links.filter(|link| is_namespace(link)));
        }
    }
    found.len()
}

/// `pid:[4026531836]`; pipes and sockets have names of the same form.
fn is_namespace(link: &Path) -> bool {
    let text = link.to_str().unwrap_or_default();
    let kind = text.split_once(":[").map(|(kind, _)| kind);
    matches!(
        kind,
        Some("cgroup" | "ipc" | "mnt" | "net" | "pid" | "time" | "user" | "uts")
    )
}

/// A process and its descendants.
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

/// The number of inodes of these files: two names may refer to one file.
fn inodes<'path>(paths: impl Iterator<Item = &'path PathBuf>) -> usize {
    // A file that has been removed meanwhile has none.
    let facts = paths.filter_map(|path| std::fs::symlink_metadata(path).ok());
    let inodes: BTreeSet<(u64, u64)> = facts.map(|facts| (facts.dev(), facts.ino())).collect();
    inodes.len()
}

/// Records the id of a run: afterwards nothing in a shared directory may have it in its name.
pub fn note_run(report: &Value) {
    let id = report["run_id"].as_str().expect("an id").to_owned();
    let new = RUNS.lock().expect("unbroken").insert(id);
    assert!(new, "two runs have one id: {}", report["run_id"]);
}

/// Entries with the id of a run in their name, and everything below them.
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

/// Records of runs, without the empty ones.
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

/// The number of live kernel objects of each kind of [`OBJECTS`], as far as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Objects {
    /// Only root can read /proc/slabinfo, and some kernels have none.
    Unreadable,
    /// `None`: kinds of the same size may share a slab cache, which then has another name.
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

    /// A word that says what was counted here. Missing counts hide nothing: namespaces are also
    /// counted by their links, and all objects are part of the kernel's memory.
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

/// A value of a file of /proc, in KiB.
pub fn kib(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).expect("readable");
    let found = text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    // A missing value is not zero.
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
    // A count that cannot be compared proves nothing.
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
