//! Many runs, while workers and the server are killed and a worker is cut off: each has exactly one result, and none is
//! lost.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::network::{Network, SERVER};
use crate::queue::{Queue, STREAM, Worker, script};
use sha2::Digest as _;
use support::{Ground, is_root, needs_root, tier_includes};

/// Of the short and of the long form.
struct Size {
    runs: usize,
    /// How long a worker is cut off.
    cut: Duration,
    /// A limit for hangs.
    hang_after: Duration,
}

const SHORT: Size = Size {
    runs: 60,
    cut: Duration::from_secs(4),
    hang_after: Duration::from_secs(120),
};
const LONG: Size = Size {
    runs: 10_000,
    cut: Duration::from_secs(20),
    hang_after: Duration::from_secs(3600),
};

/// Shorter than a worker is cut off: its messages are given to others meanwhile.
const FLAGS: [&str; 4] = ["--ack-wait", "2s", "--max-runs", "2"];

/// E-37.
#[test]
fn each_of_many_runs_has_one_result_while_workers_and_the_server_fail() {
    if !is_root() {
        return needs_root("network namespaces of workers with rights of root");
    }
    let size = if tier_includes("long") { LONG } else { SHORT };
    let network = Network::enter(3);
    let mut queue = Queue::at(SERVER, Ground::new(), &[]);
    let worker = |queue: &Queue, name: &str, number| -> Worker {
        let command = queue.command(&[&["worker"], &FLAGS[..]].concat());
        queue.start_worker(name, network.at(number, &command))
    };
    let mut workers: Vec<Worker> = (0..3)
        .map(|number| worker(&queue, &format!("w{number}"), number))
        .collect();
    let progress = Progress::start(&queue, &size);
    progress.wait_for(&queue, size.runs / 4);
    workers[0].kill();
    workers[0] = worker(&queue, "w3", 0);
    progress.wait_for(&queue, size.runs / 2);
    network.cut(1);
    std::thread::sleep(size.cut);
    network.mend(1);
    queue.kill_server();
    queue.start_server();
    progress.wait_for(&queue, size.runs);
    // The killed server may have forgotten to remove messages from the stream, but not who acknowledged them.
    progress.wait(&queue, |client| {
        let consumer = client.json("$JS.API.CONSUMER.INFO.t.workers", "");
        consumer["num_pending"] == 0 && consumer["num_ack_pending"] == 0
    });
    let mut client = queue.client();
    assert_eq!(results(&mut client), size.runs, "one result each");
    for number in 0..size.runs {
        let result = client.result(STREAM, &format!("r{number}"));
        assert_eq!(result["state"], "succeeded", "{number}: {result}");
    }
    let seconds = progress.started.elapsed().as_secs_f64();
    println!("workers: {} runs in {seconds:.1} s", size.runs);
}

struct Progress {
    started: Instant,
    hang_after: Duration,
}

impl Progress {
    /// Hands all runs in.
    fn start(queue: &Queue, size: &Size) -> Self {
        let bundle = script(&queue.ground, "echo $1");
        queue.submit("first", &bundle, &["--", "first"]);
        let digest = sha2::Sha256::digest(std::fs::read(&bundle).expect("read"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut client = queue.client();
        for number in 0..size.runs {
            let request = format!(r#"{{"bundle":"sha256:{digest}","args":["{number}"]}}"#);
            client.publish(&format!("{STREAM}.run.r{number}"), request.as_bytes());
        }
        Self {
            started: Instant::now(),
            hang_after: size.hang_after,
        }
    }

    fn wait_for(&self, queue: &Queue, count: usize) {
        self.wait(queue, |client| results(client) >= count);
    }

    fn wait(&self, queue: &Queue, mut reached: impl FnMut(&mut Client) -> bool) {
        let mut client = queue.client();
        while !reached(&mut client) {
            assert!(self.started.elapsed() < self.hang_after, "not in time");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Results, without that of the first run.
fn results(client: &mut Client) -> usize {
    let count = client.messages("KV_t-runs").saturating_sub(1);
    usize::try_from(count).expect("small")
}
