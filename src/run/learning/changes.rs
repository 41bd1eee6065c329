//! Reads the changes that the upper directory of an overlayfs has.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::plan::learning::Changes;
use archive::transfer::{is_opaque, is_whiteout};
use sys::file::{open_beneath, open_directory};

/// Adds the changes below `upper`, a directory of the writable space, to those of the directories of
/// the host below `lower`. Only directories that are in both are entered, and no link is followed.
/// Returns how many could not be read: the body may have removed even its owner's rights.
pub(super) fn read(
    space: BorrowedFd<'_>,
    upper: &str,
    lower: &Path,
    all: &mut BTreeMap<Vec<u8>, Changes>,
) -> Result<u64, Errno> {
    let mut pending = vec![Vec::new()];
    let mut unread = 0;
    while let Some(inside) = pending.pop() {
        let below = |name: &[u8]| match inside.as_slice() {
            [] => name.to_vec(),
            inside => [inside, b"/", name].concat(),
        };
        let path = match inside.as_slice() {
            [] => upper.as_bytes().to_vec(),
            inside => [upper.as_bytes(), b"/", inside].concat(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open_beneath(space, &path, flags, Mode::empty());
        let (entries, directory) =
            match opened.and_then(|found| Ok((Dir::read_from(&found)?, found))) {
                Ok(read) => read,
                Err(Errno::ACCESS) => {
                    unread += 1;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
        let of_host = match inside.as_slice() {
            [] => lower.to_owned(),
            inside => lower.join(OsStr::from_bytes(inside)),
        };
        let mut changes = Changes::default();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(found.st_mode);
            let old = of_host
                .join(OsStr::from_bytes(name))
                .symlink_metadata()
                .ok();
            let counter = match (kind, &old) {
                _ if is_whiteout(&found) => &mut changes.removed,
                (FileType::Directory, Some(old)) if old.is_dir() => {
                    pending.push(below(name));
                    if !is_replaced(directory.as_fd(), name) {
                        continue;
                    }
                    &mut changes.changed
                }
                (_, Some(_)) => &mut changes.changed,
                (_, None) => &mut changes.created,
            };
            *counter += 1;
            if changes.example.is_empty() || name < changes.example.as_slice() {
                changes.example = name.to_vec();
            }
        }
        if changes != Changes::default() {
            all.insert(of_host.as_os_str().as_bytes().to_vec(), changes);
        }
    }
    Ok(unread)
}

/// Whether the directory of the lower tree was deleted before. `false` if that cannot be read.
fn is_replaced(parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    open_directory(parent, name).is_ok_and(|directory| is_opaque(directory.as_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_directories_of_both_trees_are_entered() {
        let base = tempfile::tempdir().expect("a directory");
        let path = |name: &str| base.path().join(name);
        for directory in ["lower/a/b", "lower/c", "upper/a/b", "upper/new/deep"] {
            std::fs::create_dir_all(path(directory)).expect("made");
        }
        for file in [
            "lower/a/old",
            "upper/a/old",
            "upper/a/made",
            "upper/new/deep/x",
            "upper/line\nbreak",
        ] {
            std::fs::write(path(file), "x").expect("written");
        }
        // A file took the place of a directory, and a link leads out.
        std::fs::write(path("upper/c"), "x").expect("written");
        std::os::unix::fs::symlink("/etc", path("upper/a/b/link")).expect("a link");
        let space = File::open(base.path()).expect("opened");
        let mut all = BTreeMap::new();
        let unread = read(space.as_fd(), "upper", &path("lower"), &mut all);
        assert_eq!(unread, Ok(0));
        let changes = |created, changed, example: &str| Changes {
            created,
            changed,
            removed: 0,
            example: example.as_bytes().to_vec(),
        };
        let expected = [
            ("lower", changes(2, 1, "c")),
            ("lower/a", changes(1, 1, "made")),
            ("lower/a/b", changes(1, 0, "link")),
        ];
        let expected = expected.map(|(name, changes)| {
            let path = path(name).as_os_str().as_bytes().to_vec();
            (path, changes)
        });
        assert_eq!(all.into_iter().collect::<Vec<_>>(), expected);
        if rustix::process::geteuid().is_root() {
            // It may read everything.
            return;
        }
        for (name, mode) in [("upper/a/b", 0), ("upper/a", 0o400), ("upper", 0)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path(name), mode).expect("set");
            let unread = read(space.as_fd(), "upper", &path("lower"), &mut BTreeMap::new());
            assert_eq!(unread, Ok(1), "{name}");
        }
        for name in ["upper", "upper/a"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(path(name), mode).expect("set");
        }
    }
}
