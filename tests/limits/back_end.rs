//! The back end that enforces the limits here, and the lock for cases that exhaust a resource.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use support::{Done, Ground};

static TURN: Mutex<()> = Mutex::new(());
static NAME: LazyLock<String> = LazyLock::new(|| {
    let done = Ground::new().run(&[], &["/bin/true"]);
    done.assert_exited(0);
    let name = done.report["cgroup_backend"].as_str().expect("a name");
    println!("cgroup back end: {name}");
    name.to_owned()
});

/// Cases that exhaust a resource run one at a time.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether cgroups enforce the limits here.
pub fn has_groups() -> bool {
    *NAME != "none"
}

/// The strength of one limit in the report.
pub fn state<'done>(done: &'done Done, axis: &str) -> &'done str {
    done.report["enforcement"][axis]["state"]
        .as_str()
        .unwrap_or("not in the report")
}

/// Asserts that a limit is as strong as this back end promises.
#[track_caller]
pub fn assert_state(done: &Done, axis: &str) {
    let expected = match (has_groups(), axis) {
        (true, _) => "enforced",
        (false, "cpu_share") => "absent",
        (false, _) => "weaker",
    };
    assert_eq!(state(done, axis), expected, "{axis}: {done:#?}");
}

/// A number of the report's `usage`; 0 if this host cannot measure it.
pub fn usage(done: &Done, name: &str) -> u64 {
    done.report["usage"][name].as_u64().unwrap_or(0)
}

/// One limit of the report: its value and its source.
pub fn limit<'done>(done: &'done Done, name: &str) -> (Option<u64>, &'done str) {
    let entry = &done.report["limits"][name];
    (
        entry["effective"].as_u64(),
        entry["source"].as_str().expect("a source"),
    )
}
