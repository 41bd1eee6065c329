//! Kills, full disks, failing calls: they happen to a child process while it syncs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use runner::staging::{
    FileLimits, Journal, SyncStep, TemporaryName, Workspace, keep, remove_temporary, stage, sync,
};
use spec::digest::Digest;
use spec::path::RelPath;
use sys::credentials::HostIds;

use crate::ground::*;

/// Writes each name to a file before it returns, as the runner's records do, and ends the process
/// at a step.
struct Doomed {
    file: File,
    calls: usize,
    last: usize,
}

impl Doomed {
    fn step(&mut self) {
        self.calls += 1;
        if self.calls == self.last {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).expect("killed");
        }
    }
}

impl Journal for Doomed {
    fn locks(&mut self) -> Result<OwnedFd, std::io::Error> {
        locks()
    }

    fn record(&mut self, temporary: &TemporaryName) -> Result<(), std::io::Error> {
        self.file.write_all(temporary.path().as_bytes())?;
        self.file.write_all(b"\n")?;
        self.step();
        Ok(())
    }

    fn forget(&mut self, _temporary: &TemporaryName) {
        self.step();
    }

    fn reached(&mut self, _step: SyncStep) {
        self.step();
    }
}

/// Does nothing by itself: other tests start it with variables.
#[test]
fn the_child_of_other_tests_syncs_what_it_is_told() {
    let Some(home) = std::env::var_os("FILE_CONTRACT_HOME") else {
        return;
    };
    let home = Path::new(&home);
    if std::env::var("FILE_CONTRACT_ACT").as_deref() == Ok("keep") {
        return keep_and_report(home);
    }
    let last = std::env::var("FILE_CONTRACT_LAST_STEP").unwrap_or_default();
    let mut journal = Doomed {
        file: File::create(home.join("journal")).expect("made"),
        calls: 0,
        last: last.parse().unwrap_or(usize::MAX),
    };
    let scratch = open_directory(&home.join("scratch"));
    let reports = sync(
        &Workspace::open(&home.join("workspace")).expect("opened"),
        &[output("key", "new/result"), output("key2", "old")],
        scratch.as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut journal,
    );
    let report = serde_json::to_string(&reports).expect("written");
    fs::write(home.join("report"), report).expect("written");
}

fn keep_and_report(home: &Path) {
    let scratch = open_directory(&home.join("scratch"));
    let kept = keep(scratch.as_fd(), &home.join("kept"), 1 << 20).expect("kept");
    let text = format!(
        "directories {} links {} left out {}",
        kept.directories, kept.links, kept.left_out
    );
    fs::write(home.join("report"), text).expect("written");
}

const OLD: &[u8] = b"old content";
const CHUNKS_BYTES: usize = 600_000;

fn child_ground() -> Ground {
    let ground = Ground::new();
    ground.write("scratch/key", &vec![b'1'; CHUNKS_BYTES]);
    ground.write("scratch/key2", &vec![b'2'; CHUNKS_BYTES]);
    ground.write("workspace/old", OLD);
    ground
}

pub(crate) fn child(ground: &Ground, before: &[&OsStr]) -> Command {
    let me = std::env::current_exe().expect("the path of this test");
    let mut words = before.to_vec();
    words.push(me.as_os_str());
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args([
            "accidents::the_child_of_other_tests_syncs_what_it_is_told",
            "--exact",
        ])
        .env("FILE_CONTRACT_HOME", ground.home.path());
    command
}

/// The reports of the child: `(state, code)` for each output; empty if it was killed.
fn child_reports(ground: &Ground) -> Vec<(String, String)> {
    let Ok(text) = fs::read(ground.path("report")) else {
        return Vec::new();
    };
    let reports: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    reports
        .as_array()
        .expect("a list")
        .iter()
        .map(|report| (text(&report["state"]), text(&report["error"]["code"])))
        .collect()
}

fn later_start(ground: &Ground) {
    for line in fs::read(ground.path("journal"))
        .expect("read")
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let path = RelPath::parse(line).expect("a relative path");
        let name = TemporaryName::parse(path).expect("a name of ours");
        remove_temporary(&ground.path("workspace"), &name).expect("removed or gone");
    }
    ground.assert_no_temporary_file_is_left();
    ground.assert_canary();
}

/// What the destination may contain after an accident: only old or only new bytes.
fn assert_old_or_new(ground: &Ground) {
    let old = fs::read(ground.path("workspace/old")).expect("never gone");
    assert!(old == OLD || old == vec![b'2'; CHUNKS_BYTES], "a torn file");
    match fs::read(ground.path("workspace/new/result")) {
        Ok(new) => assert_eq!(new, vec![b'1'; CHUNKS_BYTES]),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

/// D-20
#[test]
fn a_sync_killed_after_any_step_leaves_the_old_file_or_the_new_one_whole() {
    use std::os::unix::process::ExitStatusExt as _;
    let mut killed = 0;
    for last in 1.. {
        let ground = child_ground();
        let done = child(&ground, &[])
            .env("FILE_CONTRACT_LAST_STEP", last.to_string())
            .output()
            .expect("started");
        assert_old_or_new(&ground);
        later_start(&ground);
        assert_old_or_new(&ground);
        if done.status.success() {
            assert_eq!(child_reports(&ground).len(), 2);
            break;
        }
        assert_eq!(done.status.signal(), Some(9), "{done:?}");
        killed += 1;
    }
    // Two outputs: recorded, created, copied, owner set, synced, renamed, directory synced, record removed.
    assert_eq!(killed, 16);
}

/// D-20
#[test]
fn a_sync_killed_in_the_middle_of_a_copy_leaves_the_old_file() {
    let ground = child_ground();
    let script = "ulimit -f 400; exec \"$@\"";
    let words = ["bash", "-c", script, "bash"].map(OsStr::new);
    let done = child(&ground, &words).output().expect("started");
    assert!(!done.status.success(), "SIGXFSZ ends it: {done:?}");
    let left: Vec<u64> = fs::read_dir(ground.path("workspace/new"))
        .expect("listed")
        .map(|entry| entry.expect("an entry").metadata().expect("its size").len())
        .collect();
    assert!(
        matches!(left[..], [size] if 0 < size && size < CHUNKS_BYTES as u64),
        "{left:?}"
    );
    assert_old_or_new(&ground);
    later_start(&ground);
    assert_eq!(fs::read(ground.path("workspace/old")).expect("read"), OLD);
}

/// D-21
#[test]
fn a_write_that_fails_half_way_leaves_the_old_file_and_no_temporary_one() {
    let ground = child_ground();
    let script = "trap '' XFSZ; ulimit -f 400; exec \"$@\"";
    let words = ["bash", "-c", script, "bash"].map(OsStr::new);
    let done = child(&ground, &words).output().expect("started");
    assert!(done.status.success(), "EFBIG is no end: {done:?}");
    let failed = ("failed".to_owned(), "destination_unwritable".to_owned());
    assert_eq!(child_reports(&ground), [failed.clone(), failed]);
    assert_eq!(fs::read(ground.path("workspace/old")).expect("read"), OLD);
    ground.assert_no_temporary_file_is_left();
    ground.assert_canary();
}

/// Runs `script` in its own user and mount namespace, with the child as its arguments.
pub(crate) fn child_in_namespaces(ground: &Ground, script: &str) -> bool {
    if !mounts_are_possible() {
        return false;
    }
    let script = format!("set -e; {script}");
    let words = ["unshare", "-Urm", "bash", "-c", &script, "bash"].map(OsStr::new);
    let done = child(ground, &words).output().expect("started");
    assert!(done.status.success(), "{done:?}");
    true
}

fn mounts_are_possible() -> bool {
    let probe = Command::new("unshare")
        .args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    let possible = probe.is_ok_and(|done| done.status.success());
    if !possible {
        skip("this user cannot mount a tmpfs in a user namespace of its own");
    }
    possible
}

/// Mounts a tmpfs over the workspace and runs the child; copies what it left to `result` before the
/// namespace ends.
fn child_on_tmpfs(ground: &Ground, options: &str, then: &str) -> bool {
    let home = "$FILE_CONTRACT_HOME";
    let script = format!(
        "mount -t tmpfs -o {options} none {home}/workspace; \
         printf 'old content' > {home}/workspace/old; {then} \"$@\"; \
         cp -a {home}/workspace {home}/result"
    );
    child_in_namespaces(ground, &script)
}

/// The writable space of a run: a tmpfs of the body's user namespace, in which only the body has
/// paths, reached through an open directory.
#[test]
fn the_tmpfs_of_the_body_is_staged_to_synced_from_and_kept() {
    use std::process::Stdio;
    if !mounts_are_possible() {
        return;
    }
    let ground = Ground::new();
    fs::set_permissions(ground.home.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    ground.write("workspace/in", b"in");
    let body = is_root().then_some(HostIds {
        uid: 1_879_048_199,
        gid: 1_879_048_199,
    });
    let (user, group) = ("--reuid=1879048199", "--regid=1879048199");
    let mut words = match body {
        Some(_) => vec!["setpriv", user, group, "--clear-groups"],
        None => Vec::new(),
    };
    let script = "set -e; cd $FILE_CONTRACT_HOME; mount -t tmpfs -o mode=700 none scratch; \
        echo ready; read go; cd scratch; cat in > out; mkdir -p dir/below; echo x > dir/below/x; \
        chmod 000 dir/below/x dir/below dir; echo ready; read go";
    words.extend(["unshare", "-Urm", "bash", "-c", script]);
    let mut started = Command::new(words[0])
        .args(&words[1..])
        .env("FILE_CONTRACT_HOME", ground.home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut said = std::io::BufReader::new(started.stdout.take().expect("a pipe"));
    let mut told = started.stdin.take().expect("a pipe");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("read");
    assert_eq!(line, "ready\n");
    let inside = format!(
        "/proc/{}/root{}",
        started.id(),
        ground.path("scratch").display()
    );
    let scratch = open_directory(Path::new(&inside));
    let limits = FileLimits::default();
    let inputs = [input("in", "in")];
    if body.is_some() {
        let error = stage(&ground.workspace(), &inputs, scratch.as_fd(), None, &limits)
            .expect_err("root has no name there");
        assert!(error.to_string().contains("openat"), "{error}");
    }
    stage(&ground.workspace(), &inputs, scratch.as_fd(), body, &limits).expect("staged");
    told.write_all(b"go\n").expect("told");
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).expect("read");
    assert_eq!(line, "ready\n");
    let reports = sync(
        &ground.workspace(),
        &[output("out", "out")],
        scratch.as_fd(),
        body,
        RUN_ID,
        &limits,
        &mut Memory::default(),
    );
    assert_eq!(reports[0].sha256, Some(Digest::of(b"in")), "{reports:?}");
    let kept = keep(scratch.as_fd(), &ground.path("kept"), 1 << 20).expect("kept");
    // An ordinary user leaves out what its owner may not read; root reads it.
    let files = if is_root() { 3 } else { 2 };
    assert_eq!(
        (kept.directories, kept.files),
        (3, files),
        "{:?}",
        kept.first_left_out
    );
    drop(told);
    started.wait().expect("ended");
    assert_eq!(fs::read(ground.path("workspace/out")).expect("read"), b"in");
    ground.assert_canary();
}

/// D-21
#[test]
fn a_full_disk_leaves_the_old_file_and_no_temporary_one() {
    let ground = child_ground();
    if !child_on_tmpfs(&ground, "size=256k", "") {
        return;
    }
    let failed = ("failed".to_owned(), "destination_full".to_owned());
    assert_eq!(child_reports(&ground), [failed.clone(), failed]);
    assert_eq!(fs::read(ground.path("result/old")).expect("read"), OLD);
    assert_eq!(
        fs::read_dir(ground.path("result/new"))
            .expect("listed")
            .count(),
        0
    );
    ground.assert_canary();
}

/// D-21
#[test]
fn a_read_only_workspace_fails_the_outputs_and_nothing_else() {
    let ground = child_ground();
    let remount = "mount -o remount,bind,ro $FILE_CONTRACT_HOME/workspace;";
    if !child_on_tmpfs(&ground, "size=8m", remount) {
        return;
    }
    let failed = ("failed".to_owned(), "destination_unwritable".to_owned());
    assert_eq!(child_reports(&ground), [failed.clone(), failed]);
    assert_eq!(fs::read(ground.path("result/old")).expect("read"), OLD);
    ground.assert_canary();
}

/// D-22
#[test]
fn a_workspace_on_another_file_system_is_synced_to() {
    let ground = child_ground();
    if !child_on_tmpfs(&ground, "size=8m", "") {
        return;
    }
    let synced = ("synced".to_owned(), String::new());
    assert_eq!(child_reports(&ground), [synced.clone(), synced]);
    let new = vec![b'1'; CHUNKS_BYTES];
    assert_eq!(
        fs::read(ground.path("result/new/result")).expect("read"),
        new
    );
    ground.assert_canary();
}

#[test]
fn the_umask_of_the_caller_changes_no_mode() {
    for umask in ["000", "777"] {
        let ground = child_ground();
        let script = format!("umask {umask}; exec \"$@\"");
        let words = ["bash", "-c", &script, "bash"].map(OsStr::new);
        let done = child(&ground, &words).output().expect("started");
        assert!(done.status.success(), "{done:?}");
        // Under umask 777 even the report of the child is unreadable, so the files are checked.
        assert_eq!(mode_of(&ground.path("workspace/new")), 0o755);
        assert_eq!(mode_of(&ground.path("workspace/new/result")), 0o644);
        assert_eq!(mode_of(&ground.path("workspace/old")), 0o644);
        ground.assert_canary();
    }
}

/// Runs the child under strace with `expressions`; returns the trace, or nothing without strace.
fn traced(ground: &Ground, expressions: &[&str]) -> Option<String> {
    traced_at(ground, &[], expressions)
}

/// The same for calls on these files only, if any.
fn traced_at(ground: &Ground, files: &[PathBuf], expressions: &[&str]) -> Option<String> {
    let log = ground.path("trace");
    let mut words: Vec<&OsStr> = ["strace", "-f", "-y", "-o"].map(OsStr::new).to_vec();
    words.push(log.as_os_str());
    for file in files {
        words.extend([OsStr::new("-P"), file.as_os_str()]);
    }
    for expression in expressions {
        words.extend([OsStr::new("-e"), OsStr::new(expression)]);
    }
    match child(ground, &words).output() {
        Ok(done) if done.status.success() => Some(fs::read_to_string(log).expect("read")),
        Ok(done) => {
            skip(&format!("strace cannot trace here: {done:?}"));
            None
        }
        Err(error) => {
            skip(&format!("strace is not installed: {error}"));
            None
        }
    }
}

/// D-23
#[test]
fn the_file_is_on_the_disk_before_its_name_and_the_name_before_the_next_output() {
    let ground = child_ground();
    let Some(trace) = traced(&ground, &["trace=fsync,renameat,renameat2,rename"]) else {
        return;
    };
    let workspace = ground.path("workspace");
    let steps: Vec<String> = trace
        .lines()
        .filter(|line| line.contains("= 0"))
        .filter_map(|line| {
            let object = line.split_once('<')?.1.split_once('>')?.0;
            let call = if line.contains("fsync(") {
                "fsync"
            } else {
                "rename"
            };
            let object = Path::new(object).strip_prefix(&workspace).ok()?;
            Some(format!("{call} {}", object.display()))
        })
        .collect();
    let expected = [
        // The new directory, in its parent.
        "fsync ".to_owned(),
        format!("fsync new/.runner-{RUN_ID}-0.tmp"),
        "rename new".to_owned(),
        "fsync new".to_owned(),
        format!("fsync .runner-{RUN_ID}-1.tmp"),
        "rename ".to_owned(),
        "fsync ".to_owned(),
    ];
    assert_eq!(steps, expected, "{trace}");
}

/// D-21
#[test]
fn a_disk_that_fails_at_fsync_or_rename_leaves_the_old_file() {
    for (inject, codes) in [
        (
            "inject=fsync:error=EIO:when=2",
            ["destination_unwritable", ""],
        ),
        (
            "inject=fsync:error=EIO:when=3",
            ["destination_not_durable", ""],
        ),
        ("inject=fsync:error=EDQUOT:when=4", ["", "destination_full"]),
        (
            "inject=renameat,renameat2:error=EIO:when=2",
            ["", "destination_unwritable"],
        ),
        (
            "inject=fchmod:error=EPERM:when=3",
            ["", "destination_unwritable"],
        ),
    ] {
        let ground = child_ground();
        if traced(&ground, &[inject]).is_none() {
            return;
        }
        let seen: Vec<String> = child_reports(&ground)
            .into_iter()
            .map(|(_, code)| code)
            .collect();
        assert_eq!(seen, codes, "{inject}");
        assert_old_or_new(&ground);
        let old = fs::read(ground.path("workspace/old")).expect("read");
        assert_eq!(old == OLD, !codes[1].is_empty(), "{inject}");
        ground.assert_no_temporary_file_is_left();
        ground.assert_canary();
    }
}

/// D-28
#[test]
fn interrupted_calls_are_made_again() {
    let ground = child_ground();
    // Only calls on the files of the sync: the dynamic loader reads too, and does not handle EINTR.
    let files = [
        "scratch/key".to_owned(),
        "scratch/key2".to_owned(),
        "workspace".to_owned(),
        "workspace/new".to_owned(),
        format!("workspace/new/.runner-{RUN_ID}-0.tmp"),
        format!("workspace/.runner-{RUN_ID}-1.tmp"),
    ];
    // The lock is requested without waiting, so no signal interrupts that.
    let calls = ["fsync", "read", "write"];
    // Every second call: the repeated call succeeds.
    let expressions = calls.map(|call| format!("inject={call}:error=EINTR:when=1+2"));
    let Some(trace) = traced_at(
        &ground,
        &files.map(|file| ground.path(file)),
        &expressions.each_ref().map(String::as_str),
    ) else {
        return;
    };
    for call in calls {
        let interrupted =
            |line: &&str| line.contains(&format!("{call}(")) && line.contains("(INJECTED)");
        assert!(
            trace.lines().any(|line| interrupted(&line)),
            "no {call}: {trace}"
        );
    }
    let synced = ("synced".to_owned(), String::new());
    assert_eq!(child_reports(&ground), [synced.clone(), synced]);
    assert_old_or_new(&ground);
}
