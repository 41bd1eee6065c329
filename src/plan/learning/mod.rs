//! The smallest policy that covers what a run used. The host is asked through [`HostFiles`].

mod fold;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::plan::access::parent;
use crate::plan::learning::fold::{ancestors, fold, outermost};
use spec::path_use::{PathOperation, PathOutcome, PathUse, PathUses};

/// Why the connection to a unix socket of the host is a risk.
pub(crate) const ACTS_OUTSIDE: &str = "the service behind it acts outside of the sandbox";
/// Entries of one list of a policy at most; further ones are only counted.
const ENTRIES_MAX: usize = 1_000;
/// Listed omissions at most; further ones are only counted.
const OMISSIONS_MAX: usize = 200;
/// Directories of the home that hold data of many programs.
const SHARED_IN_HOME: [&str; 4] = ["/.config", "/.cache", "/.local", "/.local/share"];

/// What is on the host. Paths are absolute.
pub(crate) trait HostFiles {
    /// Whether it exists, and is a directory. Links are followed.
    fn is_directory(&self, path: &[u8]) -> Option<bool>;
    /// Whether its name is that of a file or directory with credentials, or it is in one.
    fn is_credential(&self, path: &[u8]) -> bool;
    /// A credential in the directory or below it.
    fn credential_in(&self, directory: &[u8]) -> Credential;
}

/// The result of a search for credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    None,
    At(Vec<u8>),
    /// The directory is too large or cannot be read.
    Unknown,
}

/// What the body saw of the host. Each path is the same inside and outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub home: Option<Vec<u8>>,
    /// The caller's working directory; empty if it is not shown.
    pub working_directory: Vec<u8>,
    /// The home, and directories at the top of the host, shown or not.
    pub of_host: Vec<Vec<u8>>,
    /// The root is that of an image: it has none of `of_host`.
    pub is_image: bool,
    /// Shown read-only to see what is used.
    pub read_only: Vec<Vec<u8>>,
    /// Directories whose changes were kept in memory.
    pub writable: Vec<Vec<u8>>,
    /// Paths that the caller's flags name: each is in the policy if it was used.
    pub named: Vec<Vec<u8>>,
    /// Shown at another path than on the host, or private: no policy has them.
    pub elsewhere: Vec<Vec<u8>>,
    /// Covered by an empty file or directory.
    pub hidden: Vec<Vec<u8>>,
}

impl Shown {
    /// The root is an image, whose own directories the host's would cover.
    pub(crate) fn show_image(&mut self) {
        self.is_image = true;
        let of_host = &self.of_host;
        self.read_only.retain(|path| !of_host.contains(path));
        let (read_only, writable) = (&self.read_only, &self.writable);
        self.hidden
            .retain(|path| is_in_one(path, read_only.iter().chain(writable)));
    }

    /// Whether it may be a path of the image, which the host cannot add.
    fn is_of_image(&self, path: &[u8]) -> bool {
        self.is_image && !is_in_one(path, &self.of_host)
    }
}

/// Changes of the entries of one directory that exists on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    pub created: u64,
    pub changed: u64,
    pub removed: u64,
    /// The name of the first one.
    pub example: Vec<u8>,
}

/// One path of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub path: Vec<u8>,
    /// Paths that were used in it.
    pub uses: u64,
    /// One of them.
    pub example: Option<Vec<u8>>,
    /// What would keep it out of the policy, had no flag named it.
    pub danger: Option<Danger>,
}

/// Why a path is a risk, and what is in it.
pub(crate) type Danger = (Reason, Option<Vec<u8>>);

/// Why a use is not in the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// It may hold credentials.
    Credential,
    /// A directory that would have to be visible as a whole has a credential in it.
    CredentialInside,
    /// The same, if that could not be found out.
    TooLarge,
    /// A directory with data of many programs, such as the home.
    Shared,
    /// It is on the host, but no part of what is shown while learning.
    NotShown,
    /// It was not writable.
    Refused,
    /// A unix socket of the host.
    Socket,
    /// The name has bytes that a policy cannot have.
    Name,
}

impl Reason {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Credential => "may hold credentials",
            Self::CredentialInside => "a file in it may hold credentials",
            Self::TooLarge => "it could not be searched for credentials",
            Self::Shared => "it has data of other programs",
            Self::NotShown => "it is not shown while learning",
            Self::Refused => "it was not writable",
            Self::Socket => ACTS_OUTSIDE,
            Self::Name => "its name cannot be written in a policy",
        }
    }
}

/// A use that is not in the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Omission {
    pub path: Vec<u8>,
    pub reason: Reason,
    pub writes: bool,
    /// What is in it, for [`Reason::CredentialInside`].
    pub inside: Option<Vec<u8>>,
}

/// The paths of a policy, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LearnedPaths {
    pub read_only: Vec<Entry>,
    pub writable: Vec<Entry>,
    pub omitted: Vec<Omission>,
    /// Entries and omissions that are too many to list.
    pub unlisted: usize,
}

/// Folds the uses of a run to a policy.
pub(crate) fn learn(
    uses: &PathUses,
    links: &BTreeSet<Vec<u8>>,
    changes: &BTreeMap<Vec<u8>, Changes>,
    shown: &Shown,
    host: &dyn HostFiles,
) -> LearnedPaths {
    let mut learning = Learning {
        shown,
        host,
        reads: BTreeMap::new(),
        writes: BTreeMap::new(),
        omitted: BTreeSet::new(),
    };
    for (path_use, _) in uses.found.distinct().chain(uses.failed.distinct()) {
        learning.add_use(path_use);
    }
    for link in links {
        learning.add_link(link);
    }
    for (directory, changes) in changes {
        let count = changes.created + changes.changed + changes.removed;
        let example = [directory, &b"/"[..], &changes.example].concat();
        let written = learning.writes.entry(directory.clone()).or_default();
        written.uses = written.uses.max(count);
        written.example = Some(example);
    }
    learning.finish()
}

struct Learning<'run> {
    shown: &'run Shown,
    host: &'run dyn HostFiles,
    reads: BTreeMap<Vec<u8>, Read>,
    /// By directory.
    writes: BTreeMap<Vec<u8>, Written>,
    omitted: BTreeSet<Omission>,
}

/// How a path was read.
#[derive(Default)]
struct Read {
    /// Opened or executed, not only inspected.
    is_opened: bool,
}

#[derive(Default)]
struct Written {
    uses: u64,
    example: Option<Vec<u8>>,
}

impl Learning<'_> {
    fn add_use(&mut self, path_use: &PathUse) {
        let path = path_use.path.as_slice();
        if is_in_one(path, &self.shown.elsewhere) {
            return;
        }
        let writes = matches!(
            path_use.operation,
            PathOperation::Write | PathOperation::Create | PathOperation::Remove
        );
        let is_named = is_in_one(path, &self.shown.named);
        if path_use.operation == PathOperation::Connect {
            // Others are made by the body, or by nobody.
            if !is_named && self.host.is_directory(path) == Some(false) {
                self.omit(path, Reason::Socket, false);
            }
            return;
        }
        let is_credential = || !is_named && self.host.is_credential(path);
        if !is_named && is_in_one(path, &self.shown.hidden) {
            // An inspected directory on the way is no attempt to read what is in it.
            if path_use.operation != PathOperation::Inspect {
                self.omit(path, Reason::Credential, writes);
            }
            return;
        }
        let is_shown =
            is_in_one(path, &self.shown.writable) || is_in_one(path, &self.shown.read_only);
        match (path_use.outcome, writes) {
            (PathOutcome::Found, _) if !is_shown => (),
            (PathOutcome::Found, _) if is_credential() => {
                self.omit(path, Reason::Credential, writes);
            }
            (PathOutcome::Found, true) => self.add_write(path),
            (PathOutcome::Found, false) => {
                let read = self.reads.entry(path.to_vec()).or_default();
                read.is_opened |= path_use.operation != PathOperation::Inspect;
            }
            (PathOutcome::ReadOnly | PathOutcome::NotPermitted, true) if is_shown => {
                self.omit(path, Reason::Refused, true);
            }
            (PathOutcome::Absent, false)
                if !is_shown
                    && !is_of_system(path)
                    && !self.shown.is_of_image(path)
                    && self.host.is_directory(path).is_some() =>
            {
                let reason = if is_credential() {
                    Reason::Credential
                } else {
                    Reason::NotShown
                };
                self.omit(path, reason, false);
            }
            _ => (),
        }
    }

    /// A program may ask where a link leads: it needs the link in its directory, not what a mount at its
    /// path would show. Where the directory cannot be in the policy, such a mount is.
    fn add_link(&mut self, link: &[u8]) {
        let shown = self.shown.writable.iter().chain(&self.shown.read_only);
        let not_shown = self.shown.hidden.iter().chain(&self.shown.elsewhere);
        if is_in_one(link, not_shown) || !is_in_one(link, shown) {
            return;
        }
        // Made by the body.
        if self.host.is_directory(link).is_none() {
            return;
        }
        let directory = parent(link);
        let path = if self.blocks(directory).is_none() {
            directory
        } else if self.host.is_credential(link) {
            return;
        } else {
            link
        };
        self.reads.entry(path.to_vec()).or_default().is_opened = true;
    }

    /// A write needs its directory: programs replace files, and make others beside them.
    fn add_write(&mut self, path: &[u8]) {
        let is_top = |path: &[u8]| self.shown.writable.iter().any(|top| top == path);
        let mut directory = path;
        while !is_top(directory) {
            directory = parent(directory);
            if directory.len() <= 1 || self.host.is_directory(directory) == Some(true) {
                break;
            }
        }
        if !is_in_one(directory, &self.shown.writable) {
            self.omit(path, Reason::Refused, true);
            return;
        }
        let written = self.writes.entry(directory.to_vec()).or_default();
        written.uses += 1;
        written.example.get_or_insert_with(|| path.to_vec());
    }

    fn omit(&mut self, path: &[u8], reason: Reason, writes: bool) {
        self.omitted.insert(Omission {
            path: path.to_vec(),
            reason,
            writes,
            inside: None,
        });
    }

    fn finish(mut self) -> LearnedPaths {
        let (reads, writes) = (take(&mut self.reads), take(&mut self.writes));
        let folded_writes = self.fold_writes(&writes);
        let folded_reads = self.fold_reads(&reads, &folded_writes);
        let mut learned = LearnedPaths::default();
        let reads = reads.into_keys().map(|path| (path, Written::default()));
        let mut unlisted = 0;
        for (list, folded, used) in [
            (&mut learned.read_only, folded_reads, reads.collect()),
            (&mut learned.writable, folded_writes, writes),
        ] {
            let (plain, others): (Vec<_>, Vec<_>) =
                folded.into_iter().partition(|path| is_plain(path));
            for path in others {
                self.omit(&path, Reason::Name, false);
            }
            unlisted += plain.len().saturating_sub(ENTRIES_MAX);
            let listed = plain.iter().take(ENTRIES_MAX);
            list.extend(listed.map(|path| Entry {
                danger: self.danger_of_named(path),
                ..entry(path, &used)
            }));
        }
        learned.unlisted = unlisted + self.omitted.len().saturating_sub(OMISSIONS_MAX);
        learned.omitted = self.omitted.into_iter().take(OMISSIONS_MAX).collect();
        learned
    }

    fn fold_writes(&mut self, writes: &BTreeMap<Vec<u8>, Written>) -> BTreeSet<Vec<u8>> {
        let mut folded = BTreeSet::new();
        for directory in writes.keys() {
            if self.may_grant(directory, true) {
                folded.insert(self.named_or(directory));
            }
        }
        self.fold(folded)
    }

    /// `writable` are the entries that may be read as well.
    fn fold_reads(
        &mut self,
        reads: &BTreeMap<Vec<u8>, Read>,
        writable: &BTreeSet<Vec<u8>>,
    ) -> BTreeSet<Vec<u8>> {
        let mut folded = BTreeSet::new();
        for (path, read) in reads {
            if writable.contains(path) || ancestors(path).any(|above| writable.contains(above)) {
                continue;
            }
            // Made by the body: a mount of it would be refused.
            let Some(is_directory) = self.host.is_directory(path) else {
                continue;
            };
            // A directory on the way to another path exists with its mount.
            let is_on_way = !read.is_opened && has_below(reads, path);
            let may_grant = match (is_directory, read.is_opened) {
                (false, _) => true,
                (true, true) => self.may_grant(path, false),
                (true, false) => !is_on_way && self.blocks(path).is_none(),
            };
            if may_grant {
                folded.insert(self.named_or(path));
            }
        }
        self.fold(folded)
    }

    /// The path of a flag that contains the path, else the path.
    fn named_or(&self, path: &[u8]) -> Vec<u8> {
        let mut named = self.shown.named.iter();
        let named = named.find(|named| is_in(path, named));
        named.map_or(path, Vec::as_slice).to_vec()
    }

    fn fold(&self, paths: BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
        let is_named = |path: &Vec<u8>| self.shown.named.contains(path);
        let (named, others): (BTreeSet<_>, BTreeSet<_>) = paths.into_iter().partition(is_named);
        let mut folded = fold(others, &|directory| self.blocks(directory).is_none());
        folded.extend(named);
        outermost(folded)
    }

    /// Whether the whole directory may be in the policy; else it is omitted.
    fn may_grant(&mut self, directory: &[u8], writes: bool) -> bool {
        let Some((reason, inside)) = self.blocks(directory) else {
            return true;
        };
        self.omitted.insert(Omission {
            path: directory.to_vec(),
            reason,
            writes,
            inside,
        });
        false
    }

    /// Why a directory cannot be in the policy as a whole.
    fn blocks(&self, directory: &[u8]) -> Option<Danger> {
        match is_in_one(directory, &self.shown.named) {
            true => None,
            false => self.danger(directory),
        }
    }

    /// Paths that no flag names are in the policy only if they are no risk.
    fn danger_of_named(&self, path: &[u8]) -> Option<Danger> {
        if !self.shown.named.iter().any(|named| named == path) {
            None
        } else if self.host.is_credential(path) {
            Some((Reason::Credential, None))
        } else if self.host.is_directory(path) == Some(true) {
            self.danger(path)
        } else {
            None
        }
    }

    fn danger(&self, directory: &[u8]) -> Option<Danger> {
        let is_above = |path: &[u8]| is_in(path, directory);
        let home = self.shown.home.as_deref();
        let is_shared = ancestors(directory).next().is_none()
            || home.is_some_and(|home| {
                let shared = SHARED_IN_HOME.map(|name| [home, name.as_bytes()].concat());
                is_above(home) || shared.iter().any(|shared| shared == directory)
            })
            || (is_above(&self.shown.working_directory)
                && directory != self.shown.working_directory);
        if is_shared {
            return Some((Reason::Shared, None));
        }
        let mut hidden = self.shown.hidden.iter();
        if let Some(hidden) = hidden.find(|hidden| is_above(hidden)) {
            return Some((Reason::CredentialInside, Some(hidden.clone())));
        }
        match self.host.credential_in(directory) {
            Credential::None => None,
            Credential::At(path) => Some((Reason::CredentialInside, Some(path))),
            Credential::Unknown => Some((Reason::TooLarge, None)),
        }
    }
}

/// `used` are all paths that were used, by path.
fn entry(path: &[u8], used: &BTreeMap<Vec<u8>, Written>) -> Entry {
    let inside = used
        .range(path.to_vec()..)
        .take_while(|(used, _)| used.starts_with(path))
        .filter(|(used, _)| is_in(used, path));
    let mut entry = Entry {
        path: path.to_vec(),
        uses: 0,
        example: None,
        danger: None,
    };
    for (used, written) in inside {
        entry.uses += written.uses.max(1);
        let example = written.example.as_ref().unwrap_or(used);
        let is_better = entry.example.as_deref().is_none_or(|known| known == path);
        if is_better {
            entry.example = Some(example.clone());
        }
    }
    entry
}

/// Whether a policy can have the path: text without characters that a reader would not see.
fn is_plain(path: &[u8]) -> bool {
    spec::path::escape(path).as_bytes() == path
}

/// Whether the path is one that no flag can make visible.
fn is_of_system(path: &[u8]) -> bool {
    [&b"/proc"[..], b"/sys", b"/dev"]
        .iter()
        .any(|top| is_in(path, top))
}

fn has_below(reads: &BTreeMap<Vec<u8>, Read>, directory: &[u8]) -> bool {
    let first = [directory, b"/"].concat();
    let mut after = reads.range(first.clone()..);
    after
        .next()
        .is_some_and(|(path, _)| path.starts_with(&first))
}

fn is_in(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn is_in_one<'paths>(path: &[u8], directories: impl IntoIterator<Item = &'paths Vec<u8>>) -> bool {
    let mut directories = directories.into_iter();
    directories.any(|directory| is_in(path, directory))
}

#[cfg(test)]
mod tests;
