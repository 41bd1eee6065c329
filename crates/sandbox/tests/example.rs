//! `examples/sandbox.rs`: the crate alone confines, limits and cleans up.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The uid of an ordinary user; no account has it.
const ORDINARY: u32 = 40_123;

/// Directories that `uid` may write and search, with a copy of the example.
struct Ground {
    root: tempfile::TempDir,
    uid: u32,
}

impl Ground {
    fn new(uid: u32) -> Self {
        let root = tempfile::tempdir().expect("made");
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(root.path(), permissions).expect("opened");
        let ground = Self { root, uid };
        for name in ["shown", "records"] {
            std::fs::create_dir(ground.path(name)).expect("made");
            std::os::unix::fs::chown(ground.path(name), Some(uid), Some(uid)).expect("given");
        }
        std::fs::write(ground.path("shown/word"), "of the host\n").expect("written");
        support::bodies::copy_program(example(), &ground.path("sandbox"));
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs `script` in the example's sandbox.
    fn run(&self, script: &str) -> Output {
        let mut command = Command::new(self.path("sandbox"));
        command
            .arg(self.path("shown"))
            .args(["sh", "-c", script, "sh"])
            .arg(self.path("shown"))
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", self.path("records"));
        if rustix::process::geteuid().is_root() && self.uid != 0 {
            command
                .gid(self.uid)
                .uid(self.uid)
                .env_remove("RUNNER_OPT_CGROUP_PARENT");
        }
        command.output().expect("started")
    }

    fn assert_nothing_left(&self) {
        let is_spare = |path: &Path| path.to_string_lossy().contains(".spare");
        let runs = std::fs::read_dir(self.path("records/runs")).expect("listed");
        let runs: Vec<PathBuf> = runs.map(|entry| entry.expect("read").path()).collect();
        assert!(runs.iter().all(|path| is_spare(path)), "{runs:?}");
    }
}

/// Cargo builds it beside this test.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("known");
    let profile = test.ancestors().nth(2).expect("a directory");
    profile.join("examples/sandbox")
}

fn uids() -> Vec<u32> {
    match rustix::process::geteuid().as_raw() {
        0 => vec![0, ORDINARY],
        uid => vec![uid],
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_command_sees_only_mounted_paths_of_the_host() {
    for uid in uids() {
        let ground = Ground::new(uid);
        let done = ground.run(
            "cat $1/word; id -u; touch $1/new 2>/dev/null || echo refused; \
             cat /proc/net/dev | grep -c eth; ls /root /etc/shadow 2>/dev/null; \
             echo kept >/scratch/file && cat /scratch/file",
        );
        assert!(done.status.success(), "{done:?}");
        assert_eq!(
            text(&done),
            "of the host\n1000\nrefused\n0\nkept\nExited Some(0)\n",
            "{done:?}"
        );
        assert!(!ground.path("shown/new").exists());
        ground.assert_nothing_left();
    }
}

/// The same that holds for the program's runs: a mount, also a read-only one, lends no socket.
#[test]
fn a_socket_in_a_mounted_directory_is_not_reached() {
    for uid in uids() {
        let ground = Ground::new(uid);
        let path = ground.path("shown/socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let permissions = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, permissions).expect("opened");
        let done = ground.run(
            "python3 -c 'import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print(\"connected\")
except OSError:
    print(\"denied\")' $1/socket",
        );
        assert_eq!(text(&done), "denied\nExited Some(0)\n", "{done:?}");
    }
}

#[test]
fn limits_hold_and_nothing_survives() {
    for uid in uids() {
        let ground = Ground::new(uid);
        let done = ground.run("head -c 200m /dev/zero | tail -c 150m | wc -c");
        assert!(!text(&done).contains("157286400"), "{done:?}");
        let done =
            ground.run("i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; echo all");
        assert!(!text(&done).contains("all"), "{done:?}");
        let done = ground.run("sleep 60");
        assert_eq!(text(&done), "TimedOut None\n", "{done:?}");
        ground.assert_nothing_left();
    }
}

#[test]
fn a_missing_command_is_reported() {
    let ground = Ground::new(rustix::process::geteuid().as_raw());
    let mut command = Command::new(ground.path("sandbox"));
    command.arg(ground.path("shown")).arg("no-such-command");
    let done = command
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records"))
        .output()
        .expect("started");
    assert!(!done.status.success());
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(stderr.contains("ProgramNotFound"), "{stderr}");
    ground.assert_nothing_left();
}

#[test]
fn the_documented_command_lines_work() {
    let ground = Ground::new(rustix::process::geteuid().as_raw());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["docs/code.md", "crates/sandbox/examples/sandbox.rs"] {
        let text = std::fs::read_to_string(root.join(file)).expect("read");
        let (_, rest) = text.split_once("--example sandbox -- ").expect("shown");
        let words = rest.split('`').next().unwrap_or_default();
        let done = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {words}")])
            .arg(ground.path("sandbox"))
            .current_dir(&root)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records"))
            .output()
            .expect("started");
        assert!(done.status.success(), "{file}: {done:?}");
    }
}
