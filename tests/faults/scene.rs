//! One complete run: a bundle with an input, two outputs, a workspace, an egress list, and a
//! mounted directory with mounts in it; and the verdict on its result after a fault.

use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::PathBuf;

use serde_json::Value;

use crate::runtime::Runtime;
use crate::tracer::{Act, Point, Trace, words};
use support::bodies::compile;
use support::bundles::pack;
use support::invariants::{eventually, groups_of};
use support::{Done, Ground, random};

const MANIFEST: &str = "name: faults
run: [./body]
inputsFiles:
  in: { path: in.txt }
outputsFiles:
  out: { path: deep/out.txt }
  old: { path: old.txt }
network: { egress: [\"upstream.test:443\"] }
";
const OLD: &str = "old\n";
const NEW: &str = "new\n";
/// In files that the body may read, or not even read.
const GIVEN: &str = "given\n";

/// The files of a scene, created once.
pub struct Stage {
    bundle: PathBuf,
    /// Removed when this is dropped.
    _ground: Ground,
}

/// One run of it, with all its leftovers.
pub struct Scene {
    ground: Ground,
    runtime: Runtime,
    cache: PathBuf,
    mounts: Vec<String>,
}

/// A run that has ended.
pub struct Played {
    pub done: Done,
    pub trace: Trace,
}

impl Stage {
    /// `filler_bytes` is the size of an incompressible file: large bundles are kept in the cache.
    pub fn new(filler_bytes: usize) -> Self {
        let ground = Ground::new();
        let folder = ground.folder(&[("manifest.yaml", MANIFEST)]);
        let filler: String = (0..filler_bytes / 16).map(|_| random()).collect();
        std::fs::write(folder.join("filler"), filler).expect("written");
        let flags = [
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
        ];
        compile(include_str!("body.c"), &folder.join("body"), &flags);
        std::fs::remove_file(folder.join("body.c")).expect("removed");
        Self {
            bundle: pack(&folder),
            _ground: ground,
        }
    }

    /// A run without any fault.
    pub fn undisturbed(&self) -> Played {
        let scene = Scene::new();
        let played = scene.play(self, None);
        played.done.assert_exited(0);
        assert!(!played.trace.body.is_empty(), "the body was seen");
        assert_eq!(scene.outputs(), (Some(NEW.into()), Some(NEW.into())));
        scene.assert_nothing_left(&[]);
        played
    }
}

impl Scene {
    pub fn new() -> Self {
        let ground = Ground::new();
        ground.write("work/in.txt", NEW);
        ground.write("work/old.txt", OLD);
        ground.write("given", GIVEN);
        ground.write("lent/empty/hidden", GIVEN);
        std::fs::create_dir(ground.path("store")).expect("made");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(ground.path("state/history"))
            .expect("made");
        symlink("store", ground.path("link")).expect("linked");
        let place = |name: &str| ground.path(name).display().to_string();
        let mounts = vec![
            format!("--mount={}:/lent", place("lent")),
            format!("--mount={}:/lent/given:ro", place("given")),
            "--tmpfs=/lent/empty".to_owned(),
            "--tmpfs=/lent/small:64k".to_owned(),
        ];
        Self {
            cache: ground.path("link/cache"),
            ground,
            runtime: Runtime::new(),
            mounts,
        }
    }

    /// A run that is refused: a mounted path contains the cache of bundles, which is reached
    /// through a link.
    pub fn that_lends_its_cache() -> Self {
        let mut scene = Self::new();
        let store = scene.ground.path("store");
        scene.mounts.push(format!("--rw={}", store.display()));
        scene
    }

    /// Runs it, with a fault or to record its calls.
    pub fn play(&self, stage: &Stage, fault: Option<(&Point, Act)>) -> Played {
        let log = self.ground.path("trace");
        let done = self.done(stage, &words(&log, fault));
        Played {
            done,
            trace: Trace::read(&log),
        }
    }

    /// Runs it through another program; checks every invariant that a fault cannot break.
    pub fn done(&self, stage: &Stage, before: &[String]) -> Done {
        let workspace = self.ground.workspace();
        let mut words_of_it = vec![
            "exec",
            "--workspace",
            workspace.to_str().expect("plain"),
            "--grant=egress",
        ];
        words_of_it.extend(self.mounts.iter().map(String::as_str));
        words_of_it.push(stage.bundle.to_str().expect("plain"));
        let ground = self.ground.path("");
        let mut case = self
            .runtime
            .command(&self.ground, &words_of_it)
            .env(
                "RUNNER_OPT_CACHE_DIRECTORY",
                self.cache.to_str().expect("plain"),
            )
            .env(
                "RUNNER_OPT_STATE_DIRECTORY",
                self.ground.path("state").to_str().expect("plain"),
            )
            .env("FAULTS_GROUND", ground.to_str().expect("plain"))
            .env("RUST_BACKTRACE", "0")
            // The leftovers, and whether there is a report, depend on the fault.
            .without("I4")
            .without("I5")
            .without("I8")
            .without("I10");
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        case.behind(&before);
        case.done()
    }

    /// The two outputs: a new file and an existing one.
    pub fn outputs(&self) -> (Option<String>, Option<String>) {
        let read = |name: &str| std::fs::read_to_string(self.ground.path(name)).ok();
        (read("work/deep/out.txt"), read("work/old.txt"))
    }

    /// What is wrong with the workspace or the mounted directory: an incomplete file, or an unexpected one.
    pub fn torn(&self) -> Option<String> {
        let (new, old) = self.outputs();
        if !(new.is_none() || new.as_deref() == Some(NEW)) {
            return Some(format!("the new output is {new:?}"));
        }
        if !(old.as_deref() == Some(OLD) || old.as_deref() == Some(NEW)) {
            return Some(format!("the old output is {old:?}"));
        }
        let read = |name: &str| std::fs::read_to_string(self.ground.path(name)).ok();
        for name in ["given", "lent/empty/hidden"] {
            if read(name).as_deref() != Some(GIVEN) {
                return Some(format!("{name} was changed: {:?}", read(name)));
            }
        }
        // The body may write there; the mount point of a mount is created empty.
        let strange = |(name, may_be): &(&str, &[Option<&str>])| {
            let found = read(name);
            (!may_be.contains(&found.as_deref())).then(|| format!("{name} is {found:?}"))
        };
        [
            ("lent/said", &[None, Some(""), Some(NEW)][..]),
            ("lent/given", &[None, Some("")]),
            ("lent/empty/said", &[None]),
            ("lent/small/said", &[None]),
        ]
        .iter()
        .find_map(strange)
    }

    /// A missing output that the report does not mention.
    pub fn unsaid(&self, report: &Value) -> Option<String> {
        let (new, old) = self.outputs();
        let state = |number: usize| report["outputs"][number]["state"].as_str();
        // The new file may exist without being on the disk yet.
        let durable = |number: usize| {
            report["outputs"][number]["error"]["code"].as_str() != Some("destination_not_durable")
        };
        let whole = |text: Option<String>, number| {
            !durable(number) || (text.as_deref() == Some(NEW)) == (state(number) == Some("synced"))
        };
        let said = whole(new.clone(), 0) && whole(old.clone(), 1);
        (!said).then(|| format!("outputs {new:?}, {old:?}: {}", report["outputs"]))
    }

    /// Names in the workspace that belong neither to the caller nor to an output.
    pub fn strangers(&self) -> Vec<String> {
        let names = |directory: &str| -> Vec<String> {
            let Ok(entries) = std::fs::read_dir(self.ground.path(directory)) else {
                return Vec::new();
            };
            entries
                .map(|entry| entry.expect("readable").file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        };
        let mut found = names("work");
        found.extend(names("work/deep"));
        found.retain(|name| !["in.txt", "old.txt", "out.txt", "deep"].contains(&name.as_str()));
        found
    }

    /// The runs that are recorded.
    pub fn records(&self) -> Vec<String> {
        self.runtime.records()
    }

    /// The next start by the same user, which must remove the leftovers of the run before.
    pub fn start_again(&self) {
        let ground = Ground::new();
        let cache = self.cache.to_str().expect("plain");
        self.runtime
            .case(&ground, &[], &["/bin/true"])
            .env("RUNNER_OPT_CACHE_DIRECTORY", cache)
            .done()
            .assert_exited(0);
    }

    /// Asserts that neither records, nor groups, nor temporary files are left.
    #[track_caller]
    pub fn assert_nothing_left(&self, runs: &[String]) {
        eventually("what is left of a run goes", || {
            self.records().is_empty() && runs.iter().all(|run| groups_of(run).is_empty())
        });
        self.runtime.assert_nothing_left(runs);
        assert_eq!(self.strangers(), Vec::<String>::new(), "strangers stay");
    }
}

/// The common part of two reports of the same run.
pub fn lasting(report: &Value) -> Value {
    let mut report = report.clone();
    if let Some(fields) = report.as_object_mut() {
        for field in ["run_id", "started_at", "timings_ms"] {
            fields.remove(field);
        }
        // Usage differs between runs; whether it is known does not.
        if let Some(usage) = fields.get_mut("usage").and_then(Value::as_object_mut) {
            usage.retain(|_, value| value.is_null());
        }
    }
    report
}
