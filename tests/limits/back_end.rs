//! Which back end holds the limits here, and the turn that exhaustion cases take.

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

/// Cases that take all of something run one at a time.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether groups hold the limits here.
pub fn has_groups() -> bool {
    *NAME != "none"
}

/// How strongly one axis holds, as the report says.
pub fn state<'done>(done: &'done Done, axis: &str) -> &'done str {
    done.report["enforcement"][axis]["state"]
        .as_str()
        .unwrap_or("not in the report")
}

/// Asserts that an axis holds as strongly as this back end promises.
#[track_caller]
pub fn assert_state(done: &Done, axis: &str) {
    let expected = match (has_groups(), axis) {
        (true, _) => "enforced",
        (false, "cpu_share") => "absent",
        (false, _) => "weaker",
    };
    assert_eq!(state(done, axis), expected, "{axis}: {done:#?}");
}

/// A number of the report's `usage`; 0 where this host cannot say.
pub fn usage(done: &Done, name: &str) -> u64 {
    done.report["usage"][name].as_u64().unwrap_or(0)
}

/// One limit of the report: what held, and whose word it was.
pub fn limit<'done>(done: &'done Done, name: &str) -> (Option<u64>, &'done str) {
    let entry = &done.report["limits"][name];
    (
        entry["effective"].as_u64(),
        entry["source"].as_str().expect("a source"),
    )
}
