//! The contents of a bundle: an ordered map from path to entry without conflicting entries.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::path_mapping::relative_to;
use spec::path::RelPath;

/// One entry of a [`Tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    File {
        /// Whether the owner may execute it: mode 0755 instead of 0644.
        executable: bool,
        /// Size of its contents.
        bytes: u64,
    },
    /// A directory, mode 0755.
    Directory,
    Symlink {
        /// The link target as written.
        target: Vec<u8>,
    },
}

impl Entry {
    /// `a file`, `a directory` or `a symlink`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "a file",
            Self::Directory => "a directory",
            Self::Symlink { .. } => "a symlink",
        }
    }
}

/// The entries of a bundle. Every parent of an entry is in the tree and is a directory; the root itself
/// is not an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    entries: BTreeMap<RelPath, Entry>,
    name_bytes: u64,
}

/// Limits of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Files, directories (including implied parents) and links.
    pub entries: u64,
    /// Bytes of all paths and link targets, which the tree holds in memory.
    pub name_bytes: u64,
}

/// Why an entry does not fit into the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// A parent is a file.
    BeneathFile(RelPath),
    /// A parent is a symlink.
    BeneathLink(RelPath),
    /// The path has an entry of this other type.
    OtherType(&'static str),
    /// More than [`TreeLimits::entries`].
    TooManyEntries,
    /// More than [`TreeLimits::name_bytes`].
    TooLongNames,
}

/// The effects of [`Tree::insert`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Insertion {
    /// Missing parent directories that the insertion created, outermost first.
    pub implied: Vec<RelPath>,
    /// The entry that was replaced.
    pub replaced: Option<Entry>,
}

impl Tree {
    /// A tree of one executable file and its parent directories, for evaluating a run without a bundle.
    #[must_use]
    pub fn with_program(path: RelPath) -> Self {
        let mut tree = Self::default();
        let entry = Entry::File {
            executable: true,
            bytes: 0,
        };
        let unlimited = TreeLimits {
            entries: u64::MAX,
            name_bytes: u64::MAX,
        };
        let inserted = tree.insert(path, entry, unlimited);
        debug_assert!(inserted.is_ok(), "the tree is empty");
        tree
    }

    /// `entries` must be those of an earlier tree.
    pub(crate) fn from_entries(entries: BTreeMap<RelPath, Entry>) -> Self {
        let bytes = |(path, entry): (&RelPath, &Entry)| {
            (path.as_bytes().len() as u64).saturating_add(target_bytes(entry))
        };
        let name_bytes = entries.iter().map(bytes).sum();
        Self {
            entries,
            name_bytes,
        }
    }

    /// The entries below `directory`, with paths relative to it.
    #[must_use]
    pub fn below(&self, directory: &RelPath) -> Self {
        let entries = self.entries.iter().filter_map(|(path, entry)| {
            let path = relative_to(path.as_bytes(), directory.as_bytes())?;
            Some((path, entry.clone()))
        });
        Self::from_entries(entries.collect())
    }

    /// The entry at `path`.
    #[must_use]
    pub fn get(&self, path: &RelPath) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Bytes of all paths and link targets.
    pub(crate) fn name_bytes(&self) -> u64 {
        self.name_bytes
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries by path.
    pub fn iter(&self) -> impl Iterator<Item = (&RelPath, &Entry)> {
        self.entries.iter()
    }

    /// Bytes of all files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let sizes = self.entries.values().map(|entry| match entry {
            Entry::File { bytes, .. } => *bytes,
            Entry::Directory | Entry::Symlink { .. } => 0,
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// Number of regular files.
    #[must_use]
    pub fn file_count(&self) -> u64 {
        let files = self.entries.values();
        files
            .filter(|entry| matches!(entry, Entry::File { .. }))
            .count() as u64
    }

    /// All entries in the order of the canonical tar: by the bytes of the member name, in which a
    /// directory ends in `/`. The contents of a directory follow it contiguously.
    #[must_use]
    pub fn in_archive_order(&self) -> Vec<(&RelPath, &Entry)> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_by(|(a, entry_a), (b, entry_b)| {
            let is_directory = |entry: &Entry| *entry == Entry::Directory;
            archive_order(
                (a.as_bytes(), is_directory(entry_a)),
                (b.as_bytes(), is_directory(entry_b)),
            )
        });
        all
    }

    /// Inserts `entry` at `path`; its parents become directories. A second entry of the same type
    /// replaces the first.
    ///
    /// # Errors
    /// A [`Conflict`]; the tree is unchanged.
    pub fn insert(
        &mut self,
        path: RelPath,
        entry: Entry,
        limits: TreeLimits,
    ) -> Result<Insertion, Conflict> {
        if let Some(existing) = self.entries.get_mut(&path) {
            if std::mem::discriminant(existing) != std::mem::discriminant(&entry) {
                return Err(Conflict::OtherType(existing.kind()));
            }
            let name_bytes = self.name_bytes + target_bytes(&entry) - target_bytes(existing);
            if name_bytes > limits.name_bytes {
                return Err(Conflict::TooLongNames);
            }
            self.name_bytes = name_bytes;
            return Ok(Insertion {
                implied: Vec::new(),
                replaced: Some(std::mem::replace(existing, entry)),
            });
        }
        let mut implied = Vec::new();
        let mut above = path.parent();
        while let Some(parent) = above {
            match self.entries.get(&parent) {
                Some(Entry::Directory) => break,
                Some(Entry::File { .. }) => return Err(Conflict::BeneathFile(parent)),
                Some(Entry::Symlink { .. }) => return Err(Conflict::BeneathLink(parent)),
                None => (),
            }
            above = parent.parent();
            implied.push(parent);
        }
        implied.reverse();
        let count = self.entries.len() as u64 + implied.len() as u64 + 1;
        if count > limits.entries {
            return Err(Conflict::TooManyEntries);
        }
        let paths = implied.iter().chain([&path]);
        let added: u64 = paths.map(|path| path.as_bytes().len() as u64).sum();
        let name_bytes = self.name_bytes + added + target_bytes(&entry);
        if name_bytes > limits.name_bytes {
            return Err(Conflict::TooLongNames);
        }
        self.name_bytes = name_bytes;
        for directory in &implied {
            self.entries.insert(directory.clone(), Entry::Directory);
        }
        self.entries.insert(path, entry);
        Ok(Insertion {
            implied,
            replaced: None,
        })
    }
}

fn target_bytes(entry: &Entry) -> u64 {
    match entry {
        Entry::Symlink { target } => target.len() as u64,
        Entry::File { .. } | Entry::Directory => 0,
    }
}

/// Compares two member names, each given as a path and whether it is a directory.
pub(crate) fn archive_order(a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
    let common = a.0.len().min(b.0.len());
    let next = |(path, is_directory): (&[u8], bool)| match path.get(common) {
        Some(byte) => Some(*byte),
        None => is_directory.then_some(b'/'),
    };
    a.0[..common]
        .cmp(&b.0[..common])
        .then_with(|| next(a).cmp(&next(b)))
        .then_with(|| a.0.len().cmp(&b.0.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: TreeLimits = TreeLimits {
        entries: 1000,
        name_bytes: 1 << 20,
    };
    const FILE: Entry = Entry::File {
        executable: false,
        bytes: 1,
    };

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn a_path_implies_its_directories_and_nothing_may_contradict_them() {
        let mut tree = Tree::default();
        let inserted = tree.insert(path("a/b/c"), FILE, ANY).expect("fits");
        assert_eq!(inserted.implied, [path("a"), path("a/b")]);
        let again = tree.insert(path("a"), Entry::Directory, ANY).expect("fits");
        assert_eq!(again.replaced, Some(Entry::Directory));
        assert_eq!(
            tree.insert(path("a/b"), FILE, ANY),
            Err(Conflict::OtherType("a directory"))
        );
        assert_eq!(
            tree.insert(path("a/b/c/d/e"), FILE, ANY),
            Err(Conflict::BeneathFile(path("a/b/c")))
        );
        let link = Entry::Symlink {
            target: b"a".to_vec(),
        };
        tree.insert(path("l"), link, ANY).expect("fits");
        assert_eq!(
            tree.insert(path("l/x"), FILE, ANY),
            Err(Conflict::BeneathLink(path("l")))
        );
        assert_eq!((tree.len(), tree.file_bytes()), (4, 1));
    }

    #[test]
    fn implied_directories_count_and_a_refused_entry_changes_nothing() {
        let mut tree = Tree::default();
        let three = TreeLimits { entries: 3, ..ANY };
        assert_eq!(
            tree.insert(path("a/b/c/d"), FILE, three),
            Err(Conflict::TooManyEntries)
        );
        let short = TreeLimits {
            name_bytes: 8,
            ..ANY
        };
        assert_eq!(
            tree.insert(path("a/b/c"), FILE, short),
            Err(Conflict::TooLongNames)
        );
        assert_eq!(tree, Tree::default());
        tree.insert(path("a/b/c"), FILE, three).expect("fits");
    }

    #[test]
    fn a_directory_sorts_as_if_it_ended_in_a_slash() {
        let mut tree = Tree::default();
        for file in ["a/x", "a-b", "a0", "b", "a/x0", "a/w/z"] {
            tree.insert(path(file), FILE, ANY).expect("fits");
        }
        let names: Vec<String> = tree
            .in_archive_order()
            .iter()
            .map(|(path, _)| path.to_string())
            .collect();
        assert_eq!(
            names,
            ["a-b", "a", "a/w", "a/w/z", "a/x", "a/x0", "a0", "b"]
        );
    }

    proptest! {
        #[test]
        fn archive_order_is_the_order_of_the_written_names(
            a in "[a/+0]{1,6}", b in "[a/+0]{1,6}", da: bool, db: bool
        ) {
            let written = |text: &str, slash: bool| format!("{text}{}", if slash { "/" } else { "" });
            let (wa, wb) = (written(&a, da), written(&b, db));
            prop_assume!(wa != wb);
            prop_assert_eq!(archive_order((a.as_bytes(), da), (b.as_bytes(), db)), wa.cmp(&wb));
        }
    }
}
