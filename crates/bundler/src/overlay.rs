//! Overlay of the files of all sources: the later source wins (AIP-26, "Overlay merge"). No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::files::Stamp;
use archive::Entry;
use spec::path::RelPath;

/// Index of a source in [`crate::Gathered::origins`].
pub type SourceIndex = usize;
/// Index of a root directory; 0 is the workspace.
pub type RootIndex = usize;

/// An entry of the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    File {
        /// Mode 0755 instead of 0644.
        executable: bool,
        bytes: u64,
        contents: Contents,
    },
    Directory,
    Symlink {
        target: Vec<u8>,
    },
}

impl Item {
    pub(crate) fn from_bytes(bytes: Arc<[u8]>) -> Self {
        Self::File {
            executable: false,
            bytes: bytes.len() as u64,
            contents: Contents::Bytes(bytes),
        }
    }

    /// Returns the size of a file, else 0.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Directory | Self::Symlink { .. } => 0,
        }
    }

    /// Returns the entry of the archive.
    #[must_use]
    pub fn entry(&self) -> Entry {
        match self {
            Self::File {
                executable, bytes, ..
            } => Entry::File {
                executable: *executable,
                bytes: *bytes,
            },
            Self::Directory => Entry::Directory,
            Self::Symlink { target } => Entry::Symlink {
                target: target.clone(),
            },
        }
    }
}

/// Where the content of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    Bytes(Arc<[u8]>),
    File {
        root: RootIndex,
        path: RelPath,
        stamp: Stamp,
    },
}

/// An entry and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub item: Item,
    /// The last source that has the entry; for a directory, the first.
    pub source: SourceIndex,
    /// Earlier sources whose entry it replaced, in order.
    pub replaced: Vec<SourceIndex>,
}

/// One source has a directory where another has a file or a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConflict {
    pub path: RelPath,
    /// Kind of the new entry, as in [`Entry::kind`].
    pub kind: &'static str,
    /// Path of the existing entry: `path` or above it.
    pub other_path: RelPath,
    pub other_kind: &'static str,
    pub other_source: SourceIndex,
}

/// The merged files of all sources. Every parent of an entry is a directory entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    entries: BTreeMap<RelPath, Placed>,
}

impl Overlay {
    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entry at `path`.
    #[must_use]
    pub fn get(&self, path: &RelPath) -> Option<&Placed> {
        self.entries.get(path)
    }

    /// Iterates over the files and their sizes, by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&RelPath, u64)> {
        let files = self.entries.iter();
        files.filter_map(|(path, placed)| match placed.item {
            Item::File { bytes, .. } => Some((path, bytes)),
            Item::Directory | Item::Symlink { .. } => None,
        })
    }

    /// Iterates over all entries by path.
    pub fn iter(&self) -> impl Iterator<Item = (&RelPath, &Placed)> {
        self.entries.iter()
    }

    /// Inserts `item` at `path` and creates its parents. It replaces an existing entry, unless only
    /// one of the two is a directory.
    ///
    /// # Errors
    /// [`PathConflict`]; the overlay is unchanged.
    pub fn insert(
        &mut self,
        path: &RelPath,
        item: Item,
        source: SourceIndex,
    ) -> Result<(), PathConflict> {
        let conflict = |item: &Item, other_path: &RelPath, other: &Placed| PathConflict {
            path: path.clone(),
            kind: item.entry().kind(),
            other_path: other_path.clone(),
            other_kind: other.item.entry().kind(),
            other_source: other.source,
        };
        if let Some(existing) = self.entries.get_mut(path) {
            return match (&item, &existing.item) {
                (Item::Directory, Item::Directory) => Ok(()),
                (Item::Directory, _) | (_, Item::Directory) => Err(conflict(&item, path, existing)),
                _ => {
                    existing.replaced.push(existing.source);
                    existing.item = item;
                    existing.source = source;
                    Ok(())
                }
            };
        }
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(parent) = above {
            match self.entries.get(&parent) {
                None => (),
                Some(placed) if placed.item == Item::Directory => break,
                Some(placed) => return Err(conflict(&item, &parent, placed)),
            }
            above = parent.parent();
            missing.push(parent);
        }
        for (path, item) in missing
            .into_iter()
            .map(|parent| (parent, Item::Directory))
            .chain([(path.clone(), item)])
        {
            let placed = Placed {
                item,
                source,
                replaced: Vec::new(),
            };
            self.entries.insert(path, placed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn file(text: &str) -> Item {
        Item::from_bytes(text.as_bytes().into())
    }

    fn link(target: &str) -> Item {
        Item::Symlink {
            target: target.as_bytes().to_vec(),
        }
    }

    #[test]
    fn the_later_source_wins_and_replaced_entries_are_known() {
        let mut overlay = Overlay::default();
        for (at, item, source) in [
            ("tool.ts", file("base"), 0),
            ("lib/a.ts", file("base"), 0),
            ("tool.ts", file("team"), 1),
            ("tool.ts", link("lib/a.ts"), 2),
            ("tool.ts", file("mine"), 3),
            ("lib/b.ts", file("mine"), 3),
        ] {
            overlay.insert(&path(at), item, source).expect("fits");
        }
        let tool = overlay.get(&path("tool.ts")).expect("there");
        assert_eq!((tool.source, &tool.replaced[..]), (3, &[0, 1, 2][..]));
        assert_eq!(tool.item, file("mine"));
        let lib = overlay.get(&path("lib")).expect("implied");
        assert_eq!((lib.source, &lib.item), (0, &Item::Directory));
        assert_eq!(overlay.len(), 4);
    }

    #[test]
    fn a_file_and_a_directory_of_one_name_are_refused_with_both_sources() {
        for (first, then, at) in [
            (("a", file("")), ("a/b", file("")), "a"),
            (("a/b", file("")), ("a", file("")), "a"),
            (("a", Item::Directory), ("a", file("")), "a"),
            (("a", file("")), ("a", Item::Directory), "a"),
            (("a", link("b")), ("a/b", file("")), "a"),
            (("a/b/c", file("")), ("a/b", link("c")), "a/b"),
            (("a/b", file("")), ("a/b/c/d", Item::Directory), "a/b"),
        ] {
            let mut overlay = Overlay::default();
            overlay.insert(&path(first.0), first.1, 7).expect("fits");
            let before = overlay.clone();
            let conflict = overlay
                .insert(&path(then.0), then.1.clone(), 8)
                .expect_err("a conflict");
            assert_eq!(conflict.other_path, path(at), "{} {}", first.0, then.0);
            assert_eq!((conflict.other_source, conflict.path), (7, path(then.0)));
            assert_eq!(conflict.kind, then.1.entry().kind());
            assert_eq!(overlay, before, "unchanged");
        }
    }

    #[test]
    fn names_that_look_alike_are_different_names() {
        let mut overlay = Overlay::default();
        let names: [&[u8]; 6] = [b"A", b"a", b"\xc3\xa9", b"e\xcc\x81", b"\xe9", b"a "];
        for name in names {
            let name = RelPath::parse(name).expect("a path");
            overlay.insert(&name, file("x"), 0).expect("fits");
        }
        assert_eq!(overlay.len(), names.len());
    }

    fn items() -> impl Strategy<Value = Vec<(String, u8)>> {
        proptest::collection::vec(("[ab](/[ab]){0,2}", 0_u8..3), 0..24)
    }

    proptest! {
        /// For any items in any order: each path has the last accepted item, and every parent is a
        /// directory.
        #[test]
        fn the_last_accepted_item_is_at_its_path(items in items()) {
            let mut overlay = Overlay::default();
            let mut last = BTreeMap::new();
            for (source, (at, kind)) in items.iter().enumerate() {
                let item = match kind {
                    0 => file(&source.to_string()),
                    1 => link(&source.to_string()),
                    _ => Item::Directory,
                };
                if overlay.insert(&path(at), item.clone(), source).is_ok() {
                    last.insert(path(at), item);
                }
            }
            for (at, placed) in overlay.iter() {
                if let Some(item) = last.get(at) {
                    prop_assert_eq!(&placed.item, item);
                } else {
                    prop_assert_eq!(&placed.item, &Item::Directory);
                }
                if let Some(parent) = at.parent() {
                    let above = overlay.get(&parent).map(|placed| &placed.item);
                    prop_assert_eq!(above, Some(&Item::Directory));
                }
                prop_assert!(placed.replaced.iter().all(|earlier| *earlier < placed.source));
            }
            prop_assert!(last.keys().all(|at| overlay.get(at).is_some()));
        }

        /// The files of one source may be inserted in any order.
        #[test]
        fn the_order_within_a_source_does_not_matter(
            names in proptest::collection::btree_set("[ab](/[cd]){0,2}", 0..12),
            seed in any::<u64>(),
        ) {
            let mut forward = Overlay::default();
            let mut shuffled: Vec<&String> = names
                .iter()
                .filter(|name| forward.insert(&path(name), file(name), 0).is_ok())
                .collect();
            let mut state = seed | 1;
            for end in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(state >> 33).expect("small") % (end + 1);
                shuffled.swap(end, at);
            }
            let mut backward = Overlay::default();
            for name in shuffled {
                backward.insert(&path(name), file(name), 0).expect("fits in any order");
            }
            prop_assert_eq!(forward, backward);
        }
    }
}
