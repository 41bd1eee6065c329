//! Interface files of cgroupfs, version 1 and 2.
//!
//! Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::file::{CallError, errno_of, read_to_end};
use spec::path::escape;

/// clone3(2), Linux 5.7: the child starts in the cgroup `clone_args.cgroup`. In libc it is a C int,
/// which truncates it to 0.
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// statfs(2).
const CGROUP2_MAGIC: i64 = 0x6367_7270;
/// statfs(2).
const CGROUP1_MAGIC: i64 = 0x0027_e0eb;

/// An open cgroup of one hierarchy.
#[derive(Debug)]
pub struct Group {
    directory: OwnedFd,
    path: String,
}

/// Creates the directory of a cgroup.
///
/// # Errors
/// mkdir(2): EEXIST, ENOENT without the parent, EACCES, EPERM, EROFS, EAGAIN at
/// `cgroup.max.descendants`.
pub fn make(path: &str) -> Result<(), CallError> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
        .map_err(|errno| CallError::new("mkdir", escape(path.as_bytes()), errno))
}

/// Removes the directory of a cgroup.
///
/// # Errors
/// rmdir(2): EBUSY while it contains a process or a cgroup, ENOENT.
pub fn remove(path: &str) -> Result<(), CallError> {
    rustix::fs::rmdir(path).map_err(|errno| CallError::new("rmdir", escape(path.as_bytes()), errno))
}

/// The names of the cgroups directly below this one.
///
/// # Errors
/// open(2), getdents64(2).
pub fn children(path: &str) -> Result<Vec<String>, CallError> {
    let failed = |call| {
        move |error: std::io::Error| CallError::new(call, escape(path.as_bytes()), errno_of(&error))
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed("open"))? {
        let entry = entry.map_err(failed("getdents64"))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // Cgroups of this program have names of ASCII.
            names.extend(entry.file_name().into_string().ok());
        }
    }
    Ok(names)
}

/// Checks that the effective ids of this process may write `path` (faccessat2(2)). Fails with EROFS
/// on a read-only mount.
pub fn may_write(path: &str) -> Result<(), Errno> {
    rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        rustix::fs::Access::WRITE_OK,
        AtFlags::EACCESS,
    )
}

impl Group {
    /// Opens the directory of a cgroup.
    ///
    /// # Errors
    /// open(2); EINVAL if the path is not on a cgroup file system.
    pub fn open(path: &str) -> Result<Self, CallError> {
        let failed = |call| move |errno| CallError::new(call, escape(path.as_bytes()), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open"))?;
        let kind = rustix::fs::fstatfs(&directory)
            .map_err(failed("fstatfs"))?
            .f_type;
        if kind != CGROUP2_MAGIC && kind != CGROUP1_MAGIC {
            return Err(failed("fstatfs: not a cgroup file system:")(Errno::INVAL));
        }
        Ok(Self {
            directory,
            path: path.to_owned(),
        })
    }

    /// Path that the cgroup was opened by.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The open directory, for `CLONE_INTO_CGROUP` (version 2).
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Reads an interface file; `None` if this kernel does not have it.
    pub fn read(&self, file: &'static str) -> Result<Option<String>, CallError> {
        let opened = match self.open_file(file, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(error) if error.errno == Errno::NOENT => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = read_to_end(&opened).map_err(|errno| self.failed("read", file, errno))?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Reads a file that contains one number; `None` if it is missing or contains `max`.
    pub fn read_number(&self, file: &'static str) -> Result<Option<u64>, CallError> {
        Ok(self.read(file)?.and_then(|text| text.trim().parse().ok()))
    }

    /// Reads the number of `key` in a flat-keyed file such as `memory.events`.
    pub fn read_keyed(&self, file: &'static str, key: &str) -> Result<Option<u64>, CallError> {
        Ok(self.read(file)?.and_then(|text| keyed(&text, key)))
    }

    /// Writes `value` to an interface file in one write(2).
    ///
    /// # Errors
    /// openat(2): ENOENT if this kernel does not have the file; write(2): EINVAL, EBUSY, ENODEV …
    pub fn write(&self, file: &'static str, value: &str) -> Result<(), CallError> {
        let opened = self.open_file(file, OFlags::WRONLY)?;
        loop {
            match rustix::io::write(&opened, value.as_bytes()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(self.failed("write", file, errno)),
            }
        }
    }

    /// Opens `tasks` of version 1 for writing. A thread that writes `0` to it joins the cgroup.
    ///
    /// The kernel checks the permission of the opener, so a child without capabilities can join
    /// through an inherited descriptor. Unlike `cgroup.procs`, `tasks` avoids the lock over all
    /// thread groups, which costs an RCU grace period after idle.
    pub fn open_tasks(&self) -> Result<OwnedFd, CallError> {
        self.open_file("tasks", OFlags::WRONLY)
    }

    /// Opens `cgroup.procs` of version 2 for writing. A process that writes `0` to it joins the cgroup.
    ///
    /// The kernel checks the permission and the cgroup namespace of the opener (Linux 5.17). The write
    /// takes the lock over all thread groups.
    pub fn open_processes(&self) -> Result<OwnedFd, CallError> {
        self.open_file("cgroup.procs", OFlags::WRONLY)
    }

    /// Moves all threads of this process into the cgroup.
    ///
    /// # Errors
    /// write(2) to `cgroup.procs`: EACCES, EBUSY if the cgroup has controllers enabled for its
    /// children.
    pub fn join(&self) -> Result<(), CallError> {
        self.write("cgroup.procs", "0")
    }

    /// Processes of the cgroup itself. `0` is a process outside our pid namespace.
    pub fn processes(&self) -> Result<Vec<i32>, CallError> {
        let text = self.read("cgroup.procs")?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Kills all processes in the cgroup and below it, including forks in progress. Version 2,
    /// Linux 5.14.
    ///
    /// # Errors
    /// openat(2): ENOENT for an older kernel or version 1.
    pub fn kill_all(&self) -> Result<(), CallError> {
        self.write("cgroup.kill", "1")
    }

    /// Sends SIGKILL to the listed processes and returns their number.
    ///
    /// Opens each process as a pidfd and then looks it up in the list again, so that a reused pid is
    /// not killed.
    ///
    /// # Errors
    /// As [`Group::processes`]; pidfd_open(2) and pidfd_send_signal(2) except for ESRCH.
    pub fn kill_listed(&self) -> Result<usize, CallError> {
        let mut opened = Vec::new();
        for number in self.processes()? {
            // 0 is a process outside our pid namespace.
            let Some(pid) = Pid::from_raw(number) else {
                continue;
            };
            match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => opened.push((number, pidfd)),
                Err(Errno::SRCH) => (),
                Err(errno) => return Err(self.failed("pidfd_open", "cgroup.procs", errno)),
            }
        }
        let listed = self.processes()?;
        for (number, pidfd) in &opened {
            if !listed.contains(number) {
                continue;
            }
            match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => (),
                Err(errno) => return Err(self.failed("pidfd_send_signal", "cgroup.procs", errno)),
            }
        }
        Ok(listed.len())
    }

    fn open_file(&self, file: &'static str, access: OFlags) -> Result<OwnedFd, CallError> {
        rustix::fs::openat(
            &self.directory,
            file,
            access | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .map_err(|errno| self.failed("openat", file, errno))
    }

    fn failed(&self, call: &'static str, file: &str, errno: Errno) -> CallError {
        CallError::new(
            call,
            format!("{}/{file}", escape(self.path.as_bytes())),
            errno,
        )
    }
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, number)| number.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_matched_whole_and_not_by_its_beginning() {
        let text = "shmem_thp 7\nshmem 42\n";
        assert_eq!(keyed(text, "shmem"), Some(42));
        assert_eq!(keyed(text, "shm"), None);
    }

    #[test]
    fn a_directory_of_another_file_system_is_not_a_group() {
        let elsewhere = tempfile::tempdir().expect("a directory");
        let path = elsewhere.path().to_str().expect("text");
        let error = Group::open(path).expect_err("not a cgroup");
        assert_eq!(error.errno, Errno::INVAL);
    }
}
