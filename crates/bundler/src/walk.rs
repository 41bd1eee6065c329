//! Walks one source and places its files in the overlay.

use std::path::Path;

use crate::error::{BundleError, FollowProblem};
use crate::files::{DirectoryFiles, FileIdentity, Found, FoundKind};
use crate::filter::FileFilter;
use crate::follow::{Followed, follow};
use crate::gathered::Gathering;
use crate::layer::LocalSource;
use crate::overlay::{Contents, Item, RootIndex, SourceIndex};
use crate::pattern::{PathPattern, has_wildcard, split_base};
use archive::links::check_target;
use spec::code_block::SourceTarget;
use spec::did_you_mean::nearest;
use spec::path::{RelPath, escape};
use sys::file::CallError;

const NEIGHBOURS_MAX: u64 = 1_000;

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

/// The part of a walk below one directory.
struct Course<'course> {
    prefix: Option<&'course RelPath>,
    /// Filter for paths relative to the tree; `None` includes everything, empty directories too.
    accept: Option<&'course dyn Fn(&RelPath) -> bool>,
    /// Stack of the directories being listed, without links: detects loops.
    visiting: Vec<Option<RelPath>>,
    taken: u64,
}

impl<'course> Course<'course> {
    fn new(
        prefix: Option<&'course RelPath>,
        accept: Option<&'course dyn Fn(&RelPath) -> bool>,
    ) -> Self {
        Self {
            prefix,
            accept,
            visiting: Vec::new(),
            taken: 0,
        }
    }

    fn takes(&self, relative: &RelPath) -> bool {
        self.accept.is_none_or(|accept| accept(relative))
    }
}

impl Walk<'_> {
    pub(crate) fn tree(
        &mut self,
        from: Option<&RelPath>,
        prefix: Option<&RelPath>,
    ) -> Result<(), BundleError> {
        if let Some(prefix) = prefix {
            // Also for an empty tree.
            Gathering::check_target(prefix)?;
            self.gathering.place(prefix, Item::Directory, self.source)?;
        }
        self.directory(from, None, &mut Course::new(prefix, None))
    }

    /// Places the files of the root, and only directories that contain files.
    pub(crate) fn files_of_tree(&mut self) -> Result<(), BundleError> {
        self.directory(None, None, &mut Course::new(None, Some(&|_path| true)))
    }

    pub(crate) fn local(&mut self, source: &LocalSource) -> Result<(), BundleError> {
        let Some(path) = &source.path else {
            let folder = self.real_directory(source.base.as_ref())?;
            return self.local_directory(source, folder.as_ref());
        };
        let from = join(source.base.as_ref(), path)?;
        Gathering::refuse_left_out(&from)?;
        let Some(Followed { path: real, found }) = self.look(&from)? else {
            if has_wildcard(path.as_bytes()) {
                return self.pattern(source, path);
            }
            // For a link as last folder the kernel returns ENOTDIR, not ELOOP.
            return Err(self.missing(&from));
        };
        let found_words = found.kind.words();
        if found.kind == FoundKind::Directory {
            return self.local_directory(source, real.as_ref());
        }
        if source.directory {
            return Err(BundleError::NotDirectory {
                path: from,
                found: found_words,
            });
        }
        if source.glob.is_some() {
            let text = format!("`glob` is for directories; `{from}` is {found_words}");
            self.gathering.warn(self.source, "glob_ignored", &text);
        }
        let to = file_target(path, &source.target)?;
        // A followed path ends at the real file.
        let real = real.as_ref().unwrap_or(&from);
        if let Some(filter) = &mut self.filter {
            // A file named by the source is included anyway.
            filter.find_suspect(self.files, real, &found)?;
        }
        self.leaf(real, &found, &to)
    }

    fn local_directory(
        &mut self,
        source: &LocalSource,
        from: Option<&RelPath>,
    ) -> Result<(), BundleError> {
        let prefix = directory_target(source.path.as_ref(), &source.target);
        let Some(glob) = &source.glob else {
            return self.tree(from, prefix);
        };
        let pattern = PathPattern::parse(glob.as_bytes())?;
        let accept = |relative: &RelPath| pattern.matches(relative);
        let mut course = Course::new(prefix, Some(&accept));
        self.directory(from, None, &mut course)?;
        if course.taken == 0 {
            let glob = escape(glob.as_bytes());
            let from = from.map_or_else(|| ".".to_owned(), RelPath::to_string);
            let text = format!("no file of `{from}` matches `{glob}`");
            self.gathering.warn(self.source, "source_empty", &text);
        }
        Ok(())
    }

    /// Places the files that match a pattern; with a trailing `/`, the content of matching
    /// directories.
    fn pattern(&mut self, source: &LocalSource, path: &RelPath) -> Result<(), BundleError> {
        if source.glob.is_some() {
            return Err(BundleError::Pattern {
                pattern: path.to_string(),
                reason: "it stands beside `glob`, which is for a path without wildcards".into(),
            });
        }
        let (base, rest) = split_base(path);
        let pattern = PathPattern::parse(&rest)?;
        let accept = |relative: &RelPath| {
            if !source.directory {
                return pattern.matches(relative);
            }
            let mut above = std::iter::successors(relative.parent(), RelPath::parent);
            above.any(|directory| pattern.matches(&directory))
        };
        let from = match &base {
            Some(base) => Some(join(source.base.as_ref(), base)?),
            None => source.base.clone(),
        };
        let top = self.real_directory(from.as_ref())?;
        let prefix = directory_target(base.as_ref(), &source.target);
        let mut course = Course::new(prefix, Some(&accept));
        self.directory(top.as_ref(), None, &mut course)?;
        match course.taken {
            0 => Err(BundleError::NoMatch { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// Resolves the path of a directory; `None` is the root.
    fn real_directory(&self, from: Option<&RelPath>) -> Result<Option<RelPath>, BundleError> {
        let Some(from) = from else {
            return Ok(None);
        };
        Gathering::refuse_left_out(from)?;
        let Followed { path, found } = self.look(from)?.ok_or_else(|| self.missing(from))?;
        if found.kind != FoundKind::Directory {
            return Err(BundleError::NotDirectory {
                path: from.clone(),
                found: found.kind.words(),
            });
        }
        Ok(path)
    }

    fn look(&self, path: &RelPath) -> Result<Option<Followed>, BundleError> {
        if let Links::Follow(root) = self.links {
            return follow(self.files, root, path);
        }
        let found = self.files.look(path);
        let found = found.map_err(|error| self.unreadable(path, error))?;
        Ok(found.map(|found| Followed {
            path: Some(path.clone()),
            found,
        }))
    }

    fn directory(
        &mut self,
        from: Option<&RelPath>,
        relative: Option<&RelPath>,
        course: &mut Course<'_>,
    ) -> Result<(), BundleError> {
        if let Some(filter) = &mut self.filter {
            filter.enter(self.files, from)?;
        }
        course.visiting.push(from.cloned());
        let listed = self.files.list(from, self.gathering.room_to_list());
        let mut names = listed.map_err(|error| match from {
            Some(from) => self.unreadable(from, error),
            None => BundleError::Unreadable {
                path: ".".to_owned(),
                source: error,
            },
        })?;
        self.gathering.count_listed(names.len())?;
        names.sort_unstable();
        for name in names {
            let name = parse(&name)?;
            let from = join(from, &name)?;
            let relative = join(relative, &name)?;
            self.entry(&from, &relative, course)?;
        }
        course.visiting.pop();
        Ok(())
    }

    fn entry(
        &mut self,
        from: &RelPath,
        relative: &RelPath,
        course: &mut Course<'_>,
    ) -> Result<(), BundleError> {
        let to = join(course.prefix, relative)?;
        let is_of_a_bundle = self.filter.as_ref().is_none_or(FileFilter::is_of_a_bundle);
        if is_of_a_bundle && self.gathering.leaves_out(&to) {
            return Ok(());
        }
        let changed = || BundleError::Changed { path: from.clone() };
        let found = self.files.look(from);
        let mut found = found
            .map_err(|error| self.unreadable(from, error))?
            .ok_or_else(changed)?;
        let mut path = Some(from.clone());
        // Skip the outputs.
        if self.exclude.contains(&found.stamp.identity) {
            return Ok(());
        }
        if let Some(filter) = &mut self.filter
            && !filter.takes(self.files, from, &found)?
        {
            return Ok(());
        }
        if found.kind == FoundKind::Symlink && matches!(self.links, Links::Follow(_)) {
            (path, found) = match self.look(from) {
                Ok(Some(Followed { path, found })) => (path, found),
                Ok(None) => return Err(changed()),
                // A broken link: it matters only if its own path is selected.
                Err(_) if !course.takes(relative) => return Ok(()),
                Err(error) => return Err(error),
            };
            if found.kind == FoundKind::Directory && course.visiting.contains(&path) {
                return Err(self.loops(from));
            }
            // The real name decides too: a link must not bypass the filter.
            if let (Some(filter), Some(real)) = (&mut self.filter, &path)
                && !filter.takes(self.files, real, &found)?
            {
                return Ok(());
            }
        }
        if found.kind == FoundKind::Directory {
            if course.accept.is_none() {
                self.gathering.place(&to, Item::Directory, self.source)?;
            } else {
                Gathering::check_depth(&to)?;
            }
            return self.directory(path.as_ref(), Some(relative), course);
        }
        if !course.takes(relative) {
            return Ok(());
        }
        course.taken += 1;
        self.leaf(path.as_ref().unwrap_or(from), &found, &to)
    }

    fn leaf(&mut self, from: &RelPath, found: &Found, to: &RelPath) -> Result<(), BundleError> {
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
                    found: found.kind.words(),
                });
            }
        };
        self.gathering.place(to, item, self.source)
    }

    fn loops(&self, link: &RelPath) -> BundleError {
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
        let is_link = |path: &RelPath| {
            let found = self.files.look(path).ok().flatten();
            found.is_some_and(|found| found.kind == FoundKind::Symlink)
        };
        // The outermost link.
        let above = std::iter::successors(path.parent(), RelPath::parent);
        match above.filter(is_link).last() {
            Some(link) => BundleError::ThroughLink {
                path: path.clone(),
                link,
            },
            None => BundleError::Missing {
                path: path.clone(),
                near: near(self.files, path),
            },
        }
    }
}

/// Suggests a name for a missing `path`: compares its first missing segment with its siblings.
pub(crate) fn near(files: &DirectoryFiles, path: &RelPath) -> Option<String> {
    let is_there = |path: &RelPath| matches!(files.look(path), Ok(Some(_)));
    let ways = std::iter::successors(Some(path.clone()), RelPath::parent);
    let missing = ways.filter(|path| !is_there(path)).last()?;
    let names = files.list(missing.parent().as_ref(), NEIGHBOURS_MAX).ok()?;
    let mut names: Vec<String> = names.iter().map(|name| escape(name)).collect();
    names.sort_unstable();
    let name = escape(missing.file_name());
    let near = nearest(&name, names.iter().map(String::as_str))?;
    let beside = match missing.parent() {
        Some(parent) => format!("{parent}/{near}"),
        None => near.to_owned(),
    };
    let rest = &path.as_bytes()[missing.as_bytes().len()..];
    let whole = [beside.as_bytes(), rest].concat();
    let whole = RelPath::parse(&whole).ok().filter(is_there)?;
    Some(whole.to_string())
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
