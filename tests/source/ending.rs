//! A signal during a build or a pull leaves nothing.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::artifacts::Source;
use support::bundling::output_of;
use support::invariants::eventually;

/// Stands in for git.
const ENDLESS_GIT: &str = include_str!("../bodies/source/endless-git");

/// Large enough that the program is still running when this test looks.
const NOISE_BYTES: usize = 200 << 20;

fn noise(path: &Path) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chunk = Vec::with_capacity(1 << 20);
    let mut file = std::fs::File::create(path).expect("made");
    for _ in 0..NOISE_BYTES >> 20 {
        chunk.clear();
        while chunk.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.extend_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk).expect("written");
    }
}

/// Waits until `is_there`, then sends SIGINT; returns how the program ended.
fn interrupted(mut child: Child, is_there: impl Fn() -> bool) -> std::process::ExitStatus {
    let started = Instant::now();
    while !is_there() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "it never came so far"
        );
        let ended = child.try_wait().expect("waited");
        assert_eq!(ended, None, "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a pid");
    kill_process(pid, Signal::INT).expect("sent");
    child.wait().expect("waited")
}

#[test]
fn a_build_that_is_interrupted_leaves_no_blob_and_no_layout() {
    let source = Source::new();
    noise(&source.file("noise", ""));
    let start = || {
        let mut command = source.command(&source.directory(), &["--name", "it", "--version", "1"]);
        command.arg("-o").arg(source.ground.path("it.oci"));
        command.stdout(Stdio::null()).spawn().expect("started")
    };
    let begun = || 0 < source.stored();
    let status = interrupted(start(), begun);
    assert_eq!(status.signal(), Some(2), "{status:?}");
    assert_eq!(source.stored(), 0);
    // Later: the layer is in the store, and the layout is being written beside its final name.
    let names = |part: &str| -> Vec<String> {
        std::fs::read_dir(source.ground.path("."))
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.contains(part))
            .collect()
    };
    let status = interrupted(start(), || !names(".runner-").is_empty());
    assert_eq!(status.signal(), Some(2), "{status:?}");
    assert_eq!(names(".runner-"), [""; 0]);
    assert_eq!(names("it.oci"), [""; 0]);
}

/// E-04: The temporary git directory of a killed build is removed by the next start.
#[test]
fn what_a_killed_build_left_is_removed_by_the_next_start() {
    let source = Source::checkout(&[("a", "a")]);
    let (bin, tmp) = (source.ground.path("bin"), source.ground.path("tmp"));
    for directory in [&bin, &tmp] {
        std::fs::create_dir(directory).expect("made");
    }
    let git = source.ground.write("bin/git", ENDLESS_GIT);
    std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).expect("set");
    let left = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&tmp).expect("listed");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    let git_pid = || -> Option<Pid> {
        let text = std::fs::read_to_string(left().first()?.join("pid")).ok()?;
        Pid::from_raw(text.trim_end().parse().ok()?)
    };
    let mut command = source.command(&source.directory(), &[]);
    command.env("PATH", &bin).env("TMPDIR", &tmp);
    let mut child = command.stdout(Stdio::null()).spawn().expect("started");
    eventually("git runs", || git_pid().is_some());
    let git_pid = git_pid().expect("it runs");
    let collect = || output_of(&mut source.runner(&["gc"]));
    // What is in use stays.
    let collected = collect();
    assert_eq!(collected.text(), "nothing to remove\n", "{collected:?}");
    assert_eq!(left().len(), 1);
    kill_process(Pid::from_child(&child), Signal::KILL).expect("sent");
    child.wait().expect("ended");
    assert_eq!(left().len(), 1);
    kill_process(git_pid, Signal::KILL).expect("sent");
    let collected = collect();
    assert!(
        collected.text().starts_with("removed 1 leftover of"),
        "{collected:?}"
    );
    assert!(left().is_empty());
    // A build that ends leaves no record.
    source.build(&[]);
    assert_eq!(collect().text(), "nothing to remove\n");
}

/// with the program that pulls.
#[test]
fn a_pull_that_is_killed_takes_the_process_along_that_speaks_to_the_registry() {
    // A registry that accepts a connection and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let reference = format!("{address}/team/name@sha256:{}", "0".repeat(64));
    for signal in [Signal::KILL, Signal::INT] {
        let source = Source::new();
        let mut command = source.runner(&["source", "pull", &reference, "--insecure"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("started");
        let connection = silent.accept().expect("a connection");
        let pid = child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.expect("listed");
        let is_confined = |pid: &&str| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|status| status.contains("Seccomp:\t2"))
        };
        let fetcher = children.split_whitespace().find(is_confined);
        let fetcher = format!("/proc/{}", fetcher.expect("a fetcher"));
        let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("sent");
        let status = child.wait().expect("waited");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        eventually("the fetcher has ended", || !Path::new(&fetcher).exists());
        drop(connection);
    }
}
