//! Which version a Node is: asked once, of a program that may take its time or say nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::plan::run_form::NodeVersion;

/// A program that has not answered by then has no version.
const DEADLINE: Duration = Duration::from_secs(10);
/// `v22.18.0` and a line break; what is longer is no version.
const ANSWER_BYTES_MAX: usize = 64;

/// The versions that were asked for in one run.
#[derive(Debug, Default)]
pub struct NodeVersions(RefCell<BTreeMap<PathBuf, Result<NodeVersion, String>>>);

impl NodeVersions {
    /// The version of the program at `path`, which is started with `--version`, an empty
    /// environment and `/` as its directory, the first time that it is asked for.
    ///
    /// # Errors
    /// What came instead of a version, as the end of "`node --version` …".
    pub fn of(&self, path: &Path) -> Result<NodeVersion, String> {
        if let Some(known) = self.0.borrow().get(path) {
            return known.clone();
        }
        let told = ask(path);
        self.0.borrow_mut().insert(path.to_path_buf(), told.clone());
        told
    }
}

fn ask(path: &Path) -> Result<NodeVersion, String> {
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
