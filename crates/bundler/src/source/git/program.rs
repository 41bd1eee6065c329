//! Runs `git` on a repository with an untrusted configuration.
//!
//! The configuration can name programs (file system monitors, hooks, filters, pagers, transports,
//! signature checkers) and include other files. So git gets a temporary git directory with our own
//! configuration and links to the real objects, references and index, which are data. It gets none
//! of the caller's environment and configuration.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::BundleError;
use crate::output::{BlockedSignals, ENDING};
use spec::path::escape;
use sys::signal::{SignalSet, is_pending};

/// Time limit of one call: a repository may be huge, or have a FIFO in place of a file.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const STDERR_BYTES_MAX: usize = 300;
/// Passed on the command line, which nothing overrides: each setting could run a program.
const SETTINGS: [&str; 6] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "protocol.allow=never",
    "gc.auto=0",
];

/// Searches git in `PATH`. Relative directories are skipped: they could select a program
/// from the source.
pub(super) fn find(path: &[u8]) -> Option<PathBuf> {
    path.split(|byte| *byte == b':')
        .filter(|directory| directory.starts_with(b"/"))
        .map(|directory| Path::new(OsStr::from_bytes(directory)).join("git"))
        .find(|file| {
            let found = std::fs::metadata(file);
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// Temporary git directory, removed on drop.
pub(super) struct TemporaryGitDirectory {
    program: PathBuf,
    directory: PathBuf,
    _blocked: BlockedSignals,
}

impl TemporaryGitDirectory {
    pub(super) fn create(program: PathBuf, directory: &Path) -> Result<Self, BundleError> {
        let failed = BundleError::GitDirectory;
        let git_directory = Self {
            program,
            directory: directory.to_owned(),
            _blocked: BlockedSignals::block().map_err(|errno| failed(errno.into()))?,
        };
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&git_directory.directory)
            .map_err(failed)?;
        git_directory.write("config", "[core]\n\trepositoryformatversion = 0\n")?;
        Ok(git_directory)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<(), BundleError> {
        std::fs::write(self.directory.join(name), text).map_err(BundleError::GitDirectory)
    }

    pub(super) fn make_directory(&self, name: &str) -> Result<(), BundleError> {
        std::fs::create_dir(self.directory.join(name)).map_err(BundleError::GitDirectory)
    }

    pub(super) fn link(&self, name: &str, real: &Path) -> Result<(), BundleError> {
        std::os::unix::fs::symlink(real, self.directory.join(name))
            .map_err(BundleError::GitDirectory)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs git in `at`, a directory of the working tree `top`. Returns at most `bytes_max` bytes
    /// of output; `None` for exit code 1, which means "no".
    pub(super) fn run(
        &self,
        top: &Path,
        at: &Path,
        arguments: &[&str],
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, BundleError> {
        let command = arguments.first().copied().unwrap_or_default();
        let failed = |message: String| BundleError::GitFailed {
            command: command.to_owned(),
            message,
        };
        let stderr_file = self.directory.join("stderr");
        let stderr = std::fs::File::create(&stderr_file).map_err(BundleError::GitDirectory)?;
        let mut child = self
            .command(top, at, arguments)
            .stderr(stderr)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let read = read_all(&mut child, bytes_max);
        // The child is reaped on every path.
        let ended = match &read {
            Ok(_) => child.wait(),
            Err(_) => child.kill().and_then(|()| child.wait()),
        };
        let printed = read.map_err(&failed)?;
        let status = ended.map_err(|error| failed(error.to_string()))?;
        match status.code() {
            Some(0) => Ok(Some(printed)),
            Some(1) => Ok(None),
            _ => {
                let stderr = std::fs::read(&stderr_file).unwrap_or_default();
                Err(failed(describe_failure(status, &stderr)))
            }
        }
    }

    fn command(&self, top: &Path, at: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--no-pager", "--no-optional-locks", "--no-replace-objects"]);
        command.arg("--literal-pathspecs");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
            .args(arguments)
            .current_dir(at)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent")
            .env("LC_ALL", "C")
            .env("GIT_DIR", &self.directory)
            .env("GIT_WORK_TREE", top)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }
}

impl Drop for TemporaryGitDirectory {
    fn drop(&mut self) {
        // Does not follow links.
        if std::fs::remove_dir_all(&self.directory).is_err() {
            // Drop cannot report it; the leftovers contain no secret.
        }
    }
}

/// The start of `stderr`, or `status` if git printed nothing: a signal ended it.
fn describe_failure(status: ExitStatus, stderr: &[u8]) -> String {
    let start = stderr.get(..STDERR_BYTES_MAX).unwrap_or(stderr);
    match start.trim_ascii() {
        b"" => status.to_string(),
        text => escape(text),
    }
}

fn read_all(child: &mut Child, bytes_max: usize) -> Result<Vec<u8>, String> {
    let output = child.stdout.take().ok_or("no output")?;
    let output = OwnedFd::from(output);
    let describe = |errno: Errno| errno.to_string();
    let started = Instant::now();
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: POLL_INTERVAL.subsec_nanos().into(),
    };
    loop {
        let mut fds = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => match rustix::io::retry_on_intr(|| rustix::io::read(&output, &mut buffer[..]))
            {
                Ok(0) => return Ok(bytes),
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(errno) => return Err(describe(errno)),
            },
            Err(errno) => return Err(describe(errno)),
        }
        if bytes.len() > bytes_max {
            return Err(format!("it prints more than {bytes_max} bytes"));
        }
        if started.elapsed() >= TIMEOUT {
            return Err(format!("it has not ended after {} s", TIMEOUT.as_secs()));
        }
        if is_pending(SignalSet::of(&ENDING)).map_err(describe)? {
            return Err("interrupted by a signal".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn a_failure_is_described_by_stderr_or_the_status() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(describe_failure(killed, b"\n"), "signal: 9 (SIGKILL)");
        assert_eq!(describe_failure(killed, b"fatal: bad\n"), "fatal: bad");
    }
}
