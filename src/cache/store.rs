//! The store itself: finding, making and publishing trees, and the two indexes.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::bundle::{Tree, UnpackLimits, Unpacked};
use crate::cache::UNPACK_RULES;
use crate::cache::checking;
use crate::cache::error::{CacheError, failed};
use crate::cache::files::{
    FILE_MODE, Facts, errno_of, facts_bytes, make_directory, open_tree, read_at, read_facts,
    remove, touch, write_new,
};
use crate::cache::identity::{Identity, archive_key, hexadecimal};
use crate::cache::place::{Place, open_private};
use crate::kernel::lock::{claim_file, share_file, try_claim_file};
use crate::spec::digest::Digest;
use crate::spec::report::WarningReport;

pub(super) const TREES: &str = "trees";
pub(super) const ARCHIVES: &str = "archives";
pub(super) const IDENTITIES: &str = "identities";
pub(super) const BUILDING: &str = "building";
pub(super) const FACTS: &str = "facts";
pub(super) const TREE: &str = "tree";
const LOCK: &str = "lock";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How often an entry that vanishes while it is opened is looked for.
const LOOKS_MAX: u32 = 8;
/// The longest entry of an index.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// The cache at one place.
#[derive(Debug)]
pub struct Cache {
    pub(super) root: OwnedFd,
    /// Of `root`, free of links.
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    /// What the facts must name; empty where nothing outlives the boot anyway.
    pub(super) boot: String,
}

/// What an index says of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub(super) archive: String,
    pub(super) content: String,
    /// Code and message of what unpacking warned of.
    pub(super) warnings: Vec<(String, String)>,
}

/// A tree in use: nobody removes it while this lives.
#[derive(Debug)]
pub struct HeldTree {
    /// What was unpacked.
    pub unpacked: Unpacked,
    /// Where it lies.
    pub in_use: InUse,
}

/// The claim on a tree, and where that lies.
#[derive(Debug)]
pub struct InUse {
    /// The directory that holds the tree.
    pub root: OwnedFd,
    /// Its path, free of links.
    pub path: PathBuf,
    /// Where it is not kept, the tree that goes with this.
    pub(super) building: Option<Building>,
    /// The entry, with the lock.
    pub(super) _entry: Option<OwnedFd>,
}

/// A tree that is being made. Dropped before it is published, it is removed.
#[derive(Debug)]
pub struct Building {
    pub(super) entry: OwnedFd,
    pub(super) tree: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) published: bool,
}

impl Building {
    /// The empty directory to unpack into.
    #[must_use]
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.published && std::fs::remove_dir_all(&self.path).is_err() {
            // The lock goes with the descriptor: the next one who makes something removes it.
        }
    }
}

impl Cache {
    /// Opens the cache at `place`, making what is missing.
    ///
    /// # Errors
    /// [`CacheError::Unsafe`], [`CacheError::Call`].
    pub fn open(place: &Place) -> Result<Self, CacheError> {
        let (directory, path) = open_private(&place.directory)?;
        let version = UNPACK_RULES.to_string();
        let path = path.join(&version);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&directory, &version, flags, Mode::empty());
        let root = match open() {
            Err(Errno::NOENT) => {
                make_directory(&directory, &version, &path)?;
                open().map_err(failed("openat", &path))?
            }
            other => other.map_err(failed("openat", &path))?,
        };
        let boot = match place.in_memory {
            true => String::new(),
            false => std::fs::read_to_string(BOOT_ID)
                .map_err(|error| failed("read", Path::new(BOOT_ID))(errno_of(&error)))?,
        };
        Ok(Self {
            root,
            path,
            size_bytes: place.size_bytes,
            boot: boot.trim_end().to_owned(),
        })
    }

    /// Most that the trees may take together.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The tree of a file that has not changed since it was read.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn by_identity(
        &self,
        identity: &Identity,
        limits: &UnpackLimits,
    ) -> Result<Option<HeldTree>, CacheError> {
        let name = format!("{IDENTITIES}/{}", identity.key(limits));
        Ok(self.recorded(&name)?.map(|(held, _)| held))
    }

    /// Whether an archive of this size is known: only then it is worth hashing one.
    #[must_use]
    pub fn knows_size(&self, bytes: u64) -> bool {
        let name = format!("{ARCHIVES}/{bytes}");
        rustix::fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The tree of an archive with these bytes, and what the index says of it.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn by_digest(
        &self,
        bytes: u64,
        archive: &Digest,
        limits: &UnpackLimits,
    ) -> Result<Option<(HeldTree, Record)>, CacheError> {
        self.recorded(&format!(
            "{ARCHIVES}/{bytes}/{}",
            archive_key(archive, limits)
        ))
    }

    fn recorded(&self, name: &str) -> Result<Option<(HeldTree, Record)>, CacheError> {
        let Some(bytes) = self.read(name, RECORD_BYTES_MAX)? else {
            return Ok(None);
        };
        let Some((record, archive, content)) = understood(&bytes) else {
            self.forget(name)?;
            return Ok(None);
        };
        let Some(mut held) = self.tree(&content)? else {
            return Ok(None);
        };
        held.unpacked.archive_digest = Some(archive);
        let warnings = record.warnings.iter();
        held.unpacked.warnings = warnings
            .map(|(code, message)| WarningReport::new(code, message.clone()))
            .collect();
        Ok(Some((held, record)))
    }

    /// The tree with this content, marked as used now.
    fn tree(&self, content: &Digest) -> Result<Option<HeldTree>, CacheError> {
        let key = hexadecimal(content);
        let name = format!("{TREES}/{key}");
        let path = self.path.join(&name);
        for _ in 0..LOOKS_MAX {
            let Some(entry) = self.open_directory(&name)? else {
                return Ok(None);
            };
            share_file(entry.as_fd()).map_err(failed("flock", &path))?;
            // Removed, or replaced, before it was locked.
            if !self.is_still(&entry, &name)? {
                continue;
            }
            let Some((facts, tree)) = read_facts(&entry, &path, &key)? else {
                drop(entry);
                self.discard(&name)?;
                return Ok(None);
            };
            if facts.boot != self.boot {
                return self.of_earlier_boot(entry, content, facts, &tree);
            }
            touch(&entry, &path)?;
            return self.held(entry, &path, content, &facts, tree).map(Some);
        }
        Ok(None)
    }

    pub(super) fn held(
        &self,
        entry: OwnedFd,
        path: &Path,
        content: &Digest,
        facts: &Facts,
        tree: Tree,
    ) -> Result<HeldTree, CacheError> {
        let path = path.join(TREE);
        let root = open_tree(&entry, &path)?;
        Ok(HeldTree {
            unpacked: Unpacked {
                content_digest: *content,
                archive_digest: None,
                bytes: facts.bytes,
                entries: tree.len() as u64,
                tree,
                warnings: Vec::new(),
            },
            in_use: InUse {
                root,
                path,
                building: None,
                _entry: Some(entry),
            },
        })
    }

    /// What a crash may have cut short is used only after it was found whole.
    fn of_earlier_boot(
        &self,
        entry: OwnedFd,
        content: &Digest,
        facts: Facts,
        tree: &Tree,
    ) -> Result<Option<HeldTree>, CacheError> {
        let name = format!("{TREES}/{}", hexadecimal(content));
        let path = self.path.join(&name);
        let root = open_tree(&entry, &path.join(TREE))?;
        if checking::check(&root, tree, content)?.is_some() {
            drop(entry);
            self.discard(&name)?;
            return Ok(None);
        }
        let boot = self.boot.clone();
        let facts = Facts { boot, ..facts };
        let _names = self.lock_names()?;
        let draft = self.draft()?;
        self.write(&draft, &facts_bytes(&facts, tree, &path)?)?;
        rustix::fs::renameat(&self.root, &draft, &entry, FACTS)
            .map_err(failed("renameat", &path))?;
        self.held(entry, &path, content, &facts, tree.clone())
            .map(Some)
    }

    /// Removes an entry of an index; that it is gone is fine.
    pub(super) fn forget(&self, name: &str) -> Result<(), CacheError> {
        match rustix::fs::unlinkat(&self.root, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("unlinkat", &self.path.join(name))(errno)),
        }
    }

    /// A name in `building` that nobody has.
    pub(super) fn draft(&self) -> Result<String, CacheError> {
        let mut bytes = [0_u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(failed("getrandom", &self.path))?;
        Ok(format!("{BUILDING}/{:016x}", u64::from_ne_bytes(bytes)))
    }

    /// Whoever holds this may change names; it ends when it is dropped.
    pub(super) fn lock_names(&self) -> Result<OwnedFd, CacheError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.join(LOCK);
        let lock = rustix::fs::openat(&self.root, LOCK, flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(failed("openat", &path))?;
        claim_file(lock.as_fd()).map_err(failed("flock", &path))?;
        Ok(lock)
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

    fn is_still(&self, entry: &OwnedFd, name: &str) -> Result<bool, CacheError> {
        let path = self.path.join(name);
        let there = match rustix::fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(failed("fstatat", &path)(errno)),
        };
        let opened = rustix::fs::fstat(entry).map_err(failed("fstat", &path))?;
        Ok((there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino))
    }

    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, CacheError> {
        let path = self.path.join(name);
        read_at(&self.root, name, &path, bytes_max)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        write_new(&self.root, name, bytes, &self.path.join(name))
    }
}

impl Building {
    /// Relative to the root of the cache.
    pub(super) fn name(&self, root: &Path) -> PathBuf {
        self.path
            .strip_prefix(root)
            .unwrap_or(&self.path)
            .to_owned()
    }
}

impl InUse {
    /// Whether it stays for the next run.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.building.is_none()
    }
}

fn understood(bytes: &[u8]) -> Option<(Record, Digest, Digest)> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    let archive = Digest::parse(&record.archive)?;
    let content = Digest::parse(&record.content)?;
    Some((record, archive, content))
}
