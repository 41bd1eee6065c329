//! The ten invariants that hold after every case, whatever the body does.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::objects::{self, Objects};
use crate::{Case, Done, MARKER};

/// How long to wait for objects that the kernel frees later (network namespaces, cgroups of version 1).
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum memory of the supervisor, whatever the body does.
const SUPERVISOR_KIB_MAX: u64 = 64 << 10;
/// How much of its program file counts towards that, in KiB: the size of the installed program. A
/// debug build is three times as large, and the kernel can reclaim those pages.
const FILE_KIB_MAX: u64 = 8 << 10;
/// Maximum number of files, and of bytes of each, that are searched for the secret: a test's
/// workspace may have any size.
const SEARCHED_FILES_MAX: usize = 400;
const SEARCHED_BYTES_MAX: u64 = 4 << 20;

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../../../schemas/report.schema.json");
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
});

/// The state before the case.
pub struct Before {
    canary: BTreeMap<PathBuf, Facts>,
    mounts: String,
    objects: Objects,
    /// As `objects::now_ticks`.
    pub(crate) ticks: u64,
    /// Files of the test itself that contain the secret.
    secrets: BTreeSet<PathBuf>,
}

/// Observations of a running case.
#[derive(Debug, Default)]
pub struct Watched {
    /// Peak memory of the runner itself, in KiB.
    pub peak_kib: u64,
    /// Network namespaces of the sandbox's processes, as proc names them: `net:[4026531840]`.
    pub networks: BTreeSet<String>,
    /// Command lines of the sandbox's processes that contained the secret.
    pub telling: BTreeSet<String>,
}

/// Everything about a file that could change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    inode: u64,
    mode: u16,
    owner: (u32, u32),
    links: u32,
    /// Modification and change times.
    changed: [(i64, u32); 2],
    /// Immutable, append-only and the like.
    attributes: u64,
    /// Extended attributes, including access control lists.
    extended: BTreeMap<Vec<u8>, Vec<u8>>,
    contents: Vec<u8>,
}

/// Creates the canary tree, which no body may change.
pub(crate) fn make_canary_tree(path: &Path) {
    std::fs::create_dir_all(path.join("deep/er")).expect("made");
    std::fs::write(path.join("file"), "canary").expect("written");
    std::fs::write(path.join("deep/er/file"), "canary").expect("written");
    std::os::unix::fs::symlink("file", path.join("link")).expect("linked");
    std::fs::hard_link(path.join("file"), path.join("deep/hard")).expect("linked");
    let set = rustix::fs::XattrFlags::empty();
    let marked = rustix::fs::lsetxattr(path.join("file"), "user.canary", b"here", set);
    // Not every file system stores them.
    let possible = matches!(marked, Ok(()) | Err(rustix::io::Errno::NOTSUP));
    assert!(possible, "{marked:?}");
}

impl Before {
    /// Records everything that must not change.
    pub fn look(case: &Case<'_>) -> Self {
        Self {
            canary: facts(&case.ground.path("canary")),
            mounts: mounts(),
            objects: Objects::look(),
            ticks: objects::now_ticks(),
            secrets: files_with(case.ground.canary(), &searched(case)),
        }
    }
}

fn facts(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let all = StatxFlags::BASIC_STATS;
        let about = rustix::fs::statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, all)
            .expect("the canary tree stays");
        let extended = extended_attributes(&path);
        let kind = rustix::fs::FileType::from_raw_mode(about.stx_mode.into());
        let contents = if kind.is_dir() {
            for entry in std::fs::read_dir(&path).expect("readable") {
                pending.push(entry.expect("readable").path());
            }
            Vec::new()
        } else if kind.is_symlink() {
            std::fs::read_link(&path)
                .expect("a link")
                .into_os_string()
                .into_encoded_bytes()
        } else {
            std::fs::read(&path).expect("readable")
        };
        let facts = Facts {
            inode: about.stx_ino,
            mode: about.stx_mode,
            owner: (about.stx_uid, about.stx_gid),
            links: about.stx_nlink,
            changed: [about.stx_mtime, about.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec)),
            attributes: about.stx_attributes.bits(),
            extended,
            contents,
        };
        found.insert(path, facts);
    }
    found
}

fn extended_attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    // The file system may have none.
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0);
    names
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])
                .expect("it was listed");
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect()
}

/// Mount points of this namespace. Other end-to-end tests mount only in their own namespaces.
fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").expect("readable")
}

/// The directories that a run of this case writes: the workspace, and beside it reports and events.
fn searched(case: &Case<'_>) -> Vec<PathBuf> {
    let beside = std::fs::read_dir(case.ground.path(""))
        .into_iter()
        .flatten();
    let files = beside
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path());
    files.chain([case.ground.workspace()]).collect()
}

/// Regular files at and below these paths that contain the secret, up to the limit.
fn files_with(secret: &str, places: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut pending = places.to_vec();
    let mut left = SEARCHED_FILES_MAX;
    while let Some(path) = pending.pop() {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().take(left);
            pending.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        } else if metadata.is_file() && metadata.len() <= SEARCHED_BYTES_MAX {
            if left == 0 {
                break;
            }
            left -= 1;
            let contents = std::fs::read(&path).unwrap_or_default();
            if contains(&contents, secret.as_bytes()) {
                found.insert(path);
            }
        }
    }
    found
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}

/// Every invariant that does not hold after this case, as text: `I1: what was found`.
pub fn breaches(case: &Case<'_>, done: &Done, before: &Before, watched: &Watched) -> Vec<String> {
    let run_id = done.report["run_id"].as_str().unwrap_or_default();
    let checks: [(&str, &dyn Fn() -> Vec<String>); 9] = [
        ("I1", &|| canary_changes(case, before)),
        ("I2", &|| {
            gone_within(case.patience, || processes_of(case.ground.marker(), run_id))
        }),
        ("I3", &|| differing_lines(&before.mounts, &mounts())),
        ("I4", &|| scratch_roots(case, done, run_id)),
        ("I5", &|| {
            gone_within(case.patience, || shown(groups_of(run_id)))
        }),
        ("I6", &|| {
            let words = [case.ground.marker(), run_id];
            gone_within(case.patience, || {
                let objects = Objects::look().beyond(&before.objects, &words);
                let networks = objects::kept_networks(&watched.networks, &done.ticks);
                objects.into_iter().chain(networks).collect()
            })
        }),
        ("I8", &|| report_faults(done)),
        ("I9", &|| secrets_shown(case, done, before, watched)),
        ("I10", &|| {
            let too_much = SUPERVISOR_KIB_MAX < watched.peak_kib;
            let text = format!("the supervisor used {} KiB", watched.peak_kib);
            too_much.then_some(text).into_iter().collect()
        }),
    ];
    let asked = checks
        .iter()
        .filter(|(name, _)| !case.unchecked.contains(name));
    asked
        .flat_map(|(name, check)| {
            check()
                .into_iter()
                .map(move |text| format!("{name}: {text}"))
        })
        .collect()
}

fn shown(paths: Vec<PathBuf>) -> Vec<String> {
    paths
        .into_iter()
        .map(|path| format!("{} stays", path.display()))
        .collect()
}

fn canary_changes(case: &Case<'_>, before: &Before) -> Vec<String> {
    let now = facts(&case.ground.path("canary"));
    let paths: BTreeSet<&PathBuf> = before.canary.keys().chain(now.keys()).collect();
    let differ = paths
        .into_iter()
        .filter(|path| before.canary.get(*path) != now.get(*path));
    differ
        .map(|path| {
            let (was, is) = (before.canary.get(path), now.get(path));
            format!("{}: was {was:?}, is {is:?}", path.display())
        })
        .collect()
}

fn differing_lines(before: &str, now: &str) -> Vec<String> {
    let [before, now]: [BTreeSet<&str>; 2] = [before, now].map(|text| text.lines().collect());
    before
        .symmetric_difference(&now)
        .map(|line| (*line).to_owned())
        .collect()
}

fn scratch_roots(case: &Case<'_>, done: &Done, run_id: &str) -> Vec<String> {
    if run_id.is_empty() {
        return Vec::new();
    }
    let stated = case.command.get_envs().find_map(|(name, value)| {
        let named = name == "RUNNER_OPT_RUNTIME_DIRECTORY";
        named.then_some(PathBuf::from(value?))
    });
    let records = record_directories().into_iter().chain(stated);
    let mut roots: Vec<PathBuf> = records
        .map(|directory| directory.join("runs").join(run_id))
        .collect();
    if !done.report["kept"].is_string() {
        roots.push(std::env::temp_dir().join(format!("runner-{run_id}")));
    }
    roots.retain(|path| std::fs::symlink_metadata(path).is_ok());
    shown(roots)
}

fn secrets_shown(case: &Case<'_>, done: &Done, before: &Before, watched: &Watched) -> Vec<String> {
    let secret = case.ground.canary();
    let report = done.report.to_string();
    let streams = [
        ("standard output", done.stdout.as_slice()),
        ("standard error", done.stderr.as_bytes()),
        ("the report", report.as_bytes()),
    ];
    let streams = streams
        .iter()
        .filter(|(_, bytes)| contains(bytes, secret.as_bytes()));
    let streams = streams.map(|(name, _)| format!("the secret is in {name}"));
    let files = files_with(secret, &searched(case));
    let files = files.difference(&before.secrets);
    let files = files.map(|path| format!("the secret is in {}", path.display()));
    let telling = watched.telling.iter();
    let telling = telling.map(|line| format!("the secret is in a command line: {line:?}"));
    streams.chain(files).chain(telling).collect()
}

fn report_faults(done: &Done) -> Vec<String> {
    let mut faults: Vec<String> = SCHEMA
        .iter_errors(&done.report)
        .map(|error| format!("the report is not valid: {error}"))
        .collect();
    let exit = &done.report["exit"];
    let expected = match done.outcome() {
        "exited" => exit["code"].as_i64(),
        "signaled" => exit["signal"].as_i64().map(|signal| 128 + signal),
        "timed_out" | "cpu_exhausted" => Some(124),
        "out_of_memory" => Some(137),
        "cancelled" => done.report["cancelled_by"]
            .as_i64()
            .map(|signal| 128 + signal),
        "refused" | "failed" => match done.error() {
            "program_not_found" => Some(127),
            "program_not_executable" => Some(126),
            _ => Some(125),
        },
        _ => Some(125),
    };
    if Some(i64::from(done.code)) != expected {
        faults.push(format!("the exit code is {}, not {expected:?}", done.code));
    }
    let needs_error = matches!(done.outcome(), "refused" | "failed");
    if done.report["error"].is_object() != needs_error {
        faults.push("an error where there is none, or none where there is one".to_owned());
    }
    faults
}

/// Processes with the marker in their environment, or in a cgroup of the run unless its id is empty.
pub fn processes_of(marker: &str, run_id: &str) -> Vec<String> {
    let is_of_run = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if contains(&environment, marker.as_bytes()) {
            return true;
        }
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        !run_id.is_empty() && groups.contains(run_id)
    };
    let living = pids().into_iter().filter(is_of_run);
    living
        .map(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({}) of the run lives", name.trim())
        })
        .collect()
}

/// Every process in /proc.
pub(super) fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Pids of processes whose environment carries the marker.
pub fn living(marker: &str) -> Vec<i32> {
    let wanted = format!("{MARKER}={marker}");
    let mut found = pids();
    found.retain(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    });
    found
}

/// Directories that may contain records of runs.
pub fn record_directories() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let named = std::env::var_os("RUNNER_OPT_RUNTIME_DIRECTORY").map(PathBuf::from);
    let of_user =
        std::env::var_os("XDG_RUNTIME_DIR").map(|path| PathBuf::from(path).join("runner"));
    let usual = if uid == 0 {
        PathBuf::from("/run/runner")
    } else {
        PathBuf::from(format!("/tmp/runner-{uid}"))
    };
    named.into_iter().chain(of_user).chain([usual]).collect()
}

/// Cgroups of this run, in every hierarchy.
pub fn groups_of(run_id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    while let Some((path, depth)) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&path) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if !run_id.is_empty() && entry.file_name().to_string_lossy().contains(run_id) {
                found.push(entry.path());
            }
            if depth < 6 {
                pending.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// Polls until the kernel has freed everything.
#[track_caller]
pub fn eventually(what: &str, true_by_now: impl Fn() -> bool) {
    let started = Instant::now();
    while !true_by_now() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Polls until nothing is left; returns what is left at the end.
fn gone_within(patience: Duration, left: impl Fn() -> Vec<String>) -> Vec<String> {
    let started = Instant::now();
    loop {
        let found = left();
        if found.is_empty() || patience <= started.elapsed() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Peak memory of the running runner itself, in KiB; kills it at the limit for hangs.
pub fn watch_memory(child: &mut Child, hang_after: Duration) -> u64 {
    watch(child, hang_after, None).peak_kib
}

/// Observes a running case, including where the secret is; kills it at the limit for hangs.
pub fn watch(child: &mut Child, hang_after: Duration, secret: Option<&str>) -> Watched {
    let started = Instant::now();
    let status = format!("/proc/{}/status", child.id());
    let program = PathBuf::from(crate::runner());
    let program = program.file_name().expect("a name").to_string_lossy();
    // comm(5) has 15 bytes. Until its execve(2) completes, the child shares the memory of this process.
    let name = format!("Name:\t{program:.15}\n");
    let mut watched = Watched::default();
    let mut pause = Duration::from_millis(1);
    while child.try_wait().expect("waited").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let text = text.strip_prefix(name.as_str()).unwrap_or_default();
        let kib = |field: &str| -> u64 {
            text.lines()
                .find_map(|line| line.strip_prefix(field))
                .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
                .unwrap_or(0)
        };
        let not_counted = kib("RssFile:").saturating_sub(FILE_KIB_MAX);
        let seen = kib("VmHWM:").saturating_sub(not_counted);
        watched.peak_kib = watched.peak_kib.max(seen);
        if let Some(secret) = secret {
            look_at_processes(&mut watched, child.id(), secret);
        }
        if hang_after < started.elapsed() {
            child.kill().expect("killed");
            panic!("the runner hangs: no end after {hang_after:?}");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    watched
}

/// The sandbox's processes are those below the runner in another pid namespace. Some of them are
/// not in their network namespace yet.
fn look_at_processes(watched: &mut Watched, runner: u32, secret: &str) {
    let link = |pid: &str, kind: &str| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    let own = link("self", "pid");
    let outside = [link("self", "net"), link(&runner.to_string(), "net")];
    let mut pending = vec![runner.to_string()];
    // A child starts with the command line of the runner, to which the test may pass a secret.
    let mut known = BTreeSet::new();
    while let Some(pid) = pending.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().filter_map(Result::ok) {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            pending.extend(children.split_whitespace().map(str::to_owned));
        }
        let namespace = link(&pid, "pid");
        let is_inside = namespace.is_some() && namespace != own;
        let network = link(&pid, "net");
        if is_inside && !outside.contains(&network) {
            let name = network.and_then(|link| Some(link.to_str()?.to_owned()));
            watched.networks.extend(name);
        }
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !is_inside {
            known.insert(line);
        } else if contains(&line, secret.as_bytes()) && !known.contains(&line) {
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            watched.telling.insert(line);
        }
    }
}

/// The resources of a process that starts many runs (I7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Open descriptors.
    pub descriptors: usize,
    /// Anonymous resident memory, in KiB.
    pub memory_kib: u64,
}

impl Held {
    /// The current resources of this process; nothing if it has ended.
    pub fn by(pid: i32) -> Self {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
        // Without the descriptor that reads this directory.
        let own = usize::from(u32::try_from(pid) == Ok(std::process::id()));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let memory = status.lines().find_map(|line| {
            let rest = line.strip_prefix("RssAnon:")?;
            rest.trim().strip_suffix(" kB")?.parse().ok()
        });
        Self {
            descriptors: entries.into_iter().flatten().count().saturating_sub(own),
            memory_kib: memory.unwrap_or(0),
        }
    }

    /// The growth since `before`, with a tolerance for memory: an allocator need not return it.
    pub fn beyond(self, before: Self, forgiven_kib: u64) -> Vec<String> {
        let mut found = Vec::new();
        if before.descriptors < self.descriptors {
            let (was, is) = (before.descriptors, self.descriptors);
            found.push(format!("I7: {was} descriptors became {is}"));
        }
        if before.memory_kib + forgiven_kib < self.memory_kib {
            let (was, is) = (before.memory_kib, self.memory_kib);
            found.push(format!("I7: {was} KiB became {is} KiB"));
        }
        found
    }
}
