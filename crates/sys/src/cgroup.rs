//! cgroupfs: one function per interface file, version 1 and 2.
//!
//! Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::file::CallError;
use spec::path::escape;

/// clone3(2), Linux 5.7: the child starts in the group whose directory `clone_args.cgroup` is.
///
/// libc declares it as a C int, in which nothing is left of its only bit.
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `f_type` of a version 2 hierarchy, statfs(2).
const CGROUP2_MAGIC: i64 = 0x6367_7270;
/// `f_type` of a version 1 hierarchy, statfs(2).
const CGROUP1_MAGIC: i64 = 0x0027_e0eb;

/// An open group of one hierarchy.
#[derive(Debug)]
pub struct Group {
    directory: OwnedFd,
    path: String,
}

/// Makes the directory of a group.
///
/// # Errors
/// mkdir(2): EEXIST, ENOENT without the parent, EACCES, EPERM, EROFS, EAGAIN at
/// `cgroup.max.descendants`.
pub fn make(path: &str) -> Result<(), CallError> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
        .map_err(|errno| CallError::new("mkdir", escape(path.as_bytes()), errno))
}

/// Removes the directory of a group.
///
/// # Errors
/// rmdir(2): EBUSY while a process or a group is in it, ENOENT.
pub fn remove(path: &str) -> Result<(), CallError> {
    rustix::fs::rmdir(path).map_err(|errno| CallError::new("rmdir", escape(path.as_bytes()), errno))
}

/// Whether `path` may be written by the effective ids of this process; EROFS on a read-only mount.
///
/// # Errors
/// The errno of faccessat2(2) as the reason why not.
pub fn may_write(path: &str) -> Result<(), Errno> {
    rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        rustix::fs::Access::WRITE_OK,
        AtFlags::EACCESS,
    )
}

impl Group {
    /// Opens the directory of a group; refuses what is not in a cgroup file system.
    ///
    /// # Errors
    /// open(2); EINVAL where the path is a directory of another file system.
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

    /// The path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The open directory, as `CLONE_INTO_CGROUP` wants it (clone(2), Linux 5.7, version 2 only).
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The text of an interface file; `None` where this kernel has no such file.
    ///
    /// # Errors
    /// openat(2), read(2).
    pub fn read(&self, file: &'static str) -> Result<Option<String>, CallError> {
        let opened = match self.open_file(file, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(error) if error.errno == Errno::NOENT => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        let mut chunk = [0_u8; 4096];
        loop {
            match rustix::io::read(&opened, &mut chunk) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&chunk[..count]),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(self.failed("read", file, errno)),
            }
        }
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// A file that holds one number; `None` where there is no such file or it says `max`.
    ///
    /// # Errors
    /// openat(2), read(2).
    pub fn read_number(&self, file: &'static str) -> Result<Option<u64>, CallError> {
        Ok(self.read(file)?.and_then(|text| text.trim().parse().ok()))
    }

    /// The number behind `key` in a flat-keyed file such as `cgroup.events`.
    ///
    /// # Errors
    /// openat(2), read(2).
    pub fn read_keyed(&self, file: &'static str, key: &str) -> Result<Option<u64>, CallError> {
        Ok(self.read(file)?.and_then(|text| keyed(&text, key)))
    }

    /// Writes `value` to an interface file in one write(2).
    ///
    /// # Errors
    /// openat(2): ENOENT where this kernel has no such file; write(2): EINVAL, EBUSY, ENODEV …
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

    /// Opens version 1's `tasks` for writing: whoever writes `0` to it joins the group.
    ///
    /// The right to do so is checked against who opened it, so that a child without
    /// capabilities can join through an inherited descriptor. Unlike `cgroup.procs` it does not
    /// take the lock over all thread groups, which costs an RCU grace period after idle.
    ///
    /// # Errors
    /// openat(2).
    pub fn open_tasks(&self) -> Result<OwnedFd, CallError> {
        self.open_file("tasks", OFlags::WRONLY)
    }

    /// Moves this process, all of its threads, into the group.
    ///
    /// # Errors
    /// write(2) to `cgroup.procs`: EACCES, EBUSY where the group hands out controllers.
    pub fn join(&self) -> Result<(), CallError> {
        self.write("cgroup.procs", "0")
    }

    /// The processes of the group itself. `0` stands for one that our pid namespace cannot name.
    ///
    /// # Errors
    /// openat(2), read(2).
    pub fn processes(&self) -> Result<Vec<i32>, CallError> {
        let text = self.read("cgroup.procs")?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Kills all there is in the group and below it, forks under way included. Version 2, Linux 5.14.
    ///
    /// # Errors
    /// openat(2): ENOENT where the kernel is older or the hierarchy is version 1.
    pub fn kill_all(&self) -> Result<(), CallError> {
        self.write("cgroup.kill", "1")
    }

    /// Sends SIGKILL to the processes that the group lists now; returns how many there were.
    ///
    /// Each is pinned by a pidfd and then looked for in the list again, so that an id that was
    /// given to somebody else in between is not hit.
    ///
    /// # Errors
    /// As [`Group::processes`]; pidfd_open(2) and pidfd_send_signal(2) except for ESRCH.
    pub fn kill_listed(&self) -> Result<usize, CallError> {
        let mut pinned = Vec::new();
        for number in self.processes()? {
            // 0 would be our own process group.
            let Some(pid) = Pid::from_raw(number).filter(|_| 0 < number) else {
                continue;
            };
            match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => pinned.push((number, pidfd)),
                Err(Errno::SRCH) => (),
                Err(errno) => return Err(self.failed("pidfd_open", "cgroup.procs", errno)),
            }
        }
        let listed = self.processes()?;
        for (number, pidfd) in &pinned {
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

    /// Whether a process lives in the group or below it. Version 1 has no such file: the list is read.
    ///
    /// # Errors
    /// openat(2), read(2).
    pub fn is_populated(&self) -> Result<bool, CallError> {
        match self.read_keyed("cgroup.events", "populated")? {
            Some(populated) => Ok(populated != 0),
            None => Ok(!self.processes()?.is_empty()),
        }
    }

    /// Waits until `cgroup.events` changes, at most `patience`. Version 1: plainly waits that long.
    ///
    /// # Errors
    /// openat(2), poll(2).
    pub fn wait_for_change(&self, patience: Duration) -> Result<(), CallError> {
        let events = match self.open_file("cgroup.events", OFlags::RDONLY) {
            Ok(events) => events,
            Err(error) if error.errno == Errno::NOENT => {
                std::thread::sleep(patience);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // kernfs reports a change only after the file was read once, and a change that came
        // before this read is in what it says.
        let mut text = [0_u8; 256];
        let count = rustix::io::read(&events, &mut text)
            .map_err(|errno| self.failed("read", "cgroup.events", errno))?;
        if keyed(&String::from_utf8_lossy(&text[..count]), "populated") == Some(0) {
            return Ok(());
        }
        let timeout = rustix::time::Timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut watched = [PollFd::new(&events, PollFlags::PRI)];
        match rustix::event::poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(self.failed("poll", "cgroup.events", errno)),
        }
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
