//! A NATS server, its workers, and who hands runs in.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::Ground;
use support::invariants::eventually;
use support::ports::free_port;

use crate::client::Client;

/// The stream of all tests. Each has a server of its own.
pub const STREAM: &str = "t";

/// A server with JetStream on the loopback interface.
pub struct Queue {
    pub ground: Ground,
    pub address: Ipv4Addr,
    pub port: u16,
    server: Option<Child>,
    options: Vec<String>,
}

/// `runner worker`, killed when it is dropped.
pub struct Worker {
    child: Child,
    log: PathBuf,
}

impl Queue {
    pub fn start() -> Self {
        Self::with_options(Ground::new(), &[])
    }

    pub fn with_options(ground: Ground, options: &[&str]) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, ground, options)
    }

    /// At this address, in the network namespace of this thread.
    pub fn at(address: Ipv4Addr, ground: Ground, options: &[&str]) -> Self {
        let port = free_port(address);
        let mut queue = Self {
            ground,
            address,
            port,
            server: None,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        queue.start_server();
        queue
    }

    pub fn start_server(&mut self) {
        let log = File::create(self.ground.path("nats.log")).expect("made");
        let mut server = Command::new("nats-server");
        server
            .args([
                "-js",
                "-a",
                &self.address.to_string(),
                "-p",
                &self.port.to_string(),
                "-sd",
            ])
            .arg(self.ground.path("nats"))
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(log);
        self.server = Some(server.spawn().expect("nats-server starts"));
        eventually("the server listens", || {
            let said = std::fs::read_to_string(self.ground.path("nats.log"));
            said.expect("readable").contains("Server is ready")
        });
    }

    pub fn kill_server(&mut self) {
        let mut server = self.server.take().expect("it lives");
        server.kill().expect("killed");
        server.wait().expect("waited");
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address, self.port)
    }

    /// `runner VERB`, with the server and the stream.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(support::runner());
        command
            .args(&words[..1])
            .args(["--stream", STREAM])
            .args(&words[1..])
            .env("NATS_URL", format!("nats://{}:{}", self.address, self.port))
            .env("RUNNER_OPT_STATE_DIRECTORY", self.ground.path("state"));
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("started")
    }

    /// What a verb prints that succeeds.
    #[track_caller]
    pub fn printed(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Hands a run in.
    #[track_caller]
    pub fn submit(&self, id: &str, bundle: &Path, more: &[&str]) {
        let bundle = bundle.to_str().expect("a plain path");
        let words = [&["submit", "--id", id, bundle], more].concat();
        assert_eq!(self.printed(&words), format!("{id}\n"));
    }

    /// Waits for its result.
    #[track_caller]
    pub fn result(&self, id: &str) -> Value {
        let output = self.run(&["result", "--wait", id]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        self.client().result(STREAM, id)
    }

    /// Whether this worker executes a run.
    pub fn runs(&self, name: &str) -> bool {
        let files = format!("{}/worker/runs/", self.ground.path(name).display());
        let mut processes = std::fs::read_dir("/proc").expect("mounted");
        processes.any(|entry| {
            let words = entry.map(|entry| std::fs::read(entry.path().join("cmdline")));
            let words = words.ok().and_then(Result::ok).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&files)
        })
    }

    /// Starts a worker, and waits until it works.
    pub fn worker(&self, name: &str, words: &[&str]) -> Worker {
        self.start_worker(name, self.command(&[&["worker"], words].concat()))
    }

    /// Starts a worker with this command, and waits until it works.
    pub fn start_worker(&self, name: &str, mut command: Command) -> Worker {
        let log = self.ground.path(&format!("{name}.log"));
        command
            .env("RUNNER_OPT_STATE_DIRECTORY", self.ground.path(name))
            .stderr(File::create(&log).expect("made"));
        let child = command.spawn().expect("started");
        let worker = Worker { child, log };
        eventually("the worker works", || {
            let said = worker.said();
            assert!(!said.contains("runner: failed"), "{said}");
            said.contains("places for runs")
        });
        worker
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may have ended in the test.
            let _killed = server.kill();
            let _waited = server.wait();
        }
    }
}

impl Worker {
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).expect("readable")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill_process(Pid::from_raw(pid).expect("not 0"), signal).expect("sent");
    }

    /// Whether a result names it.
    pub fn is(&self, name: &str) -> bool {
        name.ends_with(&format!(":{}", self.child.id()))
    }

    /// Its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("waited").code()
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// A bundle whose body is this script.
pub fn script(ground: &Ground, body: &str) -> PathBuf {
    let manifest = "name: script\nrun: body.sh\n";
    ground.bundle(&[
        ("manifest.yaml", manifest),
        ("body.sh", &format!("#!/bin/sh\n{body}")),
    ])
}

/// Long enough for whatever a test waits for, and no longer.
pub const LONG_BODY: &str = "exec sleep 120";
