//! The file contract: what is staged, what is synced, and that nothing else on the host changes.
//!
//! Ordinary directories stand in for the writable space. Each case ends with a look at a canary
//! tree outside both: same bytes, modes, owners, times, link counts and attributes.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot prepare its case, or must skip it, has to say so loudly"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runner::kernel::credentials::HostIds;
use runner::scratch::{
    FileLimits, InputFile, Journal, OUTPUTS_MAX, OutputFile, ScratchError, SyncStep, TemporaryName,
    Workspace, check_destination, check_key, check_outputs, keep, remove_temporary, remove_tree,
    stage, sync,
};
use runner::spec::digest::Digest;
use runner::spec::path::RelPath;
use runner::spec::report::{StagedReport, SyncState, SyncedReport};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};

const RUN_ID: &str = "01jd4w2v7m8q9r0s1t2u3v4w5x";
const HANG_GUARD: Duration = Duration::from_secs(30);

/// A workspace, a scratch directory, and a canary tree beside them that must never change.
struct Ground {
    home: tempfile::TempDir,
    canary: BTreeMap<PathBuf, Facts>,
}

#[derive(Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    links: u64,
    content: Vec<u8>,
    attribute: Option<Vec<u8>>,
}

impl Ground {
    fn new() -> Self {
        Self::at(tempfile::tempdir().expect("a directory"))
    }

    /// On a tmpfs where there is one, as the writable space is: a disk takes a minute for what
    /// memory does in a second.
    fn in_memory() -> Self {
        Self::at(
            tempfile::tempdir_in("/dev/shm")
                .unwrap_or_else(|_absent| tempfile::tempdir().expect("a directory")),
        )
    }

    fn at(home: tempfile::TempDir) -> Self {
        for name in ["workspace", "scratch", "outside", "outside/deep"] {
            fs::create_dir(home.path().join(name)).expect("made");
        }
        let secret = home.path().join("outside/secret");
        fs::write(&secret, b"canary").expect("written");
        fs::write(home.path().join("outside/deep/result"), b"theirs").expect("written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("chmod");
        match rustix::fs::setxattr(&secret, c"user.canary", b"sings", XattrFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOTSUP) => (),
            Err(errno) => panic!("setxattr: {errno}"),
        }
        let canary = facts_of(&home.path().join("outside"));
        Self { home, canary }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, content).expect("written");
        path
    }

    fn workspace(&self) -> Workspace {
        Workspace::open(&self.path("workspace")).expect("opened")
    }

    fn scratch(&self) -> OwnedFd {
        open_directory(&self.path("scratch"))
    }

    fn stage(&self, inputs: &[InputFile]) -> Result<Vec<StagedReport>, ScratchError> {
        self.stage_within(inputs, &FileLimits::default())
    }

    fn stage_within(
        &self,
        inputs: &[InputFile],
        limits: &FileLimits,
    ) -> Result<Vec<StagedReport>, ScratchError> {
        stage(
            &self.workspace(),
            inputs,
            self.scratch().as_fd(),
            None,
            limits,
        )
    }

    fn sync(&self, outputs: &[OutputFile]) -> Vec<SyncedReport> {
        self.sync_within(outputs, &FileLimits::default())
    }

    fn sync_within(&self, outputs: &[OutputFile], limits: &FileLimits) -> Vec<SyncedReport> {
        let mut journal = Memory::default();
        let reports = sync(
            &self.workspace(),
            outputs,
            self.scratch().as_fd(),
            None,
            RUN_ID,
            limits,
            &mut journal,
        );
        assert_eq!(journal.known, [], "every temporary name is forgotten");
        self.assert_no_temporary_file_is_left();
        reports
    }

    /// Stages one input that must be refused, and looks that nothing came of it.
    fn refused_input(&self, path: &str) -> ScratchError {
        let error = self
            .stage(&[input("key", path)])
            .expect_err("the input must be refused");
        assert!(!self.path("scratch/key").exists(), "{path} was staged");
        self.assert_canary();
        error
    }

    /// Syncs one output that must not be written, and gives its code.
    fn refused_output(&self, path: &str) -> String {
        let reports = self.sync(&[output("key", path)]);
        assert_eq!(reports[0].state, SyncState::Failed, "{reports:?}");
        assert_eq!((reports[0].sha256, reports[0].bytes), (None, None));
        self.assert_canary();
        let error = reports[0].error.as_ref().expect("an error");
        assert!(error.message.contains("key"), "names the key: {error:?}");
        assert!(error.hint.is_some(), "teaches: {error:?}");
        error.code.clone()
    }

    fn assert_canary(&self) {
        assert_eq!(facts_of(&self.path("outside")), self.canary);
    }

    fn assert_no_temporary_file_is_left(&self) {
        let mut pending = vec![self.path("workspace")];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(&directory).expect("listed") {
                let entry = entry.expect("an entry");
                let name = entry.file_name();
                let ours = name.as_bytes().starts_with(b".runner-");
                assert!(!ours, "{} is left", entry.path().display());
                if entry.file_type().expect("a type").is_dir() {
                    pending.push(entry.path());
                }
            }
        }
    }
}

#[derive(Default)]
struct Memory {
    known: Vec<TemporaryName>,
    recorded: usize,
    steps: Vec<SyncStep>,
}

impl Journal for Memory {
    fn record(&mut self, temporary: &TemporaryName) -> Result<(), std::io::Error> {
        self.recorded += 1;
        self.known.push(temporary.clone());
        Ok(())
    }

    fn forget(&mut self, temporary: &TemporaryName) {
        self.known.retain(|known| known != temporary);
    }

    fn reached(&mut self, step: SyncStep) {
        self.steps.push(step);
    }
}

fn facts_of(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let data = fs::symlink_metadata(&path).expect("the canary is there");
        let content = if data.is_dir() {
            for entry in fs::read_dir(&path).expect("listed") {
                pending.push(entry.expect("an entry").path());
            }
            Vec::new()
        } else if data.is_symlink() {
            let target = fs::read_link(&path).expect("read");
            target.into_os_string().as_bytes().to_vec()
        } else {
            fs::read(&path).expect("read")
        };
        let attribute = attribute_of(&path);
        let facts = Facts {
            mode: data.mode(),
            owner: (data.uid(), data.gid()),
            modified: (data.mtime(), data.mtime_nsec()),
            links: data.nlink(),
            content,
            attribute,
        };
        found.insert(path, facts);
    }
    found
}

fn attribute_of(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 16];
    let bytes = rustix::fs::lgetxattr(path, c"user.canary", &mut value).ok()?;
    Some(value[..bytes].to_vec())
}

fn open_directory(path: &Path) -> OwnedFd {
    OwnedFd::from(File::open(path).expect("opened"))
}

fn relative(path: &str) -> RelPath {
    RelPath::parse(path.as_bytes()).expect("a relative path")
}

fn input(key: &str, path: &str) -> InputFile {
    InputFile {
        key: key.to_owned(),
        path: relative(path),
    }
}

fn output(key: &str, path: &str) -> OutputFile {
    OutputFile {
        key: key.to_owned(),
        path: relative(path),
        granted: false,
    }
}

fn make_fifo(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).expect("a FIFO");
}

/// A node for the null device, where this user may make one.
fn make_device(path: &Path) -> bool {
    let mode = Mode::RUSR | Mode::WUSR;
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, null).is_ok()
}

fn code_of(report: &SyncedReport) -> &str {
    report.error.as_ref().map_or("", |error| &error.code)
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn skip(why: &str) {
    assert!(
        std::env::var_os("RUNNER_TESTS_STRICT").is_none_or(|value| value != "1"),
        "SKIPPED: {why}"
    );
    eprintln!("SKIPPED: {why}");
}

/// Runs `act` in a thread of its own and panics where it hangs.
fn guarded<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || sender.send(act()));
    let result = receiver.recv_timeout(HANG_GUARD).expect("it hangs");
    thread.join().expect("joined").expect("sent");
    result
}

/// Does `act` over and over in another thread until the guard is dropped.
struct Meanwhile {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Meanwhile {
    fn repeat(mut act: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                act();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

/// Before the directory removes itself recursively, which a deep tree would turn into an abort.
impl Drop for Ground {
    fn drop(&mut self) {
        let home = open_directory(self.home.path());
        for name in [c"scratch", c"kept"] {
            if let Err(error) = remove_tree(home.as_fd(), name) {
                eprintln!("{name:?} stays: {error}");
            }
        }
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("joined");
        }
    }
}

// Staging

#[test]
fn an_input_is_staged_with_the_digest_of_its_bytes() {
    let ground = Ground::new();
    ground.write("workspace/data/in.csv", b"1,2\n");
    let script = ground.write("workspace/tool", b"#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o4711)).expect("chmod");
    let reports = ground
        .stage(&[input("csv", "data/in.csv"), input("tool", "tool")])
        .expect("staged");
    assert_eq!(
        fs::read(ground.path("scratch/csv")).expect("read"),
        b"1,2\n"
    );
    assert_eq!(mode_of(&ground.path("scratch/csv")), 0o644);
    assert_eq!(mode_of(&ground.path("scratch/tool")), 0o755);
    let expected = StagedReport {
        key: "csv".to_owned(),
        path: "data/in.csv".to_owned(),
        sha256: Digest::of(b"1,2\n"),
        bytes: 4,
    };
    assert_eq!(reports[0], expected);
    ground.assert_canary();
}

/// D-01
#[test]
fn a_path_that_could_leave_the_workspace_is_no_path() {
    let long = "a/".repeat(2_500);
    for path in [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "a/../b",
        "",
        ".",
        "./a",
        "a\0b",
        long.as_str(),
    ] {
        assert!(RelPath::parse(path.as_bytes()).is_err(), "{path:?}");
    }
}

#[test]
fn a_missing_input_stops_the_run() {
    let ground = Ground::new();
    ground.write("workspace/file", b"x");
    for path in ["nothing", "no/such/file", "file/below"] {
        let error = ground.refused_input(path);
        assert_eq!(error.code(), "input_missing", "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

/// D-02
#[test]
fn an_input_behind_a_link_is_refused_and_its_target_never_read() {
    let ground = Ground::new();
    ground.write("workspace/real/file", b"inside");
    let workspace = ground.path("workspace");
    symlink(ground.path("outside/secret"), workspace.join("absolute")).expect("linked");
    symlink("../outside/secret", workspace.join("relative")).expect("linked");
    symlink("../outside", workspace.join("directory")).expect("linked");
    symlink("real/file", workspace.join("harmless")).expect("linked");
    symlink("nowhere", workspace.join("dangling")).expect("linked");
    symlink("real", workspace.join("inner")).expect("linked");
    for path in [
        "absolute",
        "relative",
        "directory/secret",
        "harmless",
        "dangling",
        "inner/file",
    ] {
        let error = ground.refused_input(path);
        assert_eq!(error.code(), "input_escapes", "{path}: {error}");
    }
}

/// D-03
#[test]
fn an_input_that_is_no_regular_file_is_refused_and_cannot_hang_us() {
    let ground = Ground::new();
    let workspace = ground.path("workspace");
    make_fifo(&workspace.join("fifo"));
    let _listener = UnixListener::bind(workspace.join("socket")).expect("a socket");
    fs::create_dir(workspace.join("directory")).expect("made");
    let mut names = vec!["fifo", "socket", "directory"];
    if make_device(&workspace.join("device")) {
        names.push("device");
    }
    let ground = guarded(move || {
        for name in names {
            let error = ground.refused_input(name);
            assert_eq!(error.code(), "input_not_regular", "{name}: {error}");
        }
        ground
    });
    ground.assert_canary();
}

/// D-03
#[test]
fn an_empty_input_is_staged_and_an_unreadable_one_refused() {
    let ground = Ground::new();
    ground.write("workspace/empty", b"");
    let closed = ground.write("workspace/closed", b"x");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    let reports = ground.stage(&[input("empty", "empty")]).expect("staged");
    assert_eq!((reports[0].bytes, reports[0].sha256), (0, Digest::of(b"")));
    // Root may read everything: then it is the caller's word that counts.
    if !is_root() {
        assert_eq!(ground.refused_input("closed").code(), "input_unreadable");
    }
    ground.assert_canary();
}

/// D-03
#[test]
fn an_input_above_the_limits_is_refused_before_a_byte_is_copied() {
    let ground = Ground::new();
    let huge = ground.write("workspace/huge", b"");
    let file = File::options().write(true).open(&huge).expect("opened");
    file.set_len(100 << 30).expect("a hole of 100 GiB");
    assert_eq!(ground.refused_input("huge").code(), "input_too_large");
    ground.write("workspace/a", &[0; 60]);
    ground.write("workspace/b", &[0; 41]);
    let limits = FileLimits {
        file_bytes: 60,
        total_bytes: 100,
        files: 2,
        ..FileLimits::default()
    };
    let both = [input("a", "a"), input("b", "b")];
    let error = ground.stage_within(&both, &limits).expect_err("too much");
    assert_eq!(error.code(), "input_too_large");
    assert!(error.to_string().contains("40 of 100"), "{error}");
    let limits = FileLimits { files: 1, ..limits };
    let error = ground.stage_within(&both, &limits).expect_err("too many");
    assert_eq!(error.code(), "too_many_files");
    ground.assert_canary();
}

/// D-03, D-27
#[test]
fn an_input_that_changes_meanwhile_is_refused_or_hashed_as_it_was_staged() {
    let ground = Ground::new();
    let path = ground.write("workspace/log", &vec![b'x'; 400_000]);
    let writer = {
        let path = path.clone();
        let mut round = 0_u8;
        Meanwhile::repeat(move || {
            round = round.wrapping_add(1);
            let size = 300_000 + usize::from(round) * 1_000;
            fs::write(&path, vec![round; size]).expect("written");
        })
    };
    let mut refused = 0;
    for _round in 0..200 {
        match ground.stage(&[input("log", "log")]) {
            Ok(reports) => {
                let staged = fs::read(ground.path("scratch/log")).expect("read");
                assert_eq!(reports[0].sha256, Digest::of(&staged));
                assert_eq!(reports[0].bytes, staged.len() as u64);
            }
            Err(error) => {
                assert_eq!(error.code(), "input_changed", "{error}");
                refused += 1;
            }
        }
        match fs::remove_file(ground.path("scratch/log")) {
            Ok(()) => (),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
    drop(writer);
    assert!(0 < refused, "the writer never met a copy");
    ground.assert_canary();
}

/// D-04
#[test]
fn a_magic_link_of_proc_is_never_followed() {
    let ground = Ground::new();
    let secret = File::open(ground.path("outside/secret")).expect("opened");
    let number = std::os::fd::AsRawFd::as_raw_fd(&secret);
    symlink(
        format!("/proc/self/fd/{number}"),
        ground.path("workspace/link"),
    )
    .expect("linked");
    assert_eq!(ground.refused_input("link").code(), "input_escapes");
    let proc = Workspace::open(Path::new("/proc/self")).expect("opened");
    for path in [
        format!("fd/{number}"),
        "exe".to_owned(),
        "root/etc/passwd".to_owned(),
    ] {
        let inputs = [input("key", &path)];
        let limits = FileLimits::default();
        let error = stage(&proc, &inputs, ground.scratch().as_fd(), None, &limits)
            .expect_err("a magic link");
        assert_eq!(error.code(), "input_escapes", "{path}: {error}");
    }
    // A file of procfs says that it is empty and is not.
    let status = [input("key", "status")];
    let error = stage(
        &proc,
        &status,
        ground.scratch().as_fd(),
        None,
        &FileLimits::default(),
    )
    .expect_err("more than was judged");
    assert_eq!(error.code(), "input_changed", "{error}");
}

/// D-05, D-06
#[test]
fn what_the_body_does_to_its_copy_never_reaches_the_original() {
    let ground = Ground::new();
    let original = ground.write("workspace/in", b"original");
    fs::hard_link(&original, ground.path("workspace/other-name")).expect("linked");
    let before = facts_of(&ground.path("workspace"));
    ground
        .stage(&[input("in", "in")])
        .expect("staged, hard links or not");
    let copy = ground.path("scratch/in");
    assert_eq!(fs::metadata(&copy).expect("there").nlink(), 1);
    fs::write(&copy, b"changed by the body").expect("written");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_eq!(facts_of(&ground.path("workspace")), before);
    ground.assert_canary();
}

#[test]
fn an_input_never_replaces_or_writes_through_what_stands_under_its_key() {
    let ground = Ground::new();
    ground.write("workspace/in", b"x");
    symlink(ground.path("outside/secret"), ground.path("scratch/in")).expect("linked");
    let error = ground
        .stage(&[input("in", "in")])
        .expect_err("the key is taken");
    assert_eq!(error.code(), "scratch_unwritable", "{error}");
    ground.assert_canary();
}

/// D-15
#[test]
fn a_key_is_one_plain_file_name() {
    let long = "k".repeat(256);
    for key in [
        "",
        ".",
        "..",
        "a/b",
        "/a",
        "../a",
        "a/",
        "-rf",
        "a\0",
        "a\nb",
        "a\u{1b}[31m",
        long.as_str(),
    ] {
        let error = check_key(key).expect_err("refused");
        assert_eq!(error.code(), "key_refused", "{key:?}");
        assert!(
            !error.to_string().contains(['\n', '\u{1b}', '\0']),
            "{error}"
        );
        let ground = Ground::new();
        ground.write("workspace/in", b"x");
        let refused = ground.stage(&[input(key, "in")]).expect_err("refused");
        assert_eq!(refused.code(), "key_refused");
        assert_eq!(
            code_of(&ground.sync(&[output(key, "out")])[0]),
            "key_refused"
        );
        ground.assert_canary();
    }
    for key in ["a", "report.csv", "héllo", "a b", "A", "...", "a-b"] {
        check_key(key).expect("accepted");
    }
    let twice = [output("k", "a"), output("k", "b")];
    assert_eq!(
        check_outputs(&twice).expect_err("twice").code(),
        "key_twice"
    );
}

// Syncing

#[test]
fn an_output_is_synced_and_its_parent_directories_made() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    ground.write("workspace/report", b"old");
    let twice = [output("key", "a/b/c/result"), output("other", "report")];
    ground.write("scratch/other", b"new");
    let reports = ground.sync(&twice);
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert_eq!(reports[0].sha256, Some(Digest::of(b"result")));
    assert_eq!(reports[0].bytes, Some(6));
    assert_eq!(
        fs::read(ground.path("workspace/a/b/c/result")).expect("read"),
        b"result"
    );
    assert_eq!(
        fs::read(ground.path("workspace/report")).expect("read"),
        b"new"
    );
    for directory in ["a", "a/b", "a/b/c"] {
        assert_eq!(mode_of(&ground.path("workspace").join(directory)), 0o755);
    }
    ground.assert_canary();
}

#[test]
fn a_missing_output_is_told_and_the_others_are_synced() {
    let ground = Ground::new();
    ground.write("workspace/a", b"old");
    ground.write("scratch/b", b"new");
    let reports = ground.sync(&[output("a", "a"), output("b", "b")]);
    assert_eq!(reports[0].state, SyncState::Missing);
    assert_eq!(reports[0].error, None);
    assert_eq!(reports[1].state, SyncState::Synced);
    assert_eq!(fs::read(ground.path("workspace/a")).expect("read"), b"old");
    ground.assert_canary();
}

/// D-07
#[test]
fn an_output_that_is_a_link_is_refused_and_nothing_is_copied() {
    for target in [
        "../outside/secret",
        "/proc/self/environ",
        "nowhere",
        "other",
        ".",
    ] {
        let ground = Ground::new();
        ground.write("scratch/other", b"another file");
        symlink(target, ground.path("scratch/key")).expect("linked");
        assert_eq!(ground.refused_output("out"), "output_is_link", "{target}");
        assert!(!ground.path("workspace/out").exists());
    }
    let ground = Ground::new();
    symlink(ground.path("outside/secret"), ground.path("scratch/key")).expect("linked");
    assert_eq!(ground.refused_output("out"), "output_is_link");
}

/// D-08
#[test]
fn a_destination_below_a_link_is_refused() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    ground.write("workspace/real/file", b"x");
    let workspace = ground.path("workspace");
    symlink("../outside", workspace.join("out")).expect("linked");
    symlink(ground.path("outside"), workspace.join("absolute")).expect("linked");
    symlink("real", workspace.join("inner")).expect("linked");
    symlink("nowhere", workspace.join("dangling")).expect("linked");
    for path in [
        "out/result",
        "absolute/result",
        "out/deep/result",
        "inner/file",
        "inner/new/file",
        "dangling/file",
        "real/file/below",
    ] {
        assert_eq!(ground.refused_output(path), "destination_escapes", "{path}");
    }
    assert!(!ground.path("nowhere").exists());
    assert_eq!(
        fs::read(ground.path("workspace/real/file")).expect("read"),
        b"x"
    );
}

/// D-09
#[test]
fn an_output_that_is_no_regular_file_fails_alone_and_cannot_hang_us() {
    let ground = Ground::new();
    let scratch = ground.path("scratch");
    make_fifo(&scratch.join("fifo"));
    let _listener = UnixListener::bind(scratch.join("socket")).expect("a socket");
    fs::create_dir(scratch.join("directory")).expect("made");
    ground.write("scratch/file", b"x");
    fs::hard_link(scratch.join("file"), scratch.join("linked")).expect("linked");
    let closed = ground.write("scratch/closed", b"x");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    ground.write("scratch/good", b"good");
    let mut expected = vec![
        ("fifo", "output_not_regular"),
        ("socket", "output_not_regular"),
        ("directory", "output_not_regular"),
        ("linked", "output_hard_linked"),
        ("closed", "output_unreadable"),
        ("good", ""),
    ];
    if make_device(&scratch.join("device")) {
        expected.push(("device", "output_not_regular"));
    }
    let ground = guarded(move || {
        let outputs: Vec<OutputFile> = expected.iter().map(|(key, _)| output(key, key)).collect();
        for (report, (key, code)) in ground.sync(&outputs).iter().zip(&expected) {
            assert_eq!(code_of(report), *code, "{report:?}");
            assert_eq!(ground.path("workspace").join(key).exists(), code.is_empty());
        }
        ground
    });
    assert_eq!(
        fs::read(ground.path("workspace/good")).expect("read"),
        b"good"
    );
    ground.assert_canary();
}

/// D-11
#[test]
fn a_directory_swapped_for_a_link_meanwhile_never_leads_out() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    fs::create_dir(ground.path("workspace/deep")).expect("made");
    symlink("../outside/deep", ground.path("workspace/swap")).expect("linked");
    let directory = ground.path("workspace");
    let swapper = Meanwhile::repeat(move || {
        let (one, other) = (directory.join("deep"), directory.join("swap"));
        rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("swapped");
    });
    let mut states = BTreeMap::new();
    for _round in 0..1_000 {
        let mut journal = Memory::default();
        let reports = sync(
            &ground.workspace(),
            &[output("key", "deep/result")],
            ground.scratch().as_fd(),
            None,
            RUN_ID,
            &FileLimits::default(),
            &mut journal,
        );
        *states.entry(code_of(&reports[0]).to_owned()).or_insert(0) += 1;
    }
    drop(swapper);
    ground.assert_canary();
    assert!(states.contains_key(""), "never written: {states:?}");
    assert!(
        states.contains_key("destination_escapes"),
        "never met the link: {states:?}"
    );
}

/// D-11
#[test]
fn a_workspace_swapped_for_a_link_after_the_start_is_the_one_that_was_opened() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    let workspace = ground.workspace();
    fs::rename(ground.path("workspace"), ground.path("moved")).expect("moved");
    symlink("outside", ground.path("workspace")).expect("linked");
    let mut journal = Memory::default();
    let reports = sync(
        &workspace,
        &[output("key", "deep/result")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut journal,
    );
    assert_eq!(reports[0].state, SyncState::Synced);
    assert_eq!(
        fs::read(ground.path("moved/deep/result")).expect("read"),
        b"result"
    );
    ground.assert_canary();
}

/// D-12
#[test]
fn what_stands_at_the_destination_is_replaced_and_never_followed_or_written_to() {
    let ground = Ground::new();
    let workspace = ground.path("workspace");
    symlink(ground.path("outside/secret"), workspace.join("link")).expect("linked");
    symlink("nowhere", workspace.join("dangling")).expect("linked");
    make_fifo(&workspace.join("fifo"));
    let read_only = ground.write("workspace/read-only", b"old");
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o444)).expect("chmod");
    ground.write("workspace/other", b"other");
    fs::hard_link(workspace.join("other"), workspace.join("linked")).expect("linked");
    let mut names = vec!["link", "dangling", "fifo", "read-only", "linked"];
    if make_device(&workspace.join("device")) {
        names.push("device");
    }
    let ground = guarded(move || {
        for name in names {
            ground.write("scratch/key", name.as_bytes());
            let reports = ground.sync(&[output("key", name)]);
            assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
            let path = ground.path("workspace").join(name);
            assert!(
                fs::symlink_metadata(&path).expect("there").is_file(),
                "{name}"
            );
            assert_eq!(fs::read(&path).expect("read"), name.as_bytes());
            assert_eq!(mode_of(&path), 0o644);
            ground.assert_canary();
        }
        ground
    });
    assert_eq!(
        fs::read(ground.path("workspace/other")).expect("read"),
        b"other"
    );
    assert!(!ground.path("workspace/nowhere").exists());
}

/// D-12
#[test]
fn a_directory_at_the_destination_is_an_error() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    ground.write("workspace/full/file", b"x");
    fs::create_dir(ground.path("workspace/empty")).expect("made");
    for path in ["full", "empty"] {
        assert_eq!(ground.refused_output(path), "destination_is_directory");
    }
    assert_eq!(
        fs::read(ground.path("workspace/full/file")).expect("read"),
        b"x"
    );
}

/// D-13
#[test]
fn an_output_has_a_plain_mode_and_none_of_its_attributes() {
    let ground = Ground::new();
    for (key, mode, expected) in [
        ("set-id", 0o6755, 0o755),
        ("open", 0o777, 0o755),
        ("plain", 0o666, 0o644),
        ("sticky", 0o1600, 0o644),
        ("group", 0o670, 0o644),
    ] {
        let path = ground.write(&format!("scratch/{key}"), b"x");
        // Best tried: where this file system has no attributes there is nothing to carry over.
        let attributed =
            rustix::fs::setxattr(&path, c"user.canary", b"no", XattrFlags::empty()).is_ok();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        let reports = ground.sync(&[output(key, key)]);
        assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
        let path = ground.path("workspace").join(key);
        assert_eq!(mode_of(&path), expected, "{key}");
        assert!(!attributed || attribute_of(&path).is_none(), "{key}");
    }
    ground.assert_canary();
}

/// D-13, D-06
#[test]
fn root_touches_the_scratch_directory_as_the_body_and_gives_outputs_to_the_workspace_owner() {
    let ground = Ground::new();
    if !is_root() {
        // Nobody else can be given anything: the caller keeps what is made.
        assert_eq!(ground.workspace().owner(), None);
        ground.write("scratch/out", b"out");
        assert_eq!(
            ground.sync(&[output("out", "out")])[0].state,
            SyncState::Synced
        );
        let made = fs::metadata(ground.path("workspace/out")).expect("there");
        assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
        return;
    }
    fs::set_permissions(ground.home.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let body = HostIds {
        uid: 1_879_048_199,
        gid: 1_879_048_199,
    };
    let chown = |name: &str, uid, gid| {
        std::os::unix::fs::chown(ground.path(name), Some(uid), Some(gid)).expect("chown");
    };
    chown("workspace", 12_345, 23_456);
    chown("scratch", body.uid, body.gid);
    fs::set_permissions(ground.path("scratch"), fs::Permissions::from_mode(0o700)).expect("chmod");
    ground.write("workspace/in", b"in");
    let limits = FileLimits::default();
    let scratch = ground.scratch();
    let inputs = [input("in", "in")];
    stage(
        &ground.workspace(),
        &inputs,
        scratch.as_fd(),
        Some(body),
        &limits,
    )
    .expect("staged");
    let owner = |path: &str| {
        let data = fs::symlink_metadata(ground.path(path)).expect("there");
        (data.uid(), data.gid())
    };
    assert_eq!(owner("scratch/in"), (body.uid, body.gid));
    ground.write("scratch/out", b"out");
    chown("scratch/out", body.uid, body.gid);
    // Root could read this one; the body could not, so it is not taken for the body either.
    ground.write("scratch/foreign", b"root's");
    fs::set_permissions(
        ground.path("scratch/foreign"),
        fs::Permissions::from_mode(0o600),
    )
    .expect("chmod");
    let outputs = [output("out", "new/below/out"), output("foreign", "foreign")];
    let mut journal = Memory::default();
    let workspace = ground.workspace();
    let reports = sync(
        &workspace,
        &outputs,
        scratch.as_fd(),
        Some(body),
        RUN_ID,
        &limits,
        &mut journal,
    );
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert_eq!(code_of(&reports[1]), "output_unreadable");
    for path in ["new", "new/below", "new/below/out"] {
        assert_eq!(
            owner(&format!("workspace/{path}")),
            (12_345, 23_456),
            "{path}"
        );
    }
    assert_eq!(owner("workspace/in"), (0, 0));
    ground.assert_canary();
}

/// D-14
#[test]
fn an_output_above_the_limits_is_refused_before_a_byte_is_copied() {
    let ground = Ground::new();
    let sparse = ground.write("scratch/sparse", b"");
    let file = File::options().write(true).open(&sparse).expect("opened");
    file.set_len(1 << 40).expect("a hole of 1 TiB");
    ground.write("scratch/a", &[1; 60]);
    ground.write("scratch/b", &[2; 41]);
    ground.write("scratch/c", &[3; 40]);
    let limits = FileLimits {
        file_bytes: 60,
        total_bytes: 100,
        ..FileLimits::default()
    };
    let outputs = ["sparse", "a", "b", "c"].map(|key| output(key, key));
    let mut journal = Memory::default();
    let reports = sync(
        &ground.workspace(),
        &outputs,
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &limits,
        &mut journal,
    );
    let codes: Vec<&str> = reports.iter().map(code_of).collect();
    assert_eq!(codes, ["output_too_large", "", "output_too_large", ""]);
    assert_eq!(
        journal.recorded, 2,
        "no file was made for what is too large"
    );
    let limits = FileLimits {
        files: 1,
        ..FileLimits::default()
    };
    let reports = ground.sync_within(&outputs[1..], &limits);
    let codes: Vec<&str> = reports.iter().map(code_of).collect();
    assert_eq!(codes, ["", "too_many_files", "too_many_files"]);
    ground.assert_canary();
}

/// D-18
#[test]
fn two_syncs_at_once_give_one_of_the_two_files_and_never_a_mix() {
    let ground = Arc::new(Ground::new());
    let contents: Vec<Vec<u8>> = (1..=2_u8).map(|byte| vec![byte; 700_000]).collect();
    for (index, content) in contents.iter().enumerate() {
        ground.write(&format!("scratch{index}/key"), content);
    }
    // One workspace, opened once for both: the lock is not per descriptor.
    let workspace = Arc::new(ground.workspace());
    let threads: Vec<_> = (0..contents.len())
        .map(|index| {
            let (ground, workspace) = (Arc::clone(&ground), Arc::clone(&workspace));
            std::thread::spawn(move || {
                let scratch = open_directory(&ground.path(format!("scratch{index}")));
                for _round in 0..10 {
                    let reports = sync(
                        &workspace,
                        &[output("key", "same")],
                        scratch.as_fd(),
                        None,
                        // The same names too: that is what the lock is for.
                        RUN_ID,
                        &FileLimits::default(),
                        &mut Memory::default(),
                    );
                    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
                    let seen = fs::read(ground.path("workspace/same")).expect("read");
                    assert_eq!(seen.len(), 700_000);
                    assert!(seen.iter().all(|byte| *byte == seen[0]), "a mix");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("joined");
    }
    ground.assert_no_temporary_file_is_left();
    ground.assert_canary();
}

/// D-18
#[test]
fn a_lock_that_somebody_keeps_fails_every_output_in_the_end() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    let held = open_directory(&ground.path("workspace"));
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let limits = FileLimits {
        lock_wait: Duration::from_millis(50),
        ..FileLimits::default()
    };
    let outputs = [output("key", "out"), output("missing", "missing")];
    for report in ground.sync_within(&outputs, &limits) {
        assert_eq!(code_of(&report), "workspace_busy");
    }
    assert!(!ground.path("workspace/out").exists());
    drop(held);
    assert_eq!(ground.sync(&outputs)[0].state, SyncState::Synced);
}

/// D-19
#[test]
fn outputs_that_would_replace_each_other_are_refused_before_the_run() {
    for (one, other) in [
        ("a", "a"),
        ("a", "A"),
        ("a/b", "a"),
        ("Dir", "dir/file"),
        ("a/b/c", "a/b"),
    ] {
        // Names that sort between a directory and what lies below it.
        let outputs = [
            output("1", one),
            output("2", "a-b"),
            output("3", "a.b/c"),
            output("4", other),
        ];
        let error = check_outputs(&outputs).expect_err("refused");
        assert_eq!(error.code(), "outputs_overlap", "{one} {other}: {error}");
        let ground = Ground::new();
        ground.write("scratch/1", b"x");
        let reports = ground.sync(&outputs);
        assert!(
            reports
                .iter()
                .all(|report| code_of(report) == "outputs_overlap")
        );
    }
    let distinct = ["a", "a-b", "a.b/c", "ab", "b/a"].map(|path| output(path_key(path), path));
    check_outputs(&distinct).expect("accepted");
}

fn path_key(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// D-24
#[test]
fn ten_thousand_outputs_are_synced_and_one_more_is_refused() {
    let ground = Ground::new();
    let outputs: Vec<OutputFile> = (0..=OUTPUTS_MAX)
        .map(|number| output(&format!("k{number}"), &format!("d{}/f{number}", number % 7)))
        .collect();
    for number in (0..OUTPUTS_MAX).step_by(20) {
        ground.write(&format!("scratch/k{number}"), b"x");
    }
    let reports = ground.sync(&outputs[..OUTPUTS_MAX]);
    let count = |state| {
        reports
            .iter()
            .filter(|report| report.state == state)
            .count()
    };
    assert_eq!(count(SyncState::Synced), OUTPUTS_MAX / 20);
    assert_eq!(count(SyncState::Missing), OUTPUTS_MAX - OUTPUTS_MAX / 20);
    let error = check_outputs(&outputs).expect_err("one too many");
    assert_eq!(error.code(), "too_many_files");
    ground.assert_canary();
}

/// D-25
#[test]
fn destinations_that_run_later_are_refused_unless_granted() {
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        "sub/.git/config",
        ".GIT/config",
        ".git /config",
        ".git./config",
        "git~1/config",
        ".hg/hgrc",
        ".svn/x",
        ".github/workflows/ci.yml",
        ".vscode/tasks.json",
        ".idea/x",
        ".ssh/authorized_keys",
        ".runner/manifest.json",
        ".git",
        ".bashrc",
        "home/.Profile",
        ".bash_profile",
        ".bash_login",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".login",
        ".cshrc",
        ".tcshrc",
        ".kshrc",
        ".envrc",
        ".config/fish/config.fish",
    ] {
        let error = check_destination(&relative(path)).expect_err("refused");
        assert_eq!(error.code(), "destination_refused", "{path}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("--grant outputs"))
        );
        let ground = Ground::new();
        ground.write("scratch/key", b"x");
        assert_eq!(
            code_of(&ground.sync(&[output("key", path)])[0]),
            "destination_refused"
        );
        assert_eq!(
            fs::read_dir(ground.path("workspace"))
                .expect("listed")
                .count(),
            0
        );
        let granted = OutputFile {
            granted: true,
            ..output("key", path)
        };
        assert_eq!(
            ground.sync(&[granted])[0].state,
            SyncState::Synced,
            "{path}"
        );
    }
    for path in [
        "git/x",
        ".gitignore",
        "bashrc",
        "profile",
        "a.git/x",
        ".sshx/y",
    ] {
        check_destination(&relative(path)).expect("accepted");
    }
    // A name that a later start would remove is refused whatever was granted.
    let ours = OutputFile {
        granted: true,
        ..output("key", "dir/.runner-abc-1.tmp")
    };
    let error = check_outputs(&[ours]).expect_err("refused");
    assert_eq!(error.code(), "destination_refused");
}

#[test]
fn a_name_that_cannot_be_recorded_is_never_made() {
    struct Broken;
    impl Journal for Broken {
        fn record(&mut self, _temporary: &TemporaryName) -> Result<(), std::io::Error> {
            Err(std::io::Error::other("the disk is full"))
        }
        fn forget(&mut self, _temporary: &TemporaryName) {}
    }
    let ground = Ground::new();
    ground.write("scratch/key", b"new");
    ground.write("workspace/out", b"old");
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut Broken,
    );
    assert_eq!(code_of(&reports[0]), "destination_unwritable");
    assert_eq!(
        fs::read(ground.path("workspace/out")).expect("read"),
        b"old"
    );
    assert_eq!(
        fs::read_dir(ground.path("workspace"))
            .expect("listed")
            .count(),
        1
    );
}

#[test]
fn a_temporary_name_that_is_taken_is_left_alone_and_the_next_one_used() {
    let ground = Ground::new();
    ground.write("scratch/key", b"new");
    let squatter = ground.path(format!("workspace/.runner-{RUN_ID}-0.tmp"));
    symlink(ground.path("outside/secret"), &squatter).expect("linked");
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut Memory::default(),
    );
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert!(fs::symlink_metadata(&squatter).expect("there").is_symlink());
    ground.assert_canary();
    for number in 1..20 {
        ground.write(
            &format!("workspace/.runner-{RUN_ID}-{number}.tmp"),
            b"taken",
        );
    }
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut Memory::default(),
    );
    assert_eq!(code_of(&reports[0]), "destination_unwritable");
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        "../x",
        &FileLimits::default(),
        &mut Memory::default(),
    );
    assert_eq!(code_of(&reports[0]), "run_id_refused");
}

/// D-20
#[test]
fn a_later_start_removes_only_a_plain_file_of_our_form() {
    let ground = Ground::new();
    let workspace = ground.path("workspace");
    for path in [
        "a",
        ".runner-x.tmp",
        ".runner--1.tmp",
        ".runner-A-1.tmp",
        ".runner-x-1",
        ".runner-x-.tmp",
    ] {
        let error = TemporaryName::parse(relative(path)).expect_err("not ours");
        assert_eq!(error.code(), "temporary_not_ours", "{path}");
    }
    let name = |path: &str| TemporaryName::parse(relative(path)).expect("ours");
    ground.write("workspace/d/.runner-x-1.tmp", b"left");
    assert!(remove_temporary(&workspace, &name("d/.runner-x-1.tmp")).expect("removed"));
    assert!(!remove_temporary(&workspace, &name("d/.runner-x-1.tmp")).expect("gone"));
    assert!(!remove_temporary(&workspace, &name("no/.runner-x-1.tmp")).expect("gone"));
    assert!(!remove_temporary(&ground.path("no"), &name(".runner-x-1.tmp")).expect("gone"));
    symlink(
        ground.path("outside/secret"),
        workspace.join(".runner-x-2.tmp"),
    )
    .expect("linked");
    fs::create_dir(workspace.join(".runner-x-3.tmp")).expect("made");
    ground.write("workspace/file", b"x");
    fs::hard_link(workspace.join("file"), workspace.join(".runner-x-4.tmp")).expect("linked");
    symlink("../outside", workspace.join("link")).expect("linked");
    for path in [
        ".runner-x-2.tmp",
        ".runner-x-3.tmp",
        ".runner-x-4.tmp",
        "link/.runner-x-5.tmp",
    ] {
        let error = remove_temporary(&workspace, &name(path)).expect_err("not ours");
        assert_eq!(error.code(), "temporary_not_ours", "{path}: {error}");
    }
    assert_eq!(fs::read_dir(&workspace).expect("listed").count(), 6);
    ground.assert_canary();
}

// A child of the tests, which is killed, starved or traced while it syncs.

/// Writes each name through to a file before it returns, as the runner's registry does, and ends
/// the process at a step.
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

/// Does nothing by itself: other tests start it with the variables that it needs.
#[test]
fn the_child_of_other_tests_syncs_what_it_is_told() {
    let Some(home) = std::env::var_os("FILE_CONTRACT_HOME") else {
        return;
    };
    let home = Path::new(&home);
    match std::env::var("FILE_CONTRACT_ACT").as_deref() {
        Ok("remove") => return remove_and_report(home),
        Ok("keep") => {
            keep(
                open_directory(&home.join("scratch")).as_fd(),
                &home.join("kept"),
                1 << 20,
            )
            .expect("kept");
            return remove_and_report(home);
        }
        _ => (),
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

fn remove_and_report(home: &Path) {
    let removal = remove_tree(open_directory(home).as_fd(), c"scratch").expect("one name");
    let (removed, left) = (removal.removed, removal.left);
    let text = format!("removed {removed} left {left} {:?}", removal.named);
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

fn child(ground: &Ground, before: &[&OsStr]) -> Command {
    let me = std::env::current_exe().expect("the path of this test");
    let mut words = before.to_vec();
    words.push(me.as_os_str());
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["the_child_of_other_tests_syncs_what_it_is_told", "--exact"])
        .env("FILE_CONTRACT_HOME", ground.home.path());
    command
}

/// The reports of the child: `(state, code)` for each output; empty where it was killed.
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

/// What the destination may hold after any accident: all of the old or all of the new.
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
    // Two outputs: recorded, made, copied, owned, synced, renamed, directory synced, forgotten.
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

/// Runs `script` in a user and a mount namespace of its own, with the child as its arguments.
fn child_in_namespaces(ground: &Ground, script: &str) -> bool {
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

/// Mounts a tmpfs over the workspace and runs the child; what it left there is copied to `result`
/// before the namespace ends.
fn child_on_tmpfs(ground: &Ground, options: &str, then: &str) -> bool {
    let home = "$FILE_CONTRACT_HOME";
    let script = format!(
        "mount -t tmpfs -o {options} none {home}/workspace; \
         printf 'old content' > {home}/workspace/old; {then} \"$@\"; \
         cp -a {home}/workspace {home}/result"
    );
    child_in_namespaces(ground, &script)
}

/// The writable space as a run has it: a tmpfs of the body's user namespace, in which nobody but
/// the body has a name, reached through an open directory.
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
    // What its maker may not read is left out for an ordinary user; root may read it.
    let files = if is_root() { 3 } else { 2 };
    assert_eq!(
        (kept.directories, kept.files),
        (3, files),
        "{:?}",
        kept.named
    );
    let removal = remove_tree(scratch.as_fd(), c"dir").expect("one name");
    assert_eq!(
        (removal.removed, removal.left),
        (3, 0),
        "{:?}",
        removal.named
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
        // Under umask 777 even the report of the child is unreadable; the files speak.
        assert_eq!(mode_of(&ground.path("workspace/new")), 0o755);
        assert_eq!(mode_of(&ground.path("workspace/new/result")), 0o644);
        assert_eq!(mode_of(&ground.path("workspace/old")), 0o644);
        ground.assert_canary();
    }
}

/// Runs the child under strace with `expressions`; gives the trace, or nothing without strace.
fn traced(ground: &Ground, expressions: &[&str]) -> Option<String> {
    let log = ground.path("trace");
    let mut words: Vec<&OsStr> = ["strace", "-f", "-y", "-o"].map(OsStr::new).to_vec();
    words.push(log.as_os_str());
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
    let expressions = [
        "inject=fsync:error=EINTR:when=1+2",
        "inject=flock:error=EINTR:when=1",
    ];
    if traced(&ground, &expressions).is_none() {
        return;
    }
    let synced = ("synced".to_owned(), String::new());
    assert_eq!(child_reports(&ground), [synced.clone(), synced]);
    assert_old_or_new(&ground);
}

// Trees that the body shaped

/// Makes `levels` directories, each in the one before it, by descriptor.
fn make_deep(parent: &Path, levels: usize) {
    let mut here = open_directory(parent);
    for _level in 0..levels {
        rustix::fs::mkdirat(&here, c"d", Mode::RWXU).expect("made");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, c"d", flags, Mode::empty()).expect("opened");
    }
    rustix::fs::symlinkat(c"/etc/passwd", &here, c"bottom").expect("linked");
}

/// Removes `name` in the home of `ground` and asserts that nothing of it stays.
fn assert_removed(ground: &Ground, name: &std::ffi::CStr) -> u64 {
    let removal = remove_tree(open_directory(ground.home.path()).as_fd(), name).expect("one name");
    assert_eq!((removal.left, &removal.named[..]), (0, &[][..]));
    let home = open_directory(ground.home.path());
    assert!(rustix::fs::statat(&home, name, AtFlags::SYMLINK_NOFOLLOW).is_err());
    ground.assert_canary();
    removal.removed
}

/// C-29
#[test]
fn a_tree_of_a_hundred_thousand_levels_is_kept_and_removed() {
    let ground = Ground::in_memory();
    make_deep(&ground.path("scratch"), 100_000);
    let kept = keep(ground.scratch().as_fd(), &ground.path("kept"), 1 << 20).expect("kept");
    let counts = (kept.directories, kept.links, kept.left_out);
    assert_eq!(counts, (100_001, 1, 0));
    assert_eq!(assert_removed(&ground, c"kept"), 100_002);
    assert_eq!(assert_removed(&ground, c"scratch"), 100_002);
}

/// C-29
#[test]
fn a_deep_tree_costs_no_more_descriptors_than_a_flat_one() {
    let ground = Ground::new();
    make_deep(&ground.path("scratch"), 2_000);
    let script = "ulimit -n 160; exec \"$@\"";
    let words = ["bash", "-c", script, "bash"].map(OsStr::new);
    let done = child(&ground, &words)
        .env("FILE_CONTRACT_ACT", "keep")
        .output()
        .expect("started");
    assert!(done.status.success(), "{done:?}");
    let text = fs::read_to_string(ground.path("report")).expect("read");
    assert!(text.starts_with("removed 2002 left 0"), "{text}");
    assert_eq!(assert_removed(&ground, c"kept"), 2_002);
}

/// C-30, in small
#[test]
fn a_directory_of_many_files_is_removed() {
    let ground = Ground::new();
    let here = ground.scratch();
    for number in 0..20_000 {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&here, format!("file-{number}"), flags, Mode::RUSR).expect("made");
    }
    assert_eq!(assert_removed(&ground, c"scratch"), 20_001);
}

/// C-31
#[test]
fn modes_that_forbid_everything_do_not_stop_the_removal() {
    let ground = Ground::new();
    let mut closed = Vec::new();
    for mode in [0o000, 0o555, 0o1777, 0o300, 0o444] {
        // Deeper than the levels that are held open, so that moving is tried as well.
        let mut path = format!("scratch/{mode:o}");
        for level in 0..40 {
            ground.write(&format!("{path}/file"), b"x");
            closed.push((ground.path(&path), mode));
            path = format!("{path}/{level}");
        }
        ground.write(&path, b"x");
    }
    make_fifo(&ground.path("scratch/fifo"));
    symlink("../outside", ground.path("scratch/link")).expect("linked");
    let _listener = UnixListener::bind(ground.path("scratch/socket")).expect("a socket");
    for (path, mode) in closed.iter().rev() {
        let file = path.join("file");
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode)).expect("chmod");
        fs::set_permissions(path, fs::Permissions::from_mode(*mode)).expect("chmod");
    }
    fs::set_permissions(ground.path("scratch"), fs::Permissions::from_mode(0)).expect("chmod");
    assert_removed(&ground, c"scratch");
}

#[test]
fn what_is_mounted_in_a_tree_is_left_alone_and_named() {
    let ground = child_ground();
    ground.write("scratch/d/e/file", b"x");
    ground.write("scratch/d/closed/file", b"x");
    let mount = "mount -t tmpfs none $FILE_CONTRACT_HOME/scratch/d/closed; \
        mkdir $FILE_CONTRACT_HOME/scratch/d/closed/theirs; \
        mount --bind $FILE_CONTRACT_HOME/outside $FILE_CONTRACT_HOME/scratch/d/e;";
    let remove = format!("{mount} FILE_CONTRACT_ACT=remove");
    if !child_in_namespaces(
        &ground,
        &format!("{remove} \"$@\"; ls -R $FILE_CONTRACT_HOME/scratch"),
    ) {
        return;
    }
    let text = fs::read_to_string(ground.path("report")).expect("read");
    // Both places, the directory that holds them, and the top.
    assert!(text.starts_with("removed 2 left 4"), "{text}");
    assert!(text.contains("closed") && text.contains("Busy"), "{text}");
    ground.assert_canary();
    assert!(ground.path("scratch/d/closed/file").exists());
}

/// C-33
#[test]
fn a_directory_swapped_for_a_link_during_the_removal_costs_nothing_outside() {
    let ground = Ground::new();
    for round in 0..300 {
        for number in 0..4 {
            ground.write(&format!("scratch/victim/deep/file-{number}"), b"x");
        }
        symlink("../outside", ground.path("scratch/swap")).expect("linked");
        let directory = ground.path("scratch");
        let swapper = (round % 3 != 0).then(|| {
            Meanwhile::repeat(move || {
                let (one, other) = (directory.join("victim"), directory.join("swap"));
                // Fails once either is gone, which is what the removal is about.
                let swap = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                assert!(matches!(
                    swap,
                    Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL)
                ));
            })
        });
        let home = open_directory(ground.home.path());
        let removal = remove_tree(home.as_fd(), c"scratch").expect("one name");
        drop(swapper);
        ground.assert_canary();
        if removal.left != 0 {
            assert_removed(&ground, c"scratch");
        }
        assert!(!ground.path("scratch").exists(), "{removal:?}");
    }
}

#[test]
fn a_name_that_is_no_name_is_refused_and_a_missing_one_is_no_error() {
    let ground = Ground::new();
    let home = open_directory(ground.home.path());
    for name in [c"", c".", c"..", c"a/b", c"/etc", c"../outside"] {
        assert!(remove_tree(home.as_fd(), name).is_err(), "{name:?}");
    }
    let removal = remove_tree(home.as_fd(), c"missing").expect("one name");
    assert_eq!((removal.removed, removal.left), (0, 0));
    symlink("outside", ground.path("link")).expect("linked");
    assert_eq!(assert_removed(&ground, c"link"), 1);
}

#[test]
fn a_tree_is_kept_without_following_or_opening_what_could_hurt() {
    let ground = Ground::new();
    let scratch = ground.path("scratch");
    ground.write("scratch/a/b/file", b"content");
    let tool = ground.write("scratch/tool", b"#!");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).expect("chmod");
    symlink("/proc/self/environ", scratch.join("link")).expect("linked");
    symlink("../outside", scratch.join("out")).expect("linked");
    make_fifo(&scratch.join("fifo"));
    let _listener = UnixListener::bind(scratch.join("socket")).expect("a socket");
    ground.write("scratch/closed/file", b"x");
    fs::set_permissions(scratch.join("closed"), fs::Permissions::from_mode(0)).expect("chmod");
    let sparse = ground.write("scratch/sparse", b"head");
    let file = File::options().write(true).open(sparse).expect("opened");
    file.set_len(1 << 40).expect("a hole of 1 TiB");
    ground.write("scratch/large", &vec![1; 3 << 20]);
    let ground = guarded(move || {
        let kept = keep(ground.scratch().as_fd(), &ground.path("kept"), 2 << 20).expect("kept");
        assert_eq!((kept.files, kept.links, kept.directories), (4, 2, 4));
        assert_eq!(kept.left_out, 3, "{:?}", kept.named);
        assert!(kept.bytes < 1 << 20, "holes stay holes: {}", kept.bytes);
        ground
    });
    let target = ground.path("kept");
    assert_eq!(mode_of(&target), 0o700);
    assert_eq!(fs::read(target.join("a/b/file")).expect("read"), b"content");
    assert_eq!(mode_of(&target.join("tool")), 0o755);
    let link = fs::read_link(target.join("link")).expect("read");
    assert_eq!(link, Path::new("/proc/self/environ"));
    let sparse = fs::metadata(target.join("sparse")).expect("there");
    assert_eq!(sparse.len(), 1 << 40);
    assert!(sparse.blocks() < 1_000);
    assert!(target.join("closed/file").exists());
    assert!(!target.join("large").exists());
    let again = keep(ground.scratch().as_fd(), &target, 1).expect_err("it exists");
    assert_eq!(again.code(), "tree_unusable");
    ground.assert_canary();
}
