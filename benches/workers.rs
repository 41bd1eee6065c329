//! `runner worker`: runs a second by 1, 2 and 4 workers, and what NATS takes of it.
//!
//! `cargo bench --bench workers -- --help`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot do its work has nothing to say"
)]

#[path = "../tests/worker/client.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "what the tests of workers need alone, and see"
)]
mod client;
mod support;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use sha2::Digest as _;
use support::{Ground, Options, Report, Usage};

fn main() {
    let usage = Usage {
        bench: "workers",
        about: "runner worker: runs a second by workers, and the share of NATS.",
        rounds: 400,
        quick_rounds: 40,
        own: &[],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let mut report = Report::new();
    if support::on_path("nats-server").is_none() {
        report.absent("workers", "nats-server is not installed");
        return report;
    }
    let ground = Ground::new();
    let folder = ground.folder("bundle");
    std::fs::copy(ground.nothing("true"), folder.join("true")).expect("copied");
    ground.file("bundle/manifest.yaml", "name: nothing\nrun: [./true]\n");
    let bundle = ground.archive("nothing.tar.gz", &folder);
    let mut text = String::from(
        "\n### runs by workers with one place each\n\n\
         | workers | runs/s | runs/s of as many loops of `runner exec` | nats-server, ms a run | the worker, ms a run |\n\
         | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for count in [1, 2, 4] {
        let rounds = options.rounds.max(count);
        let alone = loops(&bundle, count, rounds);
        let queue = Queue::start(&ground, &format!("{count}"));
        let measured = queue.run(&bundle, count, rounds);
        writeln!(
            text,
            "| {count} | {:.0} | {alone:.0} | {:.2} | {:.2} |",
            measured.rate, measured.server_ms, measured.worker_ms
        )
        .expect("text");
        report.facts.insert(
            format!("{count} workers ÷ as many loops: runs/s"),
            (measured.rate / alone).into(),
        );
    }
    report.text.push_str(&text);
    report
}

/// Runs a second of as many callers, each with one run after the other.
fn loops(bundle: &Path, callers: usize, rounds: usize) -> f64 {
    let since = Instant::now();
    std::thread::scope(|scope| {
        for _caller in 0..callers {
            scope.spawn(|| {
                for _round in 0..rounds / callers {
                    let mut command = Command::new(support::runner());
                    command.args(["exec", "-q"]).arg(bundle);
                    support::run_once(&mut command);
                }
            });
        }
    });
    rate(rounds / callers * callers, since.elapsed())
}

fn rate(count: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(count).expect("small")) / time.as_secs_f64()
}

struct Measured {
    rate: f64,
    server_ms: f64,
    worker_ms: f64,
}

/// A server of the bench's own.
struct Queue<'ground> {
    ground: &'ground Ground,
    name: String,
    port: u16,
    server: Child,
}

impl<'ground> Queue<'ground> {
    fn start(ground: &'ground Ground, name: &str) -> Self {
        let port = ::support::ports::free_port(Ipv4Addr::LOCALHOST);
        let server = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
            .arg(ground.path(&format!("nats-{name}")))
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server starts");
        let until = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < until, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self {
            ground,
            name: name.to_owned(),
            port,
            server,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(support::runner());
        command
            .args(words)
            .env("NATS_URL", format!("nats://127.0.0.1:{}", self.port));
        command
    }

    /// From the first message to the last result.
    fn run(mut self, bundle: &Path, count: usize, rounds: usize) -> Measured {
        let mut workers: Vec<Child> = (0..count).map(|number| self.worker(number)).collect();
        let mut client = Client::connect(Ipv4Addr::LOCALHOST, self.port);
        let bundle_path = bundle.to_str().expect("a plain path");
        // The first one makes the stream, and fetches the bundle.
        let until = Instant::now() + Duration::from_secs(60);
        while !self.submits(bundle_path) {
            assert!(Instant::now() < until, "no worker makes the stream");
            std::thread::sleep(Duration::from_millis(20));
        }
        wait_for(&mut client, 1);
        let digest = sha2::Sha256::digest(std::fs::read(bundle).expect("read"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let request = format!(r#"{{"bundle":"sha256:{digest}"}}"#);
        let before = self.processor_ms(&workers);
        let since = Instant::now();
        for number in 0..rounds {
            client.publish(&format!("runs.run.r{number}"), request.as_bytes());
        }
        wait_for(&mut client, rounds + 1);
        let time = since.elapsed();
        let after = self.processor_ms(&workers);
        for child in workers.iter_mut().chain([&mut self.server]) {
            child.kill().expect("killed");
            child.wait().expect("waited");
        }
        let each =
            |now: f64, then: f64| (now - then) / f64::from(u32::try_from(rounds).expect("small"));
        Measured {
            rate: rate(rounds, time),
            server_ms: each(after.0, before.0),
            worker_ms: each(after.1, before.1),
        }
    }

    fn submits(&self, bundle: &str) -> bool {
        let mut submit = self.command(&["submit", "--id", "first", bundle]);
        submit.stdout(Stdio::null()).stderr(Stdio::null());
        submit.status().expect("started").success()
    }

    fn worker(&self, number: usize) -> Child {
        let state = self.ground.folder(&format!("state-{}-{number}", self.name));
        self.command(&["worker", "--max-runs", "1"])
            .env("RUNNER_OPT_STATE_DIRECTORY", state)
            .stderr(Stdio::null())
            .spawn()
            .expect("started")
    }

    /// Of the server, and of the workers without their children.
    fn processor_ms(&self, workers: &[Child]) -> (f64, f64) {
        let of_workers = workers.iter().map(|worker| processor_ms(worker.id())).sum();
        (processor_ms(self.server.id()), of_workers)
    }
}

/// utime and stime of proc_pid_stat(5).
fn processor_ms(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("read");
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<f64>().expect("a number"))
        .sum();
    let in_a_second = rustix::param::clock_ticks_per_second();
    ticks * 1_000.0 / f64::from(u32::try_from(in_a_second).expect("small"))
}

fn wait_for(client: &mut Client, results: usize) {
    let until = Instant::now() + Duration::from_secs(600);
    while client.messages("KV_runs-runs") < results as u64 {
        assert!(Instant::now() < until, "the runs do not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}
