//! Support for end-to-end tests: a separate ground, the program, and the ten invariants, which are
//! checked after each case.
#![allow(
    clippy::expect_used,
    clippy::new_without_default,
    clippy::panic,
    clippy::print_stdout,
    missing_debug_implementations,
    reason = "test code: a failure is a panic, a skip is printed"
)]

pub mod bodies;
pub mod bundles;
pub mod bundling;
pub mod certificates;
pub mod confined;
pub mod documents;
pub mod git;
pub mod golden;
pub mod images;
pub mod invariants;
pub mod network;
pub mod objects;
pub mod packages;
pub mod ports;
pub mod processes;
pub mod registry;
pub mod rights;
pub mod screen;
mod scripts;
mod skips;
mod source;
pub mod tar;
pub mod tcp;
mod unique;

pub use scripts::text;
pub use skips::{belongs_to_tier, needs_root, skip, tier_includes};
use source::build_directory;
pub use source::source_path;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use unique::Unique;

use invariants::Before;

/// A run that takes longer hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(120);
/// A variable that marks every process of a case: its value is unique.
pub const MARKER: &str = "RUNNER_TEST_MARKER";
/// A value in the runner's own environment that must not appear anywhere.
const CANARY_VARIABLE: &str = "RUNNER_TEST_CANARY_SECRET";

/// The program: `RUNNER_BIN` at run time, otherwise the one that cargo built beside this test.
pub fn runner() -> OsString {
    std::env::var_os("RUNNER_BIN").unwrap_or_else(|| build_directory().join("runner").into())
}

/// Whether this test runs as uid 0.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the tests were given a cgroup of their own.
pub fn has_cgroup() -> bool {
    std::env::var_os("RUNNER_OPT_CGROUP_PARENT").is_some()
}

/// The ground of a case: a temporary directory with a canary tree and a workspace.
pub struct Ground {
    directory: tempfile::TempDir,
    marker: String,
    canary: String,
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Done {
    /// Exit code; 128 + n if a signal ended the runner itself.
    pub code: i32,
    /// The report, valid against the schema.
    pub report: Value,
    /// The runner's standard output.
    pub stdout: Vec<u8>,
    /// The runner's standard error.
    pub stderr: String,
    /// When the runner started and ended: hundredths of seconds since boot.
    pub ticks: RangeInclusive<u64>,
}

impl Ground {
    /// Creates a ground with a canary tree at `canary/` and a workspace at `work/`.
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::Builder::new()
            .prefix("ground-")
            .tempdir()
            .expect("a directory");
        let unique = format!("{}-{number}-{}", std::process::id(), random());
        let ground = Self {
            directory,
            marker: format!("marker-{unique}"),
            canary: format!("canary-{unique}"),
        };
        invariants::make_canary_tree(&ground.path("canary"));
        std::fs::create_dir(ground.workspace()).expect("made");
        ground
    }

    /// A path on the ground.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The workspace.
    pub fn workspace(&self) -> PathBuf {
        self.path("work")
    }

    /// Writes a file on the ground, and creates the directories above it.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, contents).expect("written");
        path
    }

    /// Writes a program.
    pub fn program(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        bodies::write_program(&path, contents);
        path
    }

    /// `runner WORDS…`, not started. The report goes to a file of the ground; standard output is
    /// passed through.
    pub fn command(&self, words: &[&str]) -> Case<'_> {
        let mut command = Command::new(runner());
        // The report is requested by a flag, after the verb and before everything else.
        let (verb, rest) = words.split_first().expect("a verb");
        let report = self.path(&format!("report-{}.json", random()));
        command
            .arg(verb)
            .arg(format!("--json={}", report.display()))
            .args(rest);
        command.env(CANARY_VARIABLE, &self.canary);
        command.env("RUNNER_OPT_ENV", format!("{MARKER}={}", self.marker));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Case {
            ground: self,
            command,
            report,
            stdin: None,
            before: None,
            unchecked: Vec::new(),
            patience: invariants::PATIENCE,
        }
    }

    /// A program that starts the runner itself, such as a test harness. The report is that of the
    /// last run. The memory belongs to the harness, so it is not checked.
    pub fn harness(&self, mut command: Command) -> Case<'_> {
        let report = self.path(&format!("report-{}.json", random()));
        let mut case = self.command(&["run"]).without("I10");
        for (name, value) in case.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.env("RUNNER_OPT_JSON", &report);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        case.command = command;
        case.report = report;
        case
    }

    /// Runs `runner run FLAGS… -- BODY…` to its end and checks the invariants.
    pub fn run(&self, flags: &[&str], body: &[&str]) -> Done {
        let words: Vec<&str> = ["run"]
            .iter()
            .chain(flags)
            .chain(&["--"])
            .chain(body)
            .copied()
            .collect();
        self.command(&words).done()
    }

    /// Runs `runner exec FLAGS… BUNDLE` to its end and checks the invariants.
    pub fn exec(&self, flags: &[&str], bundle: &Path) -> Done {
        let bundle = bundle.to_str().expect("a plain path");
        let words: Vec<&str> = ["exec"]
            .iter()
            .chain(flags)
            .chain(&[bundle])
            .copied()
            .collect();
        self.command(&words).done()
    }

    /// The marker of every process of this ground's cases.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// The secret that must not appear anywhere.
    pub fn canary(&self) -> &str {
        &self.canary
    }
}

/// One run of the program, before and while it runs.
pub struct Case<'ground> {
    ground: &'ground Ground,
    /// May be changed before the start.
    pub command: Command,
    report: PathBuf,
    stdin: Option<Vec<u8>>,
    before: Option<Before>,
    unchecked: Vec<&'static str>,
    patience: Duration,
}

/// A started case.
pub struct Running<'ground> {
    case: Case<'ground>,
    /// The runner.
    pub child: Child,
}

impl<'ground> Case<'ground> {
    /// What the runner reads on standard input.
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.command.stdin(Stdio::piped());
        self.stdin = Some(text.into());
        self
    }

    /// Uses a terminal as standard error; its output is available after the end.
    pub fn on_screen(mut self) -> (Self, std::thread::JoinHandle<String>) {
        let (screen, shown) = screen::open();
        self.command.stderr(screen).env("TERM", "xterm");
        (self, shown)
    }

    /// A variable of the runner's own environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the runner through a program: `setpriv …`, `sh -c …`. The runner and its arguments
    /// follow `words`.
    pub fn through<Word: AsRef<OsStr>>(
        mut self,
        program: impl AsRef<OsStr>,
        words: &[Word],
    ) -> Self {
        let mut front = Command::new(program);
        front.args(words);
        self.put_behind(front);
        self
    }

    /// The same with the program as the first word.
    pub fn behind<Word: AsRef<OsStr>>(&mut self, words: &[Word]) {
        let mut front = Command::new(&words[0]);
        front.args(&words[1..]);
        self.put_behind(front);
    }

    fn put_behind(&mut self, mut front: Command) {
        front
            .arg(self.command.get_program())
            .args(self.command.get_args());
        self.replace(front);
    }

    /// Replaces the command, and keeps its variables.
    pub fn replace(&mut self, mut command: Command) {
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.command = command;
    }

    /// Skips one invariant (`I1` … `I10`), for a case that breaks it on purpose: after a SIGKILL to
    /// the supervisor, its record stays for the next start.
    pub fn without(mut self, invariant: &'static str) -> Self {
        self.unchecked.push(invariant);
        self
    }

    /// How long to wait for objects that the kernel frees later: shorter if they are known to stay.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Running<'ground> {
        self.before = Some(Before::look(&self));
        let mut child = self.command.spawn().expect("the runner starts");
        if let Some(text) = self.stdin.take() {
            let mut pipe = child.stdin.take().expect("a pipe");
            // A runner that refuses early reads no input.
            let written = pipe.write_all(&text);
            let is_unread = |error: std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
            assert!(written.err().is_none_or(is_unread));
        }
        Running { case: self, child }
    }

    /// Runs it to its end and checks everything.
    #[track_caller]
    pub fn done(self) -> Done {
        self.start().done()
    }
}

impl Running<'_> {
    /// The runner's pid.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Sends the runner a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("sent");
    }

    /// Waits until a process of the body's has this name in comm(5).
    pub fn until_body_is(&mut self, name: &str) {
        let marker = self.case.ground.marker().to_owned();
        let name = format!("{name}\n");
        self.until("the body's program", || {
            let comm = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let named = |pid: &i32| comm(pid).is_ok_and(|comm| comm == name);
            invariants::living(&marker).iter().any(named)
        });
    }

    /// Waits until this many bytes of its standard output can be read.
    pub fn until_printed(&mut self, bytes: u64) {
        let stdout = self.child.stdout.as_ref().expect("a pipe");
        let stdout = stdout.as_fd().try_clone_to_owned().expect("duplicated");
        self.until("its output", || {
            bytes <= rustix::io::ioctl_fionread(&stdout).expect("a pipe")
        });
    }

    /// Waits until `ready` returns true, at most to the limit for hangs.
    pub fn until(&mut self, what: &str, ready: impl Fn() -> bool) {
        let started = Instant::now();
        while !ready() {
            assert!(started.elapsed() < HANG_AFTER, "never came: {what}");
            assert!(
                self.child.try_wait().expect("waited").is_none(),
                "the runner ended before: {what}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The part of the report that is written so far.
    pub fn report(&self) -> Value {
        let text = std::fs::read_to_string(&self.case.report).unwrap_or_default();
        let read = serde_json::from_str(&text);
        read.map_or(Value::Null, |Unique(report)| report)
    }

    /// Uses another file as the report.
    pub fn put_report(&self, report: &Value) {
        std::fs::write(&self.case.report, report.to_string()).expect("written");
    }

    /// Waits for its end, reads the report, validates it, and checks the invariants.
    #[track_caller]
    pub fn done(self) -> Done {
        let (done, breaches) = self.finish();
        assert!(breaches.is_empty(), "{breaches:#?}\n{done:#?}");
        done
    }

    /// Waits for its end; returns the result and the invariants that do not hold.
    pub fn finish(mut self) -> (Done, Vec<String>) {
        // Read while it runs: a full pipe blocks the runner.
        let stdout = read_to_end(self.child.stdout.take());
        let stderr = read_to_end(self.child.stderr.take());
        let secret = Some(self.case.ground.canary());
        let watched = invariants::watch(&mut self.child, HANG_AFTER, secret);
        let status = self.child.wait().expect("waited");
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().expect("an exit code or a signal"));
        let stdout = stdout.join().expect("read");
        let stderr = String::from_utf8_lossy(&stderr.join().expect("read")).into_owned();
        let before = self.case.before.take().expect("looked before the start");
        let done = Done {
            code,
            report: self.report(),
            stdout,
            stderr,
            ticks: before.ticks..=objects::now_ticks(),
        };
        let breaches = invariants::breaches(&self.case, &done, &before, &watched);
        (done, breaches)
    }
}

fn read_to_end<Pipe>(pipe: Option<Pipe>) -> std::thread::JoinHandle<Vec<u8>>
where
    Pipe: std::io::Read + Send + 'static,
{
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).expect("read");
        }
        bytes
    })
}

impl Done {
    /// The outcome as the report has it.
    pub fn outcome(&self) -> &str {
        self.report["outcome"].as_str().unwrap_or("no report")
    }

    /// The code of the report's error.
    pub fn error(&self) -> &str {
        self.report["error"]["code"].as_str().unwrap_or("none")
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error without the warning about leftovers of another test's killed run: any run on
    /// this machine may find them.
    pub fn own_errors(&self) -> Vec<&str> {
        let lines = self.stderr.lines();
        lines
            .filter(|line| !line.contains("(leftover_removed)"))
            .collect()
    }

    /// The warnings of the report, but for that one.
    pub fn own_warnings(&self) -> Vec<Value> {
        let warnings = self.report["warnings"].as_array().expect("a list");
        let own = warnings
            .iter()
            .filter(|warning| warning["code"] != "leftover_removed");
        own.cloned().collect()
    }

    /// Asserts that the body exited with `code`; otherwise prints what happened.
    #[track_caller]
    pub fn assert_exited(&self, code: i32) -> &Self {
        assert_eq!((self.outcome(), self.code), ("exited", code), "{self:#?}");
        self
    }

    /// Asserts that the request was refused, or that the runner failed, with this error code.
    #[track_caller]
    pub fn assert_error(&self, outcome: &str, error: &str) -> &Self {
        assert_eq!(
            (self.outcome(), self.error()),
            (outcome, error),
            "{self:#?}"
        );
        self
    }

    /// Asserts the outcome and the exit code.
    #[track_caller]
    pub fn assert_outcome(&self, outcome: &str, code: i32) -> &Self {
        assert_eq!((self.outcome(), self.code), (outcome, code), "{self:#?}");
        self
    }
}

/// Sixteen random hexadecimal digits.
pub fn random() -> String {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random");
    format!("{:016x}", u64::from_le_bytes(bytes))
}
