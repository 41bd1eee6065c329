//! The ground of each case: a workspace, a scratch directory, and a canary tree.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use runner::staging::{
    FileLimits, InputFile, Journal, OutputFile, ScratchError, SyncStep, TemporaryName, Workspace,
    stage, sync,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use spec::path::RelPath;
use spec::report::{StagedReport, SyncState, SyncedReport};

pub(crate) const RUN_ID: &str = "01jd4w2v7m8q9r0s1t2u3v4w5x";
pub(crate) const HANG_GUARD: Duration = Duration::from_secs(30);

/// A workspace, a scratch directory, and a canary tree beside them that must not change.
pub(crate) struct Ground {
    pub(crate) home: tempfile::TempDir,
    pub(crate) canary: BTreeMap<PathBuf, Facts>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    links: u64,
    content: Vec<u8>,
    attribute: Option<Vec<u8>>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self::at(tempfile::tempdir().expect("a directory"))
    }

    /// On a tmpfs if there is one, like the writable space: a disk takes a minute for what memory
    /// does in a second.
    pub(crate) fn in_memory() -> Self {
        Self::at(
            tempfile::tempdir_in("/dev/shm")
                .unwrap_or_else(|_absent| tempfile::tempdir().expect("a directory")),
        )
    }

    pub(crate) fn at(home: tempfile::TempDir) -> Self {
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

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, content).expect("written");
        path
    }

    pub(crate) fn workspace(&self) -> Workspace {
        Workspace::open(&self.path("workspace")).expect("opened")
    }

    pub(crate) fn scratch(&self) -> OwnedFd {
        open_directory(&self.path("scratch"))
    }

    pub(crate) fn stage(&self, inputs: &[InputFile]) -> Result<Vec<StagedReport>, ScratchError> {
        self.stage_within(inputs, &FileLimits::default())
    }

    pub(crate) fn stage_within(
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

    pub(crate) fn sync(&self, outputs: &[OutputFile]) -> Vec<SyncedReport> {
        self.sync_within(outputs, &FileLimits::default())
    }

    pub(crate) fn sync_within(
        &self,
        outputs: &[OutputFile],
        limits: &FileLimits,
    ) -> Vec<SyncedReport> {
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

    /// Stages one input that must be refused, and checks that nothing was staged.
    pub(crate) fn refused_input(&self, path: &str) -> ScratchError {
        let error = self
            .stage(&[input("key", path)])
            .expect_err("the input must be refused");
        assert!(!self.path("scratch/key").exists(), "{path} was staged");
        self.assert_canary();
        error
    }

    /// Syncs one output that must not be written, and returns its code.
    pub(crate) fn refused_output(&self, path: &str) -> String {
        let reports = self.sync(&[output("key", path)]);
        assert_eq!(reports[0].state, SyncState::Failed, "{reports:?}");
        assert_eq!((reports[0].sha256, reports[0].bytes), (None, None));
        self.assert_canary();
        let error = reports[0].error.as_ref().expect("an error");
        assert!(error.message.contains("key"), "names the key: {error:?}");
        assert!(error.hint.is_some(), "teaches: {error:?}");
        error.code.clone()
    }

    pub(crate) fn assert_canary(&self) {
        assert_eq!(facts_of(&self.path("outside")), self.canary);
    }

    pub(crate) fn assert_no_temporary_file_is_left(&self) {
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
pub(crate) struct Memory {
    pub(crate) known: Vec<TemporaryName>,
    pub(crate) recorded: usize,
    pub(crate) steps: Vec<SyncStep>,
}

/// The lock file of all grounds of this process, opened again.
pub(crate) fn locks() -> Result<OwnedFd, std::io::Error> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create(c"locks", flags).expect("made")
    });
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = File::options().read(true).write(true).open(path)?;
    Ok(opened.into())
}

impl Journal for Memory {
    fn locks(&mut self) -> Result<OwnedFd, std::io::Error> {
        locks()
    }

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

pub(crate) fn facts_of(root: &Path) -> BTreeMap<PathBuf, Facts> {
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

pub(crate) fn attribute_of(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 16];
    let bytes = rustix::fs::lgetxattr(path, c"user.canary", &mut value).ok()?;
    Some(value[..bytes].to_vec())
}

pub(crate) fn open_directory(path: &Path) -> OwnedFd {
    OwnedFd::from(File::open(path).expect("opened"))
}

pub(crate) fn relative(path: &str) -> RelPath {
    RelPath::parse(path.as_bytes()).expect("a relative path")
}

pub(crate) fn input(key: &str, path: &str) -> InputFile {
    InputFile {
        key: key.to_owned(),
        path: relative(path),
    }
}

pub(crate) fn output(key: &str, path: &str) -> OutputFile {
    OutputFile {
        key: key.to_owned(),
        path: relative(path),
        granted: false,
    }
}

pub(crate) fn make_fifo(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).expect("a FIFO");
}

/// A node for the null device, if this user may create one.
pub(crate) fn make_device(path: &Path) -> bool {
    let mode = Mode::RUSR | Mode::WUSR;
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, null).is_ok()
}

pub(crate) fn code_of(report: &SyncedReport) -> &str {
    report.error.as_ref().map_or("", |error| &error.code)
}

pub(crate) fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) use support::skip;

/// Runs `act` in a separate thread and panics if it hangs.
pub(crate) fn guarded<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || sender.send(act()));
    let result = receiver.recv_timeout(HANG_GUARD).expect("it hangs");
    thread.join().expect("joined").expect("sent");
    result
}

/// Repeats `act` in another thread until the guard is dropped.
pub(crate) struct Meanwhile {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Meanwhile {
    pub(crate) fn repeat(mut act: impl FnMut() + Send + 'static) -> Self {
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

/// `TempDir` removes recursively and aborts on a deep tree, so the trees are removed before.
impl Drop for Ground {
    fn drop(&mut self) {
        for path in [self.path("scratch"), self.path("kept")] {
            if fs::symlink_metadata(&path).is_err() {
                continue;
            }
            for words in [&["chmod", "-R", "u+rwX"][..], &["rm", "-rf"]] {
                let status = std::process::Command::new(words[0])
                    .args(&words[1..])
                    .arg("--")
                    .arg(&path)
                    .stderr(std::process::Stdio::null())
                    .status();
                if !status.is_ok_and(|status| status.success()) {
                    eprintln!("{words:?} {} failed", path.display());
                }
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
