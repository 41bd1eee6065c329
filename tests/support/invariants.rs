//! The ten invariants that hold after every case, whatever the body was.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::{Case, Done, MARKER};

/// What the kernel frees later (network namespaces, groups of version 1) is waited for this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most memory that the supervisor may use, whatever the body does.
const SUPERVISOR_KIB_MAX: u64 = 64 << 10;

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../../schemas/report.schema.json");
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
});

/// What was there before the case.
pub struct Before {
    canary: BTreeMap<PathBuf, Facts>,
    mounts: String,
    ipc: String,
}

/// All that could change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    modified: (i64, i64),
    contents: Vec<u8>,
}

/// Makes the tree that no body may touch.
pub fn make_canary_tree(path: &Path) {
    std::fs::create_dir_all(path.join("deep/er")).expect("made");
    std::fs::write(path.join("file"), "canary").expect("written");
    std::fs::write(path.join("deep/er/file"), "canary").expect("written");
    std::os::unix::fs::symlink("file", path.join("link")).expect("linked");
    std::fs::hard_link(path.join("file"), path.join("deep/hard")).expect("linked");
}

impl Before {
    /// Looks at everything that must not change.
    pub fn look(canary: &Path) -> Self {
        Self {
            canary: facts(canary),
            mounts: mounts(),
            ipc: ipc(),
        }
    }
}

fn facts(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata = std::fs::symlink_metadata(&path).expect("the canary tree stays");
        let contents = if metadata.is_dir() {
            for entry in std::fs::read_dir(&path).expect("readable") {
                pending.push(entry.expect("readable").path());
            }
            Vec::new()
        } else if metadata.is_symlink() {
            std::fs::read_link(&path)
                .expect("a link")
                .into_os_string()
                .into_encoded_bytes()
        } else {
            std::fs::read(&path).expect("readable")
        };
        let facts = Facts {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            links: metadata.nlink(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            contents,
        };
        found.insert(path, facts);
    }
    found
}

/// Mount points of this namespace. Other tests of this kind mount in namespaces of their own only.
fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").expect("readable")
}

fn ipc() -> String {
    ["shm", "sem", "msg"]
        .map(|kind| std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default())
        .map(|text| text.lines().count().to_string())
        .join(",")
}

/// Checks all that the case did not leave out.
pub fn check(case: &Case<'_>, done: &Done, before: &Before, peak_kib: u64) {
    let skipped = |name: &str| case.unchecked.contains(&name);
    if !skipped("I1") {
        let now = facts(&case.ground.path("canary"));
        assert_eq!(now, before.canary, "I1: the canary tree changed");
    }
    if !skipped("I2") {
        eventually("I2: a process of the run lives", || {
            living(case.ground.marker()).is_empty()
        });
    }
    if !skipped("I3") {
        assert_eq!(mounts(), before.mounts, "I3: the host's mounts changed");
    }
    let run_id = done.report["run_id"].as_str().unwrap_or_default();
    if !skipped("I4") && !run_id.is_empty() {
        for directory in record_directories() {
            let record = directory.join("runs").join(run_id);
            assert!(!record.exists(), "I4: {} stays", record.display());
        }
        let kept = std::env::temp_dir().join(format!("runner-{run_id}"));
        let asked = done.report["kept"].is_string();
        assert!(asked || !kept.exists(), "I4: {} stays", kept.display());
    }
    if !skipped("I5") && !run_id.is_empty() {
        eventually("I5: a cgroup of the run stays", || {
            groups_of(run_id).is_empty()
        });
    }
    if !skipped("I6") {
        assert_eq!(ipc(), before.ipc, "I6: System V objects stay");
    }
    if !skipped("I8") {
        check_report(done);
    }
    if !skipped("I9") {
        let canary = case.ground.canary();
        let shown = [
            &String::from_utf8_lossy(&done.stdout).into_owned(),
            &done.stderr,
        ];
        assert!(
            !shown.iter().any(|text| text.contains(canary)),
            "I9: the secret was shown"
        );
        assert!(
            !done.report.to_string().contains(canary),
            "I9: the secret is in the report"
        );
    }
    if !skipped("I10") {
        assert!(
            peak_kib <= SUPERVISOR_KIB_MAX,
            "I10: the supervisor used {peak_kib} KiB"
        );
    }
}

fn check_report(done: &Done) {
    let errors: Vec<String> = SCHEMA
        .iter_errors(&done.report)
        .map(|error| error.to_string())
        .collect();
    assert!(
        errors.is_empty(),
        "I8: the report is not valid: {errors:#?}\n{done:#?}"
    );
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
    assert_eq!(
        Some(i64::from(done.code)),
        expected,
        "I8: the exit code\n{done:#?}"
    );
    let has_error = done.report["error"].is_object();
    let needs_error = matches!(done.outcome(), "refused" | "failed");
    assert_eq!(
        has_error, needs_error,
        "I8: an error where there is one\n{done:#?}"
    );
}

/// Pids of processes whose environment carries the marker.
pub fn living(marker: &str) -> Vec<i32> {
    let wanted = format!("{MARKER}={marker}");
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == wanted.as_bytes())
        })
        .collect()
}

/// Directories in which records of runs may lie.
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
            if entry.file_name().to_string_lossy().contains(run_id) {
                found.push(entry.path());
            }
            if depth < 6 {
                pending.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// Polls for what the kernel does later.
#[track_caller]
pub fn eventually(what: &str, true_by_now: impl Fn() -> bool) {
    let started = Instant::now();
    while !true_by_now() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Highest memory of the runner itself while it runs, KiB; kills it at the hang guard.
pub fn watch_memory(child: &mut Child, hang_after: Duration) -> u64 {
    let started = Instant::now();
    let status = format!("/proc/{}/status", child.id());
    let program = PathBuf::from(super::runner());
    let program = program.file_name().expect("a name").to_string_lossy();
    // comm(5) has 15 bytes. Before execve(2) is through, the child has the memory of this process.
    let name = format!("Name:\t{program:.15}\n");
    let mut peak_kib = 0;
    let mut pause = Duration::from_millis(1);
    while child.try_wait().expect("waited").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let seen = text
            .strip_prefix(name.as_str())
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
            .unwrap_or(0);
        peak_kib = peak_kib.max(seen);
        if hang_after < started.elapsed() {
            child.kill().expect("killed");
            panic!("the runner hangs: no end after {hang_after:?}");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    peak_kib
}
