//! Sequential runs, of every kind and with every outcome.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::flat::{Counted, adopt_orphans, note_run};
use crate::harness::{Place, how_many, in_a_process_of_its_own};
use support::bodies::c_body;
use support::bundles::pack;
use support::runner;

/// Uses more memory than the limit. If the allocation fails instead, it prints so.
const GREEDY: &str = include_str!("../bodies/endurance/in_a_row_greedy.c");
/// The runs cycle through this list.
const KINDS: [Kind; 20] = {
    use Kind::{Command, Exec, ExecInWorkspace, Greedy, Late, Refused};
    [
        Command,
        Exec,
        ExecInWorkspace,
        Command,
        Command,
        Refused,
        ExecInWorkspace,
        Exec,
        Command,
        Command,
        Late,
        Exec,
        ExecInWorkspace,
        Command,
        Command,
        Greedy,
        ExecInWorkspace,
        Refused,
        Command,
        Command,
    ]
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// `runner run`.
    Command,
    /// `runner exec` of a bundle.
    Exec,
    /// The same with an input from and an output to the workspace.
    ExecInWorkspace,
    /// A bundle with a path that leads outside.
    Refused,
    /// A body that exceeds the wall time.
    Late,
    /// A body that exceeds the memory limit.
    Greedy,
}

/// The inputs of the runs.
struct Ground {
    plain: PathBuf,
    contract: PathBuf,
    hostile: PathBuf,
    greedy: PathBuf,
    workspaces: Vec<PathBuf>,
}

impl Ground {
    fn new(place: &Place, lanes: usize) -> Self {
        let files = place.files();
        let shell = json!({"name": "plain", "run": {"shell": "echo plain; exit 3"}});
        let contract = json!({
            "name": "contract",
            "run": {"shell": "cat /scratch/in >/scratch/out"},
            "inputsFiles": {"in": {"path": "given.txt"}},
            "outputsFiles": {"out": {"path": "made.txt"}},
        });
        let workspaces = (0..lanes)
            .map(|lane| {
                let workspace = files.join(format!("workspace-{lane}"));
                std::fs::create_dir(&workspace).expect("made");
                std::fs::write(workspace.join("given.txt"), "given").expect("written");
                workspace
            })
            .collect();
        Self {
            plain: bundle(&files.join("plain"), &shell),
            contract: bundle(&files.join("contract"), &contract),
            hostile: hostile_bundle(&files.join("hostile")),
            greedy: c_body("greedy", GREEDY),
            workspaces,
        }
    }

    /// Runs one of this kind; returns its outcome.
    fn run(&self, kind: Kind, lane: usize) -> String {
        let text = |path: &Path| path.to_str().expect("plain").to_owned();
        let report = match kind {
            Kind::Command => report_of(&["run", "--json", "--", "/bin/sh", "-c", "echo x; exit 3"]),
            Kind::Exec => report_of(&["exec", "--json", &text(&self.plain)]),
            Kind::ExecInWorkspace => {
                let workspace = &self.workspaces[lane];
                let flag = format!("--workspace={}", text(workspace));
                let report = report_of(&["exec", "--json", &flag, &text(&self.contract)]);
                let made = workspace.join("made.txt");
                assert_eq!(
                    std::fs::read(&made).expect("synced"),
                    b"given",
                    "{report:#}"
                );
                std::fs::remove_file(made).expect("removed");
                report
            }
            Kind::Refused => report_of(&["exec", "--json", &text(&self.hostile)]),
            Kind::Late => {
                report_of(&["run", "--json", "--timeout=50ms", "--", "/bin/sleep", "600"])
            }
            Kind::Greedy => report_of(&["run", "--json", "-m", "32m", "--", &text(&self.greedy)]),
        };
        note_run(&report);
        let warnings = report["warnings"].as_array().expect("a list").iter();
        // Without cgroups, a stated limit causes a warning.
        let others = warnings.filter(|warning| warning["code"] != "limit_weaker");
        assert_eq!(others.count(), 0, "{kind:?}: {report:#}");
        let outcome = report["outcome"].as_str().expect("an outcome").to_owned();
        let has_groups = report["cgroup_backend"] != "none";
        let expected = match kind {
            Kind::Refused => "refused",
            Kind::Late => "timed_out",
            // Without cgroups the limit applies to each process.
            Kind::Greedy if has_groups => "out_of_memory",
            _ => "exited",
        };
        assert_eq!(outcome, expected, "{kind:?}: {report:#}");
        outcome
    }
}

fn bundle(folder: &Path, manifest: &Value) -> PathBuf {
    std::fs::create_dir(folder).expect("made");
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).expect("written");
    pack(folder)
}

/// A member with a path beside the target directory.
fn hostile_bundle(folder: &Path) -> PathBuf {
    let honest = json!({"name": "hostile", "run": {"shell": "true"}});
    let archive = bundle(folder, &honest);
    std::fs::write(folder.with_file_name("outside"), "x").expect("written");
    let status = Command::new("tar")
        .arg("-czPf")
        .arg(&archive)
        .arg("-C")
        .arg(folder)
        .args(["manifest.json", "../outside"])
        .stderr(Stdio::null())
        .status()
        .expect("tar runs");
    assert!(status.success(), "tar -czPf");
    archive
}

/// Parses the report on standard output.
fn report_of(words: &[&str]) -> Value {
    let output = Command::new(runner())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the runner starts");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {output:?}"))
}

/// E-30: descriptors, processes, groups, records, mounts, namespaces, files and their inodes,
/// kernel objects and memory.
#[test]
fn many_runs_in_a_row_leak_nothing() {
    in_a_process_of_its_own("in_a_row::many_runs_in_a_row_leak_nothing", run_them);
}

fn run_them(place: &Place) {
    const LANES: usize = 2;
    adopt_orphans();
    let runs = how_many([60, 10_000, 100_000]);
    let ground = Ground::new(place, LANES);
    // Created once: the cache, the runtime directory, memory that the allocator keeps.
    for kind in KINDS {
        ground.run(kind, 0);
    }
    let before = Counted::look(place);
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let (ground, next, ends) = (&ground, &next, &ends);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if runs <= number {
                        break;
                    }
                    let outcome = ground.run(KINDS[number % KINDS.len()], lane);
                    *ends.lock().expect("unbroken").entry(outcome).or_insert(0) += 1;
                }
            });
        }
    });
    let after = before.difference(&before.settled(place));
    drop(ground);
    let leaks = before.leaks(place);
    let ends: BTreeMap<String, usize> = ends.into_inner().expect("unbroken");
    let ends: Vec<String> = ends
        .iter()
        .map(|(end, count)| format!("{end}={count}"))
        .collect();
    println!(
        "endurance: runs={runs} leaks={} {} {after}",
        leaks.len(),
        ends.join(" ")
    );
    assert_eq!(leaks, [""; 0]);
}
