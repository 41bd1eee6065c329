//! The cache itself: finding trees, by their content and by the two indexes.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use serde::{Deserialize, Serialize};

use crate::UNPACK_RULES;
use crate::checking;
use crate::error::{CacheError, failed};
use crate::files::{Facts, facts_bytes, open_tree, read_listing};
use crate::identity::{Identity, archive_key, hexadecimal};
use crate::place::Place;
use crate::shelf::{Building, FACTS, HeldEntry, Shelf, TREE, TREES};
use archive::{Tree, UnpackLimits, Unpacked};
use spec::digest::Digest;
use spec::report::WarningReport;

pub(super) const ARCHIVES: &str = "archives";
pub(super) const IDENTITIES: &str = "identities";
/// The longest entry of an index.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// The cache at one place.
#[derive(Debug)]
pub struct Cache {
    pub(super) shelf: Shelf,
    pub(super) size_bytes: u64,
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
    pub unpacked: Unpacked,
    pub in_use: InUse,
}

/// A tree in use, without the list of what lies in it: having one costs the same whatever its
/// size.
#[derive(Debug)]
pub struct KeptTree {
    pub in_use: InUse,
    /// The digest of its canonical tar.
    pub content_digest: Digest,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many regular files; `None` where an earlier version of this program kept it.
    pub files: Option<u64>,
    /// What unpacking warned of.
    pub warnings: Vec<WarningReport>,
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
    pub(super) entry: Option<OwnedFd>,
}

impl Cache {
    /// Opens the cache at `place`, making what is missing.
    ///
    /// # Errors
    /// [`CacheError::Unsafe`], [`CacheError::Call`].
    pub fn open(place: &Place) -> Result<Self, CacheError> {
        Ok(Self {
            shelf: Shelf::open(&place.directory, UNPACK_RULES, place.in_memory)?,
            size_bytes: place.size_bytes,
        })
    }

    /// The cache in `part` of `shelf`.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn below(shelf: &Shelf, part: &str, size_bytes: u64) -> Result<Self, CacheError> {
        Ok(Self {
            shelf: shelf.below(part, UNPACK_RULES)?,
            size_bytes,
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
        rustix::fs::statat(&self.shelf.root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
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
        self.recorded(&archive_name(bytes, archive, limits))
    }

    /// As [`Cache::by_digest`], without reading what lies in the tree: the cost does not grow with
    /// it, except for a tree of an earlier boot, which is verified first.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn kept(
        &self,
        bytes: u64,
        archive: &Digest,
        limits: &UnpackLimits,
    ) -> Result<Option<KeptTree>, CacheError> {
        let name = archive_name(bytes, archive, limits);
        let Some((record, found, content)) = self.record(&name)? else {
            return Ok(None);
        };
        if found != *archive {
            return Ok(None);
        }
        let Some(held) = self.shelf.hold(&hexadecimal(&content))? else {
            return Ok(None);
        };
        if held.head.boot != self.shelf.boot {
            let Some(mut tree) = self.listed(held, &content)? else {
                return Ok(None);
            };
            tree.unpacked.warnings = record.warnings();
            return Ok(Some(KeptTree::of(tree)));
        }
        held.touch()?;
        let HeldEntry { entry, path, head } = held;
        Ok(Some(KeptTree {
            in_use: InUse::of(entry, &path)?,
            content_digest: content,
            bytes: head.bytes,
            files: head.files,
            warnings: record.warnings(),
        }))
    }

    /// As [`Cache::publish`], for whoever has no use for the list.
    ///
    /// # Errors
    /// [`CacheError`]; what was built is gone.
    pub fn publish_kept(
        &self,
        building: Building,
        unpacked: Unpacked,
        archive_bytes: u64,
        limits: &UnpackLimits,
    ) -> Result<KeptTree, CacheError> {
        let (held, _record) = self.publish(building, unpacked, archive_bytes, limits)?;
        Ok(KeptTree::of(held))
    }

    fn record(&self, name: &str) -> Result<Option<(Record, Digest, Digest)>, CacheError> {
        let Some(bytes) = self.shelf.read(name, RECORD_BYTES_MAX)? else {
            return Ok(None);
        };
        let understood = understood(&bytes);
        if understood.is_none() {
            self.shelf.forget(name)?;
        }
        Ok(understood)
    }

    fn recorded(&self, name: &str) -> Result<Option<(HeldTree, Record)>, CacheError> {
        let Some((record, archive, content)) = self.record(name)? else {
            return Ok(None);
        };
        let Some(held) = self.shelf.hold(&hexadecimal(&content))? else {
            return Ok(None);
        };
        let Some(mut held) = self.listed(held, &content)? else {
            return Ok(None);
        };
        held.unpacked.archive_digest = Some(archive);
        held.unpacked.warnings = record.warnings();
        Ok(Some((held, record)))
    }

    /// The tree of an entry with its list, marked as used now.
    fn listed(&self, held: HeldEntry, content: &Digest) -> Result<Option<HeldTree>, CacheError> {
        let Some(tree) = read_listing(&held.entry, &held.path)? else {
            let name = format!("{TREES}/{}", hexadecimal(content));
            drop(held);
            self.shelf.discard(&name)?;
            return Ok(None);
        };
        if held.head.boot != self.shelf.boot {
            return self.of_earlier_boot(held, content, &tree);
        }
        held.touch()?;
        let HeldEntry { entry, path, head } = held;
        self.held(entry, &path, content, &head, tree).map(Some)
    }

    pub(super) fn held(
        &self,
        entry: OwnedFd,
        path: &std::path::Path,
        content: &Digest,
        facts: &Facts,
        tree: Tree,
    ) -> Result<HeldTree, CacheError> {
        Ok(HeldTree {
            unpacked: Unpacked {
                content_digest: *content,
                archive_digest: None,
                bytes: facts.bytes,
                entries: tree.len() as u64,
                tree,
                warnings: Vec::new(),
            },
            in_use: InUse::of(entry, path)?,
        })
    }

    /// What a crash may have cut short is used only after it was found whole.
    fn of_earlier_boot(
        &self,
        held: HeldEntry,
        content: &Digest,
        tree: &Tree,
    ) -> Result<Option<HeldTree>, CacheError> {
        let name = format!("{TREES}/{}", hexadecimal(content));
        let HeldEntry { entry, path, head } = held;
        let root = open_tree(&entry, &path.join(TREE))?;
        if checking::check(&root, tree, content)?.is_some() {
            drop(entry);
            self.shelf.discard(&name)?;
            return Ok(None);
        }
        let boot = self.shelf.boot.clone();
        let facts = Facts { boot, ..head };
        let _names = self.shelf.lock_names()?;
        let draft = self.shelf.draft()?;
        self.shelf
            .write(&draft, &facts_bytes(&facts, tree, &path)?)?;
        rustix::fs::renameat(&self.shelf.root, &draft, &entry, FACTS)
            .map_err(failed("renameat", &path))?;
        self.held(entry, &path, content, &facts, tree.clone())
            .map(Some)
    }
}

impl KeptTree {
    /// Of a tree whose list is at hand.
    fn of(held: HeldTree) -> Self {
        let HeldTree { unpacked, in_use } = held;
        Self {
            in_use,
            content_digest: unpacked.content_digest,
            bytes: unpacked.bytes,
            files: Some(unpacked.tree.file_count()),
            warnings: unpacked.warnings,
        }
    }
}

impl Record {
    fn warnings(&self) -> Vec<WarningReport> {
        let warnings = self.warnings.iter();
        warnings
            .map(|(code, message)| WarningReport::new(code, message.clone()))
            .collect()
    }
}

impl InUse {
    /// Of an entry that is locked.
    pub(super) fn of(entry: OwnedFd, path: &std::path::Path) -> Result<Self, CacheError> {
        let path = path.join(TREE);
        Ok(Self {
            root: open_tree(&entry, &path)?,
            path,
            building: None,
            entry: Some(entry),
        })
    }

    /// Whether it stays for the next run.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.building.is_none()
    }

    /// What lies where: read when it is asked for, and as long as the tree is large.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] where the list is not there or is none.
    pub fn tree(&self) -> Result<Tree, CacheError> {
        let building = self.building.as_ref().map(|building| &building.entry);
        let entry = self.entry.as_ref().or(building);
        let listing = match entry {
            Some(entry) => read_listing(entry, &self.path)?,
            None => None,
        };
        listing.ok_or_else(|| CacheError::Damaged {
            entry: spec::path::escape(self.path.as_os_str().as_encoded_bytes()),
            problem: "has no list of its files".to_owned(),
        })
    }
}

fn archive_name(bytes: u64, archive: &Digest, limits: &UnpackLimits) -> String {
    format!("{ARCHIVES}/{bytes}/{}", archive_key(archive, limits))
}

fn understood(bytes: &[u8]) -> Option<(Record, Digest, Digest)> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    let archive = Digest::parse(&record.archive)?;
    let content = Digest::parse(&record.content)?;
    Some((record, archive, content))
}
