//! Selection of files: the trait, and the list of left-out entries.

use crate::error::SourceProblem;
use crate::files::Found;
use spec::path::RelPath;

const TOLD_MAX: usize = 100;

/// An entry left out without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub path: RelPath,
    /// Such as `a symlink` or `credentials (dotenv)`.
    pub what: String,
}

/// All entries left out without a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllLeftOut {
    pub told: Vec<LeftOut>,
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

pub(crate) fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

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

pub(crate) trait FileFilter {
    /// Whether the general exclusions of bundles apply too.
    fn is_of_a_bundle(&self) -> bool {
        false
    }

    /// Called for a file that a source lists by name, which is included.
    ///
    /// # Errors
    /// The file cannot be inspected.
    fn is_named(&self, _path: &RelPath, _found: &Found) -> Result<(), SourceProblem> {
        Ok(())
    }

    /// Called for each directory (`None`: the root) before it is listed.
    ///
    /// # Errors
    /// An ignore file cannot be read.
    fn enter(&self, directory: Option<&RelPath>) -> Result<(), SourceProblem>;

    /// Whether the entry at `path` is included; an excluded directory is not listed.
    ///
    /// # Errors
    /// The decision is not possible.
    fn takes(&self, path: &RelPath, found: &Found) -> Result<bool, SourceProblem>;
}
