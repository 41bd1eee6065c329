//! Lists the changes of the private directories of a sandbox, as `docker diff` does.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::entry_rules::SEGMENTS_MAX;
use crate::transfer::layer_rules::{is_opaque, is_whiteout, mount_of, mount_of_entry};
use crate::transfer::pack::{PackError, unreadable};
use crate::transfer::snapshot::PrivateDirectory;
use spec::path::escape;
use sys::file::{names, open_directory};

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    /// It, or for a directory something in it.
    Changed,
    Deleted,
}

/// A change and its absolute path in the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangedFile {
    pub change: Change,
    pub path: Vec<u8>,
}

/// Lists the changes of a private directory; `lowers` are the trees below it if it is an upper directory, top
/// first. Follows no link. What is mounted in the directory is no part of it.
///
/// # Errors
/// [`PackError`].
pub fn list_changes(
    private: PrivateDirectory<'_>,
    lowers: Vec<OwnedFd>,
) -> Result<Vec<ChangedFile>, PackError> {
    let failed = |errno| unreadable(private.path, errno);
    let directory = rustix::io::fcntl_dupfd_cloexec(private.directory, 3).map_err(failed)?;
    let mut lister = Lister {
        is_upper: private.is_upper,
        mount: mount_of(private.directory).map_err(failed)?,
        found: Vec::new(),
    };
    let mut pending = vec![Level {
        directory,
        path: private
            .path
            .strip_suffix(b"/")
            .unwrap_or(private.path)
            .to_vec(),
        lowers,
    }];
    while let Some(level) = pending.pop() {
        let below = lister.list(&level)?;
        // The first one is listed next.
        pending.extend(below.into_iter().rev());
    }
    Ok(lister.found)
}

/// A directory whose entries are compared.
struct Level {
    directory: OwnedFd,
    /// Absolute, without a slash at the end.
    path: Vec<u8>,
    /// The same directory of the lower trees, as far as it is visible.
    lowers: Vec<OwnedFd>,
}

struct Lister {
    is_upper: bool,
    mount: u64,
    found: Vec<ChangedFile>,
}

impl Lister {
    /// Returns the directories in this one.
    fn list(&mut self, level: &Level) -> Result<Vec<Level>, PackError> {
        let failed = |errno| unreadable(&level.path, errno);
        if level.path.split(|byte| *byte == b'/').count() > SEGMENTS_MAX {
            return Err(PackError::Unfit {
                path: escape(level.path.get(..100).unwrap_or(&level.path)),
                problem: format!("it is more than {SEGMENTS_MAX} directories deep"),
            });
        }
        let mut names = names(&level.directory).map_err(failed)?;
        names.sort_unstable();
        let mut below = Vec::new();
        for name in names {
            let path = [&level.path, &b"/"[..], &name].concat();
            let compared = self.compare(level, &name, &path);
            below.extend(compared.map_err(|errno| unreadable(&path, errno))?);
        }
        Ok(below)
    }

    /// Adds the change of an entry. Returns it if it is a directory.
    fn compare(&mut self, level: &Level, name: &[u8], path: &[u8]) -> Result<Option<Level>, Errno> {
        let parent = level.directory.as_fd();
        let status = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            // It was removed since it was listed.
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        if self.is_upper && is_whiteout(&status) {
            self.add(Change::Deleted, path);
            return Ok(None);
        }
        match mount_of_entry(parent, name) {
            Ok(mount) if mount == self.mount => (),
            Ok(_) | Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let lower = look_below(&level.lowers, name)?;
        let change = match lower.exists {
            true => Change::Changed,
            false => Change::Added,
        };
        if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
            self.add(change, path);
            return Ok(None);
        }
        let Some(directory) = open(parent, name, self.mount)? else {
            return Ok(None);
        };
        self.add(change, path);
        let mut lowers = lower.directories;
        if self.is_upper && is_opaque(directory.as_fd()) {
            self.add_hidden(directory.as_fd(), &lowers, path)?;
            lowers.clear();
        }
        Ok(Some(Level {
            directory,
            path: path.to_vec(),
            lowers,
        }))
    }

    /// Adds what is only in the lower trees of an opaque directory.
    fn add_hidden(
        &mut self,
        upper: BorrowedFd<'_>,
        lowers: &[OwnedFd],
        path: &[u8],
    ) -> Result<(), Errno> {
        let mut all = BTreeSet::new();
        for lower in lowers {
            all.extend(names(lower)?);
        }
        for name in all {
            let is_kept = rustix::fs::statat(upper, &*name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            if !is_kept && look_below(lowers, &name)?.exists {
                self.add(Change::Deleted, &[path, b"/", &name].concat());
            }
        }
        Ok(())
    }

    fn add(&mut self, change: Change, path: &[u8]) {
        let path = path.to_vec();
        self.found.push(ChangedFile { change, path });
    }
}

/// `None`: it is gone, or another mount.
fn open(parent: BorrowedFd<'_>, name: &[u8], mount: u64) -> Result<Option<OwnedFd>, Errno> {
    match open_directory(parent, name) {
        Ok(directory) if mount_of(directory.as_fd())? == mount => Ok(Some(directory)),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// An entry of the lower trees.
#[derive(Default)]
struct Lower {
    exists: bool,
    /// Its directories, top first, as overlayfs merges them.
    directories: Vec<OwnedFd>,
}

fn look_below(lowers: &[OwnedFd], name: &[u8]) -> Result<Lower, Errno> {
    let mut lower = Lower::default();
    for tree in lowers {
        let status = match rustix::fs::statat(tree, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        if is_whiteout(&status) {
            break;
        }
        lower.exists = true;
        if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
            break;
        }
        let directory = open_directory(tree.as_fd(), name)?;
        let hides = is_opaque(directory.as_fd());
        lower.directories.push(directory);
        if hides {
            break;
        }
    }
    Ok(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn tree(root: &Path, paths: &[&str]) -> OwnedFd {
        for path in paths {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, "x").expect("written");
        }
        fs::create_dir_all(root).expect("made");
        File::open(root).expect("opened").into()
    }

    #[test]
    fn what_is_new_is_told_from_what_was_there_and_no_link_is_followed() {
        let ground = tempfile::tempdir().expect("made");
        let root = ground.path();
        let lowers = vec![
            tree(&root.join("top"), &["usr/new", "etc/name"]),
            tree(&root.join("bottom"), &["usr/old", "etc/name", "var/file"]),
        ];
        let upper = root.join("upper");
        let directory = tree(
            &upper,
            &["usr/old", "usr/made", "etc/name", "own/file", "var"],
        );
        symlink("/etc", upper.join("usr/link")).expect("made");
        let private = PrivateDirectory {
            path: b"/",
            directory: directory.as_fd(),
            is_upper: true,
        };
        let shown = |found: Vec<ChangedFile>| -> Vec<String> {
            let lines = found.iter().map(|ChangedFile { change, path }| {
                format!("{change:?} {}", String::from_utf8_lossy(path))
            });
            lines.collect()
        };
        assert_eq!(
            shown(list_changes(private, lowers).expect("listed")),
            [
                "Changed /etc",
                "Added /own",
                "Changed /usr",
                "Changed /var",
                "Changed /etc/name",
                "Added /own/file",
                "Added /usr/link",
                "Added /usr/made",
                "Changed /usr/old",
            ]
        );
        let plain = PrivateDirectory {
            path: b"/tmp",
            is_upper: false,
            ..private
        };
        let all = shown(list_changes(plain, Vec::new()).expect("listed"));
        assert!(
            all.iter().all(|line| line.starts_with("Added /tmp/")),
            "{all:?}"
        );
        assert_eq!(all.len(), 9);
    }
}
