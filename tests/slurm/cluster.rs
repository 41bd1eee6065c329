//! A Slurm of one node, in namespaces of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::invariants::groups_of;
use support::{Ground, MARKER, belongs_to_tier, is_root, runner, skip, source_path};

/// A job that takes longer hangs.
const HANG_AFTER: Duration = Duration::from_secs(200);

/// What lives in the namespaces as long as they do; munged and Slurm set their names.
const DAEMONS: [&str; 6] = [
    "bash",
    "munged",
    "slurmctld",
    "slurmscriptd",
    "slurmd",
    "ps",
];

/// Killed with all its processes when it is dropped.
pub struct Cluster {
    pub ground: Ground,
    /// `unshare`, which takes process 1 along.
    namespaces: Child,
    /// Process 1 of the namespaces.
    first: String,
}

impl Cluster {
    /// `None`, and the reason is printed: it belongs to a longer tier, or Slurm is not installed.
    pub fn start(tracking: &str) -> Option<Self> {
        if !belongs_to_tier("long") {
            return None;
        }
        for daemon in ["munged", "slurmctld", "slurmd"] {
            if !PathBuf::from("/usr/sbin").join(daemon).exists() {
                skip(&format!(
                    "no {daemon} in /usr/sbin: scripts/test --long installs it"
                ));
                return None;
            }
        }
        let ground = Ground::new();
        for name in ["node", "tmp", "home"] {
            std::fs::create_dir(ground.path(name)).expect("made");
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare"]);
        if !is_root() {
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command
            .args(["--net", "--uts", "--mount", "--pid", "--fork"])
            .args(["--kill-child", "--mount-proc", "bash"])
            .arg(source_path("tests/slurm/node.sh"))
            .arg(tracking)
            .current_dir(ground.path("node"))
            .env("PATH", path())
            .stdin(Stdio::null());
        let namespaces = command.spawn().expect("started");
        let pid = namespaces.id();
        let mut cluster = Self {
            ground,
            namespaces,
            first: String::new(),
        };
        cluster.until("Slurm is ready", || {
            cluster.ground.path("node/ready").exists()
        });
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children
            .expect("readable")
            .trim()
            .clone_into(&mut cluster.first);
        Some(cluster)
    }

    /// A command of a user of the cluster, in the workspace. Its environment is that of the jobs.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        let path_of = |name: &str| self.ground.path(name);
        command
            .args([
                "--net",
                "--uts",
                "--mount",
                "--pid",
                "--target",
                &self.first,
                "--",
            ])
            .args(["env", "-C"])
            .arg(self.ground.workspace())
            .args(words)
            .env("PATH", path())
            .env("SLURM_CONF", path_of("node/slurm.conf"))
            .env("HOME", path_of("home"))
            .env("TMPDIR", path_of("tmp"))
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", path_of("runtime"))
            .env("RUNNER_OPT_STATE_DIRECTORY", path_of("state"))
            .env(
                "RUNNER_OPT_ENV",
                format!("{MARKER}={}", self.ground.marker()),
            )
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("nsenter starts")
    }

    /// What a command prints that succeeds.
    #[track_caller]
    pub fn printed(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Queues a batch script, and returns the number of the job.
    #[track_caller]
    pub fn submit(&self, flags: &[&str], script: &str) -> String {
        self.ground.write("work/job.sbatch", script);
        let words = [&["sbatch", "--parsable"], flags, &["job.sbatch"]].concat();
        self.printed(&words).trim().to_owned()
    }

    /// A field of `scontrol show job`.
    #[track_caller]
    pub fn field(&self, job: &str, name: &str) -> String {
        let shown = self.printed(&["scontrol", "--oneliner", "show", "job", job]);
        let key = format!("{name}=");
        let value = shown
            .split_whitespace()
            .find_map(|word| word.strip_prefix(&*key));
        value
            .unwrap_or_else(|| panic!("no {name}: {shown}"))
            .to_owned()
    }

    /// Waits until nothing of the job runs.
    #[track_caller]
    pub fn until_ended(&self, job: &str) {
        self.until("the end of the job", || {
            let state = self.printed(&[
                "squeue",
                "--noheader",
                "--states=all",
                "--format=%T",
                "--jobs",
                job,
            ]);
            !["PENDING\n", "RUNNING\n", "COMPLETING\n"].contains(&&*state)
        });
    }

    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < HANG_AFTER, "never came: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A report that a job has written.
    #[track_caller]
    pub fn report(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.ground.workspace().join(name));
        serde_json::from_str(&text.expect("a report")).expect("JSON")
    }

    /// Ids of the runs that are recorded.
    pub fn records(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.ground.path("runtime/runs")).expect("readable");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        // Empty records are kept for the next run.
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// No process but the daemons.
    #[track_caller]
    pub fn assert_no_process_left(&self) {
        let others = || {
            let names = self.printed(&["ps", "-e", "-o", "comm="]);
            let names = names.lines().filter(|name| !DAEMONS.contains(name));
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let started = Instant::now();
        while !others().is_empty() && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(others(), Vec::<String>::new(), "processes are left");
    }

    /// No process, no record, no cgroup, no scratch root of this run.
    #[track_caller]
    pub fn assert_nothing_left(&self, run: &str) {
        self.assert_no_process_left();
        assert_eq!(self.records(), Vec::<String>::new(), "records are left");
        assert_eq!(groups_of(run), Vec::<PathBuf>::new(), "cgroups are left");
        let scratch = std::fs::read_dir(self.ground.path("tmp")).expect("readable");
        assert_eq!(scratch.count(), 0, "scratch is left");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _killed = self.namespaces.kill();
        let _waited = self.namespaces.wait();
        if std::thread::panicking() {
            for name in ["munge.log", "slurmctld.out", "slurmd.out"] {
                let text = std::fs::read_to_string(self.ground.path("node").join(name));
                eprintln!("{name}:\n{}", text.unwrap_or_default());
            }
        }
    }
}

/// Where jobs find the program.
fn path() -> OsString {
    let program = PathBuf::from(runner());
    let mut path = OsString::from(program.parent().expect("a directory"));
    path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}
