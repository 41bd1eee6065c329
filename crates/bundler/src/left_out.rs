//! Entries that a bundle leaves out, and how messages list entries.

use spec::path::RelPath;

const ENTRIES_MAX: usize = 100;

/// An entry of a source that is not in the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutEntry {
    pub path: RelPath,
    /// What it is, such as `a symlink` or `credentials (dotenv)`.
    pub what: String,
}

/// The entries of all sources that are not in the bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first 100.
    pub entries: Vec<LeftOutEntry>,
    /// All of them.
    pub count: u64,
}

impl LeftOut {
    pub(crate) fn add(&mut self, path: &RelPath, what: &str) {
        self.count += 1;
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(LeftOutEntry {
                path: path.clone(),
                what: what.to_owned(),
            });
        }
    }

    /// Lists at most `max` entries.
    pub(crate) fn describe(&self, max: usize) -> String {
        let entries = self.entries.iter().take(max);
        let words: Vec<String> = entries
            .map(|entry| format!("`{}`, {}", entry.path, entry.what))
            .collect();
        match self.count - words.len() as u64 {
            0 => words.join("; "),
            more => format!("{}; and {more} more", words.join("; ")),
        }
    }
}

/// Joins at most `max` of `words`.
pub(crate) fn join_first(words: impl ExactSizeIterator<Item = String>, max: usize) -> String {
    let more = words.len().saturating_sub(max);
    let first = words.take(max).collect::<Vec<_>>().join(", ");
    match more {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
