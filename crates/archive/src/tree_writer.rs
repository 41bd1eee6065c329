//! Builds a tree together with its files on disk: an entry is created only after the tree accepts it.
//!
//! Without a target directory only the tree is built, by the same rules.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::canonical::{StreamDigest, content_digest};
use crate::error::{Refusal, UnpackError, shown};
use crate::links;
use crate::survey::{Kept, Surveyed};
use crate::target::{Target, failed, file_bits, write_all};
use crate::tree::{Conflict, Entry, Tree, TreeLimits};
use crate::unpack::{UnpackLimits, Unpacked};
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use sys::credentials::HostIds;

/// Bytes of a file that are copied at once.
const COPY_BYTES: usize = 64 * 1024;
/// Directories of version control systems, which are excluded at any depth.
pub const LEFT_OUT: [&[u8]; 3] = [b".git", b".hg", b".svn"];

/// Whether `path` is an excluded directory or lies beneath one.
pub(crate) fn is_left_out(path: &RelPath) -> bool {
    path.segments().any(|segment| LEFT_OUT.contains(&segment))
}

/// Builds a tree and its files on disk.
pub(crate) struct TreeWriter<'fd> {
    image: Option<Target<'fd>>,
    kept: Kept,
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
    kept: &'writer mut Kept,
    digest: &'writer mut StreamDigest,
}

impl FileSink<'_> {
    /// Appends `data`.
    ///
    /// # Errors
    /// [`UnpackError::Target`].
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), UnpackError> {
        self.digest.data(data);
        match &self.file {
            Some(file) => write_all(file.as_fd(), &self.path, data),
            None => {
                self.kept.data(&self.path, data);
                Ok(())
            }
        }
    }

    /// Ends the data of the file.
    pub(crate) fn end(self) {
        self.digest.end_of_file();
    }
}

impl<'fd> TreeWriter<'fd> {
    /// Creates an empty tree in the empty directory `root`; created entries belong to `ids` if given.
    pub(crate) fn new(root: BorrowedFd<'fd>, limits: TreeLimits, ids: Option<HostIds>) -> Self {
        Self::with_image(Some(Target::new(root, ids)), limits)
    }

    /// Creates an empty tree without files on disk; keeps only the contents that [`Kept`] selects.
    pub(crate) fn without_image(limits: TreeLimits, kept: Kept) -> Self {
        Self {
            kept,
            ..Self::with_image(None, limits)
        }
    }

    fn with_image(image: Option<Target<'fd>>, limits: TreeLimits) -> Self {
        Self {
            image,
            kept: Kept::default(),
            tree: Tree::default(),
            limits,
            digest: StreamDigest::new(),
            left_out: 0,
            first_left_out: None,
        }
    }

    /// The current tree.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Records that `path` is excluded.
    pub(crate) fn leave_out(&mut self, path: RelPath) {
        self.left_out += 1;
        self.first_left_out.get_or_insert(path);
    }

    /// Adds a directory.
    ///
    /// # Errors
    /// A refusal about entry `index`, or [`UnpackError::Target`].
    pub(crate) fn directory(&mut self, index: u64, path: RelPath) -> Result<(), UnpackError> {
        let is_new = self.insert(index, &path, Entry::Directory)?.is_none();
        if is_new {
            if let Some(target) = &mut self.image {
                target.create_directory(&path)?;
            }
            self.digest.entry(&path, &Entry::Directory);
        }
        Ok(())
    }

    /// Adds a symbolic link; links are created at the end, when all are known.
    ///
    /// # Errors
    /// A refusal about entry `index`, or [`UnpackError::Target`].
    pub(crate) fn symlink(
        &mut self,
        index: u64,
        path: RelPath,
        target: Vec<u8>,
    ) -> Result<(), UnpackError> {
        let entry = Entry::Symlink { target };
        self.insert(index, &path, entry.clone())?;
        self.digest.entry(&path, &entry);
        Ok(())
    }

    /// Adds a file of `bytes` bytes; the caller writes its data to the sink.
    ///
    /// # Errors
    /// A refusal about entry `index`, or [`UnpackError::Target`].
    pub(crate) fn file(
        &mut self,
        index: u64,
        path: RelPath,
        executable: bool,
        bytes: u64,
    ) -> Result<FileSink<'_>, UnpackError> {
        let entry = Entry::File { executable, bytes };
        let replaced = self.insert(index, &path, entry.clone())?.is_some();
        let file = match &mut self.image {
            Some(target) => {
                if replaced {
                    target.remove_file(&path)?;
                }
                Some(target.create_file(&path, file_bits(executable))?)
            }
            None => {
                self.kept.begin(&path, executable, bytes);
                None
            }
        };
        self.digest.entry(&path, &entry);
        Ok(FileSink {
            path,
            file,
            kept: &mut self.kept,
            digest: &mut self.digest,
        })
    }

    /// Adds a copy of the file `from`, which is in the tree.
    ///
    /// # Errors
    /// A refusal about entry `index`, or [`UnpackError::Target`].
    pub(crate) fn copy(
        &mut self,
        index: u64,
        path: RelPath,
        from: &RelPath,
        executable: bool,
        bytes: u64,
    ) -> Result<(), UnpackError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        let Some(target) = &mut self.image else {
            let known = self.kept.of(from);
            // The digest cannot include contents that were not kept.
            self.digest.give_up();
            let mut sink = self.file(index, path, executable, bytes)?;
            if let Some(known) = known {
                sink.write(&known)?;
            }
            sink.end();
            return Ok(());
        };
        let source = target.open(from, flags, Mode::empty())?;
        let mut sink = self.file(index, path, executable, bytes)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match rustix::io::read(&source, &mut buffer) {
                Ok(0) => break,
                Ok(count) => sink.write(&buffer[..count])?,
                Err(rustix::io::Errno::INTR) => (),
                Err(errno) => return Err(failed("read", from, errno)),
            }
        }
        sink.end();
        Ok(())
    }

    /// Checks the links against the whole tree, creates them, and computes the digest of the contents of
    /// `root`.
    ///
    /// # Errors
    /// A link that breaks a rule, or [`UnpackError::Target`].
    pub(crate) fn finish(
        mut self,
        root: BorrowedFd<'_>,
        archive_digest: Option<Digest>,
    ) -> Result<Unpacked, UnpackError> {
        let image = self.image.take();
        let surveyed = self.survey(archive_digest)?;
        if let Some(mut image) = image {
            for (path, entry) in surveyed.tree.iter() {
                if let Entry::Symlink { target } = entry {
                    image.create_symlink(path, target)?;
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

    /// Checks the links against the whole tree, and returns the result.
    ///
    /// # Errors
    /// A link that breaks a rule.
    pub(crate) fn survey(self, archive_digest: Option<Digest>) -> Result<Surveyed, UnpackError> {
        links::check_all(&self.tree).map_err(|(link, refusal)| {
            let name = shown(link.as_bytes());
            UnpackError::Refused(refusal.about(format_args!("`{name}`")))
        })?;
        let mut warnings = Vec::new();
        if let Some(first) = &self.first_left_out {
            let message = match self.left_out - 1 {
                0 => format!("`{first}` is left out, as all of .git, .hg and .svn"),
                others => {
                    format!("`{first}` and {others} more entries of .git, .hg or .svn are left out")
                }
            };
            warnings.push(WarningReport::new("bundle_left_out", message));
        }
        warnings.extend(case_twins(&self.tree));
        Ok(Surveyed {
            content_digest: self.digest.finish(),
            archive_digest,
            bytes: self.tree.file_bytes(),
            entries: self.tree.len() as u64,
            tree: self.tree,
            warnings,
            kept: self.kept,
        })
    }

    /// Inserts the entry into the tree and creates the implied directories; returns the replaced entry.
    fn insert(
        &mut self,
        index: u64,
        path: &RelPath,
        entry: Entry,
    ) -> Result<Option<Entry>, UnpackError> {
        let here = entry.kind();
        let placement = self
            .tree
            .insert(path.clone(), entry, self.limits)
            .map_err(|conflict| refused(conflict, index, path, here, self.limits))?;
        for directory in &placement.implied {
            if let Some(target) = &mut self.image {
                target.create_directory(directory)?;
            }
            self.digest.entry(directory, &Entry::Directory);
        }
        Ok(placement.replaced)
    }
}

fn refused(
    conflict: Conflict,
    index: u64,
    path: &RelPath,
    here: &'static str,
    limits: TreeLimits,
) -> UnpackError {
    let refusal = match conflict {
        Conflict::FileInTheWay(at) => Refusal::beneath_file(&at),
        Conflict::ThroughLink(link) => Refusal::beneath_link(&link),
        Conflict::OtherType(there) => Refusal::new(
            "entry_other_type",
            format!("it is {here}, and an earlier entry of that name is {there}"),
        ),
        Conflict::Entries => {
            return UnpackError::TooManyEntries {
                index,
                name: shown(path.as_bytes()),
                limit: limits.entries,
            };
        }
        Conflict::NameBytes => {
            return UnpackError::TooLongNames {
                index,
                name: shown(path.as_bytes()),
                limit_bytes: limits.name_bytes,
            };
        }
    };
    UnpackError::entry(index, path.as_bytes(), refusal)
}

/// A warning about paths that are equal on a case-insensitive file system.
pub fn case_twins(tree: &Tree) -> Option<WarningReport> {
    let state = RandomState::new();
    let mut seen: HashMap<u64, &RelPath> = HashMap::with_capacity(tree.len());
    let mut first = None;
    let mut others: u64 = 0;
    for (path, _) in tree.iter() {
        let folded = folded(path);
        match seen.entry(state.hash_one(&folded)) {
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(path);
            }
            std::collections::hash_map::Entry::Occupied(there) => {
                if self::folded(there.get()) == folded {
                    others += u64::from(first.is_some());
                    first.get_or_insert((*there.get(), path));
                }
            }
        }
    }
    let (one, other) = first?;
    let so_do = match others {
        0 => String::new(),
        others => format!(", and so do {others} more"),
    };
    let message = format!("`{one}` and `{other}` differ in case only{so_do}");
    Some(WarningReport::new("bundle_case_twins", message))
}

fn folded(path: &RelPath) -> String {
    escape(path.as_bytes()).to_lowercase()
}

impl UnpackLimits {
    /// Limits of the tree: the entries, and 120 bytes of names for each on average.
    pub fn tree(&self) -> TreeLimits {
        // A higher value needs more than 64 MiB of memory for the longest lists of names.
        const NAME_BYTES_EACH: u64 = 120;
        const NAME_BYTES_LEAST: u64 = 1024 * 1024;
        TreeLimits {
            entries: self.entries,
            name_bytes: NAME_BYTES_LEAST.max(self.entries.saturating_mul(NAME_BYTES_EACH)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(is_left_out(&path), left_out, "{path}");
        }
    }

    #[test]
    fn names_that_differ_in_case_only_are_told_once() {
        let mut tree = Tree::default();
        let limits = UnpackLimits::default().tree();
        for path in ["A/x", "a/x", "B", "c", "Ä", "ä"] {
            let path = RelPath::parse(path.as_bytes()).expect("a path");
            let entry = Entry::File {
                executable: false,
                bytes: 0,
            };
            tree.insert(path, entry, limits).expect("fits");
        }
        let warning = case_twins(&tree).expect("twins");
        assert_eq!(
            warning.message,
            "`A` and `a` differ in case only, and so do 2 more"
        );
    }
}
