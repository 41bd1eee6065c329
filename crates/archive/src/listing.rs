//! Serialized form of a tree, stored beside the files: reading it is much faster than walking the
//! directory.
//!
//! For each entry in the tree's own order: `f` (file), `x` (program), `d` or `l`; for files their size (8
//! bytes, little endian); the length of the path (4 bytes) and the path; for links the length of the
//! target and the target.

use std::collections::BTreeMap;

use crate::links;
use crate::tree::{Entry, Tree, TreeLimits};
use spec::path::RelPath;

/// Maximum size of an entry without its path and target.
pub const ENTRY_BYTES_MAX: usize = 1 + 8 + 4 + 4;

/// Serializes `tree`.
pub fn write(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(tree, &mut bytes);
    bytes
}

/// Appends the serialized `tree`. It may take 16 MiB, so `bytes` grows once.
pub fn append(tree: &Tree, bytes: &mut Vec<u8>) {
    let names = usize::try_from(tree.name_bytes()).unwrap_or(0);
    bytes.reserve(names + tree.len() * ENTRY_BYTES_MAX);
    for (path, entry) in tree.iter() {
        bytes.push(match entry {
            Entry::File {
                executable: false, ..
            } => b'f',
            Entry::File {
                executable: true, ..
            } => b'x',
            Entry::Directory => b'd',
            Entry::Symlink { .. } => b'l',
        });
        if let Entry::File { bytes: size, .. } = entry {
            bytes.extend_from_slice(&size.to_le_bytes());
        }
        append_text(bytes, path.as_bytes());
        if let Entry::Symlink { target } = entry {
            append_text(bytes, target);
        }
    }
}

fn append_text(bytes: &mut Vec<u8>, text: &[u8]) {
    // Paths and targets have at most 4,096 bytes.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text);
}

/// Parses the output of `write` from a process without rights: as [`read`], and the tree must be one
/// that an archive within `limits` can have, links included. `None` for other input.
pub fn read_untrusted(mut bytes: &[u8], limits: TreeLimits) -> Option<Tree> {
    let mut tree = Tree::default();
    while !bytes.is_empty() {
        let (path, entry) = read_entry(&mut bytes)?;
        // A parent precedes its children, so an implied parent was not listed.
        let insertion = tree.insert(path, entry, limits).ok()?;
        if !insertion.implied.is_empty() || insertion.replaced.is_some() {
            return None;
        }
    }
    links::check_all(&tree).ok()?;
    Some(tree)
}

/// Parses the output of `write`; `None` for other input.
pub fn read(mut bytes: &[u8]) -> Option<Tree> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        entries.push(read_entry(&mut bytes)?);
    }
    let count = entries.len();
    let entries = BTreeMap::from_iter(entries);
    (entries.len() == count).then(|| Tree::from_entries(entries))
}

fn read_entry(rest: &mut &[u8]) -> Option<(RelPath, Entry)> {
    let (kind, after) = rest.split_first()?;
    *rest = after;
    let mut size = 0;
    if matches!(kind, b'f' | b'x') {
        let (number, after) = rest.split_first_chunk::<8>()?;
        size = u64::from_le_bytes(*number);
        *rest = after;
    }
    let path = RelPath::parse(read_text(rest)?).ok()?;
    let entry = match kind {
        b'f' | b'x' => Entry::File {
            executable: *kind == b'x',
            bytes: size,
        },
        b'd' => Entry::Directory,
        b'l' => Entry::Symlink {
            target: read_text(rest)?.to_vec(),
        },
        _ => return None,
    };
    Some((path, entry))
}

fn read_text<'bytes>(rest: &mut &'bytes [u8]) -> Option<&'bytes [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (text, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpack::UnpackLimits;

    #[test]
    fn a_tree_is_read_back_unchanged_and_a_broken_listing_is_refused() {
        let mut tree = Tree::default();
        let file = |executable, bytes| Entry::File { executable, bytes };
        let link = Entry::Symlink {
            target: b"../a/x".to_vec(),
        };
        for (path, entry) in [
            ("a/x", file(false, 7)),
            ("a/y", file(true, u64::MAX)),
            ("b/link", link),
            ("c", Entry::Directory),
        ] {
            let path = RelPath::parse(path.as_bytes()).expect("a path");
            let limits = UnpackLimits::default().tree_limits();
            tree.insert(path, entry, limits).expect("fits");
        }
        let bytes = write(&tree);
        assert_eq!(read(&bytes).as_ref(), Some(&tree));
        assert_eq!(read(&[]), Some(Tree::default()));
        for cut in 1..bytes.len() {
            assert_ne!(read(&bytes[..cut]).as_ref(), Some(&tree), "{cut}");
        }
        assert_eq!(read(&[&bytes[..], &bytes[..]].concat()), None);
    }

    #[test]
    fn a_list_that_no_archive_can_have_is_refused() {
        let limits = TreeLimits {
            entries: 2,
            name_bytes: 1000,
        };
        let listed = |entries: &[(&[u8], Entry)]| {
            let entries = entries.iter().map(|(path, entry)| {
                let path = RelPath::parse(path).expect("a path");
                (path, entry.clone())
            });
            let tree = Tree::from_entries(entries.collect());
            read_untrusted(&write(&tree), limits)
        };
        let file = || Entry::File {
            executable: false,
            bytes: 1,
        };
        let link = |target: &[u8]| Entry::Symlink {
            target: target.to_vec(),
        };
        let good: [(&[u8], Entry); 2] = [(b"a", file()), (b"b", link(b"a"))];
        assert!(listed(&good).is_some());
        for bad in [
            &[(&b"a/b"[..], file())][..],
            &[(b"a", file()), (b"a/b", file())],
            &[(b"a", link(b"b")), (b"a/b", file())],
            &[(b"a", link(b"/etc"))],
            &[(b"a", link(b"../etc"))],
            &[(b"a", file()), (b"b", file()), (b"c", file())],
        ] {
            assert_eq!(listed(bad), None, "{bad:?}");
        }
    }
}
