//! Lists of entries for messages.

use spec::path::RelPath;

const NAMED_MAX: usize = 100;

/// An entry left out without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutEntry {
    pub path: RelPath,
    /// Such as `a symlink` or `credentials (dotenv)`.
    pub what: String,
}

/// All entries left out without a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first ones.
    pub entries: Vec<LeftOutEntry>,
    pub count: u64,
}

impl LeftOut {
    pub(crate) fn add(&mut self, path: &RelPath, what: &str) {
        self.count += 1;
        if self.entries.len() < NAMED_MAX {
            self.entries.push(LeftOutEntry {
                path: path.clone(),
                what: what.to_owned(),
            });
        }
    }

    /// Names at most `most` entries.
    pub(crate) fn words(&self, most: usize) -> String {
        let named = self.entries.iter().take(most);
        let words: Vec<String> = named
            .map(|entry| format!("`{}`, {}", entry.path, entry.what))
            .collect();
        let more = self.count - words.len() as u64;
        match more {
            0 => words.join("; "),
            more => format!("{}; and {more} more", words.join("; ")),
        }
    }
}

pub(crate) fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

/// Joins at most `most` of `words`.
pub(crate) fn first(words: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = words.len().saturating_sub(most);
    let first = words.take(most).collect::<Vec<_>>().join(", ");
    match more {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
