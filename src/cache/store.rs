//! The store itself: finding, making and publishing trees, and the two indexes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::bundle::Tree;
use crate::bundle::listing;
use crate::bundle::{UnpackLimits, Unpacked};
use crate::cache::UNPACK_RULES;
use crate::cache::checking;
use crate::cache::error::{CacheError, failed};
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
const DIRECTORY_MODE: u32 = 0o700;
const TREE_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o600;
/// How often an entry that vanishes while it is opened is looked for.
const LOOKS_MAX: u32 = 8;
/// The longest entry of an index.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// The longest facts: 100,000 entries with 160 bytes of names each, and as much again.
const FACTS_BYTES_MAX: u64 = 64 << 20;

/// The cache at one place.
#[derive(Debug)]
pub struct Cache {
    pub(super) root: OwnedFd,
    /// Of `root`, free of links.
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    /// What the facts must name; empty where nothing outlives the boot anyway.
    boot: String,
}

/// What an index says of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    archive: String,
    content: String,
    /// Code and message of what unpacking warned of.
    warnings: Vec<(String, String)>,
}

/// The head of the facts of a tree; its listing follows after a newline.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    /// The content that the tree is, so that a directory that was renamed by hand is none.
    pub(super) content: String,
    pub(super) bytes: u64,
    pub(super) disk_bytes: u64,
    boot: String,
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
    building: Option<Building>,
    /// The entry, with the lock.
    _entry: Option<OwnedFd>,
}

/// A tree that is being made. Dropped before it is published, it is removed.
#[derive(Debug)]
pub struct Building {
    entry: OwnedFd,
    tree: OwnedFd,
    path: PathBuf,
    published: bool,
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

    fn held(
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
        let draft = self.draft()?;
        self.write(&draft, &facts_bytes(&facts, tree, &path)?)?;
        rustix::fs::renameat(&self.root, &draft, &entry, FACTS)
            .map_err(failed("renameat", &path))?;
        self.held(entry, &path, content, &facts, tree.clone())
            .map(Some)
    }

    /// Begins to make a tree, after what dead processes left was removed.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in ["", TREES, ARCHIVES, IDENTITIES, BUILDING] {
            if !part.is_empty() {
                make_directory(&self.root, part, &self.path.join(part))?;
            }
        }
        let _names = self.lock_names()?;
        self.sweep()?;
        let name = self.draft()?;
        let path = self.path.join(&name);
        make_directory(&self.root, &name, &path)?;
        let entry = self
            .open_directory(&name)?
            .ok_or_else(|| failed("openat", &path)(Errno::NOENT))?;
        claim_file(entry.as_fd()).map_err(failed("flock", &path))?;
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

    /// Makes what was built an entry, unless one with that content is there already, and remembers
    /// the archive. A tree that is larger than the whole cache is used this once.
    ///
    /// # Errors
    /// [`CacheError`]; what was built is gone.
    pub fn publish(
        &self,
        mut building: Building,
        unpacked: Unpacked,
        archive_bytes: u64,
        limits: &UnpackLimits,
    ) -> Result<(HeldTree, Option<Record>), CacheError> {
        let content = unpacked.content_digest;
        let name = format!("{TREES}/{}", hexadecimal(&content));
        let path = self.path.join(&name);
        let facts = Facts {
            content: content.to_string(),
            bytes: unpacked.bytes,
            disk_bytes: disk_bytes(&unpacked.tree),
            boot: self.boot.clone(),
        };
        if self.size_bytes < facts.disk_bytes {
            return Ok((used_once(building, unpacked)?, None));
        }
        write_new(
            &building.entry,
            FACTS,
            &facts_bytes(&facts, &unpacked.tree, &path)?,
            &path,
        )?;
        let record = record_of(&unpacked);
        let names = self.lock_names()?;
        let there = self.open_directory(&name)?;
        let whole = match &there {
            Some(entry) => read_facts(entry, &path, &hexadecimal(&content))?
                .is_some_and(|(facts, _)| facts.boot == self.boot),
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
        share_file(entry.as_fd()).map_err(failed("flock", &path))?;
        self.remember_archive(archive_bytes, &unpacked, &record, limits)?;
        self.shrink()?;
        drop(names);
        let Unpacked {
            archive_digest,
            warnings,
            tree,
            ..
        } = unpacked;
        let mut held = self.held(entry, &path, &content, &facts, tree)?;
        held.unpacked.archive_digest = archive_digest;
        held.unpacked.warnings = warnings;
        Ok((held, Some(record)))
    }

    fn remember_archive(
        &self,
        archive_bytes: u64,
        unpacked: &Unpacked,
        record: &Record,
        limits: &UnpackLimits,
    ) -> Result<(), CacheError> {
        let Some(archive) = &unpacked.archive_digest else {
            return Ok(());
        };
        let of_size = format!("{ARCHIVES}/{archive_bytes}");
        make_directory(&self.root, &of_size, &self.path.join(&of_size))?;
        self.put(
            &format!("{of_size}/{}", archive_key(archive, limits)),
            record,
        )
    }

    /// Remembers that the file with this identity holds that archive.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn remember(
        &self,
        identity: &Identity,
        record: &Record,
        limits: &UnpackLimits,
    ) -> Result<(), CacheError> {
        self.put(&format!("{IDENTITIES}/{}", identity.key(limits)), record)
    }

    fn put(&self, name: &str, record: &Record) -> Result<(), CacheError> {
        let path = self.path.join(name);
        let bytes = json(record, &path)?;
        let draft = self.draft()?;
        self.write(&draft, &bytes)?;
        rustix::fs::renameat(&self.root, &draft, &self.root, name)
            .map_err(failed("renameat", &path))
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

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        write_new(&self.root, name, bytes, &self.path.join(name))
    }
}

impl Building {
    /// Relative to the root of the cache.
    fn name(&self, root: &Path) -> PathBuf {
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

fn used_once(building: Building, unpacked: Unpacked) -> Result<HeldTree, CacheError> {
    let path = building.path.join(TREE);
    Ok(HeldTree {
        unpacked,
        in_use: InUse {
            root: open_tree(&building.entry, &path)?,
            path,
            building: Some(building),
            _entry: None,
        },
    })
}

fn record_of(unpacked: &Unpacked) -> Record {
    let archive = unpacked.archive_digest.as_ref();
    Record {
        archive: archive.map(ToString::to_string).unwrap_or_default(),
        content: unpacked.content_digest.to_string(),
        warnings: unpacked
            .warnings
            .iter()
            .map(|warning| (warning.code.clone(), warning.message.clone()))
            .collect(),
    }
}

fn understood(bytes: &[u8]) -> Option<(Record, Digest, Digest)> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    let archive = Digest::parse(&record.archive)?;
    let content = Digest::parse(&record.content)?;
    Some((record, archive, content))
}

/// What a tree takes: files in whole pages, and about 1 KiB for each inode.
fn disk_bytes(tree: &Tree) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    const INODE_BYTES: u64 = 1024;
    let of_entry = |entry: &crate::bundle::Entry| match entry {
        crate::bundle::Entry::File { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES),
        crate::bundle::Entry::Directory | crate::bundle::Entry::Symlink { .. } => 0,
    };
    let all = tree.iter().map(|(_, entry)| of_entry(entry) + INODE_BYTES);
    all.fold(INODE_BYTES, u64::saturating_add)
}

fn facts_bytes(facts: &Facts, tree: &Tree, path: &Path) -> Result<Vec<u8>, CacheError> {
    let mut bytes = json(facts, path)?;
    bytes.push(b'\n');
    bytes.extend(listing::write(tree));
    Ok(bytes)
}

/// The facts of the entry that is called `key`; `None` where they are not whole, or another's.
pub(super) fn read_facts(
    entry: &OwnedFd,
    path: &Path,
    key: &str,
) -> Result<Option<(Facts, Tree)>, CacheError> {
    let Some(bytes) = read_at(entry, FACTS, path, FACTS_BYTES_MAX)? else {
        return Ok(None);
    };
    let parsed = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .and_then(|end| {
            let facts: Facts = serde_json::from_slice(&bytes[..end]).ok()?;
            let is_this = facts.content.strip_prefix("sha256:") == Some(key);
            is_this.then_some(())?;
            Some((facts, listing::read(&bytes[end + 1..])?))
        });
    Ok(parsed)
}

pub(super) fn open_tree(entry: &OwnedFd, path: &Path) -> Result<OwnedFd, CacheError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(entry, TREE, flags, Mode::empty()).map_err(failed("openat", path))
}

/// Marks an entry as used now.
fn touch(entry: &OwnedFd, path: &Path) -> Result<(), CacheError> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    match rustix::fs::utimensat(entry, FACTS, &times, AtFlags::SYMLINK_NOFOLLOW) {
        // A cache on a file system that became read-only is as good as before.
        Ok(()) | Err(Errno::ROFS) => Ok(()),
        Err(errno) => Err(failed("utimensat", path)(errno)),
    }
}

fn make_directory(at: &OwnedFd, name: &str, path: &Path) -> Result<(), CacheError> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed("mkdirat", path)(errno)),
    }
}

fn read_at(
    at: &OwnedFd,
    name: &str,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, CacheError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("openat", path)(errno)),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max)
        .read_to_end(&mut bytes)
        .map_err(|error| failed("read", path)(errno_of(&error)))?;
    Ok(Some(bytes))
}

fn write_new(at: &OwnedFd, name: &str, bytes: &[u8], path: &Path) -> Result<(), CacheError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, name, flags, Mode::from_raw_mode(FILE_MODE))
        .map_err(failed("openat", path))?;
    File::from(file)
        .write_all(bytes)
        .map_err(|error| failed("write", path)(errno_of(&error)))
}

fn json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, CacheError> {
    serde_json::to_vec(value).map_err(|_never| failed("write", path)(Errno::INVAL))
}

/// Removes a file, or a directory with all that is in it; that it is gone is fine.
pub(super) fn remove(path: &Path) -> Result<(), CacheError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(status) if status.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("unlink", path)(errno_of(&error)))
        }
        _ => Ok(()),
    }
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
