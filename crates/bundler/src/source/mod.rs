//! Builds a source artifact from a directory or git checkout (stax, workspace sources).
//!
//! [`SourceDirectory::gather`] lists the files and their origin, [`Snapshot::write`] reads each
//! once and writes the layer, and [`documents`] describes the result.
//!
//! An artifact depends only on the files, the facts of git and the request: not on clock, umask,
//! uid, directory order, locale or host paths.

mod artifact;
mod git;
mod warnings;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

pub use crate::left_out::{LeftOut, LeftOutEntry};
pub use artifact::{ArtifactDocuments, documents};
pub use git::CheckoutAnswer;

use crate::error::BundleError;
use crate::files::{DirectoryFiles, FileIdentity};
use crate::filter::{FileFilter, Purpose, SnapshotSelection, is_at_or_below};
use crate::gather::Gathered;
use crate::gathered::Gathering;
use crate::origin::{SourceKind, SourceOrigin};
use crate::source::git::{GitAnswer, GitFacts, GitTexts};
use crate::walk::{Links, Walk};
use crate::write::{WrittenBundle, write};
use spec::host_policy::UnpackCaps;
use spec::oci::source_config::{
    CONFIG_BYTES_MAX, DESCRIPTION_BYTES_MAX, SnapshotFacts, SourceConfig, SourceType, Submodules,
    is_name, is_version,
};
use spec::path::{RelPath, escape_path};
use spec::report::WarningReport;
use spec::tokens::iso_date;
use sys::file::CallError;

const SHORT_COMMIT_DIGITS: usize = 7;
/// End of the year 9999, the last time with an RFC 3339 form.
const LAST_S: i64 = 253_402_300_799;

/// Inputs of a build.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest<'call> {
    /// `None`: the name of the directory.
    pub name: Option<&'call str>,
    /// `None`: derived from the commit.
    pub version: Option<&'call str>,
    pub description: Option<&'call str>,
    /// Only these paths and those below; empty for all.
    pub sparse: Vec<RelPath>,
    pub submodules: bool,
    pub include: Vec<RelPath>,
    /// Fails if an entry is left out that no ignore file excludes.
    pub strict: bool,
    pub no_git: bool,
    /// In seconds since 1970; `None`: the commit time.
    pub created_s: Option<i64>,
    pub exclude: Vec<FileIdentity>,
}

/// Settings of the host.
#[derive(Debug, Clone, Copy)]
pub struct BuildHost<'call> {
    pub caps: UnpackCaps,
    pub path: &'call [u8],
    /// For the git directory of a checkout: a path that does not exist. It is removed at the end.
    pub git_directory: &'call Path,
    /// Repositories of this user are trusted, besides those of the directory's owner.
    pub caller_uid: u32,
}

/// A directory that becomes a snapshot.
#[derive(Debug)]
pub struct SourceDirectory {
    shown: String,
    path: PathBuf,
    files: DirectoryFiles,
}

/// A gathered snapshot, not yet written.
#[derive(Debug)]
pub struct Snapshot<'files> {
    pub config: SourceConfig,
    pub created_s: i64,
    /// Possible credentials, and entries of types that a snapshot cannot contain.
    pub left_out: LeftOut,
    pub warnings: Vec<WarningReport>,
    files: &'files DirectoryFiles,
    gathered: Gathered,
}

impl SourceDirectory {
    /// Opens the directory.
    ///
    /// # Errors
    /// [`BundleError::SourceDirectory`].
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        let shown = escape_path(path);
        let failed = |source| BundleError::SourceDirectory {
            directory: shown.clone(),
            source,
        };
        let files = DirectoryFiles::open_root(path).map_err(failed)?;
        let real = std::fs::canonicalize(path).map_err(|error| {
            let errno = sys::file::errno_of(&error);
            failed(CallError::new("realpath", shown.clone(), errno))
        })?;
        Ok(Self {
            files,
            path: real,
            shown,
        })
    }

    /// Lists the content of the snapshot. Reads only `.staxignore` and possible credentials.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn gather(
        &self,
        request: &BuildRequest<'_>,
        host: &BuildHost<'_>,
    ) -> Result<Snapshot<'_>, BundleError> {
        self.check_paths(request)?;
        let mut texts = GitTexts::default();
        let GitAnswer {
            mut facts,
            distrust,
        } = if request.no_git {
            GitAnswer::default()
        } else {
            git::facts(&self.path, host, &mut texts)?
        };
        if request.submodules && facts.is_none() {
            return Err(BundleError::NoSubmodules {
                directory: self.shown.clone(),
            });
        }
        if let Some(facts) = facts.as_mut().filter(|_| request.submodules) {
            git::add_submodules(facts, &self.path, host, &mut texts)?;
        }
        let (gathered, left_out) = self.select(request, host.caps, facts.as_ref())?;
        if request.strict && left_out.count > 0 {
            return Err(BundleError::Strict(left_out));
        }
        self.check_sparse(request, &gathered)?;
        let untracked = facts
            .as_ref()
            .map_or_else(Vec::new, |facts| untracked(facts, &gathered));
        let config = self.config(request, facts.as_ref(), &gathered, &untracked)?;
        let warnings = warnings::Facts {
            distrust: distrust.as_deref(),
            git: facts.as_ref(),
            untracked: &untracked,
            submodules_included: request.submodules,
            left_out: &left_out,
        }
        .warnings(&gathered);
        Ok(Snapshot {
            config,
            created_s: created_s(request, facts.as_ref()),
            left_out,
            warnings,
            files: &self.files,
            gathered,
        })
    }

    fn select(
        &self,
        request: &BuildRequest<'_>,
        caps: UnpackCaps,
        facts: Option<&GitFacts>,
    ) -> Result<(Gathered, LeftOut), BundleError> {
        let submodules = match facts {
            Some(facts) if !request.submodules => facts.submodules.keys().cloned().collect(),
            _ => BTreeSet::new(),
        };
        let selection = SnapshotSelection {
            sparse: request.sparse.clone(),
            submodules,
            include: request.include.clone(),
            exclude: request.exclude.clone(),
        };
        let filter = FileFilter::new(Purpose::Snapshot(selection))?;
        let origin = SourceOrigin::whole(self.shown.clone(), SourceKind::Snapshot);
        let mut gathering = Gathering::new(caps, vec![origin.clone()]);
        let mut walk = Walk {
            files: &self.files,
            root: 0,
            source: 0,
            links: Links::Keep,
            exclude: &[],
            filter: Some(filter),
            gathering: &mut gathering,
        };
        let walked = match facts {
            // Commits have no empty directories.
            Some(_) => walk.add_files(),
            None => walk.add_tree(None, None),
        };
        let left_out = walk.filter.map(|filter| filter.suspects);
        walked
            .map_err(|error| error.at(&origin))
            .and_then(|()| gathering.finish())
            .map_err(BundleError::for_snapshot)
            .map(|gathered| (gathered, left_out.unwrap_or_default()))
    }

    fn config(
        &self,
        request: &BuildRequest<'_>,
        facts: Option<&GitFacts>,
        gathered: &Gathered,
        untracked: &[&RelPath],
    ) -> Result<SourceConfig, BundleError> {
        let source_type = match facts {
            Some(_) => SourceType::Git,
            None => SourceType::Directory,
        };
        let version = match request.version {
            Some(version) => version.to_owned(),
            None => self.default_version(facts, !untracked.is_empty())?,
        };
        if !is_version(&version) {
            return Err(BundleError::SourceName {
                what: "version",
                found: version,
                is_default: false,
            });
        }
        let mut config = SourceConfig::new(self.name(request)?, version, source_type);
        config.description = request.description.map(str::to_owned);
        let mut sparse: Vec<String> = request.sparse.iter().map(RelPath::to_string).collect();
        sparse.sort_unstable();
        sparse.dedup();
        sparse.extend(facts.iter().flat_map(|facts| facts.sparse.iter().cloned()));
        config.origin = facts
            .map(|facts| facts.origin.clone())
            .filter(|origin| !origin.is_empty());
        config.snapshot = Some(SnapshotFacts {
            prepared_from_path: facts.and_then(|facts| Some(facts.below.as_ref()?.to_string())),
            sparse,
            submodules: facts.map(|_| {
                if request.submodules {
                    Submodules::Included
                } else {
                    Submodules::Excluded
                }
            }),
            file_count: Some(gathered.overlay.files().count() as u64),
        });
        check_length(
            "description",
            request.description.unwrap_or(""),
            DESCRIPTION_BYTES_MAX,
        )?;
        let text = String::from_utf8(config.to_json()?).unwrap_or_default();
        check_length("config", &text, CONFIG_BYTES_MAX)?;
        Ok(config)
    }

    fn name(&self, request: &BuildRequest<'_>) -> Result<String, BundleError> {
        let directory_name = || {
            let name = self.path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let name = request.name.map_or_else(directory_name, str::to_owned);
        if !is_name(&name) {
            return Err(BundleError::SourceName {
                what: "name",
                found: name,
                is_default: request.name.is_none(),
            });
        }
        Ok(name)
    }

    /// `2026.03.10-4f3a2b1`, with `-dirty` if files differ from the commit.
    fn default_version(
        &self,
        facts: Option<&GitFacts>,
        has_untracked: bool,
    ) -> Result<String, BundleError> {
        let missing = |found| BundleError::SourceVersion {
            directory: self.shown.clone(),
            found,
        };
        let facts = facts.ok_or_else(|| missing("not a git checkout"))?;
        let commit = facts.origin.commit.as_deref();
        let short = commit
            .and_then(|commit| commit.get(..SHORT_COMMIT_DIGITS))
            .ok_or_else(|| missing("a git checkout without a commit"))?;
        let when = facts
            .committed_s
            .filter(has_rfc_3339_form)
            .ok_or_else(|| missing("a git checkout whose commit has no time from 1970 to 9999"))?;
        let day = iso_date(when).replace('-', ".");
        let is_dirty = has_untracked || !facts.changed.is_empty();
        let suffix = if is_dirty { "-dirty" } else { "" };
        Ok(format!("{day}-{short}{suffix}"))
    }

    fn check_paths(&self, request: &BuildRequest<'_>) -> Result<(), BundleError> {
        let sparse = request.sparse.iter().map(|path| ("--sparse", path));
        let include = request.include.iter().map(|path| ("--include", path));
        for (flag, path) in sparse.chain(include) {
            let found = self.files.find(path).map_err(|source| {
                let directory = format!("{}/{path}", self.shown);
                BundleError::SourceDirectory { directory, source }
            })?;
            if found.is_none() {
                let path = path.clone();
                return Err(BundleError::SourcePath { flag, path });
            }
        }
        Ok(())
    }

    fn check_sparse(
        &self,
        request: &BuildRequest<'_>,
        gathered: &Gathered,
    ) -> Result<(), BundleError> {
        let empty = request.sparse.iter().find(|path| {
            !gathered
                .overlay
                .files()
                .any(|(file, _)| is_at_or_below(file, path))
        });
        match empty {
            None => Ok(()),
            Some(path) => Err(BundleError::SparseEmpty { path: path.clone() }),
        }
    }
}

impl Snapshot<'_> {
    /// Writes the layer. For one version of this program the same files give the same bytes.
    ///
    /// # Errors
    /// [`BundleError::SnapshotSize`]: the archive is too large. [`BundleError::At`]: a file is
    /// unreadable or changed. [`BundleError::Output`]: `out` failed; messages call it `name`.
    pub fn write(&self, out: &mut dyn Write, name: &str) -> Result<WrittenBundle, BundleError> {
        write(&self.gathered, self.files, out).map_err(|error| error.in_file(name).for_snapshot())
    }

    /// Returns the size of all files in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.gathered.tree.file_bytes()
    }
}

fn untracked<'gathered>(
    facts: &GitFacts,
    gathered: &'gathered Gathered,
) -> Vec<&'gathered RelPath> {
    gathered
        .overlay
        .files()
        .map(|(path, _)| path)
        .filter(|path| !facts.tracked.contains(path.as_bytes()))
        .collect()
}

/// The requested time, else the commit time, else 1970. Never the current time: builds must be
/// reproducible.
fn created_s(request: &BuildRequest<'_>, facts: Option<&GitFacts>) -> i64 {
    let committed_s = facts.and_then(|facts| facts.committed_s);
    request
        .created_s
        .or(committed_s)
        .filter(has_rfc_3339_form)
        .unwrap_or(0)
}

fn has_rfc_3339_form(unix_s: &i64) -> bool {
    (0..=LAST_S).contains(unix_s)
}

fn check_length(what: &'static str, text: &str, bytes_max: usize) -> Result<(), BundleError> {
    if text.len() > bytes_max {
        return Err(BundleError::SourceTextTooLong {
            what,
            bytes: text.len(),
            bytes_max,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::oci::source_config::Origin;

    #[test]
    fn a_default_version_needs_a_commit_and_its_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = SourceDirectory::open(directory.path()).expect("opened");
        let version = |commit: Option<&str>, committed_s| {
            let facts = GitFacts {
                origin: Origin {
                    commit: commit.map(str::to_owned),
                    ..Origin::default()
                },
                committed_s,
                ..GitFacts::default()
            };
            let version = directory.default_version(Some(&facts), false);
            version.map_err(|error| error.to_string())
        };
        let commit = Some("4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c");
        let expected = "2023.11.14-4f3a2b1".to_owned();
        assert_eq!(version(commit, Some(1_700_000_000)), Ok(expected));
        let untimed = version(commit, Some(-5)).expect_err("before 1970");
        assert!(untimed.contains("whose commit has no time"), "{untimed}");
        let empty = version(None, None).expect_err("no commit");
        assert!(empty.contains("without a commit"), "{empty}");
    }
}
