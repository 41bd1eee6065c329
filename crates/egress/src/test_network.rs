//! Test support: runs a test in its own network namespace, and sends netlink messages.

use sys::netlink::{self, Batch, exchange};

/// Runs the calling test again in its own user and network namespace. Returns `true` inside.
pub(super) fn run_in_own_network(test: &str) -> bool {
    if std::env::var_os("RUNNER_TESTS_INSIDE").is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("the path of the test program");
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env("RUNNER_TESTS_INSIDE", "1")
        .output()
        .expect("unshare runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    // A test name that does not match runs no test and does not fail.
    assert!(
        output.status.success() && stdout.contains("\nrunning 1 test\n"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

pub(super) fn send(protocol: Option<rustix::net::Protocol>, batch: &Batch) {
    let socket = netlink::open(protocol).expect("made");
    exchange(&socket, batch.bytes(), batch.acknowledged()).expect("done");
}
