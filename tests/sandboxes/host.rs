//! One user's sandboxes, with a runtime directory of the test's own.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use support::{Ground, runner};

/// The sandboxes below one runtime directory. Those that are left are removed at the end.
pub struct Host {
    pub ground: Ground,
}

/// A command's result.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// `runner` that goes on, and the lines that it prints.
pub struct Running {
    pub child: Child,
    pub lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Waits for its end. Returns exit code and standard error.
    pub fn end(self) -> (Option<i32>, String) {
        let output = self.child.wait_with_output().expect("waited");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    }
}

/// Prints the rights and surroundings of a command.
pub const RIGHTS: &str = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Shd|SigIgn|SigBlk)' /proc/self/status
    cat /proc/self/limits /proc/self/cgroup; ls /proc/self/fd; umask; cat /proc/self/mountinfo \
    | sed 's/^[0-9]* [0-9]* [0-9:]* //; s/ shared:[0-9]*//; s/[ug]id=[0-9]*//g; s/size=[0-9]*k*//; s/nr_inodes=[0-9]*//'; env | sort";

impl Host {
    pub fn new() -> Self {
        let ground = Ground::new();
        std::fs::create_dir(ground.path("state")).expect("made");
        Self { ground }
    }

    pub fn runtime_directory(&self) -> PathBuf {
        self.ground.path("run")
    }

    /// `runner WORDS…`, not started.
    pub fn command<Word: AsRef<OsStr>>(&self, words: &[Word]) -> Command {
        let mut command = Command::new(runner());
        command
            .args(words)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", self.runtime_directory())
            .env("RUNNER_OPT_STATE_DIRECTORY", self.ground.path("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end; one that hangs has code 124.
    pub fn say<Word: AsRef<OsStr>>(&self, words: &[Word]) -> Said {
        self.say_in(Path::new("."), words)
    }

    /// As [`Host::say`], with this working directory.
    pub fn say_in<Word: AsRef<OsStr>>(&self, directory: &Path, words: &[Word]) -> Said {
        let runner = self.command(words);
        let mut command = Command::new("timeout");
        command
            .arg("120")
            .arg(runner.get_program())
            .args(runner.get_args());
        for (name, value) in runner.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        said(
            command
                .current_dir(directory)
                .stdin(Stdio::null())
                .output()
                .expect("timeout starts"),
        )
    }

    /// Creates a sandbox with this name.
    pub fn create(&self, name: &str, flags: &[&str]) {
        let words = [&["sandbox", "create", "--name", name], flags].concat();
        let created = self.say(&words);
        assert_eq!((created.code, &*created.stderr), (0, ""), "{created:?}");
        assert_eq!(created.stdout, format!("{name}\n"));
    }

    /// Runs `sh -c TEXT` in the sandbox.
    pub fn shell(&self, name: &str, text: &str) -> Said {
        self.say(&["sandbox", "exec", name, "--", "sh", "-c", text])
    }

    /// Starts `sh -c TEXT` detached, and returns its id.
    pub fn detach(&self, name: &str, text: &str) -> String {
        let started = self.say(&["sandbox", "exec", "-d", name, "--", "sh", "-c", text]);
        assert_eq!((started.code, &*started.stderr), (0, ""), "{started:?}");
        let id = started.stdout.strip_suffix('\n').expect("a line");
        assert!(id.parse::<u64>().is_ok_and(|id| id > 0), "{started:?}");
        id.to_owned()
    }

    /// Starts `sh -c TEXT` in the sandbox; its output is piped.
    pub fn start(&self, name: &str, text: &str) -> Child {
        self.command(&["sandbox", "exec", name, "--", "sh", "-c", text])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the runner starts")
    }

    /// Starts `runner WORDS…`, whose output is piped.
    pub fn spawn(&self, words: &[&str]) -> Running {
        let mut child = self
            .command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the runner starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Running { child, lines }
    }

    /// What `ls --json` says.
    pub fn list(&self) -> Vec<Value> {
        let said = self.say(&["sandbox", "ls", "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        let listing: Value = serde_json::from_str(&said.stdout).expect("a document");
        listing["sandboxes"].as_array().expect("a list").clone()
    }

    /// The supervisor of the only sandbox.
    pub fn supervisor(&self) -> rustix::process::Pid {
        let [pid] = support::processes::supervisors(&self.runtime_directory())[..] else {
            panic!("not one supervisor");
        };
        rustix::process::Pid::from_raw(pid).expect("a pid")
    }

    /// Names of the files below `part` of the runtime directory, without spare records.
    pub fn files(&self, part: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.runtime_directory().join(part));
        let names = entries.into_iter().flatten().filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            (!name.starts_with('.')).then_some(name)
        });
        names.collect()
    }

    /// Asserts that a command which printed this for [`RIGHTS`] has those of the command of a run.
    #[track_caller]
    pub fn assert_rights_of_a_run(&self, printed: &str) {
        let of_run = self.say(&["run", "--timeout", "none", "--", "sh", "-c", RIGHTS]);
        assert_eq!(of_run.code, 0, "{of_run:?}");
        // Where no group counts memory, the largest file follows what the host has free at the start.
        let differ_always = ["RUN_ID=", "Max file size "];
        let kept = |text: &str| -> Vec<String> {
            let lines = text.lines();
            lines
                .filter(|line| {
                    !differ_always
                        .iter()
                        .any(|differing| line.contains(differing))
                })
                .map(str::to_owned)
                .collect()
        };
        let (later, of_run) = (kept(printed), kept(&of_run.stdout));
        assert_eq!(later.len(), of_run.len(), "{later:#?}\n{of_run:#?}");
        let differing: Vec<_> = later
            .iter()
            .zip(&of_run)
            .filter(|(one, other)| one != other)
            .collect();
        assert!(differing.is_empty(), "{differing:#?}");
    }

    /// Asserts that no sandbox left anything.
    #[track_caller]
    pub fn assert_empty(&self) {
        assert_eq!(self.files("runs"), [""; 0]);
        assert_eq!(self.files("sandboxes"), [""; 0]);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for file in self.files("sandboxes") {
            if let Some((name, _run)) = file.split_once('@') {
                self.say(&["sandbox", "rm", "-f", name]);
            }
        }
        // What a killed supervisor has left, since no run follows that would remove it.
        if !self.files("runs").is_empty() {
            self.say(&["gc"]);
        }
    }
}

pub fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said {
        code: output.status.code().expect("an exit code"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
