//! Sandboxes that stay, beside `runner run`: from `create` to the end of the first command, a command in
//! a sandbox that exists, and the memory of a sandbox that waits.
//!
//! `cargo bench --bench sessions -- --help`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that cannot be taken ends there"
)]

mod support;

use std::cell::Cell;
use std::fmt::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sandbox::control::{Answer, CallerStreams, Client};
use sandbox::prepare::BodyStreams;
use sandbox::records::Sandboxes;
use sandbox::supervise::streams::{OutputPump, Sink, Writer, make_pipes};
use sandbox::supervise::watch::listen_for_signals;
use spec::sandboxes::{Action, CommandLimits, CommandRequest, SandboxName};

use support::{Ground, Options, Report, Table, Usage};

const RUN: &str = "runner run";
const FIRST: &str = "create, then exec";
const BY_SOCKET: &str = "exec over the socket";
const BY_PROGRAM: &str = "runner sandbox exec";

fn main() {
    let usage = Usage {
        bench: "sessions",
        about: "Sandboxes that stay: the first command, further commands, memory of idle ones.",
        rounds: 200,
        quick_rounds: 60,
        own: &["--idle-sandboxes N"],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let mut report = Report::new();
    let bench = Bench::new(&ground);
    let table = bench.commands(options.rounds);
    for (mark, row) in [
        ("create to first command ÷ run", FIRST),
        ("command over the socket ÷ run", BY_SOCKET),
        ("command by the program ÷ run", BY_PROGRAM),
    ] {
        let p50 = table.ratio(row, RUN).map(|ratio| ratio.p50);
        report.mark_if(mark, p50, "no round");
    }
    report.tables.push(table);
    let default = if options.quick { 5 } else { 20 };
    let count = options.number("--idle-sandboxes").unwrap_or(default);
    bench.idle(count, &mut report);
    report
}

/// Sandboxes in a runtime directory of the bench's own.
struct Bench {
    runtime: PathBuf,
    state: PathBuf,
    body: PathBuf,
    /// The flags that make the body visible.
    view: [String; 2],
    next: Cell<usize>,
}

impl Bench {
    fn new(ground: &Ground) -> Self {
        let body = ground.nothing("true");
        let view = ["--ro".to_owned(), body.to_str().unwrap().to_owned()];
        Self {
            runtime: ground.path("runtime"),
            state: ground.folder("state"),
            body,
            view,
            next: Cell::new(0),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(support::runner());
        command
            .args(words)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", &self.runtime)
            .env("RUNNER_OPT_STATE_DIRECTORY", &self.state);
        command
    }

    fn create(&self, name: &str) -> Command {
        let mut create = self.command(&["sandbox", "create", "--name", name]);
        create.args(&self.view);
        create
    }

    fn exec(&self, name: &str) -> Command {
        let mut exec = self.command(&["sandbox", "exec", name, "--"]);
        exec.arg(&self.body);
        exec
    }

    fn remove(&self, name: &str) {
        support::wall_us(&mut self.command(&["sandbox", "rm", name]));
    }

    fn commands(&self, rounds: usize) -> Table {
        support::wall_us(&mut self.create("stays"));
        let names = [RUN, FIRST, BY_SOCKET, BY_PROGRAM];
        let mut run = self.command(&["run", "--"]);
        run.arg(&self.body);
        let table = Table::new("a command that does nothing", "µs", &[RUN]).measure(
            &names,
            rounds,
            3,
            |row| match names[row] {
                RUN => support::wall_us(&mut run),
                FIRST => self.first_command(),
                BY_SOCKET => self.by_socket("stays"),
                _ => support::wall_us(&mut self.exec("stays")),
            },
        );
        self.remove("stays");
        table
    }

    /// The start of `create` to the end of the first command, without the removal.
    fn first_command(&self) -> f64 {
        let name = format!("first-{}", self.next.replace(self.next.get() + 1));
        let took =
            support::wall_us(&mut self.create(&name)) + support::wall_us(&mut self.exec(&name));
        self.remove(&name);
        took
    }

    /// What `runner sandbox exec` does, in this process: from the connection to the end of the command.
    fn by_socket(&self, name: &str) -> f64 {
        let name = SandboxName::parse(name).unwrap();
        let wanted = CommandRequest {
            action: Action::Execute,
            argv: vec![self.body.as_os_str().as_encoded_bytes().to_vec()],
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
            timeout_ms: None,
            is_detached: false,
            limits: CommandLimits::default(),
        };
        let start = Instant::now();
        let signals = listen_for_signals().unwrap();
        let client = Sandboxes::open(&self.runtime)
            .unwrap()
            .connect(&name)
            .unwrap();
        let raw_status = wait_for(&client, &wanted, &signals);
        let took = start.elapsed();
        assert_eq!(raw_status, 0);
        took.div_duration_f64(Duration::from_micros(1))
    }

    fn idle(&self, count: usize, report: &mut Report) {
        let names: Vec<String> = (0..count).map(|number| format!("idle-{number}")).collect();
        for name in &names {
            support::wall_us(&mut self.create(name));
            support::wall_us(&mut self.exec(name));
        }
        let pss = pss_kib(&self.runtime);
        for name in &names {
            self.remove(name);
        }
        let each = f64::from(u32::try_from(count).unwrap());
        let text =
            "\n### idle sandboxes\n\n| processes | KiB (PSS) for each sandbox |\n| --- | ---: |\n";
        report.text.push_str(text);
        for (process, kib) in [("supervisor", pss.supervisors), ("init", pss.inits)] {
            let kib = kib.map(|kib| kib / each);
            let shown = kib.map_or("–".to_owned(), |kib| format!("{kib:.0}"));
            writeln!(report.text, "| {process} | {shown} |").unwrap();
        }
        let all = pss.supervisors.zip(pss.inits);
        let all_mib = all.map(|(one, other)| (one + other) / each / 1024.0);
        let why_not = "an init is not dumpable: proc shows its memory to root alone";
        report.mark_if("memory of an idle sandbox", all_mib, why_not);
    }
}

/// Starts the command with pipes for its output, passes that on, and waits for its end. Its wait status.
fn wait_for(client: &Client, wanted: &CommandRequest, signals: &OwnedFd) -> i32 {
    let (ends, pipes): (BodyStreams, _) = make_pipes(false).unwrap();
    let started = client.exec(wanted, &ends, false).unwrap();
    drop(ends);
    let is_plain = matches!(started, Answer::Started { terminal: None, .. });
    assert!(is_plain, "{started:?}");
    let pump = |source| {
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .unwrap();
        let sink = Sink::Passed(Writer::new(null.as_fd()).unwrap());
        OutputPump::new(source, sink, None)
    };
    let streams = CallerStreams {
        stdin: None,
        stdout: pump(pipes.stdout),
        stderr: Some(pump(pipes.stderr)),
        terminals: None,
    };
    match client.attach(streams, signals.as_fd()).unwrap() {
        Answer::Ended { raw_status, .. } => raw_status,
        other => panic!("{other:?}"),
    }
}

/// `None`: not readable.
struct Pss {
    supervisors: Option<f64>,
    inits: Option<f64>,
}

/// PSS of the supervisors of this runtime directory, which have its variable and are leaders of their
/// sessions, and of their inits.
fn pss_kib(runtime: &Path) -> Pss {
    let wanted = format!("RUNNER_OPT_RUNTIME_DIRECTORY={}", runtime.display());
    let pids: Vec<i32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // Fields of proc_pid_stat(5) after the name: state, parent, group, session.
    let field = |pid: i32, number| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields = status.rsplit(") ").next()?;
        fields.split(' ').nth(number)?.parse().ok()
    };
    let is_supervisor = |pid: &&i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut entries = environment.split(|byte| *byte == 0);
        field(**pid, 3) == Some(**pid) && entries.any(|entry| entry == wanted.as_bytes())
    };
    let supervisors: Vec<i32> = pids.iter().filter(is_supervisor).copied().collect();
    let is_init = |pid: &&i32| field(**pid, 1).is_some_and(|parent| supervisors.contains(&parent));
    let inits: Vec<i32> = pids.iter().filter(is_init).copied().collect();
    let sum = |pids: &[i32]| pids.iter().map(|pid| pss_of(*pid)).sum();
    Pss {
        supervisors: sum(&supervisors),
        inits: sum(&inits),
    }
}

fn pss_of(pid: i32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
