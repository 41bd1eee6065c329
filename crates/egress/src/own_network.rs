//! For tests: a network namespace of their own, and messages to its kernel.

use sys::netlink::{self, Batch, exchange};

/// Runs this very test again in a user and a network namespace of its own.
pub(super) fn in_a_network_of_its_own(test: &str) -> bool {
    if std::env::var_os("RUNNER_TESTS_INSIDE").is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("our own path");
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env("RUNNER_TESTS_INSIDE", "1")
        .output()
        .expect("unshare is there");
    let stdout = String::from_utf8_lossy(&output.stdout);
    // A name that no test has is none that failed.
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
