//! Path, creation and checks of the runtime directory.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use spec::path::escape;
use sys::credentials::is_ours_or_roots;

use super::{RecordsError, failed};

const RUNTIME_DIRECTORY: &str = "runtime directory";

/// Default path of the runtime directory. `runtime_of_user` is `XDG_RUNTIME_DIR`; the specification
/// says to ignore a relative one.
#[must_use]
pub fn default_directory(uid: u32, runtime_of_user: Option<&Path>) -> PathBuf {
    match runtime_of_user.filter(|path| path.is_absolute()) {
        _ if uid == 0 => PathBuf::from("/run/runner"),
        Some(runtime) => runtime.join("runner"),
        None => PathBuf::from(format!("/tmp/runner-{uid}")),
    }
}

/// Mode of directories that a run must traverse. Bodies of root have another uid.
pub(super) fn search_mode() -> u32 {
    if rustix::process::geteuid().is_root() {
        0o711
    } else {
        0o700
    }
}

pub(super) fn open_checked(path: &Path) -> Result<OwnedFd, RecordsError> {
    check_path(path)?;
    open_or_make(path, CWD, path, search_mode())
}

pub(super) fn open_part(
    path: &Path,
    directory: BorrowedFd<'_>,
    name: &str,
    mode: u32,
) -> Result<OwnedFd, RecordsError> {
    open_or_make(&path.join(name), directory, Path::new(name), mode)
}

/// Checks that the path is absolute, and that no other user may rename, and so replace, the runtime
/// directory.
fn check_path(path: &Path) -> Result<(), RecordsError> {
    if !path.is_absolute() {
        return Err(RecordsError::Relative {
            path: escape(path.as_os_str().as_encoded_bytes()),
        });
    }
    let parent = path.parent().unwrap_or(path);
    let stat = rustix::fs::stat(parent).map_err(|errno| {
        failed(
            path,
            "inspect the parent directory",
            &parent.to_string_lossy(),
            "stat",
            errno,
        )
    })?;
    let sticky = stat.st_mode & 0o1000 != 0;
    let open_to_others = stat.st_mode & 0o022 != 0 && !sticky;
    if open_to_others || !is_ours_or_roots(stat.st_uid) {
        return Err(not_safe(
            "parent of the runtime directory",
            parent,
            &stat,
            "a directory of root or of this user that is sticky or not writable for others"
                .to_owned(),
        ));
    }
    Ok(())
}

fn open_or_make(
    path: &Path,
    base: BorrowedFd<'_>,
    name: &Path,
    mode: u32,
) -> Result<OwnedFd, RecordsError> {
    let fault = |act, call| move |errno| failed(path, act, &name.to_string_lossy(), call, errno);
    let opened = match open_existing(path, base, name, mode) {
        Ok(None) => {
            match rustix::fs::mkdirat(base, name, Mode::from_raw_mode(mode)) {
                // EEXIST: another start was faster. The owner is checked below.
                Ok(()) | Err(Errno::EXIST) => (),
                Err(errno) => return Err(fault("make a directory", "mkdirat")(errno)),
            }
            open_existing(path, base, name, mode)
        }
        other => other,
    };
    let directory = opened?.ok_or_else(|| fault("open a directory", "openat")(Errno::NOENT))?;
    let stat = rustix::fs::fstat(&directory).map_err(fault("inspect a directory", "fstat"))?;
    if stat.st_mode & mode != mode {
        // Empty, so a start was killed before chmod.
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))
            .map_err(fault("set a mode", "fchmod"))?;
    }
    Ok(directory)
}

/// Checks what [`open_checked`] and [`open_part`] would, without creating or changing a directory.
pub(super) fn check(path: &Path, parts: &[(&str, u32)]) -> Result<(), RecordsError> {
    check_path(path)?;
    let check_writable = |directory: &Path| {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(CWD, directory, access, AtFlags::EACCESS).map_err(|errno| {
            let directory = directory.to_string_lossy();
            failed(path, "make a file", &directory, "faccessat", errno)
        })
    };
    let Some(directory) = open_existing(path, CWD, path, search_mode())? else {
        return check_writable(path.parent().unwrap_or(path));
    };
    check_writable(path)?;
    for (name, mode) in parts {
        open_existing(&path.join(name), directory.as_fd(), Path::new(name), *mode)?;
    }
    Ok(())
}

/// Opens a directory and checks it; `None` if it is missing. If it is empty, its mode may be narrower.
fn open_existing(
    path: &Path,
    base: BorrowedFd<'_>,
    name: &Path,
    mode: u32,
) -> Result<Option<OwnedFd>, RecordsError> {
    let fault = |act, call| move |errno| failed(path, act, &name.to_string_lossy(), call, errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(base, name, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(RecordsError::Unsafe {
                what: RUNTIME_DIRECTORY,
                path: escape(path.as_os_str().as_encoded_bytes()),
                found: "a link or a file".to_owned(),
                expected: "a directory".to_owned(),
            });
        }
        Err(Errno::ACCESS) => {
            return Err(RecordsError::Unsafe {
                what: RUNTIME_DIRECTORY,
                path: escape(path.as_os_str().as_encoded_bytes()),
                found: "a directory that this user cannot open".to_owned(),
                expected: format!("a directory of uid {}", rustix::process::geteuid().as_raw()),
            });
        }
        Err(errno) => return Err(fault("open a directory", "openat")(errno)),
    };
    let stat = rustix::fs::fstat(&directory).map_err(fault("inspect a directory", "fstat"))?;
    let own = rustix::process::geteuid().as_raw();
    let is_safe = stat.st_uid == own && stat.st_mode & 0o022 == 0;
    // A start that was killed before chmod leaves an empty directory with a mode narrowed by the
    // umask. The mode of any other directory is intended.
    if is_safe
        && (stat.st_mode & mode == mode
            || is_empty(&directory).map_err(fault("list a directory", "getdents"))?)
    {
        return Ok(Some(directory));
    }
    let expected =
        format!("a directory of uid {own} with mode {mode:04o} that no other user may write");
    Err(not_safe(RUNTIME_DIRECTORY, path, &stat, expected))
}

fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            return Ok(false);
        }
    }
    Ok(true)
}

fn not_safe(what: &'static str, path: &Path, stat: &Stat, expected: String) -> RecordsError {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => "a directory",
        _ => "a file",
    };
    RecordsError::Unsafe {
        what,
        path: escape(path.as_os_str().as_encoded_bytes()),
        found: format!(
            "{kind} of uid {} with mode {:04o}",
            stat.st_uid,
            stat.st_mode & 0o7777
        ),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsafe_parent_is_not_called_the_runtime_directory() {
        let parent = tempfile::tempdir().expect("a directory");
        rustix::fs::chmod(parent.path(), Mode::from_raw_mode(0o777)).expect("set");
        let refused = open_checked(&parent.path().join("runner")).expect_err("unsafe");
        let start = format!(
            "the parent of the runtime directory {} is",
            parent.path().display()
        );
        assert!(refused.to_string().starts_with(&start), "{refused}");
    }

    #[test]
    fn the_directory_depends_on_who_runs_and_ignores_a_relative_variable() {
        let of = |uid, runtime: Option<&str>| default_directory(uid, runtime.map(Path::new));
        assert_eq!(of(0, Some("/run/user/0")), Path::new("/run/runner"));
        assert_eq!(of(7, Some("/run/user/7")), Path::new("/run/user/7/runner"));
        assert_eq!(of(7, Some("run")), Path::new("/tmp/runner-7"));
        assert_eq!(of(7, None), Path::new("/tmp/runner-7"));
    }
}
