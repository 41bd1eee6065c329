//! What a run gets, and what becomes of it.

use rustix::process::Signal;
use serde_json::json;

use crate::queue::{LONG_BODY, Queue, STREAM, script};
use support::invariants::eventually;

#[test]
fn a_run_gets_its_inputs_and_its_report_logs_and_outputs_come_back() {
    let queue = Queue::start();
    let _worker = queue.worker("one", &[]);
    let manifest = "name: whole\nrun: body.sh\ninputs: { type: object }\noutputsFiles:\n  out: { path: sub/out.txt }\n";
    let body = "#!/bin/sh\necho \"said $*\"\necho problem >&2\ncat /scratch/data - >/scratch/out\n";
    let bundle = queue
        .ground
        .bundle(&[("manifest.yaml", manifest), ("body.sh", body)]);
    let data = queue.ground.write("data", "of the file\n");
    let data = format!("data={}", data.display());
    queue.submit(
        "whole",
        &bundle,
        &["--in", &data, "--inputs", r#"{"n": 7}"#, "--", "a", "b c"],
    );
    let result = queue.result("whole");
    assert_eq!(result["state"], "succeeded", "{result}");
    assert_eq!(result["deliveries"], 1);
    let outputs = queue.ground.path("outputs");
    let report = queue.printed(&[
        "result",
        "--out-dir",
        outputs.to_str().expect("plain"),
        "whole",
    ]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
    assert_eq!(report["outcome"], "exited");
    let out = std::fs::read_to_string(outputs.join("sub/out.txt")).expect("fetched");
    assert!(
        out.starts_with("of the file\n") && out.contains('7'),
        "{out}"
    );
    let logs = queue.run(&["result", "--logs", "whole"]);
    assert_eq!(String::from_utf8_lossy(&logs.stdout), "said a b c\n");
    assert!(
        String::from_utf8_lossy(&logs.stderr).contains("problem"),
        "{logs:?}"
    );
    assert_eq!(queue.client().messages(STREAM), 0, "it is acknowledged");
}

#[test]
fn the_same_id_twice_is_one_run() {
    let queue = Queue::start();
    // No worker: the first message waits.
    drop(queue.worker("makes-the-stream", &[]));
    let bundle = script(&queue.ground, "echo once");
    queue.submit("twice", &bundle, &[]);
    queue.submit("twice", &bundle, &[]);
    assert_eq!(queue.client().messages(STREAM), 1);
    let _worker = queue.worker("one", &[]);
    assert_eq!(queue.result("twice")["state"], "succeeded");
    queue.submit("twice", &bundle, &[]);
    assert_eq!(queue.client().messages(STREAM), 0, "it has a result");
}

#[test]
fn how_a_run_ends_is_told_as_runner_exec_tells_it() {
    let queue = Queue::start();
    let _worker = queue.worker("one", &["--", "--timeout", "1s"]);
    let cases = [
        ("failed", "exit 3", "failed", json!("driver-error")),
        ("late", LONG_BODY, "failed", json!("timeout")),
        ("fine", "true", "succeeded", json!(null)),
    ];
    for (id, body, _, _) in &cases {
        queue.submit(id, &script(&queue.ground, body), &[]);
    }
    for (id, _, state, code) in cases {
        let result = queue.result(id);
        assert_eq!(result["state"], state, "{result}");
        assert_eq!(result["error"]["code"], code, "{result}");
    }
    let output = queue.run(&["result", "failed"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_request_grants_nothing_that_the_worker_does_not_grant() {
    let queue = Queue::start();
    let _worker = queue.worker("one", &[]);
    let manifest = "name: asks\nrun: body.sh\nnetwork: { egress: ['example.org:443'] }\n";
    let bundle = queue
        .ground
        .bundle(&[("manifest.yaml", manifest), ("body.sh", "#!/bin/sh\ntrue")]);
    queue.submit("asks", &bundle, &[]);
    let result = queue.result("asks");
    assert_eq!(result["state"], "failed", "{result}");
    // Nor do the arguments of a body become flags.
    let bundle = script(
        &queue.ground,
        "test \"$1\" = --net && test ! -e /proc/net/dev_of_host",
    );
    queue.submit("arguments", &bundle, &["--", "--net", "host"]);
    assert_eq!(queue.result("arguments")["state"], "succeeded");
}

#[test]
fn a_run_is_cancelled_before_it_is_delivered_and_while_it_goes_on() {
    let queue = Queue::start();
    drop(queue.worker("makes-the-stream", &[]));
    let bundle = script(&queue.ground, LONG_BODY);
    queue.submit("waits", &bundle, &[]);
    let output = queue.run(&["result", "--cancel", "waits"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let worker = queue.worker("one", &["--metrics", "127.0.0.1:0"]);
    assert_eq!(queue.result("waits")["state"], "cancelled");
    queue.submit("goes-on", &bundle, &[]);
    eventually("the run goes on", || {
        metric(&worker.said(), "runner_worker_runs") == Some(1)
    });
    let output = queue.run(&["result", "--cancel", "--wait", "goes-on"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let result = queue.client().result(STREAM, "goes-on");
    assert_eq!(result["state"], "cancelled", "{result}");
    assert_eq!(metric_line(&worker.said(), "result=\"cancelled\""), Some(2));
}

#[test]
fn a_time_that_another_worker_has_set_for_all_is_told() {
    let queue = Queue::start();
    let first = queue.worker("first", &[]);
    let second = queue.worker("second", &["--ack-wait", "1s"]);
    assert!(!first.said().contains("--ack-wait"), "{}", first.said());
    let said = second.said();
    assert!(
        said.contains("--ack-wait 1s: the first worker has made it 30s"),
        "{said}"
    );
}

#[test]
fn sigterm_lets_runs_end_and_takes_no_more() {
    let queue = Queue::start();
    let worker = queue.worker("one", &["--max-runs", "1", "--metrics", "127.0.0.1:0"]);
    queue.submit("first", &script(&queue.ground, "sleep 1"), &[]);
    eventually("it goes on", || {
        metric(&worker.said(), "runner_worker_runs") == Some(1)
    });
    queue.submit("second", &script(&queue.ground, "true"), &[]);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
    let mut client = queue.client();
    assert_eq!(client.result(STREAM, "first")["state"], "succeeded");
    assert_eq!(
        client.messages(STREAM),
        1,
        "the second waits for another worker"
    );
}

#[test]
fn a_worker_takes_what_it_has_memory_for() {
    if !support::has_cgroup() {
        return support::skip("no group can be created");
    }
    let queue = Queue::start();
    let flags = [
        "--max-runs",
        "4",
        "--max-memory",
        "300m",
        "--metrics",
        "127.0.0.1:0",
    ];
    let worker = queue.worker("one", &[&flags[..], &["--", "--memory", "200m"]].concat());
    let bundle = script(&queue.ground, LONG_BODY);
    for id in ["a", "b", "c"] {
        queue.submit(id, &bundle, &[]);
    }
    // Two places hold a message: one runs, and one waits for its room. No third is taken.
    eventually("two are taken", || {
        metric(&worker.said(), "runner_worker_runs") == Some(2)
    });
    let pending = queue.client().json("$JS.API.CONSUMER.INFO.t.workers", "");
    assert_eq!(pending["num_ack_pending"], 2, "{pending}");
    for id in ["a", "b", "c"] {
        let output = queue.run(&["result", "--cancel", "--wait", id]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

/// The address of the metrics is a line of what the worker says.
fn metrics(said: &str) -> String {
    let address = said
        .lines()
        .find_map(|line| line.strip_prefix("runner: metrics at "))
        .expect("an address");
    let output = std::process::Command::new("curl")
        .args(["-sf", address])
        .output();
    String::from_utf8(output.expect("curl").stdout).expect("text")
}

fn metric(said: &str, name: &str) -> Option<u64> {
    let text = metrics(said);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    value?.parse().ok()
}

fn metric_line(said: &str, part: &str) -> Option<u64> {
    let text = metrics(said);
    let line = text.lines().find(|line| line.contains(part))?;
    line.rsplit(' ').next()?.parse().ok()
}
