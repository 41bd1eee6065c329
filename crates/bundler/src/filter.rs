//! Selects the files of a source.
//!
//! A manifest's own folder is a working tree that may contain credentials and ignored files, so
//! both are left out. For folders that a source names, only `.bundleignore` applies, and
//! credentials cause a warning. A snapshot has neither links nor credentials.

use std::collections::BTreeSet;

use crate::credentials::CredentialRules;
use crate::error::BundleError;
use crate::files::{DirectoryFiles, FileIdentity, Found, FoundKind};
use crate::ignored::IgnoreFiles;
use crate::left_out::{LeftOut, entries};
use spec::path::RelPath;
use spec::report::WarningReport;

const NAMES_MAX: usize = 100;
const BUNDLE_IGNORE: &str = ".bundleignore";
/// Left out of snapshots without a report: databases of version control and of stax.
const NEVER: [&[u8]; 4] = [b".git", b".hg", b".svn", b".stax"];

/// What the files are for.
pub(crate) enum Purpose {
    /// A bundle of the manifest's own folder.
    OwnFolder,
    /// A bundle of a folder that a source names.
    NamedFolder,
    Snapshot(Narrowed),
}

/// The part of a directory that a snapshot is made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Narrowed {
    /// Only these paths and those below; empty for all.
    pub(crate) sparse: Vec<RelPath>,
    pub(crate) submodules: BTreeSet<RelPath>,
    /// Included with their content although they look like credentials.
    pub(crate) include: Vec<RelPath>,
    pub(crate) exclude: Vec<FileIdentity>,
}

pub(crate) struct FileFilter {
    purpose: Purpose,
    /// The first one with a matching pattern decides.
    ignore_files: Vec<IgnoreFiles>,
    credentials: CredentialRules,
    /// Named by an ignore file.
    ignored: LeftOut,
    /// Possible credentials, and files that a snapshot cannot contain.
    pub(crate) suspects: LeftOut,
}

impl FileFilter {
    pub(crate) fn new(purpose: Purpose) -> Result<Self, BundleError> {
        let names = match purpose {
            Purpose::OwnFolder => &[BUNDLE_IGNORE, ".gitignore"][..],
            Purpose::NamedFolder => &[BUNDLE_IGNORE],
            Purpose::Snapshot(_) => &[".staxignore"],
        };
        Ok(Self {
            purpose,
            ignore_files: names.iter().copied().map(IgnoreFiles::new).collect(),
            credentials: CredentialRules::new()?,
            ignored: LeftOut::default(),
            suspects: LeftOut::default(),
        })
    }

    /// Whether the general exclusions of bundles apply too.
    pub(crate) fn is_of_a_bundle(&self) -> bool {
        !matches!(self.purpose, Purpose::Snapshot(_))
    }

    /// Reads the ignore files of a directory (`None`: the root) before it is listed.
    pub(crate) fn enter(
        &mut self,
        files: &DirectoryFiles,
        directory: Option<&RelPath>,
    ) -> Result<(), BundleError> {
        let mut ignore_files = self.ignore_files.iter_mut();
        ignore_files.try_for_each(|ignore_files| ignore_files.read(files, directory))
    }

    /// Whether the entry at `path` is included; an excluded directory is not listed.
    pub(crate) fn takes(
        &mut self,
        files: &DirectoryFiles,
        path: &RelPath,
        found: &Found,
    ) -> Result<bool, BundleError> {
        if let Purpose::Snapshot(narrowed) = &self.purpose
            && (NEVER.contains(&path.file_name()) || !narrowed.has(path, found))
        {
            return Ok(false);
        }
        let is_directory = found.kind == FoundKind::Directory;
        let mut ignore_files = self.ignore_files.iter();
        let decided = ignore_files
            .find_map(|names| Some((names.name, names.is_ignored(path, is_directory)?)));
        match decided {
            Some((by, true)) => {
                self.ignored.add(path, by);
                Ok(false)
            }
            // `!NAME`: intended, also if it looks like credentials.
            Some((BUNDLE_IGNORE, false)) => Ok(true),
            Some((_, false)) | None => {
                let is_suspect = self.find_suspect(files, path, found)?;
                Ok(!is_suspect || matches!(self.purpose, Purpose::NamedFolder))
            }
        }
    }

    /// Records an entry that looks like credentials, or that a snapshot cannot have.
    pub(crate) fn find_suspect(
        &mut self,
        files: &DirectoryFiles,
        path: &RelPath,
        found: &Found,
    ) -> Result<bool, BundleError> {
        let is_directory = found.kind == FoundKind::Directory;
        let what = match (&self.purpose, found.kind) {
            (Purpose::Snapshot(_), FoundKind::Symlink | FoundKind::Special(_)) => {
                Some(found.kind.words().to_owned())
            }
            (_, FoundKind::Symlink | FoundKind::Special(_)) => None,
            (Purpose::Snapshot(narrowed), _) => {
                let rule = match narrowed.is_included(path, is_directory) {
                    true => None,
                    false => self.credentials.find(files, path, is_directory)?,
                };
                rule.map(|rule| format!("credentials ({rule})"))
            }
            _ => {
                let rule = self.credentials.find(files, path, is_directory)?;
                rule.map(str::to_owned)
            }
        };
        if let Some(what) = &what {
            self.suspects.add(path, what);
        }
        Ok(what.is_some())
    }

    /// Returns the warnings of a bundle.
    pub(crate) fn warnings(&self) -> Vec<WarningReport> {
        let count = entries(self.suspects.count);
        let names = self.suspects.words(NAMES_MAX);
        let mut warnings = Vec::new();
        if self.ignored.count > 0 {
            let ignored = self.ignored.words(NAMES_MAX);
            warnings.push(WarningReport::new(
                "bundle_ignored",
                format!("left out: {ignored}; `!NAME` in .bundleignore takes one all the same"),
            ));
        }
        if self.suspects.count == 0 {
            return warnings;
        }
        warnings.push(match self.purpose {
            Purpose::OwnFolder => WarningReport::new(
                "bundle_credentials_left_out",
                format!(
                    "left out since it looks like credentials, {count}: {names}; `!NAME` in \
                     .bundleignore takes one all the same"
                ),
            ),
            _ => WarningReport::new(
                "bundle_credentials",
                format!(
                    "in the bundle, and looks like credentials, {count}: {names}; NAME in \
                     .bundleignore leaves one out of the folders that sources name"
                ),
            ),
        });
        warnings
    }
}

impl Narrowed {
    fn has(&self, path: &RelPath, found: &Found) -> bool {
        let is_directory = found.kind == FoundKind::Directory;
        (self.sparse.is_empty() || is_on_the_way(&self.sparse, path, is_directory))
            && !(is_directory && self.submodules.contains(path))
            && !self.exclude.contains(&found.stamp.identity)
    }

    fn is_included(&self, path: &RelPath, is_directory: bool) -> bool {
        is_on_the_way(&self.include, path, is_directory)
    }
}

/// Whether `path` is one of `list` or below one, or a parent of one, which must be walked too.
fn is_on_the_way(list: &[RelPath], path: &RelPath, is_directory: bool) -> bool {
    list.iter()
        .any(|one| is_at_or_below(path, one) || (is_directory && is_at_or_below(one, path)))
}

pub(crate) fn is_at_or_below(path: &RelPath, above: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(above.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
