//! An outside of the tests' own: two network namespaces, one in which runs happen and one beyond it
//! that answers for every address there is and writes down whatever reaches it (`outside.py`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::objects::is_of_other_run;
use crate::{Case, is_root, random, skip};

/// What hangs longer than this is broken. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);
/// The system's own: whatever version switchers the caller has, bodies see this one.
pub const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = include_str!("../outside.py");
/// Where the address and the port stand that a datagram goes to when it only marks a place.
const MARK_PORT: u64 = 9;

static OUTSIDE: LazyLock<Result<Outside, String>> = LazyLock::new(Outside::make);

/// The two namespaces, held by a process that ends with this one.
pub struct Outside {
    /// Holds the namespace in which runs happen.
    holder: Child,
    marks: Mutex<ChildStdin>,
    directory: tempfile::TempDir,
}

/// Who the runner is in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Whoever runs the tests: root, or the same ordinary uid.
    Caller,
    /// Uid 0 of a user namespace that has no other uid: no root, whatever the number says.
    AloneAsRoot,
}

impl Outside {
    /// The one of this test process. `None`, with a loud skip, where it cannot be had.
    pub fn get() -> Option<&'static Self> {
        match &*OUTSIDE {
            Ok(outside) => Some(outside),
            Err(why) => {
                skip(why);
                None
            }
        }
    }

    fn make() -> Result<Self, String> {
        for (program, words) in [
            ("unshare", &["--version"][..]),
            ("nsenter", &["--version"]),
            ("ip", &["-V"]),
            ("mount", &["--version"]),
            (PYTHON, &["--version"]),
        ] {
            let asked = Command::new(program).args(words).output();
            if !asked.is_ok_and(|output| output.status.success()) {
                return Err(format!("{program} is not installed"));
            }
        }
        let namespaces = if is_root() { "-nm" } else { "-Urnm" };
        let possible = Command::new("unshare").args([namespaces, "true"]).output();
        if !possible.is_ok_and(|output| output.status.success()) {
            return Err(format!("`unshare {namespaces}` is refused here"));
        }
        let directory = tempfile::Builder::new()
            .prefix("outside-")
            .tempdir()
            .expect("a directory");
        let program = directory.path().join("outside.py");
        std::fs::write(&program, PROGRAM).expect("written");
        let mut holder = Command::new("unshare")
            .args([namespaces, PYTHON])
            .arg(&program)
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut said = String::new();
        BufReader::new(holder.stdout.take().expect("a pipe"))
            .read_line(&mut said)
            .expect("read");
        assert_eq!(said, "ready\n", "the outside does not come up");
        let marks = Mutex::new(holder.stdin.take().expect("a pipe"));
        Ok(Self {
            holder,
            marks,
            directory,
        })
    }

    /// A program that is to be started in the host's namespace, by that user. Its arguments are
    /// appended.
    pub fn command(&self, who: Who, program: &std::ffi::OsStr, directory: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string()]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--net", "--mount", "--"]);
        match (who, is_root()) {
            (Who::Caller, true) | (Who::AloneAsRoot, false) => (),
            (Who::AloneAsRoot, true) => {
                command.args(["unshare", "--user", "--map-root-user", "--"]);
            }
            (Who::Caller, false) => {
                // The uid that the tests run as, below the one that holds the namespace.
                let uid = rustix::process::geteuid().as_raw();
                let gid = rustix::process::getegid().as_raw();
                command.args(["unshare", "--user"]);
                command.args([format!("--map-user={uid}"), format!("--map-group={gid}")]);
                command.arg("--");
            }
        }
        // Entering a mount namespace leads to its root directory.
        command.args(["env", "-C"]).arg(directory).arg(program);
        command
    }

    /// Everything that was seen so far.
    pub fn log(&self) -> Log {
        let mark = format!("mark-{}", random());
        let written = writeln!(
            self.marks.lock().unwrap_or_else(PoisonError::into_inner),
            "{mark}"
        );
        written.expect("the outside is there");
        let started = Instant::now();
        loop {
            let log = Log::read(&self.directory.path().join("log"));
            let arrived = |event: &Value| event["port"] == MARK_PORT && event["text"] == *mark;
            if log.events.iter().any(arrived) {
                return log;
            }
            assert!(
                started.elapsed() < HANG_AFTER,
                "the outside does not answer"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until something was seen.
    pub fn until(&self, what: &str, seen: impl Fn(&Log) -> bool) -> Log {
        let started = Instant::now();
        loop {
            let log = self.log();
            if seen(&log) {
                return log;
            }
            assert!(started.elapsed() < HANG_AFTER, "never seen outside: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What the outside has seen.
#[derive(Debug)]
pub struct Log {
    /// In the order of their coming.
    pub events: Vec<Value>,
}

impl Log {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect();
        Self { events }
    }

    /// Packets that reached the outside and were meant for this address: how often, as
    /// `tcp 443`, in the order of their coming.
    pub fn packets_to(&self, address: &str) -> Vec<String> {
        let packets = self.events.iter().filter(|event| event["kind"] == "packet");
        packets
            .filter(|event| event["to"] == address)
            .map(|event| {
                let protocol = event["protocol"].as_str().expect("a protocol");
                format!("{protocol} {}", event["port"])
            })
            .collect()
    }

    /// Packets to a port, as `tcp 93.184.216.34`.
    pub fn packets_to_port(&self, port: u16) -> Vec<String> {
        let packets = self.events.iter().filter(|event| event["kind"] == "packet");
        packets
            .filter(|event| event["port"] == port)
            .map(|event| {
                let word = |key: &str| event[key].as_str().unwrap_or("?").to_owned();
                format!("{} {}", word("protocol"), word("to"))
            })
            .collect()
    }

    /// How many questions for this name, or a name below it, came to the name server outside.
    pub fn questions_for(&self, name: &str) -> usize {
        let below = format!(".{name}");
        let questions = self
            .events
            .iter()
            .filter(|event| event["kind"] == "question");
        questions
            .filter_map(|event| event["name"].as_str())
            .filter(|asked| *asked == name || asked.ends_with(&below))
            .count()
    }

    /// Events of one kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let kind = kind.to_owned();
        self.events
            .iter()
            .filter(move |event| event["kind"] == *kind)
    }
}

impl Case<'_> {
    /// Runs it where that outside is the outside.
    pub fn inside(self, outside: &Outside) -> Self {
        self.inside_as(outside, Who::Caller)
    }

    /// Runs it there as somebody else.
    pub fn inside_as(mut self, outside: &Outside, who: Who) -> Self {
        let directory = self.ground.path("");
        let mut command = outside.command(who, self.command.get_program(), &directory);
        command.args(self.command.get_args());
        self.replace(command);
        self
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // Never called for the one of the process, whose end closes the pipe that the holder reads.
        let ended = self.holder.kill().and_then(|()| self.holder.wait());
        assert!(ended.is_ok(), "{ended:?}");
    }
}

/// The namespaces that a descriptor or a process still holds, of those that this process may see, after a
/// run that ended at `ended_ticks`. Processes of other runs are left out: the kernel gives the number of a
/// namespace that is gone to the next one.
pub fn network_namespaces(ended_ticks: u64) -> std::collections::BTreeSet<String> {
    let mut found = std::collections::BTreeSet::new();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return found;
    };
    let processes = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let pid = name.to_str()?.parse::<i32>().ok()?;
        (!is_of_other_run(pid, ended_ticks)).then(|| entry.path())
    });
    for process in processes {
        let mut links = vec![process.join("ns/net")];
        // A descriptor of a namespace keeps it as well as a process in it.
        for entry in std::fs::read_dir(process.join("fd")).into_iter().flatten() {
            links.extend(entry.map(|entry| entry.path()));
        }
        for link in links {
            if let Ok(target) = std::fs::read_link(link)
                && let Some(target) = target.to_str()
                && target.starts_with("net:[")
            {
                found.insert(target.to_owned());
            }
        }
    }
    found
}
