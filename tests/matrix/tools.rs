//! The tools: their common options, and those that set limits.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;
use crate::cases::{Case, Judge, Limit};
use crate::scene::Scene;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// No sandbox: the control.
    Bare,
    Runner,
    Bwrap,
    Firejail,
    Nsjail,
    Runc,
    Crun,
}

pub const TOOLS: &[Tool] = &[
    Tool::Runner,
    Tool::Bwrap,
    Tool::Firejail,
    Tool::Nsjail,
    Tool::Runc,
    Tool::Crun,
];

/// The options that its manual and most of its users begin with.
const BWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
];
/// A private home directory with the body in it: /tmp and /var/tmp are replaced.
const FIREJAIL: &[&str] = &[
    "--quiet",
    "--private-dev",
    "--private-tmp",
    "--net=none",
    "--seccomp",
    "--caps.drop=all",
    "--nonewprivs",
];
const NSJAIL: &[&str] = &["-Mo", "-Q", "-R", "/usr", "-T", "/tmp"];

impl Tool {
    /// The name of the tool, in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Runner => "runner",
            Self::Bwrap => "bwrap",
            Self::Firejail => "firejail",
            Self::Nsjail => "nsjail",
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }

    /// Whether the default tier includes it: tools that start within milliseconds.
    pub fn is_quick(self) -> bool {
        matches!(self, Self::Runner | Self::Bwrap)
    }

    /// Whether it is a Debian package, which scripts/test installs.
    pub fn is_of_debian(self) -> bool {
        self != Self::Nsjail
    }

    /// The path of the program; for the runner, the program under test.
    pub fn program(self) -> Option<PathBuf> {
        match self {
            Self::Bare => None,
            Self::Runner => Some(support::runner().into()),
            _ => ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
                .map(|directory| Path::new(directory).join(self.name()))
                .into_iter()
                .find(|path| path.exists()),
        }
    }

    /// The first line of `--version`.
    pub fn version(self) -> String {
        let Some(program) = self.program() else {
            return String::new();
        };
        let output = Command::new(program).arg("--version").output();
        let output = output.expect("a program says its version");
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// The options that set a limit; empty if the tool has none.
    pub fn limit_words(self, limit: Limit) -> &'static [&'static str] {
        match (self, limit) {
            (Self::Runner, Limit::Processes) => &["--pids=64"],
            (Self::Runner, Limit::Memory) => &["-m", "64m"],
            (Self::Runner, Limit::Disk) => &["--disk=32m"],
            (Self::Runner, Limit::Output) => &["--max-output=1m"],
            (Self::Runner, Limit::Time) => &["--timeout=500ms", "--grace=100ms"],
            (Self::Runner, Limit::Processor) => &["--cpu-time=500ms", "--grace=100ms"],
            (Self::Bwrap, Limit::Disk) => &["--size", "33554432"],
            (Self::Firejail, Limit::Processes) => &["--rlimit-nproc=64"],
            (Self::Firejail, Limit::Memory) => &["--rlimit-as=67108864"],
            (Self::Firejail, Limit::Disk) => &["--rlimit-fsize=33554432"],
            (Self::Firejail, Limit::Time) => &["--timeout=00:00:01"],
            (Self::Firejail, Limit::Processor) => &["--rlimit-cpu=1"],
            (Self::Firejail, Limit::Descriptors) => &["--rlimit-nofile=1024"],
            (Self::Nsjail, Limit::Processes) => &["--cgroup_pids_max", "64"],
            (Self::Nsjail, Limit::Memory) => &["--cgroup_mem_max", "67108864"],
            (Self::Nsjail, Limit::Disk) => &["--rlimit_fsize", "32"],
            (Self::Nsjail, Limit::Time) => &["--time_limit", "1"],
            (Self::Nsjail, Limit::Processor) => &["--rlimit_cpu", "1"],
            (Self::Nsjail, Limit::Descriptors) => &["--rlimit_nofile", "1024"],
            _ => &[],
        }
    }

    /// The part of a config.json that sets a limit.
    fn limit_of_spec(limit: Limit, spec: &mut Value) {
        match limit {
            Limit::Processes => spec["linux"]["resources"]["pids"] = json!({"limit": 64}),
            Limit::Memory => {
                spec["linux"]["resources"]["memory"] = json!({"limit": 64 << 20});
            }
            // Limits of the mount below; the tool limits neither time nor output.
            Limit::Disk | Limit::Output | Limit::Time => (),
            Limit::Processor => {
                spec["process"]["rlimits"] = json!([{"type": "RLIMIT_CPU", "hard": 1, "soft": 1}]);
            }
            // The default that `spec` writes is 1,024.
            Limit::Descriptors => (),
        }
    }

    /// The line of docs/matrix.md.
    pub fn shown(self) -> String {
        let words = match self {
            Self::Bare => Vec::new(),
            Self::Runner => vec!["run", "--ro", "BODY", "--", "BODY"],
            Self::Bwrap => [
                BWRAP,
                &[
                    "--tmpfs",
                    "/tmp",
                    "--ro-bind",
                    "BODY",
                    "/hostile",
                    "/hostile",
                ],
            ]
            .concat(),
            Self::Firejail if support::is_root() => {
                [FIREJAIL, &["--private=DIRECTORY", "~/BODY"]].concat()
            }
            Self::Firejail => [FIREJAIL, &["--noroot", "--private=DIRECTORY", "~/BODY"]].concat(),
            Self::Nsjail => [NSJAIL, &["-R", "BODY", "--", "BODY"]].concat(),
            Self::Runc | Self::Crun => vec!["run", "--bundle", "BUNDLE", "NAME"],
        };
        let bundle = match self {
            Self::Runc | Self::Crun if support::is_root() => " (a bundle of its `spec`)",
            Self::Runc | Self::Crun => " (a bundle of its `spec --rootless`)",
            _ => "",
        };
        format!("`{} {}`{bundle}", self.name(), words.join(" "))
    }

    /// The command that starts the body of the case. `more` are further flags of the runner.
    pub fn command(self, case: &Case, scene: &Scene, more: &[&str]) -> Command {
        let body = scene.path("hostile");
        let body_words = [vec![case.name.to_owned()], scene.words()].concat();
        let limits = case
            .limit
            .map_or(&[] as &[_], |limit| self.limit_words(limit));
        let mut command = self.outer();
        match self {
            Self::Bare => command.arg(&body),
            Self::Runner => {
                command.args(["run", "--quiet", "--ro"]).arg(&body);
                if case.judge == Judge::LineOnTerminal {
                    // Without it, standard input is empty.
                    command.arg("-i");
                }
                command.args(limits).args(more).arg("--").arg(&body)
            }
            Self::Bwrap => command
                .args(BWRAP)
                .args(limits)
                .args(["--tmpfs", "/tmp", "--ro-bind"])
                .arg(&body)
                .args(["/hostile", "/hostile"]),
            Self::Firejail => {
                command.args(FIREJAIL).args(limits);
                if !support::is_root() {
                    command.arg("--noroot");
                }
                let home = scene.home();
                support::bodies::copy_program(&body, &home.join("hostile"));
                let inside = PathBuf::from(std::env::var_os("HOME").expect("a home"));
                command
                    .arg(format!("--private={}", home.display()))
                    .arg(inside.join("hostile"))
            }
            Self::Nsjail => command
                .args(NSJAIL)
                .args(limits)
                .arg("-R")
                .arg(&body)
                .arg("--")
                .arg(&body),
            Self::Runc | Self::Crun => {
                let bundle = self.bundle(case, scene, &body_words);
                command.arg("--root").arg(scene.path("state"));
                command.args(["run", "--bundle"]).arg(bundle);
                return self.finished(command.arg(container(case, scene)), case, scene);
            }
        };
        self.finished(command.args(body_words), case, scene)
    }

    /// Tools of root mount in a separate namespace, so that the mounts of the host do not change.
    fn outer(self) -> Command {
        let program = self.program();
        if self == Self::Runner || !support::is_root() {
            return program.map_or_else(|| Command::new("env"), Command::new);
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--"]);
        if self == Self::Crun {
            // It refuses hosts with both versions of cgroups: here it sees one.
            command.args([
                "sh",
                "-c",
                "umount -l /sys/fs/cgroup/unified; exec \"$@\"",
                "sh",
            ]);
        }
        command.args(program);
        command
    }

    /// With the surroundings that the case needs.
    fn finished(self, command: &Command, case: &Case, scene: &Scene) -> Command {
        let words = |command: &Command| -> Vec<String> {
            let words = [command.get_program()]
                .into_iter()
                .chain(command.get_args());
            words
                .map(|word| word.to_str().expect("plain words").to_owned())
                .collect()
        };
        let mut outer = match case.judge {
            Judge::LineOnTerminal => {
                let quoted: Vec<String> = words(command)
                    .iter()
                    .map(|word| format!("'{word}'"))
                    .collect();
                let mut outer = Command::new("script");
                outer.args(["-qefc", &quoted.join(" "), "/dev/null"]);
                outer
            }
            Judge::LineWithDescriptor => {
                let mut outer = Command::new("sh");
                outer.args(["-c", "exec 9<\"$0\"; exec \"$@\""]);
                outer.arg(scene.path("."));
                outer.args(words(command));
                outer
            }
            // A process that can be killed while the body lives.
            Judge::KilledParent if self == Self::Bare => {
                let mut outer = Command::new("sh");
                outer.args(["-c", "\"$@\" & wait", "sh"]);
                outer.args(words(command));
                outer
            }
            _ => {
                let mut outer = Command::new(command.get_program());
                outer.args(command.get_args());
                outer
            }
        };
        outer.current_dir("/").env("MATRIX_SECRET", scene.secret());
        outer
    }

    /// A bundle for OCI runtimes: the output of their `spec`, with the host's /usr, a /tmp and the body.
    fn bundle(self, case: &Case, scene: &Scene, body_words: &[String]) -> PathBuf {
        let bundle = scene.path("bundle");
        let root = bundle.join("rootfs");
        for name in ["proc", "dev", "sys", "tmp", "usr"] {
            std::fs::create_dir_all(root.join(name)).expect("made");
        }
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&bundle, open).expect("set");
        support::bodies::copy_program(scene.path("hostile"), &root.join("hostile"));
        let mut spec = Command::new(self.program().expect("installed"));
        spec.arg("spec").current_dir(&bundle);
        if !support::is_root() {
            spec.arg("--rootless");
        }
        assert!(spec.status().expect("it starts").success(), "{spec:?}");
        let path = bundle.join("config.json");
        let text = std::fs::read_to_string(&path).expect("readable");
        let mut spec: Value = serde_json::from_str(&text).expect("JSON");
        let words = [vec!["/hostile".to_owned()], body_words.to_vec()].concat();
        spec["process"]["args"] = json!(words);
        // The caller's own streams, without a terminal between.
        spec["process"]["terminal"] = json!(false);
        let mut options = vec!["nosuid", "nodev", "mode=1777"];
        if case.limit == Some(Limit::Disk) {
            options.push("size=32m");
        }
        let mounts = spec["mounts"].as_array_mut().expect("mounts");
        mounts.push(json!({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}));
        mounts.push(
            json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": options}),
        );
        if let Some(limit) = case.limit {
            Self::limit_of_spec(limit, &mut spec);
        }
        if support::is_root()
            && let Ok(parent) = std::env::var("RUNNER_OPT_CGROUP_PARENT")
        {
            spec["linux"]["cgroupsPath"] = json!(format!("{parent}/{}", container(case, scene)));
        }
        std::fs::write(path, spec.to_string()).expect("written");
        bundle
    }

    /// Removes the tool's leftovers of a killed run.
    pub fn clean_up(self, case: &Case, scene: &Scene) {
        if matches!(self, Self::Runc | Self::Crun) {
            let mut delete = self.outer();
            delete.arg("--root").arg(scene.path("state"));
            delete
                .args(["delete", "--force"])
                .arg(container(case, scene));
            // Nothing is left if the run ended normally.
            delete.output().expect("it starts");
            std::fs::remove_dir_all(scene.path("bundle")).expect("removed");
            remove_groups(&container(case, scene));
        }
    }
}

/// Removes the groups of a container whose tool was killed.
fn remove_groups(container: &str) {
    let Ok(parent) = std::env::var("RUNNER_OPT_CGROUP_PARENT") else {
        return;
    };
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(top).expect("readable");
    let hierarchies = hierarchies.filter_map(|entry| Some(entry.ok()?.path()));
    for hierarchy in [top.to_owned()].into_iter().chain(hierarchies) {
        let group = hierarchy.join(parent.trim_matches('/')).join(container);
        let started = Instant::now();
        // EBUSY until the last process has gone.
        while group.exists() && std::fs::remove_dir(&group).is_err() {
            assert!(started.elapsed() < PATIENCE, "{} stays", group.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A unique name for each case.
fn container(case: &Case, scene: &Scene) -> String {
    format!("{}-{}", scene.mark.replace('=', "-"), case.name)
}
