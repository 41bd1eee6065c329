//! The outside network records what it should, without a run.

use support::Ground;
use support::network::{Outside, PYTHON, Who};

/// The other tests rely on this: an empty log means that no packet arrived.
#[test]
fn the_outside_network_records_every_packet_that_leaves() {
    let Some(outside) = Outside::get() else {
        return;
    };
    let ground = Ground::new();
    let script =
        include_str!("../bodies/egress/the_outside_network_records_every_packet_that_leaves.py");
    let mut command = outside.command(Who::Caller, PYTHON.as_ref(), &ground.path(""));
    let output = command.args(["-c", script]).output().expect("starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(output.stdout, b"refused\n");
    let log = outside.log();
    assert_eq!(log.packets_to("93.184.216.1"), ["tcp 9000", "tcp 9001"]);
    assert_eq!(log.packets_to("10.201.2.3"), ["tcp 5432"]);
    let six = ["tcp 8443", "udp 123"];
    assert_eq!(log.packets_to("2606:2800:220:9::1"), six);
    assert_eq!(log.questions_for("v4-93-184-216-1.zone.example"), 1);
}

/// In the test network the runner has the same uid as outside it: root, or the caller's.
#[test]
fn a_run_in_the_test_network_is_a_run_of_the_caller() {
    let Some(outside) = Outside::get() else {
        return;
    };
    let ground = Ground::new();
    let done = ground.run(&[], &["/usr/bin/id", "-u"]);
    let words = ["run", "--", "/usr/bin/id", "-u"];
    let there = ground.command(&words).inside(outside).done();
    there.assert_exited(0);
    assert_eq!(there.text(), done.text());
    assert_eq!(there.report["host"], done.report["host"]);
    // Uid 0 alone in a user namespace is an ordinary user.
    let runtime = ground.path("runtime");
    let alone = ground
        .command(&words)
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime.to_string_lossy())
        .inside_as(outside, Who::AloneAsRoot)
        .done();
    alone.assert_exited(0);
}
