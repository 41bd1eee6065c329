//! Builds a tree together with its files on disk: an entry is created only after the tree accepts it.
//!
//! Without a target directory only the tree is built, by the same rules.

use std::collections::HashMap;
use std::collections::hash_map;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::canonical::{StreamDigest, content_digest};
use crate::error::{Refusal, UnpackError, shown};
use crate::links;
use crate::survey::{KeptContents, Surveyed};
use crate::target::{Target, failed, file_bits, write_all};
use crate::tree::{Conflict, Entry, Tree, TreeLimits};
use crate::unpack::Unpacked;
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use sys::credentials::HostIds;

const COPY_BUFFER_BYTES: usize = 64 * 1024;
const VERSION_CONTROL_DIRECTORIES: [&[u8]; 3] = [b".git", b".hg", b".svn"];

/// Whether `path` is `.git`, `.hg` or `.svn` or lies beneath one, at any depth: no bundle contains it.
pub fn is_in_version_control(path: &RelPath) -> bool {
    path.segments()
        .any(|segment| VERSION_CONTROL_DIRECTORIES.contains(&segment))
}

/// Adds entries to a tree and creates them on disk.
pub(crate) struct TreeWriter<'fd> {
    /// `None` builds the tree only.
    target: Option<Target<'fd>>,
    /// Without a target, the contents to keep in memory.
    kept: KeptContents,
    tree: Tree,
    limits: TreeLimits,
    digest: StreamDigest,
    left_out: u64,
    first_left_out: Option<RelPath>,
}

/// A file being written.
pub(crate) struct FileSink<'writer> {
    path: RelPath,
    file: Option<OwnedFd>,
    kept: &'writer mut KeptContents,
    digest: &'writer mut StreamDigest,
}

impl FileSink<'_> {
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), UnpackError> {
        self.digest.add_data(data);
        match &self.file {
            Some(file) => write_all(file.as_fd(), &self.path, data),
            None => {
                self.kept.add_data(&self.path, data);
                Ok(())
            }
        }
    }

    /// Must be called after all data is written.
    pub(crate) fn end(self) {
        self.digest.end_file();
    }
}

impl<'fd> TreeWriter<'fd> {
    /// Creates entries in the empty directory `root`; they belong to `ids` if given.
    pub(crate) fn new(root: BorrowedFd<'fd>, limits: TreeLimits, ids: Option<HostIds>) -> Self {
        let target = Some(Target::new(root, ids));
        Self::with_target(target, limits, KeptContents::default())
    }

    /// Creates no files; `kept` selects the contents that stay in memory.
    pub(crate) fn without_files(limits: TreeLimits, kept: KeptContents) -> Self {
        Self::with_target(None, limits, kept)
    }

    fn with_target(target: Option<Target<'fd>>, limits: TreeLimits, kept: KeptContents) -> Self {
        Self {
            target,
            kept,
            tree: Tree::default(),
            limits,
            digest: StreamDigest::new(),
            left_out: 0,
            first_left_out: None,
        }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Records that `path` is excluded.
    pub(crate) fn leave_out(&mut self, path: RelPath) {
        self.left_out += 1;
        self.first_left_out.get_or_insert(path);
    }

    /// The error is a refusal of entry `index` or [`UnpackError::Target`], as for the other `add`
    /// functions.
    pub(crate) fn add_directory(&mut self, index: u64, path: RelPath) -> Result<(), UnpackError> {
        let is_new = self.insert(index, &path, Entry::Directory)?.is_none();
        if is_new {
            if let Some(target) = &mut self.target {
                target.create_directory(&path)?;
            }
            self.digest.add_entry(&path, &Entry::Directory);
        }
        Ok(())
    }

    /// The link is created at the end, when all links are known.
    pub(crate) fn add_symlink(
        &mut self,
        index: u64,
        path: RelPath,
        target: Vec<u8>,
    ) -> Result<(), UnpackError> {
        let entry = Entry::Symlink { target };
        self.insert(index, &path, entry.clone())?;
        self.digest.add_entry(&path, &entry);
        Ok(())
    }

    /// Adds a file of `bytes` bytes; the caller writes its data to the sink.
    pub(crate) fn add_file(
        &mut self,
        index: u64,
        path: RelPath,
        executable: bool,
        bytes: u64,
    ) -> Result<FileSink<'_>, UnpackError> {
        let entry = Entry::File { executable, bytes };
        let is_replacement = self.insert(index, &path, entry.clone())?.is_some();
        let file = match &mut self.target {
            Some(target) => {
                if is_replacement {
                    target.remove_file(&path)?;
                }
                Some(target.create_file(&path, file_bits(executable))?)
            }
            None => {
                self.kept.begin_file(&path, executable, bytes);
                None
            }
        };
        self.digest.add_entry(&path, &entry);
        Ok(FileSink {
            path,
            file,
            kept: &mut self.kept,
            digest: &mut self.digest,
        })
    }

    /// Adds a copy of the file `from`, which is in the tree.
    pub(crate) fn add_copy(
        &mut self,
        index: u64,
        path: RelPath,
        from: &RelPath,
        executable: bool,
        bytes: u64,
    ) -> Result<(), UnpackError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        let Some(target) = &mut self.target else {
            let contents = self.kept.contents(from).unwrap_or_default().to_vec();
            // The digest cannot include contents that were not kept.
            self.digest.abort();
            let mut file = self.add_file(index, path.clone(), executable, bytes)?;
            file.write(&contents)?;
            file.end();
            self.kept.remove_incomplete(&path);
            return Ok(());
        };
        let source = target.open(from, flags, Mode::empty())?;
        let mut file = self.add_file(index, path, executable, bytes)?;
        let mut buffer = vec![0; COPY_BUFFER_BYTES];
        loop {
            match rustix::io::read(&source, &mut buffer) {
                Ok(0) => break,
                Ok(count) => file.write(&buffer[..count])?,
                Err(rustix::io::Errno::INTR) => (),
                Err(errno) => return Err(failed("read", from, errno)),
            }
        }
        file.end();
        Ok(())
    }

    /// Checks the links against the whole tree, creates them in `root`, and computes the content digest.
    /// The error is a link that breaks a rule, or [`UnpackError::Target`].
    pub(crate) fn finish(
        mut self,
        root: BorrowedFd<'_>,
        archive_digest: Option<Digest>,
    ) -> Result<Unpacked, UnpackError> {
        let target = self.target.take();
        let surveyed = self.finish_survey(archive_digest)?;
        if let Some(mut directory) = target {
            for (path, entry) in surveyed.tree.iter() {
                if let Entry::Symlink { target } = entry {
                    directory.create_symlink(path, target)?;
                }
            }
        }
        let content_digest = match surveyed.content_digest {
            Some(digest) => digest,
            None => content_digest(&surveyed.tree, root)?,
        };
        Ok(Unpacked {
            content_digest,
            archive_digest,
            bytes: surveyed.bytes,
            entries: surveyed.entries,
            tree: surveyed.tree,
            warnings: surveyed.warnings,
        })
    }

    /// As [`Self::finish`], without creating the links.
    pub(crate) fn finish_survey(
        self,
        archive_digest: Option<Digest>,
    ) -> Result<Surveyed, UnpackError> {
        links::check_all(&self.tree).map_err(|(link, refusal)| {
            let name = shown(link.as_bytes());
            UnpackError::Refused(refusal.about(format_args!("`{name}`")))
        })?;
        let mut warnings = Vec::new();
        if let Some(first) = &self.first_left_out {
            let what = "of .git, .hg or .svn";
            warnings.push(left_out_warning(
                "bundle_left_out",
                first,
                self.left_out - 1,
                what,
            ));
        }
        warnings.extend(case_collision_warning(&self.tree));
        Ok(Surveyed {
            content_digest: self.digest.finish(),
            archive_digest,
            bytes: self.tree.file_bytes(),
            entries: self.tree.len() as u64,
            tree: self.tree,
            warnings,
            kept: self.kept.finish(),
        })
    }

    /// Inserts the entry into the tree and creates the implied directories; returns the replaced entry.
    fn insert(
        &mut self,
        index: u64,
        path: &RelPath,
        entry: Entry,
    ) -> Result<Option<Entry>, UnpackError> {
        let kind = entry.kind();
        let insertion = self
            .tree
            .insert(path.clone(), entry, self.limits)
            .map_err(|conflict| conflict_error(conflict, index, path, kind, self.limits))?;
        for directory in &insertion.implied {
            if let Some(target) = &mut self.target {
                target.create_directory(directory)?;
            }
            self.digest.add_entry(directory, &Entry::Directory);
        }
        Ok(insertion.replaced)
    }
}

fn conflict_error(
    conflict: Conflict,
    index: u64,
    path: &RelPath,
    kind: &'static str,
    limits: TreeLimits,
) -> UnpackError {
    let refusal = match conflict {
        Conflict::BeneathFile(file) => Refusal::beneath_file(&file),
        Conflict::BeneathLink(link) => Refusal::beneath_link(&link),
        Conflict::OtherType(existing) => Refusal::new(
            "entry_other_type",
            format!("it is {kind}, and an earlier entry of that name is {existing}"),
        ),
        Conflict::TooManyEntries => Refusal::too_many_entries(limits.entries),
        Conflict::TooLongNames => Refusal::too_long_names(limits.name_bytes),
    };
    UnpackError::entry(index, path.as_bytes(), refusal)
}

/// A warning that a bundle does not contain `first` and `others` more entries of a kind: `what`.
pub fn left_out_warning(code: &str, first: &RelPath, others: u64, what: &str) -> WarningReport {
    let message = match others {
        0 => format!("`{first}` is left out, as all entries {what}"),
        others => format!("`{first}` and {others} more entries {what} are left out"),
    };
    WarningReport::new(code, message)
}

/// A warning about paths that are equal on a case-insensitive file system.
pub fn case_collision_warning(tree: &Tree) -> Option<WarningReport> {
    let hasher = RandomState::new();
    let mut seen: HashMap<u64, &RelPath> = HashMap::with_capacity(tree.len());
    let mut first = None;
    let mut others: u64 = 0;
    for (path, _) in tree.iter() {
        let folded = fold_case(path);
        match seen.entry(hasher.hash_one(&folded)) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(path);
            }
            // The paths themselves are compared: their hashes may collide.
            hash_map::Entry::Occupied(earlier) => {
                if fold_case(earlier.get()) == folded {
                    others += u64::from(first.is_some());
                    first.get_or_insert((*earlier.get(), path));
                }
            }
        }
    }
    let (earlier, later) = first?;
    let more = match others {
        0 => String::new(),
        others => format!(", and so do {others} more"),
    };
    let message = format!("`{earlier}` and `{later}` differ in case only{more}");
    Some(WarningReport::new("bundle_case_twins", message))
}

fn fold_case(path: &RelPath) -> String {
    escape(path.as_bytes()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpack::UnpackLimits;

    #[test]
    fn only_whole_segments_are_left_out() {
        for (path, left_out) in [
            (".git", true),
            (".git/config", true),
            ("a/.svn/b", true),
            ("a/.hg", true),
            (".gitignore", false),
            (".github/x", false),
            ("a.git/x", false),
            (".GIT/x", false),
        ] {
            let path = RelPath::parse(path.as_bytes()).expect("a path");
            assert_eq!(is_in_version_control(&path), left_out, "{path}");
        }
    }

    #[test]
    fn names_that_differ_in_case_only_cause_one_warning() {
        let mut tree = Tree::default();
        let limits = UnpackLimits::default().tree_limits();
        for path in ["A/x", "a/x", "B", "c", "Ä", "ä"] {
            let path = RelPath::parse(path.as_bytes()).expect("a path");
            let entry = Entry::File {
                executable: false,
                bytes: 0,
            };
            tree.insert(path, entry, limits).expect("fits");
        }
        let warning = case_collision_warning(&tree).expect("a collision");
        assert_eq!(
            warning.message,
            "`A` and `a` differ in case only, and so do 2 more"
        );
    }
}
