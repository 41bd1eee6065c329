//! Control sockets of sandboxes that stay: `sandboxes/<name>@<run id>`.
//!
//! The run id makes the file that of one run, so that the cleanup of a dead run never removes the
//! socket of a live one with the same name.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::record::{Entry, RunRecord};
use super::{RecordsError, directory, failed, is_locked};
use crate::control::{Client, ControlError, bind};
use spec::path::escape;
use spec::sandboxes::{SandboxName, SandboxState};
use sys::lock;

const SANDBOXES: &str = "sandboxes";

pub(super) fn file_name(name: &SandboxName, run_id: &str) -> String {
    format!("{name}@{run_id}")
}

fn open_sockets(path: &Path) -> Result<OwnedFd, RecordsError> {
    let runtime = directory::open_checked(path)?;
    directory::open_part(path, runtime.as_fd(), SANDBOXES, 0o700)
}

/// The sockets, each as the name of its sandbox and the run id.
fn list(path: &Path, sockets: &OwnedFd) -> Result<Vec<(SandboxName, String)>, RecordsError> {
    let fault = |errno| failed(path, "list the sandboxes", SANDBOXES, "getdents", errno);
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(sockets).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let Ok(file) = entry.file_name().to_str() else {
            continue;
        };
        if let Some((name, run_id)) = file.split_once('@')
            && let Ok(name) = SandboxName::parse(name)
        {
            found.push((name, run_id.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn remove(path: &Path, file: &str) -> Result<(), RecordsError> {
    match rustix::fs::unlinkat(open_sockets(path)?, file, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(path, "remove a socket", file, "unlinkat", errno)),
    }
}

impl RunRecord {
    /// Gives the run a name, and makes its control socket, which does not listen yet. With `most`, only if
    /// fewer sandboxes have one.
    ///
    /// # Errors
    /// [`RecordsError::NameTaken`]; [`RecordsError::TooManySandboxes`]; [`RecordsError::Call`].
    pub fn bind_socket(
        &mut self,
        name: &SandboxName,
        most: Option<usize>,
    ) -> Result<OwnedFd, RecordsError> {
        let path = self.path.clone();
        let file = file_name(name, &self.run_id);
        let fault = |act, call| {
            let (path, file) = (path.clone(), file.clone());
            move |errno| failed(&path, act, &file, call, errno)
        };
        let sockets = open_sockets(&path)?;
        // From the search to bind(2), so that no two runs get one name, or the last place.
        lock::claim_file(sockets.as_fd()).map_err(fault("lock the sandboxes", "flock"))?;
        let all = list(&path, &sockets)?;
        for (taken, run_id) in all.iter().filter(|(taken, _)| taken == name) {
            if is_locked(&path, &self.runs, run_id)? {
                return Err(RecordsError::NameTaken {
                    name: taken.clone(),
                    run_id: escape(run_id.as_bytes()),
                });
            }
        }
        if let Some(most) = most {
            self.check_count(&all, most)?;
        }
        self.record(&Entry::Socket(name.clone()))?;
        let socket = bind(sockets.as_fd(), &file).map_err(fault("make a socket", "bind"))?;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::chmodat(&sockets, &file, mode, AtFlags::empty())
            .map_err(fault("set a mode", "fchmodat"))?;
        Ok(socket)
    }

    /// # Errors
    /// [`RecordsError::TooManySandboxes`]; [`RecordsError::Call`].
    fn check_count(&self, all: &[(SandboxName, String)], most: usize) -> Result<(), RecordsError> {
        // Sockets of killed supervisors may be among them: only then it matters who lives.
        if all.len() < most {
            return Ok(());
        }
        let mut count = 0;
        for (_, run_id) in all {
            count += usize::from(is_locked(&self.path, &self.runs, run_id)?);
        }
        match count < most {
            true => Ok(()),
            false => Err(RecordsError::TooManySandboxes { count, most }),
        }
    }

    /// Removes the control socket.
    ///
    /// # Errors
    /// [`RecordsError::Call`]; a later start then removes it.
    pub fn remove_socket(&mut self, name: &SandboxName) -> Result<(), RecordsError> {
        remove(&self.path, &file_name(name, &self.run_id))?;
        self.forget(&Entry::Socket(name.clone()))
    }
}

/// Control sockets below a runtime directory.
#[derive(Debug)]
pub struct Sandboxes {
    path: std::path::PathBuf,
    sockets: OwnedFd,
}

impl Sandboxes {
    /// Opens the directory of the sockets, and creates it if it is missing.
    ///
    /// # Errors
    /// As [`super::RunRecords::open`].
    pub fn open(path: &Path) -> Result<Self, RecordsError> {
        Ok(Self {
            path: path.to_owned(),
            sockets: open_sockets(path)?,
        })
    }

    /// Connects to the supervisor of the sandbox `name`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn connect(&self, name: &SandboxName) -> Result<Client, ControlError> {
        for (found, run_id) in self.all()? {
            if found != *name {
                continue;
            }
            match Client::connect(self.sockets.as_fd(), &file_name(name, &run_id), None) {
                // The socket of a killed supervisor.
                Err(ControlError::NoSandbox) => (),
                connected => return connected,
            }
        }
        Err(ControlError::NoSandbox)
    }

    /// Asks the supervisor of a run for its state, for at most this time.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn ask(
        &self,
        name: &SandboxName,
        run_id: &str,
        time: Duration,
    ) -> Result<SandboxState, ControlError> {
        let file = file_name(name, run_id);
        Client::connect(self.sockets.as_fd(), &file, Some(time))?.state()
    }

    /// The names and run ids of the sockets, also of killed supervisors, sorted.
    ///
    /// # Errors
    /// [`RecordsError::Call`].
    pub fn all(&self) -> Result<Vec<(SandboxName, String)>, RecordsError> {
        list(&self.path, &self.sockets)
    }
}
