//! A test network: two network namespaces. Runs happen in the first one; the second one is outside,
//! answers for every address, and records all packets that reach it (`outside.py`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::objects::is_of_other_run;
use crate::{Case, is_root, random, skip};

/// A limit for hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);
/// The python3 of the system, which bodies see, without version managers of the caller.
pub const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = include_str!("../outside.py");
/// The destination address and port of datagrams that only mark a position in the log.
const MARK_PORT: u64 = 9;

static OUTSIDE: LazyLock<Result<Outside, String>> = LazyLock::new(Outside::make);

/// The two namespaces, held by a process that ends with this value.
pub struct Outside {
    /// Holds the namespace of the runs.
    holder: Child,
    marks: Mutex<ChildStdin>,
    directory: tempfile::TempDir,
}

/// The user of the runner in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The user of the tests: root, or the same ordinary uid.
    Caller,
    /// Uid 0 of a user namespace without other uids: without the rights of root.
    AloneAsRoot,
}

impl Outside {
    /// The network of this test process. `None`, with a printed skip, if it is unavailable.
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

    /// A command in the host's namespace as this user. Its arguments are appended.
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
                // The uid of the tests, below the one that holds the namespace.
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

    /// Puts bytes after what the name server answers about each name with a new label, which this returns.
    pub fn plant(&self, bytes: &[u8]) -> String {
        let label = format!("attack-{}", random());
        std::fs::write(self.directory.path().join(&label), bytes).expect("written");
        label
    }

    /// Everything that was recorded so far.
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

    /// Waits until the log satisfies the condition.
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

/// The recorded events of the outside.
#[derive(Debug)]
pub struct Log {
    /// In order of arrival.
    pub events: Vec<Value>,
}

impl Log {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect();
        Self { events }
    }

    /// Packets that reached the outside for this address, as `tcp 443`, in order of arrival.
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

    /// The number of queries for this name, or for names below it, at the name server outside.
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

    /// Events of one type.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let kind = kind.to_owned();
        self.events
            .iter()
            .filter(move |event| event["kind"] == *kind)
    }
}

impl Case<'_> {
    /// Runs the command in this network.
    pub fn inside(self, outside: &Outside) -> Self {
        self.inside_as(outside, Who::Caller)
    }

    /// Runs the command in this network as another user.
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
        // Not called for the value of the process; its end closes the pipe that the holder reads.
        let ended = self.holder.kill().and_then(|()| self.holder.wait());
        assert!(ended.is_ok(), "{ended:?}");
    }
}

/// Those of the namespaces that a descriptor or a process still holds, as far as this process may
/// see, after a run of this time. Ignores processes of other runs: the kernel reuses
/// the number of a namespace.
pub fn network_namespaces(ran: &RangeInclusive<u64>) -> std::collections::BTreeSet<String> {
    let mut found = std::collections::BTreeSet::new();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return found;
    };
    let processes = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let pid = name.to_str()?.parse::<i32>().ok()?;
        (!is_of_other_run(pid, ran)).then(|| entry.path())
    });
    for process in processes {
        let mut links = vec![process.join("ns/net")];
        // An open descriptor keeps a namespace alive, as a process in it does.
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
