//! Directories that are made aside, published by a rename and in use while somebody shares their
//! lock: what every cache of trees on this host stands on.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{CacheError, failed};
use crate::files::{
    FILE_MODE, Facts, errno_of, make_directory, open_tree, read_at, read_head, remove, touch,
    write_new,
};
use crate::private::{open_private, open_private_in};
use crate::waiting::{claim, share};
use sys::lock::try_claim_file;

pub(super) const TREES: &str = "trees";
pub(super) const BUILDING: &str = "building";
pub(super) const FACTS: &str = "facts";
pub(super) const TREE: &str = "tree";
const TREE_MODE: u32 = 0o755;
const LOCK: &str = "lock";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How often an entry that vanishes while it is opened is looked for.
const LOOKS_MAX: u32 = 8;

/// A private directory with entries under one version of the rules that made them.
#[derive(Debug)]
pub struct Shelf {
    pub(super) root: OwnedFd,
    /// Of `root`, free of links.
    pub(super) path: PathBuf,
    /// What the facts of this boot name; empty where nothing outlives the boot anyway.
    pub(super) boot: String,
}

/// An entry that is being made. Dropped before it is published, it is removed.
#[derive(Debug)]
pub struct Building {
    pub(super) entry: OwnedFd,
    pub(super) tree: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) published: bool,
}

/// An entry in use, with the first line of its facts.
#[derive(Debug)]
pub(super) struct HeldEntry {
    /// Its directory, with the lock.
    pub(super) entry: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) head: Facts,
}

/// Whoever has it may change names; it ends when it is dropped.
#[derive(Debug)]
pub struct Names {
    _lock: OwnedFd,
}

impl Building {
    /// The empty directory to unpack into.
    #[must_use]
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Its path, free of links.
    #[must_use]
    pub fn tree_path(&self) -> PathBuf {
        self.path.join(TREE)
    }

    /// Relative to the root of the shelf.
    fn name(&self, root: &Path) -> PathBuf {
        self.path
            .strip_prefix(root)
            .unwrap_or(&self.path)
            .to_owned()
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.published && std::fs::remove_dir_all(&self.path).is_err() {
            // The lock goes with the descriptor: the next one who makes something removes it.
        }
    }
}

impl HeldEntry {
    /// Marks it as used now.
    pub(super) fn touch(&self) -> Result<(), CacheError> {
        touch(&self.entry, &self.path)
    }
}

impl Shelf {
    /// Opens what lies in `directory` under `version` of its rules, making what is missing.
    ///
    /// # Errors
    /// [`CacheError::Unsafe`], [`CacheError::Call`].
    pub fn open(directory: &Path, version: u32, in_memory: bool) -> Result<Self, CacheError> {
        let (directory, path) = open_private(directory)?;
        let boot = match in_memory {
            true => String::new(),
            false => std::fs::read_to_string(BOOT_ID)
                .map_err(|error| failed("read", Path::new(BOOT_ID))(errno_of(&error)))?,
        };
        Self::in_directory(&directory, &path, version, boot.trim_end().to_owned())
    }

    /// A shelf in `part` of this one, which was found safe: what is above is not looked at again.
    ///
    /// # Errors
    /// As [`Shelf::open`].
    pub fn below(&self, part: &str, version: u32) -> Result<Self, CacheError> {
        let path = self.path.join(part);
        let directory = open_private_in(&self.root, part, &path)?;
        Self::in_directory(&directory, &path, version, self.boot.clone())
    }

    fn in_directory(
        directory: &OwnedFd,
        path: &Path,
        version: u32,
        boot: String,
    ) -> Result<Self, CacheError> {
        let version = version.to_string();
        let path = path.join(&version);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(directory, &version, flags, Mode::empty());
        let root = match open() {
            Err(Errno::NOENT) => {
                make_directory(directory, &version, &path)?;
                open().map_err(failed("openat", &path))?
            }
            other => other.map_err(failed("openat", &path))?,
        };
        Ok(Self { root, path, boot })
    }

    /// Its directory, free of links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory of the shelf.
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Begins to make an entry, after what dead processes left was removed.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in [TREES, BUILDING] {
            make_directory(&self.root, part, &self.path.join(part))?;
        }
        let names = self.lock_names()?;
        self.sweep(&names)?;
        let name = self.draft()?;
        let path = self.path.join(&name);
        make_directory(&self.root, &name, &path)?;
        let entry = self
            .open_directory(&name)?
            .ok_or_else(|| failed("openat", &path)(Errno::NOENT))?;
        claim(entry.as_fd(), &path)?;
        rustix::fs::mkdirat(&entry, TREE, Mode::from_raw_mode(TREE_MODE))
            .map_err(failed("mkdirat", &path))?;
        let tree = open_tree(&entry, &path.join(TREE))?;
        // Whatever the mask of this process is: the body sees this mode.
        rustix::fs::chmodat(
            &entry,
            TREE,
            Mode::from_raw_mode(TREE_MODE),
            AtFlags::empty(),
        )
        .map_err(failed("fchmodat", &path))?;
        Ok(Building {
            entry,
            tree,
            path,
            published: false,
        })
    }

    /// The entry `key`, in use from now on; one without facts of its own is removed.
    pub(super) fn hold(&self, key: &str) -> Result<Option<HeldEntry>, CacheError> {
        let name = format!("{TREES}/{key}");
        let path = self.path.join(&name);
        for _ in 0..LOOKS_MAX {
            let Some(entry) = self.open_directory(&name)? else {
                return Ok(None);
            };
            share(entry.as_fd(), &path)?;
            // Removed, or replaced, before it was locked.
            if !self.is_still(&entry, &name)? {
                continue;
            }
            let Some(head) = read_head(&entry, &path, key)? else {
                drop(entry);
                self.discard(&name)?;
                return Ok(None);
            };
            return Ok(Some(HeldEntry { entry, path, head }));
        }
        Ok(None)
    }

    /// Makes what was built the entry `key`, unless one is there already that `is_whole`; the entry
    /// is in use from now on.
    pub(super) fn place(
        &self,
        _names: &Names,
        mut building: Building,
        key: &str,
        is_whole: impl Fn(&OwnedFd) -> Result<bool, CacheError>,
    ) -> Result<OwnedFd, CacheError> {
        let name = format!("{TREES}/{key}");
        let path = self.path.join(&name);
        let there = self.open_directory(&name)?;
        let whole = match &there {
            Some(entry) => is_whole(entry)?,
            None => false,
        };
        let entry = match there.filter(|_| whole) {
            Some(entry) => entry,
            None => {
                self.move_away(&name)?;
                rustix::fs::renameat(&self.root, building.name(&self.path), &self.root, &name)
                    .map_err(failed("renameat", &path))?;
                building.published = true;
                rustix::io::fcntl_dupfd_cloexec(&building.entry, 0)
                    .map_err(failed("fcntl", &path))?
            }
        };
        // Not at once, but nobody removes entries while the names are locked.
        share(entry.as_fd(), &path)?;
        Ok(entry)
    }

    /// Removes the entry `key`; `false`: it is in use.
    pub(super) fn remove_unused(&self, _names: &Names, key: &str) -> Result<bool, CacheError> {
        let name = format!("{TREES}/{key}");
        let path = self.path.join(&name);
        let Some(entry) = self.open_directory(&name)? else {
            return Ok(true);
        };
        let is_free = try_claim_file(entry.as_fd()).map_err(failed("flock", &path))?;
        if is_free {
            let away = self.draft()?;
            rustix::fs::renameat(&self.root, &name, &self.root, &away)
                .map_err(failed("renameat", &path))?;
            remove(&self.path.join(&away))?;
        }
        Ok(is_free)
    }

    /// Names in a part of the shelf; none where it was not made yet.
    pub fn names(&self, part: &str) -> Result<Vec<String>, CacheError> {
        let path = self.path.join(part);
        let Some(directory) = self.open_directory(part)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(failed("getdents64", &path))? {
            let entry = entry.map_err(failed("getdents64", &path))?;
            // Names of ours are plain; what is none of ours is for nobody to remove but its maker.
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Removes what nobody works on any more.
    pub fn sweep(&self, _names: &Names) -> Result<(), CacheError> {
        for name in self.names(BUILDING)? {
            let name = format!("{BUILDING}/{name}");
            let path = self.path.join(&name);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let left = match rustix::fs::openat(&self.root, &name, flags, Mode::empty()) {
                Ok(left) => left,
                // Whoever made it gave up, which needs no lock.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed("openat", &path)(errno)),
            };
            let is_free = try_claim_file(left.as_fd()).map_err(failed("flock", &path))?;
            if is_free {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// What other versions of the rules made: a run of that version would make it anew.
    pub fn remove_other_versions(&self) -> Result<(), CacheError> {
        let above = self.path.parent().unwrap_or(&self.path);
        let unreadable = |error: &std::io::Error| failed("getdents64", above)(errno_of(error));
        let here: Vec<PathBuf> = std::fs::read_dir(above)
            .map_err(|error| unreadable(&error))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        for path in here {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_version = name.is_some_and(|name| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
            });
            if is_version && path != self.path {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes an entry of an index; that it is gone is fine.
    pub(super) fn forget(&self, name: &str) -> Result<(), CacheError> {
        match rustix::fs::unlinkat(&self.root, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("unlinkat", &self.path.join(name))(errno)),
        }
    }

    /// A name in `building` that nobody has.
    pub fn draft(&self) -> Result<String, CacheError> {
        let mut bytes = [0_u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(failed("getrandom", &self.path))?;
        Ok(format!("{BUILDING}/{:016x}", u64::from_ne_bytes(bytes)))
    }

    /// Waits until nobody else changes names.
    pub fn lock_names(&self) -> Result<Names, CacheError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.join(LOCK);
        let lock = rustix::fs::openat(&self.root, LOCK, flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(failed("openat", &path))?;
        claim(lock.as_fd(), &path)?;
        Ok(Names { _lock: lock })
    }

    /// Removes a damaged entry; whoever uses it keeps it until he is done.
    pub(super) fn discard(&self, name: &str) -> Result<(), CacheError> {
        let _names = self.lock_names()?;
        self.move_away(name)
    }

    /// Takes a name away; the names are locked. What is in use stays in `building`.
    pub(super) fn move_away(&self, name: &str) -> Result<(), CacheError> {
        let Some(entry) = self.open_directory(name)? else {
            return Ok(());
        };
        let path = self.path.join(name);
        let is_free = try_claim_file(entry.as_fd()).map_err(failed("flock", &path))?;
        let away = self.draft()?;
        rustix::fs::renameat(&self.root, name, &self.root, &away)
            .map_err(failed("renameat", &path))?;
        match is_free {
            true => remove(&self.path.join(&away)),
            false => Ok(()),
        }
    }

    pub(super) fn open_directory(&self, name: &str) -> Result<Option<OwnedFd>, CacheError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.root, name, flags, Mode::empty()) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("openat", &self.path.join(name))(errno)),
        }
    }

    /// Whether `name` is still the entry that was opened: another program may have replaced it.
    pub fn is_still(&self, entry: &OwnedFd, name: &str) -> Result<bool, CacheError> {
        let path = self.path.join(name);
        let there = match rustix::fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(failed("fstatat", &path)(errno)),
        };
        let opened = rustix::fs::fstat(entry).map_err(failed("fstat", &path))?;
        Ok((there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino))
    }

    /// A file of at most `bytes_max` bytes; `None` where there is none.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, CacheError> {
        let path = self.path.join(name);
        read_at(&self.root, name, &path, bytes_max)
    }

    /// Replaces the file `name` as a whole, and waits until it is on the disk.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        write_new(&self.root, name, bytes, &self.path.join(name))
    }
}
