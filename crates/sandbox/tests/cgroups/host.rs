//! Support for tests of cgroups: a parent group, children that join groups, helper processes.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use runner_sandbox::cgroups::{Backend, RunCgroup, choose, observe};

/// A limit for hangs; nothing is measured with it.
pub(crate) const HANG: Duration = Duration::from_secs(30);
const TOP: &str = "/runner-tests";

pub(crate) use support::{needs_root, skip};

/// The top directories of all hierarchies that are mounted here.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
    mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .map(|line| PathBuf::from(line.split(' ').nth(4).expect("a mount point")))
        .collect()
}

/// A group in each hierarchy for one test; removed when dropped.
pub(crate) struct Parent {
    pub(crate) name: String,
}

impl Parent {
    /// `None`, with a printed skip: this host allows no groups.
    pub(crate) fn make() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            needs_root("only root may make a group at the top of a hierarchy");
            return None;
        }
        if hierarchies().is_empty() {
            skip("no cgroup file system is mounted");
            return None;
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TOP}/groups-{}-{number}", std::process::id());
        let parent = Self { name };
        for path in parent.places() {
            // Another test may remove the shared group between two calls.
            let started = Instant::now();
            while let Err(error) = std::fs::create_dir_all(&path) {
                assert!(started.elapsed() < HANG, "{}: {error}", path.display());
            }
        }
        Some(parent)
    }

    /// The group in each hierarchy.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        hierarchies()
            .iter()
            .map(|top| top.join(self.name.trim_start_matches('/')))
            .collect()
    }

    /// The back end that the product selects below this group.
    pub(crate) fn backend(&self) -> Backend {
        choose(
            Some(&self.name),
            &observe(Some(&self.name), false).expect("observed"),
        )
    }

    /// Asserts that no hierarchy has leftovers.
    pub(crate) fn assert_empty(&self) {
        for place in self.places() {
            let left: Vec<PathBuf> = std::fs::read_dir(&place)
                .expect("read")
                .map(|entry| entry.expect("read").path())
                .filter(|path| path.is_dir())
                .collect();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // Only a failed test has leftovers; interface files are not directories.
        let left = |place: &PathBuf| {
            let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
            let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.into_iter().filter(|path| path.is_dir())
        };
        let places = self.places();
        for group in places.iter().flat_map(left) {
            drop(std::fs::write(group.join("cgroup.kill"), "1"));
        }
        for place in &places {
            for group in left(place) {
                let started = Instant::now();
                while std::fs::remove_dir(&group).is_err() && started.elapsed().as_secs() < 1 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            drop(std::fs::remove_dir(place));
            // Fails while another test has a group in it, which then removes it.
            drop(std::fs::remove_dir(
                place.parent().expect("the shared group"),
            ));
        }
    }
}

/// The version 1 back end of this host, or a printed skip.
pub(crate) fn v1(parent: &Parent) -> Option<Backend> {
    let backend = parent.backend();
    if backend.name() == "v1" {
        return Some(backend);
    }
    skip(&format!(
        "this host has back end {}, not v1",
        backend.name()
    ));
    None
}

/// Starts a shell that joins the groups as the sandbox's child does, and then runs `script`.
pub(crate) fn start(run: &RunCgroup, tasks: &[OwnedFd], script: &str) -> Child {
    // dash knows descriptors of one digit only.
    let mut joining = String::from("set -e\n");
    for fd in tasks {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).expect("inheritable");
        joining.push_str(&format!("echo 0 >&{}\n", fd.as_raw_fd()));
    }
    if let Some(unified) = run.clone_into() {
        // The product clones into the group; a shell must join it.
        let path = std::fs::read_link(format!("/proc/self/fd/{}", unified.as_raw_fd())).unwrap();
        joining.push_str(&format!("echo 0 > {}/cgroup.procs\n", path.display()));
    }
    joining.push_str("exec sh -c \"$1\"\n");
    spawn(Command::new("bash").args(["-c", &joining, "bash", script]))
}

/// Starts a shell in a process group of its own.
pub(crate) fn shell(script: &str) -> Child {
    spawn(Command::new("sh").args(["-c", script]))
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("started")
}

/// Waits until `done`; fails the test if it hangs.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < HANG, "hangs: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// This test program again, with only the test `name` and `arguments` in its environment.
pub(crate) fn helper(name: &str, arguments: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("RUNNER_TESTS_HELPER", name)
        .envs(arguments.iter().copied());
    command
}

/// Whether this process is the helper `name`. In other processes that test does nothing.
pub(crate) fn is_helper(name: &str) -> bool {
    std::env::var_os("RUNNER_TESTS_HELPER").is_some_and(|value| value == name)
}

/// An argument of a helper.
pub(crate) fn argument(name: &str) -> String {
    std::env::var(name).expect("an argument of the helper")
}

/// An unused uid.
pub(crate) const ORDINARY_UID: u32 = 0x6fff_1234;

/// Gives a group to an ordinary user as documented.
pub(crate) fn chown_group(place: &Path) {
    for part in ["", "tasks", "cgroup.procs"] {
        let path = place.join(part);
        if path.exists() {
            std::os::unix::fs::chown(&path, Some(ORDINARY_UID), Some(ORDINARY_UID)).expect("given");
        }
    }
}
