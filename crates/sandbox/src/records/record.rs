//! The record of one run: one JSON line for each object that the run creates on the host.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::orphans::{Init, SUPERVISOR_BYTE};
use super::totals::Share;
use super::{RecordsError, failed};
use spec::sandboxes::SandboxName;

/// Names of spare records; invalid as run ids.
pub(super) const SPARES: [&str; 4] = [".spare-0", ".spare-1", ".spare-2", ".spare-3"];

const LOCKS: &str = "locks";

pub(super) fn rename(runs: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    rustix::fs::renameat_with(runs, from, runs, to, RenameFlags::NOREPLACE)
}

/// An object on the host that remains if the supervisor is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Absolute path.
    Cgroup(String),
    Temporary {
        directory: PathBuf,
        /// One component.
        name: OsString,
    },
    /// A directory of the caller's, which no cleanup removes. Absolute path.
    Kept(PathBuf),
    /// The control socket of a sandbox that stays.
    Socket(SandboxName),
}

impl Entry {
    pub(super) fn cgroup(&self) -> Option<&str> {
        match self {
            Self::Cgroup(path) => Some(path),
            Self::Temporary { .. } | Self::Kept(_) | Self::Socket(_) => None,
        }
    }
}

/// The record of a live run. If it is dropped without [`RunRecord::finish`], a later start removes
/// the recorded objects.
#[derive(Debug)]
pub struct RunRecord {
    pub(super) run_id: String,
    pub(super) path: PathBuf,
    pub(super) runs: OwnedFd,
    file: File,
    length: u64,
    /// Has [`SUPERVISOR_BYTE`] locked, in a sandbox that stays.
    supervisor: Option<OwnedFd>,
}

impl RunRecord {
    pub(super) fn new(run_id: &str, path: &Path, runs: OwnedFd, file: OwnedFd) -> Self {
        Self {
            run_id: run_id.to_owned(),
            path: path.to_owned(),
            runs,
            file: file.into(),
            length: 0,
            supervisor: None,
        }
    }

    /// Records an entry. Create the object only after this returns.
    ///
    /// # Errors
    /// [`RecordsError::Call`], [`RecordsError::Encode`]; nothing was recorded.
    pub fn record(&mut self, entry: &Entry) -> Result<(), RecordsError> {
        self.append([Line::from(entry)])
    }

    /// As [`RunRecord::record`], for several entries in the order of creation.
    pub fn record_all(&mut self, entries: &[Entry]) -> Result<(), RecordsError> {
        self.append(entries.iter().map(Line::from))
    }

    /// Deletes an entry whose object was removed or now belongs to the caller. Errors as
    /// [`RunRecord::record`].
    pub fn forget(&mut self, entry: &Entry) -> Result<(), RecordsError> {
        self.append([Line::Forget(Box::new(Line::from(entry)))])
    }

    /// Descriptor that holds the lock. Init keeps it open; the body must not get it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Opens the file of the workspace locks. Each lock needs its own open file description: locks
    /// through the same one do not exclude each other.
    pub fn open_locks(&self) -> Result<OwnedFd, RecordsError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::openat(CWD, self.path.join(LOCKS), flags, mode)
            .map_err(|errno| failed(&self.path, "open the locks", LOCKS, "openat", errno))
    }

    /// Empties the record and renames it to a spare, or removes it if enough spares exist.
    ///
    /// # Errors
    /// [`RecordsError::Call`]; the record then stays for a later start.
    pub fn finish(self) -> Result<(), RecordsError> {
        let fault = |act, call| {
            let (path, run_id) = (&self.path, &self.run_id);
            move |errno| failed(path, act, run_id, call, errno)
        };
        rustix::fs::ftruncate(&self.file, 0).map_err(fault("empty a record", "ftruncate"))?;
        for spare in SPARES {
            match rename(&self.runs, &self.run_id, spare) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => (),
                // The file system does not support RENAME_NOREPLACE.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(fault("rename a record", "renameat2")(errno)),
            }
        }
        rustix::fs::unlinkat(&self.runs, &self.run_id, AtFlags::empty())
            .map_err(fault("remove a record", "unlinkat"))
    }

    /// Records what the run may use.
    pub(super) fn record_share(&mut self, share: Share) -> Result<(), RecordsError> {
        self.append([Line::Share(share)])
    }

    /// Records init of a sandbox that stays, so that a later start ends it if this process is killed.
    ///
    /// # Errors
    /// [`RecordsError::Call`].
    pub fn record_init(&mut self, pid: i32) -> Result<(), RecordsError> {
        let fault = |call| {
            let (path, run_id) = (&self.path, &self.run_id);
            move |errno| failed(path, "record init of", run_id, call, errno)
        };
        let init = Init::of(pid).map_err(fault("open"))?;
        // Another open file description than that which init has, too.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = rustix::fs::openat(&self.runs, &self.run_id, flags, Mode::empty())
            .map_err(fault("openat"))?;
        match sys::lock::try_claim_byte(own.as_fd(), SUPERVISOR_BYTE) {
            Ok(true) => self.supervisor = Some(own),
            Ok(false) => return Err(fault("fcntl")(Errno::AGAIN)),
            Err(errno) => return Err(fault("fcntl")(errno)),
        }
        self.append([Line::Init(init)])
    }

    fn append(&mut self, lines: impl IntoIterator<Item = Line>) -> Result<(), RecordsError> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, &line).map_err(|source| RecordsError::Encode {
                run_id: self.run_id.clone(),
                source,
            })?;
            text.push(b'\n');
        }
        let run_id = &self.run_id;
        let fault = |call, error: &std::io::Error| {
            failed(
                &self.path,
                "write a record",
                run_id,
                call,
                sys::file::errno_of(error),
            )
        };
        if let Err(error) = self.file.write_all(&text) {
            // The next line would be appended to a partial one.
            self.file
                .set_len(self.length)
                .map_err(|error| fault("ftruncate", &error))?;
            return Err(fault("write", &error));
        }
        let written = u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.length = self.length.saturating_add(written);
        Ok(())
    }
}

/// The last share of a record; `None`: the run is still starting and has written none, or a part of one.
pub(super) fn share(text: &[u8]) -> Option<Share> {
    last(text, b"{\"share\"", |line| match line {
        Line::Share(share) => Some(share),
        _ => None,
    })
}

/// Init of a sandbox that stays; `None`: the record is that of a run, or the sandbox is still starting.
pub(super) fn init(text: &[u8]) -> Option<Init> {
    last(text, b"{\"init\"", |line| match line {
        Line::Init(init) => Some(init),
        _ => None,
    })
}

fn last<T>(text: &[u8], start: &[u8], of: impl Fn(Line) -> Option<T>) -> Option<T> {
    let mut lines = text.split(|byte| *byte == b'\n').rev();
    lines.find_map(|line| match line.starts_with(start) {
        true => serde_json::from_slice(line).ok().and_then(&of),
        false => None,
    })
}

/// Returns the remaining entries in the order of creation, and the first error.
///
/// Ignores an unterminated last line: a crash interrupted its write, before its object was created.
pub(super) fn remaining(run_id: &str, text: &[u8]) -> (Vec<Entry>, Option<RecordsError>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut failure = None;
    let complete = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(&text[..0], |end| &text[..end]);
    let lines = complete.split(|byte| *byte == b'\n').enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice::<Line>(line) {
            Ok(Line::Forget(forgotten)) => {
                let forgotten = forgotten.entry();
                entries.retain(|entry| Some(entry) != forgotten.as_ref());
            }
            Ok(line) => entries.extend(line.entry()),
            Err(source) => {
                failure.get_or_insert(RecordsError::Malformed {
                    run_id: run_id.to_owned(),
                    line: index + 1,
                    source,
                });
            }
        }
    }
    (entries, failure)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Cgroup(String),
    Temporary { directory: Name, name: Name },
    Kept(Name),
    Socket(SandboxName),
    Share(Share),
    Init(Init),
    Forget(Box<Line>),
}

impl Line {
    fn entry(self) -> Option<Entry> {
        match self {
            Self::Cgroup(path) => Some(Entry::Cgroup(path)),
            Self::Temporary { directory, name } => Some(Entry::Temporary {
                directory: PathBuf::from(directory.into_os_string()),
                name: name.into_os_string(),
            }),
            Self::Kept(path) => Some(Entry::Kept(path.into_os_string().into())),
            Self::Socket(name) => Some(Entry::Socket(name)),
            Self::Share(_) | Self::Init(_) | Self::Forget(_) => None,
        }
    }
}

impl From<&Entry> for Line {
    fn from(entry: &Entry) -> Self {
        match entry {
            Entry::Cgroup(path) => Self::Cgroup(path.clone()),
            Entry::Temporary { directory, name } => Self::Temporary {
                directory: Name::from(directory.as_os_str()),
                name: Name::from(name.as_os_str()),
            },
            Entry::Kept(path) => Self::Kept(Name::from(path.as_os_str())),
            Entry::Socket(name) => Self::Socket(name.clone()),
        }
    }
}

/// Bytes encode names that are not UTF-8.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Bytes(Vec<u8>),
}

impl Name {
    fn into_os_string(self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

impl From<&OsStr> for Name {
    fn from(name: &OsStr) -> Self {
        match name.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(name.as_bytes().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &[u8]) -> Entry {
        Entry::Temporary {
            directory: "/work".into(),
            name: OsString::from_vec(name.to_vec()),
        }
    }

    fn written(lines: &[Line]) -> Vec<u8> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line).expect("written");
            text.push(b'\n');
        }
        text
    }

    #[test]
    fn names_that_are_not_utf_8_are_read_back_unchanged() {
        let entries = [
            Entry::Cgroup("/sys/fs/cgroup/runner-a".to_owned()),
            temporary(b"out\xff\n.tmp"),
            temporary(b"line\nbreak"),
        ];
        let lines: Vec<Line> = entries.iter().map(Line::from).collect();
        let (read, failure) = remaining("a", &written(&lines));
        assert_eq!(read, entries);
        assert!(failure.is_none());
    }

    #[test]
    fn a_forgotten_entry_does_not_remain() {
        let kept = temporary(b"kept");
        let lines = [
            Line::from(&temporary(b"gone")),
            Line::from(&kept),
            Line::Forget(Box::new(Line::from(&temporary(b"gone")))),
        ];
        let (read, failure) = remaining("a", &written(&lines));
        assert_eq!(read, [kept]);
        assert!(failure.is_none());
    }

    #[test]
    fn of_a_line_torn_at_any_byte_only_that_line_is_lost() {
        let first = written(&[Line::from(&temporary(b"first"))]);
        let both = written(&[
            Line::from(&temporary(b"first")),
            Line::from(&temporary(b"second")),
        ]);
        for length in first.len()..both.len() {
            let (read, failure) = remaining("a", &both[..length]);
            assert_eq!(read, [temporary(b"first")], "torn at {length}");
            assert!(failure.is_none(), "torn at {length}");
        }
        assert_eq!(remaining("a", &both).0.len(), 2);
        assert!(remaining("a", b"").0.is_empty());
    }

    #[test]
    fn a_malformed_line_is_reported_and_the_others_are_read() {
        let mut text = b"{\"cgroup\":7}\n".to_vec();
        text.extend(written(&[Line::from(&temporary(b"x"))]));
        let (read, failure) = remaining("a", &text);
        assert_eq!(read, [temporary(b"x")]);
        assert!(matches!(
            failure,
            Some(RecordsError::Malformed { line: 1, .. })
        ));
    }
}
