//! Which version a Node is: asked once, of a program that may take its time or say nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::kernel::credentials::is_ours_or_roots;
use crate::kernel::process;
use crate::plan::run_form::NodeVersion;

/// A program that has not answered by then has no version.
const DEADLINE: Duration = Duration::from_secs(10);
/// `v22.18.0` and a line break; what is longer is no version.
const ANSWER_BYTES_MAX: usize = 64;

/// The versions that were asked for in one run.
///
/// The program is started on the host, with the caller's rights and before any confinement: only
/// where nobody else can have put it there.
#[derive(Debug, Default)]
pub struct NodeVersions {
    workspace: Option<PathBuf>,
    known: RefCell<BTreeMap<PathBuf, Result<NodeVersion, String>>>,
}

impl NodeVersions {
    /// Of programs that do not lie in `workspace`, where bodies write.
    #[must_use]
    pub fn outside(workspace: Option<&Path>) -> Self {
        Self {
            workspace: workspace.map(Path::to_path_buf),
            known: RefCell::default(),
        }
    }

    /// The version of the program at `path`, which is started with `--version`, an empty
    /// environment and `/` as its directory, the first time that it is asked for.
    ///
    /// # Errors
    /// What came instead of a version, as the end of "`node --version` …".
    pub fn of(&self, path: &Path) -> Result<NodeVersion, String> {
        if let Some(known) = self.known.borrow().get(path) {
            return known.clone();
        }
        let told = self.judged(path).and_then(|path| ask(&path));
        self.known
            .borrow_mut()
            .insert(path.to_path_buf(), told.clone());
        told
    }
}

impl NodeVersions {
    /// Whether `real`, which has no links, lies in the workspace; what cannot be known is an error.
    fn lies_in_workspace(&self, real: &Path) -> Result<bool, String> {
        match self.workspace.as_deref().map(Path::canonicalize) {
            None => Ok(false),
            Some(Ok(workspace)) => Ok(real.starts_with(workspace)),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(false),
            Some(Err(error)) => Err(format!(
                "is not asked: where the workspace lies is not known: {error}"
            )),
        }
    }

    /// The file itself, where nobody but root and the caller can have put it there.
    fn judged(&self, path: &Path) -> Result<PathBuf, String> {
        let unseen = |error: std::io::Error| format!("cannot be started: {error}");
        let real = path.canonicalize().map_err(unseen)?;
        if self.lies_in_workspace(&real)? {
            return Err("is not asked: it lies in the workspace, where bodies write".to_owned());
        }
        let found = real.metadata().map_err(unseen)?;
        if !is_ours_or_roots(found.uid()) {
            return Err("is not asked: it belongs to another user".to_owned());
        }
        let above = real.parent().map(Path::metadata).transpose();
        let above = above.map_err(unseen)?.map_or(0, |above| above.mode());
        let (for_all, sticky) = (0o002, 0o1000);
        if found.mode() & for_all != 0 || above & (for_all | sticky) == for_all {
            return Err("is not asked: others may change it".to_owned());
        }
        Ok(real)
    }
}

fn ask(path: &Path) -> Result<NodeVersion, String> {
    // A plan is made without what a run does first: descriptors that a caller leaked to us are
    // not Node's.
    process::close_on_exec_from(3)
        .map_err(|errno| format!("descriptors cannot be kept from it: {errno}"))?;
    let mut child = Command::new(path)
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let answer = read_answer(&mut child);
    // Whoever has answered is done, and whoever has not is not waited for.
    let ended = child.kill().and_then(|()| child.wait());
    let answer = answer?;
    ended.map_err(|error| format!("cannot be ended: {error}"))?;
    NodeVersion::parse(&String::from_utf8_lossy(&answer))
        .ok_or_else(|| "prints no version of Node".to_owned())
}

fn read_answer(child: &mut Child) -> Result<Vec<u8>, String> {
    let started = Instant::now();
    let mut pipe = child
        .stdout
        .take()
        .ok_or_else(|| "has no standard output".to_owned())?;
    let mut answer = Vec::new();
    let mut part = [0; ANSWER_BYTES_MAX];
    loop {
        let left = DEADLINE.saturating_sub(started.elapsed());
        let left = Timespec::try_from(left).map_err(|error| error.to_string())?;
        let mut polled = [PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut polled, Some(&left)) {
            Ok(0) => {
                let seconds = DEADLINE.as_secs();
                return Err(format!("has not answered within {seconds} s"));
            }
            Ok(_) => (),
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(format!("cannot be waited for: {errno}")),
        }
        match pipe.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        if answer.contains(&b'\n') {
            return Ok(answer);
        }
        if ANSWER_BYTES_MAX < answer.len() {
            return Err("prints more than a version".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn program(directory: &Path, text: &str) -> PathBuf {
        let (written, path) = (directory.join("text"), directory.join("node"));
        std::fs::write(&written, text).expect("written");
        std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).expect("set");
        // Copied by another process: a fork of another test would hold what this one has open for
        // writing, and the kernel executes no such file.
        let copied = Command::new("cp").args([&written, &path]).status();
        assert!(copied.expect("cp runs").success());
        path
    }

    #[test]
    fn a_program_that_is_asked_inherits_no_descriptor() {
        let directory = tempfile::tempdir().expect("a directory");
        let leaked = std::fs::File::open("/dev/null").expect("there");
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("set");
        // The shell's own descriptor of the script is above 9.
        let number = std::os::fd::AsRawFd::as_raw_fd(&leaked);
        let text = format!("#!/bin/bash\n[ ! -e /proc/self/fd/{number} ] && echo v22.13.0\n");
        let path = program(directory.path(), &text);
        assert!(ask(&path).is_ok(), "{:?}", ask(&path));
    }

    #[test]
    fn a_program_is_asked_once_and_with_an_empty_environment() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = program(
            directory.path(),
            "#!/bin/sh\n/usr/bin/env >> \"${0%/*}/asked\"\necho v22.18.1\n",
        );
        let versions = NodeVersions::default();
        for _ in 0..3 {
            let version = versions.of(&path).expect("a version");
            assert_eq!((version.major, version.minor), (22, 18));
        }
        let asked = std::fs::read_to_string(directory.path().join("asked")).expect("read");
        assert!(
            !asked.contains("HOME=") && !asked.contains("PATH="),
            "{asked}"
        );
        assert_eq!(asked.matches("PWD=").count(), 1, "{asked}");
    }

    #[test]
    fn a_program_that_a_body_or_others_may_have_put_there_is_not_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = "#!/bin/sh\n: > \"${0%/*}/started\"\necho v22.18.1\n";
        let path = program(directory.path(), text);
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        let outside = NodeVersions::outside(Some(Path::new("/nonexistent")));
        assert!(outside.of(&path).is_ok());
        std::fs::remove_file(directory.path().join("started")).expect("started");
        let refused = |workspace: Option<&Path>, part: &str| {
            let told = NodeVersions::outside(workspace).of(&path);
            let told = told.expect_err("not asked");
            assert!(told.contains(part), "{told}");
            assert!(!directory.path().join("started").exists(), "{told}");
        };
        refused(Some(directory.path()), "in the workspace");
        let link = directory.path().with_extension("link");
        std::os::unix::fs::symlink(directory.path(), &link).expect("linked");
        refused(Some(&link), "in the workspace");
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink(&link, &link).expect("linked");
        refused(Some(&link), "is not known");
        std::fs::remove_file(&link).expect("removed");
        set(&path, 0o757);
        refused(None, "others may change");
        set(&path, 0o755);
        set(directory.path(), 0o777);
        refused(None, "others may change");
        set(directory.path(), 0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(40_199), None).expect("given away");
            refused(None, "another user");
        }
    }

    #[test]
    fn what_prints_no_version_is_told_and_not_taken_for_one() {
        let directory = tempfile::tempdir().expect("a directory");
        for text in [
            "#!/bin/sh\necho hello\n",
            "#!/bin/sh\nexit 3\n",
            "#!/bin/sh\nwhile :; do printf xxxxxxxxxxxxxxxx; done\n",
            "not a program",
        ] {
            let path = program(directory.path(), text);
            assert!(NodeVersions::default().of(&path).is_err(), "{text}");
        }
        assert!(
            NodeVersions::default()
                .of(Path::new("/nonexistent"))
                .is_err()
        );
    }

    #[test]
    fn a_program_that_answers_and_stays_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = program(
            directory.path(),
            "#!/bin/sh\necho v20.20.2\nexec sleep 1000\n",
        );
        let version = NodeVersions::default().of(&path).expect("a version");
        assert_eq!(version.major, 20);
    }
}
