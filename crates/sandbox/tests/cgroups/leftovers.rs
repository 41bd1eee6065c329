//! A supervisor that is killed between any two steps, and the clean-up by the next start.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use runner_sandbox::cgroups::{CgroupLimits, choose, observe};
use runner_sandbox::records::{CleanFailure, Entry, Leftover, RunRecords};

use crate::host::{Parent, argument, helper, is_helper, start, until, v1};
use crate::records::records;

/// The number of steps that [`supervise`] announces.
const STEPS: usize = 7;
const HELPER: &str = "leftovers::a_supervisor_killed_between_any_two_steps_leaves_nothing";

/// A process that creates what a supervisor creates, one step at a time.
struct Supervisor {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Supervisor {
    fn begin(run_id: &str, parent: &Parent, place: &Path) -> Self {
        let mut process = helper(
            HELPER,
            &[
                ("PARENT", parent.name.as_str()),
                ("RUN", run_id),
                ("PLACE", place.to_str().expect("text")),
            ],
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
        let said = BufReader::new(process.stdout.take().expect("piped"));
        let mut supervisor = Self { process, said };
        supervisor.await_step();
        supervisor
    }

    fn step(&mut self) {
        let input = self.process.stdin.as_mut().expect("piped");
        input.write_all(b"\n").expect("told");
        self.await_step();
    }

    fn await_step(&mut self) {
        let mut line = String::new();
        while !line.contains("at step") {
            line.clear();
            let length = self.said.read_line(&mut line).expect("read");
            assert!(0 < length, "the helper ended");
        }
    }

    fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("waited for");
    }
}

fn supervise() {
    let (place, run_id, parent) = (argument("PLACE"), argument("RUN"), argument("PARENT"));
    let place = Path::new(&place);
    let step = |name: &str| {
        // Writes past the capture of the test harness.
        let mut output = std::io::stdout();
        writeln!(output, "at step {name}")
            .and_then(|()| output.flush())
            .expect("said");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("read");
    };
    let registry = RunRecords::open(&place.join("runner")).expect("opened");
    step("opened");
    let mut record = registry.begin(&run_id).expect("begun");
    step("begun");
    let backend = choose(
        Some(&parent),
        &observe(Some(&parent), false).expect("observed"),
    );
    let groups: Vec<Entry> = backend
        .planned_paths(&run_id)
        .into_iter()
        .map(Entry::Cgroup)
        .collect();
    record.record_all(&groups).expect("recorded");
    step("recorded");
    let mut run = backend.create(&run_id).expect("made");
    step("created");
    let limits = CgroupLimits {
        memory_bytes: Some(64 << 20),
        processes: Some(16),
        cpu_millis: Some(1000),
        kills_one: false,
    };
    let tasks = run.apply(&limits).expect("limited");
    step("limited");
    let mut child = start(&run, &tasks, "while :; do sleep 1000 & sleep 0.01; done");
    let name = format!("output-{run_id}");
    let temporary = Entry::Temporary {
        directory: place.to_owned(),
        name: name.as_str().into(),
    };
    record.record(&temporary).expect("recorded");
    std::fs::write(place.join(&name), "x").expect("written");
    for path in run.paths() {
        until("the body joins and forks", || {
            let inside = std::fs::read_to_string(format!("{path}/cgroup.procs")).expect("read");
            3 < inside.lines().count()
        });
    }
    step("running");
    run.kill().expect("killed");
    child.wait().expect("waited for");
    run.close().expect("removed");
    step("removed");
    std::fs::remove_file(place.join(&name)).expect("removed");
    record.finish().expect("finished");
    step("finished");
}

fn clean(leftover: &Leftover) -> Result<(), CleanFailure> {
    match std::fs::remove_file(leftover.directory.join(&leftover.name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn assert_nothing_left(place: &Path, parent: &Parent) {
    parent.assert_empty();
    let left: Vec<_> = std::fs::read_dir(place)
        .expect("listed")
        .map(|entry| entry.expect("listed").file_name())
        .filter(|name| name != "runner")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(records(&place.join("runner")), 0);
}

/// E-04, E-05.
#[test]
fn a_supervisor_killed_between_any_two_steps_leaves_nothing() {
    if is_helper(HELPER) {
        return supervise();
    }
    let Some(parent) = Parent::make() else { return };
    if v1(&parent).is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    for steps in 0..=STEPS {
        let mut supervisor = Supervisor::begin("dies", &parent, place.path());
        for _ in 0..steps {
            supervisor.step();
        }
        let registry = RunRecords::open(&place.path().join("runner")).expect("opened");
        let early = registry
            .collect_leftovers(&mut |_| panic!("a live run was collected"))
            .expect("listed");
        assert!(early.is_empty(), "after {steps} steps: {early:?}");
        supervisor.kill();
        let collected = registry
            .collect_leftovers(&mut |leftover| clean(leftover))
            .expect("listed");
        let failures: Vec<_> = collected.iter().flat_map(|run| &run.failures).collect();
        assert!(failures.is_empty(), "after {steps} steps: {failures:?}");
        assert_eq!(collected.len(), usize::from((1..STEPS).contains(&steps)));
        assert_nothing_left(place.path(), &parent);
    }
}

/// E-04.
#[test]
fn of_two_supervisors_only_the_leftovers_of_the_dead_one_are_removed() {
    let Some(parent) = Parent::make() else { return };
    if v1(&parent).is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut pair = ["dies", "lives"].map(|id| Supervisor::begin(id, &parent, place.path()));
    // Up to "running".
    for supervisor in &mut pair {
        (0..5).for_each(|_| supervisor.step());
    }
    let [dies, mut lives] = pair;
    dies.kill();
    let registry = RunRecords::open(&place.path().join("runner")).expect("opened");
    let collected = registry
        .collect_leftovers(&mut |leftover| {
            assert_eq!(leftover.run_id, "dies");
            clean(leftover)
        })
        .expect("listed");
    assert_eq!(collected.len(), 1);
    assert!(collected[0].failures.is_empty(), "{collected:?}");
    assert!(!place.path().join("output-dies").exists());
    assert!(place.path().join("output-lives").exists());
    let groups_of = |id: &str| {
        let places = parent.places().into_iter();
        places
            .filter(|group| group.join(format!("runner-{id}")).exists())
            .count()
    };
    assert_eq!(groups_of("dies"), 0);
    assert!(4 <= groups_of("lives"));
    // It continues undisturbed to its end.
    lives.step();
    lives.step();
    lives.kill();
    assert_nothing_left(place.path(), &parent);
}
