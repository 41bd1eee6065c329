//! Selects the workspace files of a bundle.
//!
//! A manifest's own folder is a working tree that may contain credentials and ignored files, so
//! both are left out. For folders that a source names, only `.bundleignore` applies, and
//! credentials cause a warning.

use std::cell::RefCell;

use crate::credentials::CredentialRules;
use crate::error::BundleError;
use crate::files::{DirectoryFiles, Found, FoundKind};
use crate::filter::{FileFilter, LeftOut, entries};
use crate::ignored::Ignored;
use spec::path::RelPath;
use spec::report::WarningReport;

const NAMES_MAX: usize = 100;

pub(crate) struct BundleFilter<'files> {
    files: &'files DirectoryFiles,
    /// `None` for folders that a source names.
    by_git: Option<Ignored<'files>>,
    by_bundle: Ignored<'files>,
    credentials: CredentialRules,
    ignored: RefCell<LeftOut>,
    suspects: RefCell<LeftOut>,
}

impl<'files> BundleFilter<'files> {
    /// `is_own_folder`: a manifest's own folder, not a folder that a source names.
    pub(crate) fn new(
        files: &'files DirectoryFiles,
        is_own_folder: bool,
    ) -> Result<Self, BundleError> {
        Ok(Self {
            files,
            by_git: is_own_folder.then(|| Ignored::new(files, b".gitignore")),
            by_bundle: Ignored::new(files, b".bundleignore"),
            credentials: CredentialRules::new()?,
            ignored: RefCell::default(),
            suspects: RefCell::default(),
        })
    }

    pub(crate) fn warnings(&self) -> Vec<WarningReport> {
        let ignored = self.ignored.borrow();
        let suspects = self.suspects.borrow();
        let count = entries(suspects.count);
        let names = suspects.words(NAMES_MAX);
        let mut warnings = Vec::new();
        if ignored.count > 0 {
            warnings.push(WarningReport::new(
                "bundle_ignored",
                format!(
                    "left out: {}; `!NAME` in .bundleignore takes one all the same",
                    ignored.words(NAMES_MAX)
                ),
            ));
        }
        if suspects.count > 0 && self.by_git.is_some() {
            warnings.push(WarningReport::new(
                "bundle_credentials_left_out",
                format!(
                    "left out since it looks like credentials, {count}: {names}; `!NAME` in \
                     .bundleignore takes one all the same"
                ),
            ));
        } else if suspects.count > 0 {
            warnings.push(WarningReport::new(
                "bundle_credentials",
                format!(
                    "in the bundle, and looks like credentials, {count}: {names}; NAME in \
                     .bundleignore leaves one out of the folders that sources name"
                ),
            ));
        }
        warnings
    }

    fn suspects(&self, path: &RelPath, found: &Found) -> Result<bool, BundleError> {
        let is_directory = match found.kind {
            FoundKind::Directory => true,
            FoundKind::File { .. } => false,
            FoundKind::Symlink | FoundKind::Special(_) => return Ok(false),
        };
        let rule = self.credentials.find(self.files, path, is_directory)?;
        if let Some(rule) = rule {
            self.suspects.borrow_mut().add(path, rule);
        }
        Ok(rule.is_some())
    }
}

impl FileFilter for BundleFilter<'_> {
    fn is_of_a_bundle(&self) -> bool {
        true
    }

    fn enter(&self, directory: Option<&RelPath>) -> Result<(), BundleError> {
        if let Some(by_git) = &self.by_git {
            by_git.enter(directory)?;
        }
        self.by_bundle.enter(directory)
    }

    fn takes(&self, path: &RelPath, found: &Found) -> Result<bool, BundleError> {
        let is_directory = found.kind == FoundKind::Directory;
        let wanted = self.by_bundle.decide(path, is_directory);
        let by_git = self.by_git.as_ref();
        let by = match wanted {
            Some(true) => Some(".bundleignore"),
            Some(false) => None,
            None => by_git
                .filter(|git| git.decide(path, is_directory) == Some(true))
                .map(|_| ".gitignore"),
        };
        if let Some(by) = by {
            self.ignored.borrow_mut().add(path, by);
            return Ok(false);
        }
        // A file that the source lists by name is intended.
        let is_suspect = wanted.is_none() && self.suspects(path, found)?;
        Ok(!is_suspect || by_git.is_none())
    }

    fn is_named(&self, path: &RelPath, found: &Found) -> Result<(), BundleError> {
        self.suspects(path, found).map(|_| ())
    }
}
