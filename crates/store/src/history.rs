//! The history of runs: lines of JSON in files that are only appended to.
//!
//! ```text
//! DIRECTORY/ULID.jsonl     lines of several runs; the ULID has the time of the first one
//! ```
//!
//! A file is not continued from [`FILE_BYTES_MAX`] or [`FILE_TIME_MAX`] on. Whoever begins a file removes
//! those beyond [`FILES_MAX`] and [`TIME_MAX`].

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{CacheError, failed};
use crate::files::OpenDirectory;
use crate::private::{open_existing_private, open_private};
use spec::ulid;
use sys::file::{CallError, errno_of};

const FILE_BYTES_MAX: u64 = 8 << 20;
const FILE_TIME_MAX: Duration = Duration::from_secs(3 * DAY_S);
const FILES_MAX: usize = 8;
const TIME_MAX: Duration = Duration::from_secs(30 * DAY_S);
const DAY_S: u64 = 24 * 60 * 60;

const SUFFIX: &str = ".jsonl";
/// This program writes no longer line.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Why the history cannot be read or continued.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another user could read or change it.
    #[error("the history of runs is not safe: {path} is {found}; expected {expected}")]
    Unsafe {
        path: String,
        found: String,
        expected: &'static str,
    },
    #[error("the history of runs cannot be used")]
    Call(#[source] CallError),
}

impl From<CacheError> for HistoryError {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Unsafe {
                path,
                found,
                expected,
            } => Self::Unsafe {
                path,
                found,
                expected,
            },
            CacheError::Call(error) => Self::Call(error),
            // Nothing is locked here, and there are no entries.
            CacheError::Locked { path } | CacheError::Damaged { entry: path, .. } => {
                Self::Call(CallError::new("open", path, Errno::IO))
            }
        }
    }
}

/// The history of this user's runs, for one more of them.
#[derive(Debug)]
pub struct History {
    directory: OpenDirectory,
    name: String,
    file: OwnedFd,
}

impl History {
    /// Opens the file to continue, or begins one. Creates `directory`. `now` is the time since 1970.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn open(directory: &Path, now: Duration, random: [u8; 10]) -> Result<Self, HistoryError> {
        let directory = match open_existing_private(directory)? {
            Some(opened) => opened,
            None => {
                make_parent(directory)?;
                open_private(directory)?
            }
        };
        let names = names(&directory)?;
        let last = names.last().filter(|name| age(name, now) < FILE_TIME_MAX);
        if let Some(name) = last
            && let Some(file) = directory.file(name, OFlags::RDWR | OFlags::APPEND)?
            && size(&file, &directory, name)? < FILE_BYTES_MAX
        {
            let name = name.clone();
            return Ok(Self {
                directory,
                name,
                file,
            });
        }
        remove_old(&directory, &names, now)?;
        let now_ms = u64::try_from(now.as_millis()).unwrap_or_default();
        let name = format!("{}{SUFFIX}", ulid::ulid(now_ms, random));
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let made = directory.file(&name, flags)?;
        let file = made.ok_or_else(|| directory.failed("openat", &name)(Errno::NOENT))?;
        Ok(Self {
            directory,
            name,
            file,
        })
    }

    /// Appends `line`, which has no line feed.
    ///
    /// # Errors
    /// [`HistoryError::Call`]: a part of the line may have been written, which a reader ignores.
    pub fn append(&self, line: &[u8]) -> Result<(), HistoryError> {
        let mut text = Vec::with_capacity(line.len() + 2);
        if self.ends_within_line()? {
            text.push(b'\n');
        }
        text.extend_from_slice(line);
        text.push(b'\n');
        let failed = self.directory.failed("write", &self.name);
        // One call, so that lines of several processes do not mix.
        let count = rustix::io::retry_on_intr(|| rustix::io::write(&self.file, &text));
        match count.map_err(&failed)? {
            count if count == text.len() => Ok(()),
            _ => Err(failed(Errno::NOSPC).into()),
        }
    }

    /// Whether a process ended, or the file system was full, while it wrote.
    fn ends_within_line(&self) -> Result<bool, HistoryError> {
        let bytes = size(&self.file, &self.directory, &self.name)?;
        let Some(last) = bytes.checked_sub(1) else {
            return Ok(false);
        };
        let mut byte = [0];
        rustix::io::pread(&self.file, &mut byte, last)
            .map_err(self.directory.failed("pread", &self.name))?;
        Ok(byte != [b'\n'])
    }
}

/// Makes the directory above the history of root, unless it is there, so that others can pass through it
/// whatever the caller's umask is: the state of services of other users is there, too.
fn make_parent(directory: &Path) -> Result<(), HistoryError> {
    let Some(parent) = directory.parent() else {
        return Ok(());
    };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(0o755);
    match rustix::fs::mkdir(parent, mode) {
        Ok(()) => Ok(rustix::fs::chmod(parent, mode).map_err(failed("chmod", parent))?),
        // What else is missing, or wrong, is found when it is opened.
        Err(_) => Ok(()),
    }
}

/// All complete lines of the history, the oldest first, for `each`. None if there is no history.
///
/// # Errors
/// [`HistoryError`].
pub fn read_history(directory: &Path, mut each: impl FnMut(&[u8])) -> Result<(), HistoryError> {
    let Some(directory) = open_existing_private(directory)? else {
        return Ok(());
    };
    for name in names(&directory)? {
        let Some(file) = directory.file(&name, OFlags::RDONLY)? else {
            continue;
        };
        let mut source = BufReader::new(File::from(file));
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = source.by_ref().take(LINE_BYTES_MAX);
            let count = { read }.read_until(b'\n', &mut line);
            match count.map_err(|error| directory.failed("read", &name)(errno_of(&error)))? {
                0 => break,
                _ => each(line.strip_suffix(b"\n").unwrap_or(&line)),
            }
        }
    }
    Ok(())
}

/// Files of the history, the oldest first.
fn names(directory: &OpenDirectory) -> Result<Vec<String>, HistoryError> {
    let mut names = directory.names(".")?;
    names.retain(|name| name.ends_with(SUFFIX));
    names.sort_unstable();
    Ok(names)
}

fn age(name: &str, now: Duration) -> Duration {
    let began_ms = ulid::unix_time_ms(name).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(began_ms))
}

fn size(file: &OwnedFd, directory: &OpenDirectory, name: &str) -> Result<u64, HistoryError> {
    let status = rustix::fs::fstat(file.as_fd()).map_err(directory.failed("fstat", name))?;
    Ok(u64::try_from(status.st_size).unwrap_or_default())
}

fn remove_old(
    directory: &OpenDirectory,
    names: &[String],
    now: Duration,
) -> Result<(), HistoryError> {
    let spared = names.len().saturating_sub(FILES_MAX - 1);
    for (index, name) in names.iter().enumerate() {
        if index < spared || age(name, now) > TIME_MAX {
            directory.unlink(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a directory"))
        }

        fn directory(&self) -> std::path::PathBuf {
            self.0.path().join("a/history")
        }

        fn open(&self, now: Duration, seed: u8) -> History {
            History::open(&self.directory(), now, [seed; 10]).expect("opened")
        }

        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(self.directory()).expect("listed");
            let names = entries.map(|entry| entry.expect("read").file_name());
            let mut names: Vec<_> = names
                .map(|name| name.into_string().expect("text"))
                .collect();
            names.sort();
            names
        }

        fn lines(&self) -> Vec<String> {
            let mut lines = Vec::new();
            read_history(&self.directory(), |line| {
                lines.push(String::from_utf8_lossy(line).into_owned());
            })
            .expect("read");
            lines
        }
    }

    #[test]
    fn lines_of_several_runs_come_back_in_order_from_files_of_the_owner() {
        let place = Place::new();
        assert_eq!(place.lines(), Vec::<String>::new());
        place.open(NOW, 1).append(b"{\"a\":1}").expect("appended");
        place.open(NOW, 2).append(b"{\"a\":2}").expect("appended");
        assert_eq!(place.lines(), ["{\"a\":1}", "{\"a\":2}"]);
        let files = place.files();
        assert_eq!(files.len(), 1);
        let file = place.directory().join(&files[0]);
        let mode = fs::metadata(file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Services of other users have their state beside root's history.
    #[test]
    fn others_pass_through_the_directory_above_the_history_of_root() {
        let place = Place::new();
        fs::create_dir(place.0.path().join("a")).expect("made");
        let directory = place.0.path().join("a/state/history");
        History::open(&directory, NOW, [1; 10]).expect("opened");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let above = if rustix::process::geteuid().is_root() {
            0o755
        } else {
            0o700
        };
        assert_eq!(mode(directory.parent().expect("above")), above);
        assert_eq!(mode(&directory), 0o700);
    }

    #[test]
    fn a_torn_line_does_not_damage_the_next() {
        let place = Place::new();
        let history = place.open(NOW, 1);
        history.append(b"whole").expect("appended");
        let file = place.directory().join(&place.files()[0]);
        let mut torn = fs::read(&file).expect("read");
        torn.extend_from_slice(b"{\"tor");
        fs::write(&file, torn).expect("written");
        history.append(b"next").expect("appended");
        assert_eq!(place.lines(), ["whole", "{\"tor", "next"]);
    }

    #[test]
    fn a_file_ends_by_size_and_by_age_and_old_ones_are_removed() {
        let place = Place::new();
        place.open(NOW, 1).append(b"first").expect("appended");
        let big = vec![b'x'; usize::try_from(FILE_BYTES_MAX).expect("fits")];
        place.open(NOW, 1).append(&big).expect("appended");
        place.open(NOW + Duration::from_millis(1), 2);
        assert_eq!(place.files().len(), 2, "by size");
        place.open(NOW + FILE_TIME_MAX + Duration::from_secs(1), 3);
        assert_eq!(place.files().len(), 3, "by age");
        place.open(NOW + TIME_MAX + Duration::from_secs(60), 4);
        assert_eq!(place.files().len(), 2, "older than a month");
        let mut now = NOW + TIME_MAX;
        for seed in 5..30 {
            now += FILE_TIME_MAX / 2 + FILE_TIME_MAX / 2 + Duration::from_secs(61);
            place.open(now.min(NOW + 2 * TIME_MAX), seed);
        }
        assert!(place.files().len() <= FILES_MAX, "{:?}", place.files());
    }

    #[test]
    fn a_directory_that_others_can_read_is_refused() {
        let place = Place::new();
        place.open(NOW, 1);
        fs::set_permissions(place.directory(), fs::Permissions::from_mode(0o755)).expect("changed");
        let refused = History::open(&place.directory(), NOW, [1; 10]).expect_err("refused");
        assert!(matches!(refused, HistoryError::Unsafe { .. }), "{refused}");
        let refused = read_history(&place.directory(), |_| ()).expect_err("refused");
        assert!(matches!(refused, HistoryError::Unsafe { .. }), "{refused}");
    }
}
