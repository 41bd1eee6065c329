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
use crate::left_out::LeftOut;
use crate::matching::{Matching, Verdict};
use spec::path::RelPath;
use spec::report::WarningReport;
use spec::units::count;

const NAMES_MAX: usize = 100;
const BUNDLE_IGNORE: &str = ".bundleignore";
/// Left out of snapshots without a report: databases of version control and of stax.
const SNAPSHOT_EXCLUDES: [&[u8]; 4] = [b".git", b".hg", b".svn", b".stax"];

/// What the files are selected for.
pub(crate) enum Purpose {
    /// A bundle of the manifest's own folder.
    OwnFolder,
    /// A bundle of a folder that a source names.
    NamedFolder,
    Snapshot(SnapshotSelection),
}

/// The part of a directory that a snapshot is made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotSelection {
    /// Only these paths and those below; empty for all.
    pub(crate) sparse: Vec<RelPath>,
    /// Excluded.
    pub(crate) submodules: BTreeSet<RelPath>,
    /// Included with their contents, even if they look like credentials.
    pub(crate) include: Vec<RelPath>,
    pub(crate) exclude: Vec<FileIdentity>,
}

pub(crate) struct FileFilter {
    purpose: Purpose,
    /// The first one with a matching pattern decides.
    ignore_files: Vec<IgnoreFiles>,
    credentials: CredentialRules,
    /// Excluded by an ignore file.
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
            ignore_files: names
                .iter()
                .enumerate()
                .map(|(kind, name)| IgnoreFiles::new(kind, name))
                .collect(),
            credentials: CredentialRules::new()?,
            ignored: LeftOut::default(),
            suspects: LeftOut::default(),
        })
    }

    /// Whether the general exclusions of bundles apply too.
    pub(crate) fn is_for_bundle(&self) -> bool {
        !matches!(self.purpose, Purpose::Snapshot(_))
    }

    /// Reads the ignore files of a directory (`None`: the root) before it is listed.
    pub(crate) fn read_ignore_files(
        &mut self,
        files: &DirectoryFiles,
        directory: Option<&RelPath>,
        matching: &mut Matching,
    ) -> Result<(), BundleError> {
        let mut ignore_files = self.ignore_files.iter_mut();
        ignore_files.try_for_each(|ignore_files| ignore_files.read(files, directory, matching))
    }

    /// Whether the entry at `path` is included; an excluded directory is not listed.
    pub(crate) fn includes(
        &mut self,
        files: &DirectoryFiles,
        path: &RelPath,
        found: &Found,
        verdict: Verdict,
    ) -> Result<bool, BundleError> {
        if let Purpose::Snapshot(selection) = &self.purpose
            && (SNAPSHOT_EXCLUDES.contains(&path.file_name()) || !selection.contains(path, found))
        {
            return Ok(false);
        }
        let decision = verdict.decision(found.kind == FoundKind::Directory);
        let decision = decision
            .and_then(|(kind, is_ignored)| Some((self.ignore_files.get(kind)?.name, is_ignored)));
        match decision {
            Some((name, true)) => {
                self.ignored.add(path, name);
                Ok(false)
            }
            // `!NAME` includes possible credentials too.
            Some((BUNDLE_IGNORE, false)) => Ok(true),
            Some((_, false)) | None => {
                let is_suspect = self.record_suspect(files, path, found)?;
                Ok(!is_suspect || matches!(self.purpose, Purpose::NamedFolder))
            }
        }
    }

    /// Records an entry that looks like credentials, or that a snapshot cannot contain. Returns whether
    /// it is one.
    pub(crate) fn record_suspect(
        &mut self,
        files: &DirectoryFiles,
        path: &RelPath,
        found: &Found,
    ) -> Result<bool, BundleError> {
        let is_directory = found.kind == FoundKind::Directory;
        let what = match (&self.purpose, found.kind) {
            (Purpose::Snapshot(_), FoundKind::Symlink | FoundKind::Special(_)) => {
                Some(found.kind.name().to_owned())
            }
            (_, FoundKind::Symlink | FoundKind::Special(_)) => None,
            (Purpose::Snapshot(selection), _) => {
                let rule = if selection.includes_credentials(path, is_directory) {
                    None
                } else {
                    self.credentials.find_rule(files, path, is_directory)?
                };
                rule.map(|rule| format!("credentials ({rule})"))
            }
            _ => {
                let rule = self.credentials.find_rule(files, path, is_directory)?;
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
        let count = count(self.suspects.count, "entry");
        let names = self.suspects.describe(NAMES_MAX);
        let mut warnings = Vec::new();
        if self.ignored.count > 0 {
            let ignored = self.ignored.describe(NAMES_MAX);
            warnings.push(WarningReport::new(
                "bundle_ignored",
                format!("left out: {ignored}; `!NAME` in .bundleignore includes an entry"),
            ));
        }
        if self.suspects.count == 0 {
            return warnings;
        }
        warnings.push(match self.purpose {
            Purpose::OwnFolder => WarningReport::new(
                "bundle_credentials_left_out",
                format!(
                    "left out as possible credentials, {count}: {names}; `!NAME` in .bundleignore \
                     includes an entry"
                ),
            ),
            _ => WarningReport::new(
                "bundle_credentials",
                format!(
                    "the bundle has possible credentials, {count}: {names}; NAME in .bundleignore \
                     excludes an entry from the folders that sources name"
                ),
            ),
        });
        warnings
    }
}

impl SnapshotSelection {
    fn contains(&self, path: &RelPath, found: &Found) -> bool {
        let is_directory = found.kind == FoundKind::Directory;
        (self.sparse.is_empty() || matches_any(&self.sparse, path, is_directory))
            && !(is_directory && self.submodules.contains(path))
            && !self.exclude.contains(&found.stamp.identity)
    }

    fn includes_credentials(&self, path: &RelPath, is_directory: bool) -> bool {
        matches_any(&self.include, path, is_directory)
    }
}

/// Whether `path` is in `list` or below a path of it, or is a directory above one, which must be listed.
fn matches_any(list: &[RelPath], path: &RelPath, is_directory: bool) -> bool {
    list.iter().any(|listed| {
        is_at_or_below(path, listed) || (is_directory && is_at_or_below(listed, path))
    })
}

pub(crate) fn is_at_or_below(path: &RelPath, above: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(above.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
