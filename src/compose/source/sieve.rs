//! What of a directory becomes a snapshot, and what is left out and why.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::compose::error::SourceProblem;
use crate::compose::files::{FileIdentity, Found, FoundKind, WorkspaceFiles};
use crate::compose::sieve::Sieve;
use crate::compose::source::ignored::{Ignored, Patterns, start_of};
use crate::spec::credential_files::{self, LOOKED_AT_BYTES, Lines};
use crate::spec::path::RelPath;

/// Left out wherever they lie, without a word: databases of version control and of stax.
const NEVER: [&[u8]; 4] = [b".git", b".hg", b".svn", b".stax"];
/// Most entries that are told one by one.
const TOLD_MAX: usize = 100;

/// Something that is left out although nobody asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Where.
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
    fn add(&mut self, path: &RelPath, what: String) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            let path = path.clone();
            self.told.push(LeftOut { path, what });
        }
    }
}

/// What a snapshot is narrowed to.
#[derive(Debug, Clone, Default)]
pub(super) struct Narrowed {
    /// Only these and what is below them; empty: everything.
    pub(super) sparse: Vec<RelPath>,
    /// Directories of submodules that are left out.
    pub(super) submodules: BTreeSet<RelPath>,
    /// Taken although they look like credentials, with what is below them.
    pub(super) include: Vec<RelPath>,
    /// What is being written to.
    pub(super) exclude: Vec<FileIdentity>,
}

/// The sieve of snapshots.
pub(super) struct SnapshotSieve<'files> {
    files: &'files dyn WorkspaceFiles,
    ignored: Ignored<'files>,
    narrowed: Narrowed,
    rules: Vec<CompiledRule>,
    left_out: RefCell<AllLeftOut>,
}

struct CompiledRule {
    id: String,
    patterns: Patterns,
    lines: Option<Lines>,
}

impl<'files> SnapshotSieve<'files> {
    /// A sieve, or what is wrong with the list of credential files.
    pub(super) fn new(
        files: &'files dyn WorkspaceFiles,
        narrowed: Narrowed,
    ) -> Result<Self, String> {
        let rules = credential_files::rules()?.into_iter().map(|rule| {
            let patterns = Patterns::parse(&rule.paths.join("\n"))
                .map_err(|(_, reason)| format!("{}: {reason}", rule.id))?;
            Ok(CompiledRule {
                id: rule.id,
                patterns,
                lines: rule.lines,
            })
        });
        Ok(Self {
            files,
            ignored: Ignored::new(files),
            narrowed,
            rules: rules.collect::<Result<_, String>>()?,
            left_out: RefCell::default(),
        })
    }

    /// What was left out although nobody asked for it.
    pub(super) fn into_left_out(self) -> AllLeftOut {
        self.left_out.into_inner()
    }

    /// Whether somebody asked for this to be left out, or every snapshot leaves it out.
    fn is_unwanted(&self, path: &RelPath, found: &Found) -> bool {
        let is_directory = found.kind == FoundKind::Directory;
        NEVER.contains(&path.file_name())
            || !self.is_in_sparse(path, is_directory)
            || (is_directory && self.narrowed.submodules.contains(path))
            || self.narrowed.exclude.contains(&found.stamp.identity)
            || self.ignored.leaves_out(path, is_directory)
    }

    fn is_in_sparse(&self, path: &RelPath, is_directory: bool) -> bool {
        let sparse = &self.narrowed.sparse;
        sparse.is_empty()
            || sparse
                .iter()
                .any(|one| is_at_or_below(path, one) || (is_directory && is_at_or_below(one, path)))
    }

    /// The rule that calls this a file of credentials.
    fn credential_rule(
        &self,
        path: &RelPath,
        found: &Found,
    ) -> Result<Option<&CompiledRule>, SourceProblem> {
        let include = &self.narrowed.include;
        let is_directory = found.kind == FoundKind::Directory;
        let is_included = include.iter().any(|one| {
            // What lies in a directory can be taken only where the directory is walked.
            is_at_or_below(path, one) || (is_directory && is_at_or_below(one, path))
        });
        if is_included {
            return Ok(None);
        }
        let mut start = None;
        for rule in &self.rules {
            if rule.patterns.say(path.as_bytes(), is_directory) != Some(true) {
                continue;
            }
            let Some(lines) = &rule.lines else {
                return Ok(Some(rule));
            };
            if is_directory {
                continue;
            }
            let start = match &start {
                Some(start) => start,
                None => start.insert(start_of(self.files, path, LOOKED_AT_BYTES as u64)?),
            };
            if lines.are_in(start) {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }
}

impl Sieve for SnapshotSieve<'_> {
    fn enter(&self, directory: Option<&RelPath>) -> Result<(), SourceProblem> {
        self.ignored.enter(directory)
    }

    fn takes(&self, path: &RelPath, found: &Found) -> Result<bool, SourceProblem> {
        if self.is_unwanted(path, found) {
            return Ok(false);
        }
        let what = match found.kind {
            FoundKind::Symlink | FoundKind::Special(_) => Some(found.kind.words().to_owned()),
            FoundKind::File { .. } | FoundKind::Directory => self
                .credential_rule(path, found)?
                .map(|rule| format!("credentials ({})", rule.id)),
        };
        let Some(what) = what else {
            return Ok(true);
        };
        self.left_out.borrow_mut().add(path, what);
        Ok(false)
    }
}

fn is_at_or_below(path: &RelPath, above: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(above.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
