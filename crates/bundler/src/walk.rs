//! Walks one source and adds its files to the overlay.

use std::path::Path;

use crate::error::{BundleError, FollowProblem};
use crate::files::{DirectoryFiles, FileIdentity, Found, FoundKind};
use crate::filter::FileFilter;
use crate::follow::{Followed, follow};
use crate::gathered::Gathering;
use crate::layer::LocalSource;
use crate::matching::Verdict;
use crate::overlay::{Contents, Item, RootIndex, SourceIndex};
use crate::pattern::{has_wildcard, split_base};
use archive::links::check_target;
use spec::code_block::SourceTarget;
use spec::did_you_mean::nearest;
use spec::path::{RelPath, escape};
use sys::file::CallError;

const SIBLINGS_MAX: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Links<'root> {
    /// Keeps relative links that stay in the bundle.
    Keep,
    /// Copies the targets; the path is the host path of the directory.
    Follow(Option<&'root Path>),
}

/// A walk through one source.
pub(crate) struct Walk<'walk> {
    pub files: &'walk DirectoryFiles,
    pub root: RootIndex,
    pub source: SourceIndex,
    pub links: Links<'walk>,
    pub exclude: &'walk [FileIdentity],
    pub filter: Option<FileFilter>,
    pub gathering: &'walk mut Gathering,
}

/// A directory that is walked with everything below it.
struct Subtree<'walk> {
    /// The directory of the bundle that the paths are relative to.
    prefix: Option<&'walk RelPath>,
    /// Whether directories are added for themselves.
    has_directories: bool,
    /// Stack of the directories being listed, without links: detects loops.
    visiting: Vec<Option<RelPath>>,
    file_count: u64,
}

impl<'walk> Subtree<'walk> {
    /// What the pattern of the source selects, without empty directories.
    fn selected(prefix: Option<&'walk RelPath>) -> Self {
        Self {
            prefix,
            has_directories: false,
            visiting: Vec::new(),
            file_count: 0,
        }
    }

    fn whole(prefix: Option<&'walk RelPath>) -> Self {
        Self {
            has_directories: true,
            ..Self::selected(prefix)
        }
    }
}

impl Walk<'_> {
    /// Adds everything below `from`.
    pub(crate) fn add_tree(
        &mut self,
        from: Option<&RelPath>,
        prefix: Option<&RelPath>,
    ) -> Result<(), BundleError> {
        if let Some(prefix) = prefix {
            // Also for an empty tree.
            Gathering::check_target(prefix)?;
            self.gathering
                .insert(prefix, Item::Directory, self.source)?;
        }
        self.add_directory(from, None, &mut Subtree::whole(prefix))
    }

    /// Adds everything below the root, without empty directories.
    pub(crate) fn add_files(&mut self) -> Result<(), BundleError> {
        self.add_directory(None, None, &mut Subtree::selected(None))
    }

    pub(crate) fn add_local(&mut self, source: &LocalSource) -> Result<(), BundleError> {
        let Some(path) = &source.path else {
            let folder = self.real_directory(source.base.as_ref())?;
            return self.add_local_directory(source, folder.as_ref());
        };
        let from = join(source.base.as_ref(), path)?;
        let Some(Followed { path: real, found }) = self.resolve_named(&from)? else {
            if has_wildcard(path.as_bytes()) {
                return self.add_matches(source, path);
            }
            // The kernel returns ENOTDIR, not ELOOP, if the last parent is a link.
            return Err(self.missing(&from));
        };
        let kind = found.kind.name();
        if found.kind == FoundKind::Directory {
            return self.add_local_directory(source, real.as_ref());
        }
        if source.directory {
            return Err(BundleError::NotDirectory {
                path: from,
                found: kind,
            });
        }
        if source.glob.is_some() {
            let text = format!("`glob` is for directories; `{from}` is {kind}");
            self.gathering.warn(self.source, "glob_ignored", &text);
        }
        let to = file_target(path, &source.target)?;
        let real = real.as_ref().unwrap_or(&from);
        if let Some(filter) = &mut self.filter {
            // For the warning only: a file that the source names is included.
            filter.record_suspect(self.files, real, &found)?;
        }
        self.add_file(real, &found, &to)
    }

    fn add_local_directory(
        &mut self,
        source: &LocalSource,
        from: Option<&RelPath>,
    ) -> Result<(), BundleError> {
        let prefix = directory_target(source.path.as_ref(), &source.target);
        let Some(glob) = &source.glob else {
            return self.add_tree(from, prefix);
        };
        self.gathering.matching.select(glob.as_bytes(), false)?;
        let mut subtree = Subtree::selected(prefix);
        self.add_directory(from, None, &mut subtree)?;
        if subtree.file_count == 0 {
            let glob = escape(glob.as_bytes());
            let from = from.map_or_else(|| ".".to_owned(), RelPath::to_string);
            let text = format!("no file of `{from}` matches `{glob}`");
            self.gathering.warn(self.source, "source_empty", &text);
        }
        Ok(())
    }

    /// Adds the files that match the pattern `path`; with a trailing `/`, the contents of matching
    /// directories.
    fn add_matches(&mut self, source: &LocalSource, path: &RelPath) -> Result<(), BundleError> {
        if source.glob.is_some() {
            return Err(BundleError::Pattern {
                pattern: path.to_string(),
                reason: "it has wildcards, and `glob` is allowed only for a path without them"
                    .into(),
            });
        }
        let (base, rest) = split_base(path);
        self.gathering.matching.select(&rest, source.directory)?;
        let from = match &base {
            Some(base) => Some(join(source.base.as_ref(), base)?),
            None => source.base.clone(),
        };
        let top = self.real_directory(from.as_ref())?;
        let prefix = directory_target(base.as_ref(), &source.target);
        let mut subtree = Subtree::selected(prefix);
        self.add_directory(top.as_ref(), None, &mut subtree)?;
        match subtree.file_count {
            0 => Err(BundleError::NoMatch { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// Resolves the path of a directory; `None` is the root.
    fn real_directory(&self, from: Option<&RelPath>) -> Result<Option<RelPath>, BundleError> {
        let Some(from) = from else {
            return Ok(None);
        };
        let named = self.resolve_named(from)?;
        let Followed { path, found } = named.ok_or_else(|| self.missing(from))?;
        if found.kind != FoundKind::Directory {
            return Err(BundleError::NotDirectory {
                path: from.clone(),
                found: found.kind.name(),
            });
        }
        Ok(path)
    }

    /// Finds the entry that a source names, following links if the walk does.
    fn resolve_named(&self, path: &RelPath) -> Result<Option<Followed>, BundleError> {
        Gathering::check_not_version_control(path)?;
        let followed = self.resolve(path)?;
        if let Some(real) = followed
            .as_ref()
            .and_then(|followed| followed.path.as_ref())
        {
            Gathering::check_not_version_control(real)?;
        }
        Ok(followed)
    }

    /// Finds the entry at `path`, following links if the walk does.
    fn resolve(&self, path: &RelPath) -> Result<Option<Followed>, BundleError> {
        if let Links::Follow(root) = self.links {
            return follow(self.files, root, path);
        }
        let found = self.files.find(path);
        let found = found.map_err(|error| self.unreadable(path, error))?;
        Ok(found.map(|found| Followed {
            path: Some(path.clone()),
            found,
        }))
    }

    fn add_directory(
        &mut self,
        from: Option<&RelPath>,
        relative: Option<&RelPath>,
        subtree: &mut Subtree<'_>,
    ) -> Result<(), BundleError> {
        if let Some(filter) = &mut self.filter {
            filter.read_ignore_files(self.files, from, &mut self.gathering.matching)?;
        }
        subtree.visiting.push(from.cloned());
        let listed = self.files.list(from, self.gathering.names_left());
        let mut names = listed.map_err(|error| match from {
            Some(from) => self.unreadable(from, error),
            None => BundleError::Unreadable {
                path: ".".to_owned(),
                source: error,
            },
        })?;
        self.gathering.count_names(names.len())?;
        names.sort_unstable();
        let verdicts = self.gathering.matching.verdicts(from, relative, &names)?;
        for (name, verdict) in names.iter().zip(verdicts) {
            let name = parse(name)?;
            let from = join(from, &name)?;
            let relative = join(relative, &name)?;
            self.add_entry(&from, &relative, verdict, subtree)?;
        }
        subtree.visiting.pop();
        Ok(())
    }

    fn add_entry(
        &mut self,
        from: &RelPath,
        relative: &RelPath,
        verdict: Verdict,
        subtree: &mut Subtree<'_>,
    ) -> Result<(), BundleError> {
        let to = join(subtree.prefix, relative)?;
        let is_for_bundle = self.filter.as_ref().is_none_or(FileFilter::is_for_bundle);
        if is_for_bundle && self.gathering.leave_out(&to) {
            return Ok(());
        }
        let changed = || BundleError::Changed { path: from.clone() };
        let found = self.files.find(from);
        let mut found = found
            .map_err(|error| self.unreadable(from, error))?
            .ok_or_else(changed)?;
        let mut path = Some(from.clone());
        // The bundle does not contain itself and its lock file.
        if self.exclude.contains(&found.stamp.identity) {
            return Ok(());
        }
        if let Some(filter) = &mut self.filter
            && !filter.includes(self.files, from, &found, verdict)?
        {
            return Ok(());
        }
        if found.kind == FoundKind::Symlink && matches!(self.links, Links::Follow(_)) {
            (path, found) = match self.resolve(from) {
                Ok(Some(Followed { path, found })) => (path, found),
                Ok(None) => return Err(changed()),
                // A broken link matters only if its own path is selected.
                Err(_) if !verdict.is_selected => return Ok(()),
                Err(error) => return Err(error),
            };
            if found.kind == FoundKind::Directory && subtree.visiting.contains(&path) {
                return Err(self.loop_error(from));
            }
            // The target is filtered too: a link must not bypass the filter.
            if let Some(real) = &path {
                if is_for_bundle && self.gathering.leave_out_version_control(real) {
                    return Ok(());
                }
                if let Some(filter) = &mut self.filter {
                    let of_target = self.gathering.matching.verdict(real)?;
                    if !filter.includes(self.files, real, &found, of_target)? {
                        return Ok(());
                    }
                }
            }
        }
        if found.kind == FoundKind::Directory {
            if subtree.has_directories {
                self.gathering.insert(&to, Item::Directory, self.source)?;
            } else {
                Gathering::check_depth(&to)?;
            }
            return self.add_directory(path.as_ref(), Some(relative), subtree);
        }
        if !verdict.is_selected {
            return Ok(());
        }
        subtree.file_count += 1;
        self.add_file(path.as_ref().unwrap_or(from), &found, &to)
    }

    fn add_file(&mut self, from: &RelPath, found: &Found, to: &RelPath) -> Result<(), BundleError> {
        if self.exclude.contains(&found.stamp.identity) {
            return Ok(());
        }
        let item = match found.kind {
            FoundKind::File { executable, bytes } => Item::File {
                executable,
                bytes,
                contents: Contents::File {
                    root: self.root,
                    path: from.clone(),
                    stamp: found.stamp,
                },
            },
            FoundKind::Symlink => {
                let target = self.files.read_link(from);
                let target = target.map_err(|error| self.unreadable(from, error))?;
                check_target(to, &target).map_err(|error| BundleError::Link {
                    path: from.clone(),
                    error,
                })?;
                Item::Symlink { target }
            }
            FoundKind::Directory | FoundKind::Special(_) => {
                return Err(BundleError::SpecialFile {
                    path: from.clone(),
                    found: found.kind.name(),
                });
            }
        };
        self.gathering.insert(to, item, self.source)
    }

    fn loop_error(&self, link: &RelPath) -> BundleError {
        match self.files.read_link(link) {
            Ok(target) => BundleError::Follow {
                path: link.clone(),
                target: escape(&target),
                why: FollowProblem::Loop,
            },
            Err(error) => self.unreadable(link, error),
        }
    }

    fn unreadable(&self, path: &RelPath, error: CallError) -> BundleError {
        match error.errno {
            rustix::io::Errno::LOOP => self.missing(path),
            _ => BundleError::unreadable(path, error),
        }
    }

    /// Explains why `path` does not exist: a link above it, or no such name.
    fn missing(&self, path: &RelPath) -> BundleError {
        match outermost_link(self.files, path) {
            Some(link) => BundleError::ThroughLink {
                path: path.clone(),
                link,
            },
            None => BundleError::Missing {
                path: path.clone(),
                suggestion: suggest_path(self.files, path),
            },
        }
    }
}

/// Finds the outermost link above `path`.
pub(crate) fn outermost_link(files: &DirectoryFiles, path: &RelPath) -> Option<RelPath> {
    let is_link = |path: &RelPath| {
        let found = files.find(path).ok().flatten();
        found.is_some_and(|found| found.kind == FoundKind::Symlink)
    };
    let above = std::iter::successors(path.parent(), RelPath::parent);
    above.filter(is_link).last()
}

/// Suggests an existing path for a missing one: compares its first missing segment with the siblings.
pub(crate) fn suggest_path(files: &DirectoryFiles, path: &RelPath) -> Option<String> {
    let is_there = |path: &RelPath| matches!(files.find(path), Ok(Some(_)));
    let ancestors = std::iter::successors(Some(path.clone()), RelPath::parent);
    let missing = ancestors.filter(|path| !is_there(path)).last()?;
    let names = files.list(missing.parent().as_ref(), SIBLINGS_MAX).ok()?;
    let mut names: Vec<String> = names.iter().map(|name| escape(name)).collect();
    names.sort_unstable();
    let name = escape(missing.file_name());
    let nearest = nearest(&name, names.iter().map(String::as_str))?;
    let sibling = match missing.parent() {
        Some(parent) => format!("{parent}/{nearest}"),
        None => nearest.to_owned(),
    };
    let rest = &path.as_bytes()[missing.as_bytes().len()..];
    let suggestion = [sibling.as_bytes(), rest].concat();
    let suggestion = RelPath::parse(&suggestion).ok().filter(is_there)?;
    Some(suggestion.to_string())
}

fn file_target(path: &RelPath, target: &SourceTarget) -> Result<RelPath, BundleError> {
    let name = parse(path.file_name())?;
    let to = match target {
        SourceTarget::Same => path.clone(),
        SourceTarget::Top => name,
        SourceTarget::Path {
            path: to,
            directory: false,
        } => to.clone(),
        SourceTarget::Path {
            path: to,
            directory: true,
        } => join(Some(to), &name)?,
    };
    Gathering::check_target(&to)?;
    Ok(to)
}

/// Returns the target of a directory; `None` for the root of the bundle.
pub(crate) fn directory_target<'path>(
    path: Option<&'path RelPath>,
    target: &'path SourceTarget,
) -> Option<&'path RelPath> {
    match target {
        SourceTarget::Same => path,
        SourceTarget::Top => None,
        SourceTarget::Path { path, .. } => Some(path),
    }
}

pub(crate) fn join(above: Option<&RelPath>, path: &RelPath) -> Result<RelPath, BundleError> {
    match above {
        None => Ok(path.clone()),
        Some(above) => above.join(path).map_err(|error| BundleError::Path {
            path: path.to_string(),
            error,
        }),
    }
}

pub(crate) fn parse(name: &[u8]) -> Result<RelPath, BundleError> {
    RelPath::parse(name).map_err(|error| BundleError::Path {
        path: escape(name),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::{GatherOptions, Gathered, gather};
    use crate::layer::{Layer, LayerForm};
    use crate::origin::{SourceKind, SourceOrigin};
    use spec::host_policy::HostPolicy;

    #[test]
    fn a_followed_link_does_not_lead_into_version_control() {
        let workspace = tempfile::tempdir().expect("a directory");
        let at = |name: &str| workspace.path().join(name);
        std::fs::create_dir_all(at(".git/hooks")).expect("made");
        std::fs::write(at(".git/config"), "url = https://me:token@example.org").expect("written");
        std::fs::write(at("a"), "a").expect("written");
        for (name, target) in [
            ("b", "a"),
            ("config", ".git/config"),
            ("hooks", ".git/hooks"),
        ] {
            std::os::unix::fs::symlink(target, at(name)).expect("linked");
        }
        let gathered = |form: LayerForm| -> Result<Gathered, BundleError> {
            let origin = SourceOrigin::whole("m.yaml".to_owned(), SourceKind::Local);
            let files = DirectoryFiles::open_root(workspace.path()).expect("opened");
            let options = GatherOptions {
                caps: HostPolicy::default().unpack,
                follow_symlinks: true,
                workspace: None,
                exclude: Vec::new(),
                lock: None,
            };
            gather(&[Layer { origin, form }], None, &files, None, &options)
        };
        let folder = gathered(LayerForm::Folder(None)).expect("gathered");
        let paths = folder.tree.iter().map(|(path, _)| path.to_string());
        assert_eq!(paths.collect::<Vec<_>>(), ["a", "b"]);
        for name in ["config", "hooks"] {
            let local = LocalSource {
                base: None,
                path: Some(parse(name.as_bytes()).expect("a path")),
                directory: false,
                target: SourceTarget::Same,
                glob: None,
            };
            let error = gathered(LayerForm::Local(local)).expect_err("refused");
            assert_eq!(error.code(), "path_refused", "{error}");
        }
    }
}
