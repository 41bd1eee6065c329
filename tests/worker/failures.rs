//! Workers and servers that are killed.

use rustix::process::Signal;

use crate::queue::{LONG_BODY, Queue, STREAM, script};
use support::invariants::eventually;

const ACK_WAIT: [&str; 2] = ["--ack-wait", "1s"];

/// Hands in a run that goes on while the test does something.
fn waits(queue: &Queue, id: &str) {
    queue.submit(id, &script(&queue.ground, "sleep 1; echo done"), &[]);
}

/// E-37.
#[test]
fn a_run_whose_worker_is_killed_is_run_by_another() {
    let queue = Queue::start();
    let mut first = queue.worker("first", &ACK_WAIT);
    waits(&queue, "survives");
    until_taken(&queue);
    first.kill();
    let _second = queue.worker("second", &ACK_WAIT);
    let result = queue.result("survives");
    assert_eq!(result["state"], "succeeded", "{result}");
    assert_eq!(result["deliveries"], 2, "{result}");
}

/// E-37.
#[test]
fn a_run_does_not_outlive_its_killed_worker() {
    let queue = Queue::start();
    let mut worker = queue.worker("one", &ACK_WAIT);
    queue.submit("goes-on", &script(&queue.ground, LONG_BODY), &[]);
    eventually("it is executed", || queue.runs("one"));
    worker.kill();
    eventually("it has ended", || !queue.runs("one"));
    // The next worker removes its files.
    let next = queue.worker("one", &[&ACK_WAIT[..], &["--max-deliveries", "1"]].concat());
    assert_eq!(queue.result("goes-on")["error"]["code"], "orphaned");
    next.signal(Signal::TERM);
    assert_eq!(next.wait(), Some(0));
    let left = std::fs::read_dir(queue.ground.path("one/worker/runs")).expect("a directory");
    assert_eq!(left.count(), 0);
}

/// E-37.
#[test]
fn a_run_that_no_worker_brings_to_an_end_becomes_a_dead_letter() {
    let queue = Queue::start();
    let flags = [&ACK_WAIT[..], &["--max-deliveries", "2"]].concat();
    queue.worker("makes-the-stream", &flags).kill();
    queue.submit("deadly", &script(&queue.ground, LONG_BODY), &[]);
    for name in ["first", "second"] {
        let mut worker = queue.worker(name, &flags);
        eventually("it is executed", || queue.runs(name));
        worker.kill();
    }
    let _third = queue.worker("third", &flags);
    let result = queue.result("deadly");
    assert_eq!(result["error"]["code"], "orphaned", "{result}");
    assert_eq!(queue.client().messages(&format!("{STREAM}-dead")), 1);
    assert_eq!(queue.client().messages(STREAM), 0);
}

/// E-37.
#[test]
fn a_result_is_kept_until_the_killed_server_is_there_again() {
    let mut queue = Queue::start();
    let _worker = queue.worker("one", &[]);
    waits(&queue, "waits");
    eventually("it is executed", || queue.runs("one"));
    queue.kill_server();
    // It ends without a server.
    eventually("the run has ended", || !queue.runs("one"));
    queue.start_server();
    let result = queue.result("waits");
    assert_eq!(result["state"], "succeeded", "{result}");
    assert_eq!(result["deliveries"], 1, "{result}");
    eventually("it is acknowledged", || {
        queue.client().messages(STREAM) == 0
    });
}

/// E-37.
#[test]
fn a_worker_whose_host_fails_gives_runs_back_and_another_runs_them() {
    let queue = Queue::start();
    let first = queue.worker("first", &["--max-runs", "1"]);
    // It cannot keep bundles any more.
    let bundles = queue.ground.path("first/worker/bundles");
    std::fs::remove_dir(&bundles).expect("removed");
    queue.ground.write("first/worker/bundles", "");
    queue.submit("back", &script(&queue.ground, "true"), &[]);
    eventually("it is given back", || {
        first.said().contains("run back is given back")
    });
    let _second = queue.worker("second", &["--max-runs", "4"]);
    let result = queue.result("back");
    assert_eq!(result["state"], "succeeded", "{result}");
    let worker = result["worker"].as_str().expect("text");
    assert!(!first.is(worker), "{result}");
}

#[test]
fn a_worker_without_its_server_says_so_and_takes_runs_when_it_is_there_again() {
    let mut queue = Queue::start();
    let worker = queue.worker("one", &[]);
    queue.kill_server();
    eventually("it says so", || {
        worker.said().contains("warning: the server: disconnected")
    });
    queue.start_server();
    queue.submit("after", &script(&queue.ground, "true"), &[]);
    assert_eq!(queue.result("after")["state"], "succeeded");
}

/// Until the server has given the message to a worker.
fn until_taken(queue: &Queue) {
    eventually("the message is taken", || {
        let consumer = queue.client().json("$JS.API.CONSUMER.INFO.t.workers", "");
        consumer["num_ack_pending"] == 1
    });
}
