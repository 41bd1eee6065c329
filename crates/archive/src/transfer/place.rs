//! The place of copied files at their destination, with the rules of cp(1) and docker.
//!
//! They are unpacked to a new directory beside their place, and moved from there once all is unpacked: a
//! copy that fails leaves nothing. No link below the destination is followed.

use std::cell::Cell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::TOP;
use super::pack::last_segment;
use crate::unpack::UnpackLimits;
use spec::path::escape;
use sys::file::{is_full, names, open_beneath, remove_tree};
use sys::process::random_digits;

/// Files cannot be placed. Paths are escaped.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("there is no directory `{path}`")]
    NoDirectory { path: String },
    #[error("`{path}` is not a directory")]
    NotADirectory { path: String },
    #[error("`{path}` is a symbolic link, which is not followed")]
    Link { path: String },
    #[error("`{path}` is a directory here, and a file in what is copied, or the other way round")]
    Conflict { path: String },
    #[error("cannot {act} `{path}`: {errno}")]
    Call {
        act: &'static str,
        path: String,
        errno: Errno,
    },
}

impl PlaceError {
    /// Whether the entry lies on another mount than its place.
    #[must_use]
    pub fn is_on_another_mount(&self) -> bool {
        matches!(self, Self::Call { errno, .. } if *errno == Errno::XDEV)
    }

    /// Whether the file system is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Call { errno, .. } if is_full(*errno))
    }
}

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'run> {
    /// One file or tree with this name ([`TOP`] in the tar).
    Named(&'run [u8]),
    /// What is in one directory ([`TOP`] in the tar).
    OfDirectory,
    /// All entries of the tar. The destination must be a directory.
    OfArchive,
}

/// Whether a link at the end of the destination is followed. One that is followed by a slash always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    Follow,
    Refuse,
}

/// Where files are copied to.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    /// The directory as the caller wrote it.
    directory_path: Vec<u8>,
    /// As the caller wrote it.
    path: Vec<u8>,
    goal: Goal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Goal {
    /// [`TOP`] becomes this entry of the directory.
    Entry {
        name: Vec<u8>,
        must_be_directory: bool,
    },
    /// The entries of [`TOP`] are merged into the directory.
    EntriesOfTop,
    /// All entries are.
    All,
}

/// A new directory for what is copied. It is removed when this is dropped.
#[derive(Debug)]
pub struct Fresh<'place> {
    place: &'place Place,
    name: String,
    directory: OwnedFd,
    is_removed: Cell<bool>,
}

impl Place {
    /// Finds the place for `content` at `path`, relative to the working directory.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn find(path: &[u8], content: Content<'_>, last: LastLink) -> Result<Self, PlaceError> {
        let failed = |errno| call("open", path, errno);
        let last_name = last_segment(path);
        let has_slash = path.ends_with(b"/") || matches!(last_name, b"." | b".." | b"");
        if last == LastLink::Refuse && !has_slash {
            let status = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
            let is_link = status.is_ok_and(|status| is_type(status.st_mode, FileType::Symlink));
            if is_link {
                return Err(PlaceError::Link { path: escape(path) });
            }
        }
        let status = rustix::fs::statat(CWD, path, AtFlags::empty());
        let opened_type = status.map(|status| FileType::from_raw_mode(status.st_mode));
        let (directory, directory_path, goal) = match opened_type {
            Ok(FileType::Directory) => {
                let follow = if has_slash || last == LastLink::Follow {
                    OFlags::empty()
                } else {
                    OFlags::NOFOLLOW
                };
                let directory = open_directory(path, follow).map_err(failed)?;
                let goal = match content {
                    Content::Named(name) => Goal::Entry {
                        name: name.to_vec(),
                        must_be_directory: false,
                    },
                    Content::OfDirectory => Goal::EntriesOfTop,
                    Content::OfArchive => Goal::All,
                };
                (directory, path, goal)
            }
            Ok(_) if has_slash => return Err(PlaceError::NotADirectory { path: escape(path) }),
            Ok(_) | Err(Errno::NOENT) if content != Content::OfArchive && last_name != b".." => {
                let goal = Goal::Entry {
                    name: last_name.to_vec(),
                    must_be_directory: has_slash,
                };
                (open_parent(path)?, parent_of(path), goal)
            }
            Ok(_) => return Err(PlaceError::NotADirectory { path: escape(path) }),
            Err(Errno::NOENT) => return Err(PlaceError::NoDirectory { path: escape(path) }),
            Err(Errno::NOTDIR) => return Err(PlaceError::NotADirectory { path: escape(path) }),
            Err(errno) => return Err(failed(errno)),
        };
        Ok(Self {
            directory,
            directory_path: directory_path.to_vec(),
            path: path.to_vec(),
            goal,
        })
    }

    /// Where the entries will be.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Limits of what can be placed here: as many bytes as the file system has free.
    ///
    /// # Errors
    /// [`PlaceError::Call`].
    pub fn limits(&self) -> Result<UnpackLimits, PlaceError> {
        let status = rustix::fs::fstatvfs(&self.directory)
            .map_err(|errno| call("ask for the free space at", &self.path, errno))?;
        // A file system without a size says 0.
        let free = match status.f_blocks {
            0 => u64::MAX / 4,
            _ => status.f_bavail.saturating_mul(status.f_frsize),
        };
        Ok(UnpackLimits {
            // With headers and padding.
            compressed_bytes: u64::MAX / 2,
            unpacked_bytes: free,
            entries: super::ENTRIES_MAX,
        })
    }

    /// Makes a new directory to unpack to, which nobody else may enter.
    ///
    /// # Errors
    /// [`PlaceError::Call`].
    pub fn make_fresh(&self) -> Result<Fresh<'_>, PlaceError> {
        let failed = |errno| call("create a directory in", &self.directory_path, errno);
        let name = format!(".runner-cp-{}", random_digits().map_err(failed)?);
        self.make_fresh_named(name)
    }

    /// As [`Self::make_fresh`], with a name that the caller has recorded and nobody can guess.
    ///
    /// # Errors
    /// [`PlaceError::Call`].
    pub fn make_fresh_named(&self, name: String) -> Result<Fresh<'_>, PlaceError> {
        let failed = |errno| call("create a directory in", &self.directory_path, errno);
        rustix::fs::mkdirat(&self.directory, &*name, Mode::RWXU).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = self.directory.as_fd();
        let opened = open_beneath(directory, name.as_bytes(), flags, Mode::empty());
        match opened {
            Ok(directory) => Ok(Fresh {
                place: self,
                name,
                directory,
                is_removed: Cell::new(false),
            }),
            Err(errno) => {
                let removed = rustix::fs::unlinkat(directory, &*name, AtFlags::REMOVEDIR);
                Err(failed(removed.err().unwrap_or(errno)))
            }
        }
    }
}

impl Fresh<'_> {
    /// The directory to unpack to.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Moves what was unpacked to its place. First checks that all of it fits.
    ///
    /// # Errors
    /// [`PlaceError`]. If a call fails, and not the check, some of the entries may have been moved.
    pub fn place(&self) -> Result<(), PlaceError> {
        let placed = self.place_entries();
        let removed = self.remove();
        placed.and(removed.map_err(|errno| call("remove", self.name.as_bytes(), errno)))
    }

    fn remove(&self) -> Result<(), Errno> {
        if self.is_removed.replace(true) {
            return Ok(());
        }
        remove_tree(self.place.directory.as_fd(), self.name.as_bytes())
    }

    fn place_entries(&self) -> Result<(), PlaceError> {
        let from = self.directory.as_fd();
        let into = self.place.directory.as_fd();
        for step in [Step::Check, Step::Move] {
            match &self.place.goal {
                Goal::Entry {
                    name,
                    must_be_directory,
                } => {
                    let path = &self.place.path;
                    let status = rustix::fs::statat(from, TOP, AtFlags::SYMLINK_NOFOLLOW);
                    let status = status.map_err(|errno| call("find", path, errno))?;
                    if *must_be_directory && !is_type(status.st_mode, FileType::Directory) {
                        return Err(PlaceError::NoDirectory { path: escape(path) });
                    }
                    merge(step, (from, TOP), (into, name))?;
                }
                Goal::EntriesOfTop => {
                    let top = open_listed(from, TOP)?;
                    merge_entries(step, top.as_fd(), into)?;
                }
                Goal::All => merge_entries(step, from, into)?,
            }
        }
        Ok(())
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        // The error for which nothing is placed is the one to report.
        self.remove().unwrap_or_default();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Check,
    Move,
}

fn merge_entries(step: Step, from: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<(), PlaceError> {
    for name in names(from).map_err(|errno| call("list", b".", errno))? {
        merge(step, (from, &name), (into, &name))?;
    }
    Ok(())
}

/// Directories are merged, and other entries replace others.
fn merge(
    step: Step,
    (from, from_name): (BorrowedFd<'_>, &[u8]),
    (into, name): (BorrowedFd<'_>, &[u8]),
) -> Result<(), PlaceError> {
    let failed = |errno| call("move a file to", name, errno);
    let is_directory = |directory, name: &[u8]| {
        let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(is_type(status.st_mode, FileType::Directory))
    };
    let is_new_directory = is_directory(from, from_name).map_err(failed)?;
    match (is_new_directory, is_directory(into, name)) {
        (_, Err(Errno::NOENT)) if step == Step::Check => Ok(()),
        (_, Err(Errno::NOENT)) => move_to_new((from, from_name), (into, name)).map_err(failed),
        (_, Err(errno)) => Err(failed(errno)),
        (true, Ok(true)) => {
            let below = open_listed(from, from_name)?;
            let below_into = open_listed(into, name)?;
            merge_entries(step, below.as_fd(), below_into.as_fd())
        }
        (false, Ok(false)) if step == Step::Check => Ok(()),
        (false, Ok(false)) => rustix::fs::renameat(from, from_name, into, name).map_err(failed),
        (true, Ok(false)) | (false, Ok(true)) => Err(PlaceError::Conflict { path: escape(name) }),
    }
}

fn move_to_new(
    (from, from_name): (BorrowedFd<'_>, &[u8]),
    (into, name): (BorrowedFd<'_>, &[u8]),
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, from_name, into, name, RenameFlags::NOREPLACE) {
        // The file system does not know the flag.
        Err(Errno::INVAL) => rustix::fs::renameat(from, from_name, into, name),
        other => other,
    }
}

fn open_listed(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, PlaceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open_beneath(directory, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => PlaceError::NotADirectory { path: escape(name) },
        errno => call("open", name, errno),
    })
}

fn open_directory(path: &[u8], more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// The path of the directory that the last segment of `path` is in.
fn parent_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/');
    let path = &path[..end.map_or(0, |end| end + 1)];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &path[..=slash],
        None => b".",
    }
}

fn open_parent(path: &[u8]) -> Result<OwnedFd, PlaceError> {
    let parent = parent_of(path);
    open_directory(parent, OFlags::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => PlaceError::NoDirectory {
            path: escape(parent),
        },
        errno => call("open", parent, errno),
    })
}

fn is_type(mode: u32, expected: FileType) -> bool {
    FileType::from_raw_mode(mode) == expected
}

fn call(act: &'static str, path: &[u8], errno: Errno) -> PlaceError {
    PlaceError::Call {
        act,
        path: escape(path),
        errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// Places `make`'s files at `path` of `ground`.
    fn place(
        ground: &Path,
        path: &str,
        content: Content<'_>,
        make: impl Fn(&Path),
    ) -> Result<(), String> {
        let path = [ground.as_os_str().as_bytes(), b"/", path.as_bytes()].concat();
        let place =
            Place::find(&path, content, LastLink::Refuse).map_err(|error| error.to_string())?;
        let fresh = place.make_fresh().map_err(|error| error.to_string())?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&fresh.directory);
        make(Path::new(&format!("/proc/self/fd/{fd}")));
        fresh.place().map_err(|error| error.to_string())
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .expect("listed")
            .map(|entry| {
                entry
                    .expect("read")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }

    fn file(directory: &Path) {
        fs::write(directory.join("copy"), "new").expect("written");
    }

    fn tree(directory: &Path) {
        fs::create_dir_all(directory.join("copy/below")).expect("made");
        fs::write(directory.join("copy/below/x"), "new").expect("written");
    }

    #[test]
    fn a_file_goes_into_a_directory_to_a_new_name_or_over_a_file() {
        let ground = tempfile::tempdir().expect("made");
        let root = ground.path();
        fs::create_dir(root.join("d")).expect("made");
        let named = Content::Named(b"base");
        place(root, "d", named, file).expect("into");
        place(root, "d/", named, file).expect("over");
        place(root, "new", named, file).expect("new");
        place(root, "new", named, file).expect("over");
        assert_eq!(names(root), ["d", "new"]);
        assert_eq!(names(&root.join("d")), ["base"]);
        for (path, expected) in [
            ("missing/", "there is no directory"),
            ("missing/x", "there is no directory"),
            ("new/", "is not a directory"),
            ("new/x", "is not a directory"),
        ] {
            let refused = place(root, path, named, file)
                .expect_err(path)
                .to_lowercase();
            assert!(refused.contains(expected), "{refused}");
        }
        fs::create_dir(root.join("d/dir")).expect("made");
        let refused = place(root, "d", Content::Named(b"dir"), file).expect_err("a directory");
        assert!(refused.contains("or the other way round"), "{refused}");
        assert_eq!(names(root), ["d", "new"]);
        assert_eq!(names(&root.join("d")), ["base", "dir"]);
    }

    #[test]
    fn a_tree_is_merged_into_its_like_and_its_contents_into_the_directory() {
        let ground = tempfile::tempdir().expect("made");
        let root = ground.path();
        let named = Content::Named(b"t");
        place(root, "new/", named, tree).expect("new");
        assert_eq!(names(&root.join("new")), ["below"]);
        fs::write(root.join("new/below/kept"), "old").expect("written");
        place(root, ".", Content::Named(b"new"), tree).expect("merged");
        assert_eq!(names(&root.join("new/below")), ["kept", "x"]);
        place(root, "new", Content::OfDirectory, tree).expect("contents");
        assert_eq!(names(&root.join("new")), ["below"]);
        place(root, "new", Content::OfArchive, tree).expect("all");
        assert_eq!(names(&root.join("new")), ["below", "copy"]);
    }

    ///
    #[test]
    fn no_link_at_the_destination_is_written_through() {
        let ground = tempfile::tempdir().expect("made");
        let outside = tempfile::tempdir().expect("made");
        let root = ground.path();
        symlink(outside.path(), root.join("link")).expect("made");
        let named = Content::Named(b"base");
        let refused = place(root, "link", named, file).expect_err("a link");
        assert!(refused.contains("not followed"), "{refused}");
        // Below the destination.
        let refused = place(root, ".", Content::Named(b"link"), tree).expect_err("a link");
        assert!(refused.contains("or the other way round"), "{refused}");
        // A file replaces the link itself.
        place(root, ".", Content::Named(b"link"), file).expect("replaced");
        assert!(
            fs::symlink_metadata(root.join("link"))
                .expect("there")
                .is_file()
        );
        assert_eq!(names(outside.path()), [""; 0]);
        symlink(outside.path(), root.join("again")).expect("made");
        place(root, "again/", named, file).expect("with a slash");
        assert_eq!(names(outside.path()), ["base"]);
    }

    #[test]
    fn what_is_not_placed_is_removed() {
        let ground = tempfile::tempdir().expect("made");
        let path = ground.path().join("x");
        let path = path.as_os_str().as_bytes();
        let place = Place::find(path, Content::Named(b"x"), LastLink::Refuse).expect("found");
        let fresh = place.make_fresh().expect("made");
        assert_eq!(names(ground.path()).len(), 1);
        drop(fresh);
        assert_eq!(names(ground.path()), [""; 0]);
    }
}
