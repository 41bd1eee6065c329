//! Selects the files of a snapshot.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::credentials::CredentialRules;
use crate::error::BundleError;
use crate::files::{DirectoryFiles, FileIdentity, Found, FoundKind};
use crate::filter::{FileFilter, LeftOut};
use crate::ignored::Ignored;
use spec::path::RelPath;

/// Always left out without a report: databases of version control and of stax.
const NEVER: [&[u8]; 4] = [b".git", b".hg", b".svn", b".stax"];

#[derive(Debug, Clone, Default)]
pub(super) struct Narrowed {
    /// Only these paths and those below; empty for all.
    pub(super) sparse: Vec<RelPath>,
    pub(super) submodules: BTreeSet<RelPath>,
    /// Included with their content although they look like credentials.
    pub(super) include: Vec<RelPath>,
    pub(super) exclude: Vec<FileIdentity>,
}

pub(super) struct SnapshotFilter<'files> {
    files: &'files DirectoryFiles,
    ignored: Ignored<'files>,
    narrowed: Narrowed,
    credentials: CredentialRules,
    left_out: RefCell<LeftOut>,
}

impl<'files> SnapshotFilter<'files> {
    pub(super) fn new(
        files: &'files DirectoryFiles,
        narrowed: Narrowed,
    ) -> Result<Self, BundleError> {
        Ok(Self {
            files,
            ignored: Ignored::new(files, b".staxignore"),
            narrowed,
            credentials: CredentialRules::new()?,
            left_out: RefCell::default(),
        })
    }

    pub(super) fn into_left_out(self) -> LeftOut {
        self.left_out.into_inner()
    }

    fn is_unwanted(&self, path: &RelPath, found: &Found) -> bool {
        let is_directory = found.kind == FoundKind::Directory;
        NEVER.contains(&path.file_name())
            || !self.is_in_sparse(path, is_directory)
            || (is_directory && self.narrowed.submodules.contains(path))
            || self.narrowed.exclude.contains(&found.stamp.identity)
            || self.ignored.decide(path, is_directory) == Some(true)
    }

    fn is_in_sparse(&self, path: &RelPath, is_directory: bool) -> bool {
        let sparse = &self.narrowed.sparse;
        sparse.is_empty()
            || sparse
                .iter()
                .any(|one| is_at_or_below(path, one) || (is_directory && is_at_or_below(one, path)))
    }

    fn credential_rule(&self, path: &RelPath, found: &Found) -> Result<Option<&str>, BundleError> {
        let include = &self.narrowed.include;
        let is_directory = found.kind == FoundKind::Directory;
        let is_included = include.iter().any(|one| {
            // The parents of an included path must be walked too.
            is_at_or_below(path, one) || (is_directory && is_at_or_below(one, path))
        });
        if is_included {
            return Ok(None);
        }
        self.credentials.find(self.files, path, is_directory)
    }
}

impl FileFilter for SnapshotFilter<'_> {
    fn enter(&self, directory: Option<&RelPath>) -> Result<(), BundleError> {
        self.ignored.enter(directory)
    }

    fn takes(&self, path: &RelPath, found: &Found) -> Result<bool, BundleError> {
        if self.is_unwanted(path, found) {
            return Ok(false);
        }
        let what = match found.kind {
            FoundKind::Symlink | FoundKind::Special(_) => Some(found.kind.words().to_owned()),
            FoundKind::File { .. } | FoundKind::Directory => self
                .credential_rule(path, found)?
                .map(|rule| format!("credentials ({rule})")),
        };
        let Some(what) = what else {
            return Ok(true);
        };
        self.left_out.borrow_mut().add(path, &what);
        Ok(false)
    }
}

fn is_at_or_below(path: &RelPath, above: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(above.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
