//! What of a directory is taken, and what is left out although nobody named it to be.

use crate::error::SourceProblem;
use crate::files::Found;
use spec::path::RelPath;

/// Most entries that are told one by one.
const TOLD_MAX: usize = 100;

/// Something that is left out although nobody asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub path: RelPath,
    /// What it is: `a symlink`, `credentials (dotenv)`.
    pub what: String,
}

/// All that is left out although nobody asked for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllLeftOut {
    /// The first of them, in the order in which the directory was walked.
    pub told: Vec<LeftOut>,
    /// How many there are.
    pub count: u64,
}

impl AllLeftOut {
    pub(crate) fn add(&mut self, path: &RelPath, what: String) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            let path = path.clone();
            self.told.push(LeftOut { path, what });
        }
    }
}

/// `1 entry`, `7 entries`.
pub(crate) fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

/// The first of them, and how many more there are.
pub(crate) fn told(left_out: &AllLeftOut, most: usize) -> String {
    let told = left_out.told.iter().take(most);
    let words: Vec<String> = told
        .map(|entry| format!("`{}`, {}", entry.path, entry.what))
        .collect();
    let more = left_out.count - words.len() as u64;
    match more {
        0 => words.join("; "),
        more => format!("{}; and {more} more", words.join("; ")),
    }
}

/// Decides what of a tree is taken.
pub(crate) trait Sieve {
    /// Whether what every bundle leaves out is left out besides.
    fn is_of_a_bundle(&self) -> bool {
        false
    }

    /// Called with a file that a source names itself, which is taken.
    ///
    /// # Errors
    /// Where it cannot be looked at.
    fn is_named(&self, _path: &RelPath, _found: &Found) -> Result<(), SourceProblem> {
        Ok(())
    }

    /// Called with each directory (`None`: the top) before it is listed.
    ///
    /// # Errors
    /// Where what it has to say about its files cannot be read.
    fn enter(&self, directory: Option<&RelPath>) -> Result<(), SourceProblem>;

    /// Whether what was found at `path` is taken; nothing below a directory is that is not.
    ///
    /// # Errors
    /// Where that cannot be told.
    fn takes(&self, path: &RelPath, found: &Found) -> Result<bool, SourceProblem>;
}
