//! Digest of unpacked files, to verify a cache entry.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use archive::canonical::content_digest;
use archive::{Entry, Tree, UnpackLimits};
use spec::digest::Digest;
use spec::path::RelPath;
use sys::file::open_beneath;

/// SHA-256 of the canonical tar of `directory`; `None` for an unreadable or unsupported entry.
pub(super) fn digest_of(directory: BorrowedFd<'_>, limits: &UnpackLimits) -> Option<Digest> {
    let mut tree = Tree::default();
    let mut pending: Vec<Option<RelPath>> = vec![None];
    while let Some(folder) = pending.pop() {
        let name = folder.as_ref().map_or(&b"."[..], RelPath::as_bytes);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let open = open_beneath(directory, name, flags, Mode::empty()).ok()?;
        for listed in Dir::read_from(&open).ok()? {
            let listed = listed.ok()?;
            let name = listed.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let below = RelPath::parse(name.to_bytes()).ok()?;
            let path = match &folder {
                Some(folder) => folder.join(&below).ok()?,
                None => below,
            };
            let status = rustix::fs::statat(open.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let entry = match FileType::from_raw_mode(status.st_mode) {
                FileType::RegularFile => Entry::File {
                    executable: status.st_mode & 0o100 != 0,
                    bytes: u64::try_from(status.st_size).ok()?,
                },
                FileType::Directory => {
                    pending.push(Some(path.clone()));
                    Entry::Directory
                }
                FileType::Symlink => Entry::Symlink {
                    target: rustix::fs::readlinkat(open.as_fd(), name, Vec::new())
                        .ok()?
                        .into_bytes(),
                },
                _ => return None,
            };
            tree.insert(path, entry, limits.tree()).ok()?;
        }
    }
    content_digest(&tree, directory).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_have_the_digest_that_they_were_unpacked_with_until_one_changes() {
        let source = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(source.path().join("d/empty")).expect("made");
        std::fs::write(source.path().join("d/x"), b"x").expect("written");
        std::os::unix::fs::symlink("x", source.path().join("d/l")).expect("linked");
        let copy = tempfile::tempdir().expect("a directory");
        let (from, to) = (
            std::fs::File::open(source.path()).expect("opened"),
            std::fs::File::open(copy.path()).expect("opened"),
        );
        let limits = UnpackLimits::default();
        let unpacked =
            archive::unpack_directory(from.as_fd(), to.as_fd(), &limits).expect("unpacked");
        let digest = || digest_of(to.as_fd(), &limits);
        assert_eq!(digest(), Some(unpacked.content_digest));
        let file = copy.path().join("d/x");
        let mode = |mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("changed");
        };
        mode(0o755);
        assert_ne!(digest(), Some(unpacked.content_digest));
        mode(0o644);
        assert_eq!(digest(), Some(unpacked.content_digest));
        std::fs::write(&file, b"y").expect("written");
        assert_ne!(digest(), Some(unpacked.content_digest));
        std::fs::write(&file, b"x").expect("written");
        std::fs::create_dir(copy.path().join("more")).expect("made");
        assert_ne!(digest(), Some(unpacked.content_digest));
    }
}
