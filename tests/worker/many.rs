//! Many runs, while workers and the server are killed: each has exactly one result, and none is lost.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::queue::{Queue, STREAM, script};
use support::tier_includes;

/// Runs of the short and of the long form.
const RUNS: [usize; 2] = [60, 10_000];
const TIME: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(1800)];

#[test]
fn each_of_many_runs_has_one_result_while_workers_and_the_server_are_killed() {
    let tier = usize::from(tier_includes("long"));
    let (count, time) = (RUNS[tier], TIME[tier]);
    let mut queue = Queue::start();
    let flags = ["--ack-wait", "2s", "--max-runs", "2"];
    let mut workers: Vec<_> = (0..3)
        .map(|number| queue.worker(&format!("w{number}"), &flags))
        .collect();
    let bundle = script(&queue.ground, "echo $1");
    queue.submit("first", &bundle, &["--", "first"]);
    let mut client = queue.client();
    let request = std::fs::read(&bundle).expect("read");
    let digest = {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(&request);
        digest.iter().fold("sha256:".to_owned(), |text, byte| {
            format!("{text}{byte:02x}")
        })
    };
    for number in 0..count {
        let request = format!(r#"{{"bundle":"{digest}","args":["{number}"]}}"#);
        client.publish(&format!("{STREAM}.run.r{number}"), request.as_bytes());
    }
    drop(client);
    let started = Instant::now();
    let results = |client: &mut Client| client.messages("KV_t-runs").saturating_sub(1);
    let half = count as u64 / 3;
    wait_until(&queue, started, time, |client| results(client) >= half);
    workers[0].kill();
    workers[0] = queue.worker("w3", &flags);
    wait_until(&queue, started, time, |client| results(client) >= 2 * half);
    queue.kill_server();
    queue.start_server();
    wait_until(&queue, started, time, |client| {
        results(client) >= count as u64
    });
    // The killed server may have forgotten to remove messages from the stream, but not who acknowledged them.
    wait_until(&queue, started, time, |client| {
        let consumer = client.json("$JS.API.CONSUMER.INFO.t.workers", "");
        consumer["num_pending"] == 0 && consumer["num_ack_pending"] == 0
    });
    let mut client = queue.client();
    assert_eq!(results(&mut client), count as u64, "one result each");
    for number in 0..count {
        let result = client.result(STREAM, &format!("r{number}"));
        assert_eq!(result["state"], "succeeded", "{number}: {result}");
    }
    println!(
        "workers: {count} runs in {:.1} s",
        started.elapsed().as_secs_f64()
    );
}

fn wait_until(
    queue: &Queue,
    started: Instant,
    time: Duration,
    mut reached: impl FnMut(&mut Client) -> bool,
) {
    let mut client = queue.client();
    while !reached(&mut client) {
        assert!(started.elapsed() < time, "not in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}
