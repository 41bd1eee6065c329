//! Walks one source and places its files in the overlay.

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{FollowProblem, SourceProblem};
use crate::files::{FileIdentity, Found, FoundKind, WorkspaceFiles};
use crate::filter::FileFilter;
use crate::follow::{Followed, NotFollowed, follow};
use crate::gathering::Gathering;
use crate::overlay::{Contents, Item, RootIndex, SourceIndex};
use crate::pattern::{PathPattern, has_wildcard, split_base};
use archive::links::check_target;
use spec::code_block::SourceTarget;
use spec::did_you_mean::nearest;
use spec::path::{RelPath, escape};
use sys::file::CallError;

const NEIGHBOURS_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Links<'root> {
    /// Keeps relative links that stay in the bundle.
    Keep,
    /// Copies the targets; the path is the host path of the directory.
    Follow(Option<&'root Path>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalSource<'source> {
    pub base: Option<&'source RelPath>,
    pub path: Option<&'source RelPath>,
    pub directory: bool,
    pub target: &'source SourceTarget,
    pub glob: Option<&'source str>,
}

pub(crate) struct Walk<'walk> {
    pub files: &'walk dyn WorkspaceFiles,
    pub root: RootIndex,
    pub source: SourceIndex,
    pub links: Links<'walk>,
    pub exclude: &'walk [FileIdentity],
    pub filter: Option<&'walk dyn FileFilter>,
    pub gathering: &'walk mut Gathering,
}

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
    ) -> Result<(), SourceProblem> {
        self.place_top(prefix)?;
        self.directory(from, None, &mut Course::new(prefix, None))
    }

    /// Places the files of the root, and only directories that contain files.
    pub(crate) fn files_of_tree(&mut self) -> Result<(), SourceProblem> {
        self.directory(None, None, &mut Course::new(None, Some(&|_path| true)))
    }

    pub(crate) fn local(&mut self, source: LocalSource<'_>) -> Result<(), SourceProblem> {
        let Some(path) = source.path else {
            return self.folder(source);
        };
        let from = join(source.base, path)?;
        Gathering::refuse_left_out(&from)?;
        let Some(Followed { path: real, found }) = self.look(&from)? else {
            if has_wildcard(path.as_bytes()) {
                return self.pattern(source, path);
            }
            // For a link as last folder the kernel returns ENOTDIR, not ELOOP.
            return Err(self.missing(&from));
        };
        if source.directory && found.kind != FoundKind::Directory {
            return Err(SourceProblem::NotDirectory {
                path: from,
                found: found.kind.words(),
            });
        }
        if found.kind != FoundKind::Directory {
            if source.glob.is_some() {
                self.gathering.warn(
                    self.source,
                    "glob_ignored",
                    &format!(
                        "`glob` is for directories; `{from}` is {}",
                        found.kind.words()
                    ),
                );
            }
            let to = file_target(path, source.target)?;
            // A followed path ends at the real file.
            let real = real.as_ref().unwrap_or(&from);
            if let Some(filter) = self.filter {
                filter.is_named(real, &found)?;
            }
            return self.leaf(real, &found, &to);
        }
        self.local_directory(source, real.as_ref())
    }

    fn folder(&mut self, source: LocalSource<'_>) -> Result<(), SourceProblem> {
        let Some(from) = source.base else {
            return self.local_directory(source, None);
        };
        Gathering::refuse_left_out(from)?;
        match self.look(from)? {
            Some(Followed { path, found }) if found.kind == FoundKind::Directory => {
                self.local_directory(source, path.as_ref())
            }
            Some(Followed { found, .. }) => Err(SourceProblem::NotDirectory {
                path: from.clone(),
                found: found.kind.words(),
            }),
            None => Err(self.missing(from)),
        }
    }

    fn local_directory(
        &mut self,
        source: LocalSource<'_>,
        from: Option<&RelPath>,
    ) -> Result<(), SourceProblem> {
        let prefix = directory_target(source.path, source.target);
        let Some(glob) = source.glob else {
            return self.tree(from, prefix);
        };
        let pattern = PathPattern::parse(glob.as_bytes())?;
        let accept = |relative: &RelPath| pattern.matches(relative);
        let mut course = Course::new(prefix, Some(&accept));
        self.directory(from, None, &mut course)?;
        if course.taken == 0 {
            let glob = escape(glob.as_bytes());
            let from = from.map_or_else(|| ".".to_owned(), RelPath::to_string);
            self.gathering.warn(
                self.source,
                "source_empty",
                &format!("no file of `{from}` matches `{glob}`"),
            );
        }
        Ok(())
    }

    /// Places the files that match a pattern; with a trailing `/`, the content of matching
    /// directories.
    fn pattern(&mut self, source: LocalSource<'_>, path: &RelPath) -> Result<(), SourceProblem> {
        if source.glob.is_some() {
            return Err(SourceProblem::Pattern {
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
            let mut above = relative.parent();
            while let Some(directory) = above {
                if pattern.matches(&directory) {
                    return true;
                }
                above = directory.parent();
            }
            false
        };
        let prefix = match source.target {
            SourceTarget::Same => base.as_ref(),
            SourceTarget::Top => None,
            SourceTarget::Path { path, .. } => Some(path),
        };
        let from = match (&base, source.base) {
            (Some(base), above) => Some(join(above, base)?),
            (None, above) => above.cloned(),
        };
        let top = match &from {
            None => None,
            Some(from) => match self.look(from)? {
                Some(top) if top.found.kind == FoundKind::Directory => top.path,
                Some(top) => {
                    return Err(SourceProblem::NotDirectory {
                        path: from.clone(),
                        found: top.found.kind.words(),
                    });
                }
                None => return Err(self.missing(from)),
            },
        };
        let mut course = Course::new(prefix, Some(&accept));
        self.directory(top.as_ref(), None, &mut course)?;
        match course.taken {
            0 => Err(SourceProblem::NoMatch { path: path.clone() }),
            _ => Ok(()),
        }
    }

    fn look(&self, path: &RelPath) -> Result<Option<Followed>, SourceProblem> {
        match self.links {
            Links::Keep => {
                let found = self
                    .files
                    .look(path)
                    .map_err(|error| self.unreadable(path, error))?;
                Ok(found.map(|found| Followed {
                    path: Some(path.clone()),
                    found,
                }))
            }
            Links::Follow(root) => match follow(self.files, root, path) {
                Ok(followed) => Ok(Some(followed)),
                Err(NotFollowed::Missing) => Ok(None),
                Err(NotFollowed::Link(problem)) => Err(*problem),
                Err(NotFollowed::Call(error)) => Err(self.unreadable(path, error)),
            },
        }
    }

    fn directory(
        &mut self,
        from: Option<&RelPath>,
        relative: Option<&RelPath>,
        course: &mut Course<'_>,
    ) -> Result<(), SourceProblem> {
        if let Some(filter) = self.filter {
            filter.enter(from)?;
        }
        course.visiting.push(from.cloned());
        let room = self.gathering.room_to_list();
        let mut names = Vec::new();
        self.files
            .list(from, &mut |name| {
                names.push(name.to_vec());
                match room < names.len() as u64 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .map_err(|error| match from {
                Some(from) => self.unreadable(from, error),
                None => SourceProblem::Unreadable {
                    path: ".".to_owned(),
                    source: error,
                },
            })?;
        self.gathering.listed(names.len() as u64)?;
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
    ) -> Result<(), SourceProblem> {
        let to = join(course.prefix, relative)?;
        let is_of_a_bundle = self.filter.is_none_or(FileFilter::is_of_a_bundle);
        if is_of_a_bundle && self.gathering.leaves_out(&to) {
            return Ok(());
        }
        let changed = || SourceProblem::Changed { path: from.clone() };
        let mut path = Some(from.clone());
        let mut found = self
            .files
            .look(from)
            .map_err(|error| self.unreadable(from, error))?
            .ok_or_else(changed)?;
        // Skip the outputs.
        if self.exclude.contains(&found.stamp.identity) {
            return Ok(());
        }
        if let Some(filter) = self.filter
            && !filter.takes(from, &found)?
        {
            return Ok(());
        }
        if found.kind == FoundKind::Symlink && matches!(self.links, Links::Follow(_)) {
            (path, found) = match self.look(from) {
                Ok(Some(Followed { path, found })) => (path, found),
                Ok(None) => return Err(changed()),
                // A broken link: it matters only if its own path is selected.
                Err(_) if !course.takes(relative) => return Ok(()),
                Err(problem) => return Err(problem),
            };
            if found.kind == FoundKind::Directory && course.visiting.contains(&path) {
                return Err(self.loops(from));
            }
            // The real name decides too: a link must not bypass the filter.
            if let (Some(filter), Some(real)) = (self.filter, &path)
                && !filter.takes(real, &found)?
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

    fn leaf(&mut self, from: &RelPath, found: &Found, to: &RelPath) -> Result<(), SourceProblem> {
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
                let target = self
                    .files
                    .read_link(from)
                    .map_err(|error| self.unreadable(from, error))?;
                check_target(to, &target).map_err(|error| SourceProblem::Link {
                    path: from.clone(),
                    error,
                })?;
                Item::Symlink { target }
            }
            FoundKind::Directory | FoundKind::Special(_) => {
                return Err(SourceProblem::SpecialFile {
                    path: from.clone(),
                    found: found.kind.words(),
                });
            }
        };
        self.gathering.place(to, item, self.source)
    }

    /// Places the target folder, also for an empty tree.
    fn place_top(&mut self, prefix: Option<&RelPath>) -> Result<(), SourceProblem> {
        match prefix {
            Some(prefix) => {
                Gathering::refuse_left_out(prefix)?;
                Gathering::refuse_reserved(prefix)?;
                self.gathering.place(prefix, Item::Directory, self.source)
            }
            None => Ok(()),
        }
    }

    fn loops(&self, link: &RelPath) -> SourceProblem {
        match self.files.read_link(link) {
            Ok(target) => SourceProblem::Follow {
                path: link.clone(),
                target: escape(&target),
                why: FollowProblem::Loop,
            },
            Err(error) => self.unreadable(link, error),
        }
    }

    fn unreadable(&self, path: &RelPath, error: CallError) -> SourceProblem {
        if error.errno == rustix::io::Errno::LOOP {
            return self.missing(path);
        }
        SourceProblem::Unreadable {
            path: path.to_string(),
            source: error,
        }
    }

    fn missing(&self, path: &RelPath) -> SourceProblem {
        match self.link_above(path) {
            Some(link) => SourceProblem::ThroughLink {
                path: path.clone(),
                link,
            },
            None => SourceProblem::Missing {
                path: path.clone(),
                near: near(self.files, path),
            },
        }
    }

    fn link_above(&self, path: &RelPath) -> Option<RelPath> {
        let mut above: Vec<RelPath> =
            std::iter::successors(path.parent(), RelPath::parent).collect();
        above.reverse();
        above.into_iter().find(|path| {
            let found = self.files.look(path).ok().flatten();
            found.is_some_and(|found| found.kind == FoundKind::Symlink)
        })
    }
}

/// Suggests a name for a missing `path`: compares its first missing segment with the neighbours.
pub(crate) fn near(files: &dyn WorkspaceFiles, path: &RelPath) -> Option<String> {
    let is_there = |path: &RelPath| matches!(files.look(path), Ok(Some(_)));
    let ways: Vec<RelPath> =
        std::iter::successors(Some(path.clone()), |path| path.parent()).collect();
    let missing = ways.iter().rev().find(|path| !is_there(path))?;
    let mut names = Vec::new();
    let listed = files.list(missing.parent().as_ref(), &mut |name| {
        names.push(escape(name));
        match NEIGHBOURS_MAX < names.len() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    listed.ok()?;
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

fn file_target(path: &RelPath, target: &SourceTarget) -> Result<RelPath, SourceProblem> {
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
    Gathering::refuse_left_out(&to)?;
    Gathering::refuse_reserved(&to)?;
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

pub(crate) fn join(above: Option<&RelPath>, path: &RelPath) -> Result<RelPath, SourceProblem> {
    match above {
        None => Ok(path.clone()),
        Some(above) => above.join(path).map_err(|error| SourceProblem::Path {
            path: path.to_string(),
            error,
        }),
    }
}

fn parse(name: &[u8]) -> Result<RelPath, SourceProblem> {
    RelPath::parse(name).map_err(|error| SourceProblem::Path {
        path: escape(name),
        error,
    })
}
