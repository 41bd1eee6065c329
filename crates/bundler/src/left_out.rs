//! Lists of entries in messages.

use spec::path::RelPath;

const ENTRIES_MAX: usize = 100;

/// An entry that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutEntry {
    pub path: RelPath,
    /// Such as `a symlink` or `credentials (dotenv)`.
    pub what: String,
}

/// Entries that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first 100.
    pub entries: Vec<LeftOutEntry>,
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

pub(crate) fn count_entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
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
