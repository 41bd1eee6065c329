//! The directory of a program for files on their way into a sandbox or out of one.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tempfile::{Builder, TempDir};

use spec::path::escape;

/// Tries to make a directory that another program, which starts, does not take for one that was left.
const TRIES: u8 = 8;

/// Private, and removed with the process; what a killed one left is removed by the next.
#[derive(Debug)]
pub struct Workspace {
    directory: TempDir,
    /// Held as long as the process lives.
    _lock: File,
}

impl Workspace {
    /// One in the directory `common`, which is made if it is missing.
    ///
    /// # Errors
    /// A message: the directory cannot be made, or is not private.
    pub fn open_in(common: &Path) -> Result<Self, String> {
        make_private(common)?;
        let failed = |error: std::io::Error| failed(common, &error);
        remove_left(common).map_err(failed)?;
        for _ in 0..TRIES {
            let directory = make(common, "").map_err(failed)?;
            let Ok(lock) = lock(directory.path()) else {
                continue;
            };
            if directory.path().exists() {
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
        Err(failed(std::io::Error::other(
            "other processes removed each directory in it",
        )))
    }

    /// An empty directory for one call, removed when it is dropped.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn make(&self) -> std::io::Result<TempDir> {
        make(self.directory.path(), "call-")
    }
}

/// Makes a directory that is of this user alone, unless it is there.
///
/// # Errors
/// A message: it cannot be made, or is not private.
pub fn make_private(directory: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| failed(directory, &error);
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => (),
    }
    let found = std::fs::symlink_metadata(directory).map_err(failed)?;
    let uid = rustix::process::geteuid().as_raw();
    match found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(failed(std::io::Error::other(
            "expected a directory of yours with mode 700",
        ))),
    }
}

fn failed(directory: &Path, error: &std::io::Error) -> String {
    let shown = escape(directory.as_os_str().as_encoded_bytes());
    format!("{shown}: {error}")
}

fn make(above: &Path, prefix: &str) -> std::io::Result<TempDir> {
    let private = std::fs::Permissions::from_mode(0o700);
    Builder::new()
        .prefix(prefix)
        .permissions(private)
        .tempdir_in(above)
}

/// Fails if another process has the lock.
fn lock(directory: &Path) -> std::io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(File::from(directory))
}

/// Removes the directories of processes that do not live.
fn remove_left(common: &Path) -> std::io::Result<()> {
    let entries: Vec<PathBuf> = std::fs::read_dir(common)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    for path in entries {
        if let Ok(_lock) = lock(&path) {
            std::fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}
