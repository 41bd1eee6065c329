//! What the process that unpacked a layer left: it can have made entries that no archive has.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use archive::{Refusal, SEGMENTS_MAX, UnpackError, UnpackLimits};
use reader::Problem;
use spec::path::escape;
use sys::file::open_beneath;

/// Mode bits of entries: no set-user-id, no set-group-id.
const ALLOWED_BITS: u32 = 0o1777;
/// Rights of the owner, without which a layer could not be read or removed.
const FILE_OWNER_BITS: u32 = 0o400;
pub(super) const DIRECTORY_OWNER_BITS: u32 = 0o700;
/// Mode of the directory itself.
const ROOT_BITS: u32 = 0o755;
/// Approximate sizes of an inode and of a block on disk.
const INODE_BYTES: u64 = 1024;
const BLOCK_BYTES: u64 = 4096;

/// What a layer contains.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Files, directories and links.
    pub(super) entries: u64,
    pub(super) whiteouts: u64,
    /// Approximate size on disk.
    pub(super) disk_bytes: u64,
}

/// Checks the type, owner and mode of every entry of the layer `root`, and their sum against `limits`.
///
/// # Errors
/// An entry that no archive within `limits` has, or the directory cannot be read.
pub(super) fn check(root: BorrowedFd<'_>, limits: &UnpackLimits) -> Result<Left, Problem> {
    let unread = |path: &[u8]| {
        let path = escape(path);
        move |errno: Errno| Problem::of_reader(&format!("{path}: {errno}"))
    };
    let untrue = |path: &[u8], problem: &str| {
        let path = escape(path);
        Problem::of_reader(&format!("its reader left an entry `{path}` that {problem}"))
    };
    let status = rustix::fs::fstat(root).map_err(unread(b"."))?;
    if status.st_mode & 0o7777 != ROOT_BITS {
        return Err(untrue(b".", "has another mode"));
    }
    let mut left = Left {
        disk_bytes: INODE_BYTES,
        ..Left::default()
    };
    let mut file_bytes: u64 = 0;
    // Files with several names.
    let mut linked: BTreeSet<u64> = BTreeSet::new();
    let mut pending = vec![(b".".to_vec(), 0)];
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    while let Some((directory, depth)) = pending.pop() {
        if depth > SEGMENTS_MAX {
            return Err(untrue(&directory, "is too deep"));
        }
        let opened =
            open_beneath(root, &directory, flags, Mode::empty()).map_err(unread(&directory))?;
        for entry in Dir::read_from(&opened).map_err(unread(&directory))? {
            let entry = entry.map_err(unread(&directory))?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let path = match &directory[..] {
                b"." => name.to_bytes().to_vec(),
                directory => [directory, b"/", name.to_bytes()].concat(),
            };
            let status = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(unread(&path))?;
            let kind = FileType::from_raw_mode(status.st_mode);
            if let Some(problem) = wrong(kind, &status) {
                return Err(untrue(&path, problem));
            }
            left.disk_bytes += INODE_BYTES;
            if kind == FileType::CharacterDevice {
                left.whiteouts += 1;
                continue;
            }
            left.entries += 1;
            if kind == FileType::RegularFile
                && (status.st_nlink == 1 || linked.insert(status.st_ino))
            {
                let bytes = u64::try_from(status.st_size).unwrap_or(u64::MAX);
                file_bytes = file_bytes.saturating_add(bytes);
                left.disk_bytes += bytes.next_multiple_of(BLOCK_BYTES);
            }
            let (index, name) = (0, escape(&path));
            if left.entries > limits.entries {
                let refusal = Refusal::too_many_entries(limits.entries);
                return Err(Problem::of(&UnpackError::entry(index, &path, refusal)));
            }
            if file_bytes > limits.unpacked_bytes {
                let limit_bytes = limits.unpacked_bytes;
                return Err(Problem::of(&UnpackError::TooManyBytes {
                    index,
                    name,
                    limit_bytes,
                }));
            }
            if kind == FileType::Directory {
                pending.push((path, depth + 1));
            }
        }
    }
    Ok(left)
}

fn wrong(kind: FileType, status: &Stat) -> Option<&'static str> {
    let bits = status.st_mode & 0o7777;
    let is_right = match kind {
        // A whiteout, made by this process: the one that unpacks cannot make devices.
        FileType::CharacterDevice => status.st_rdev == 0 && bits == 0,
        FileType::Directory => bits & DIRECTORY_OWNER_BITS == DIRECTORY_OWNER_BITS,
        FileType::RegularFile => bits & FILE_OWNER_BITS == FILE_OWNER_BITS,
        FileType::Symlink => return wrong_owner(status),
        _ => return Some("is neither a file nor a directory nor a link"),
    };
    if !is_right || bits & !ALLOWED_BITS != 0 {
        return Some("has a mode that no layer has");
    }
    wrong_owner(status)
}

fn wrong_owner(status: &Stat) -> Option<&'static str> {
    (status.st_uid != rustix::process::geteuid().as_raw()).then_some("belongs to another user")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;
    use archive::LayerView;
    use archive::hiding::Hiding;
    use spec::path::RelPath;

    fn layer() -> tempfile::TempDir {
        let layer = tempfile::tempdir().expect("a directory");
        mode(layer.path(), 0o755);
        fs::create_dir(layer.path().join("bin")).expect("made");
        fs::write(layer.path().join("bin/tool"), "12345").expect("written");
        fs::hard_link(layer.path().join("bin/tool"), layer.path().join("second")).expect("linked");
        symlink("/etc/passwd", layer.path().join("link")).expect("linked");
        layer
    }

    fn mode(path: &Path, bits: u32) {
        fs::set_permissions(path, Permissions::from_mode(bits)).expect("mode set");
    }

    fn checked(layer: &Path, limits: UnpackLimits) -> Result<Left, Problem> {
        check(File::open(layer).expect("opened").as_fd(), &limits)
    }

    fn limits(entries: u64, unpacked_bytes: u64) -> UnpackLimits {
        UnpackLimits {
            entries,
            unpacked_bytes,
            ..UnpackLimits::default()
        }
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let layer = layer();
        let left = checked(layer.path(), limits(4, 5)).expect("a layer");
        let disk_bytes = 5 * INODE_BYTES + BLOCK_BYTES;
        assert_eq!((left.entries, left.disk_bytes), (4, disk_bytes));
    }

    ///
    #[test]
    fn what_no_layer_has_is_refused() {
        let change = |change: &dyn Fn(&Path), limits: UnpackLimits| {
            let layer = layer();
            change(layer.path());
            checked(layer.path(), limits).expect_err("refused").message
        };
        for (bits, name) in [
            (0o4755, "bin/tool"),
            (0o2755, "bin/tool"),
            (0o2755, "bin"),
            (0o500, "bin"),
            (0o200, "bin/tool"),
            (0o777, "."),
        ] {
            let found = change(
                &|layer| mode(&layer.join(name), bits),
                UnpackLimits::default(),
            );
            assert!(found.contains("mode"), "{found}");
        }
        let fifo = |layer: &Path| {
            let layer = File::open(layer).expect("opened");
            let kind = FileType::Fifo;
            rustix::fs::mknodat(&layer, "x", kind, Mode::RWXU, 0).expect("made");
        };
        assert!(change(&fifo, UnpackLimits::default()).contains("neither a file"));
        assert!(change(&|_| (), limits(3, 5)).contains("entries"));
        assert!(change(&|_| (), limits(4, 4)).contains("bytes"));
        let deep = |layer: &Path| {
            let path = layer.join("a/".repeat(SEGMENTS_MAX + 2));
            fs::create_dir_all(path).expect("made");
        };
        assert!(change(&deep, UnpackLimits::default()).contains("too deep"));
    }

    #[test]
    fn hiding_follows_no_link_that_the_reader_left() {
        let outside = tempfile::tempdir().expect("a directory");
        fs::create_dir(outside.path().join("directory")).expect("made");
        let layer = layer();
        symlink(outside.path(), layer.path().join("out")).expect("linked");
        let root = File::open(layer.path()).expect("opened");
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        for hiding in [
            Hiding {
                opaque: Vec::new(),
                whiteouts: vec![path("out/new")],
            },
            Hiding {
                opaque: vec![path("out/directory")],
                whiteouts: Vec::new(),
            },
            Hiding {
                opaque: vec![path("out")],
                whiteouts: Vec::new(),
            },
            Hiding {
                opaque: Vec::new(),
                whiteouts: vec![path("second")],
            },
        ] {
            let written = hiding.write(root.as_fd(), &LayerView::default(), &|_| Ok(true));
            written.expect_err("refused");
        }
        assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 1);
        let names = rustix::fs::listxattr(outside.path().join("directory"), &mut [0_u8; 0]);
        assert_eq!(names, Ok(0));
    }
}
