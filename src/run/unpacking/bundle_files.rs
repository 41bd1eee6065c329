//! The files of a bundle, unpacked or not: its tree, and the first bytes of each file.

use std::io::Read as _;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};

use archive::{Surveyed, Tree};
use spec::path::RelPath;
use sys::file::open_beneath;

/// The files of a bundle: its tree and the first bytes of each file.
pub(in crate::run) trait BundleFiles {
    fn tree(&self) -> &Tree;

    /// The first `bytes_max` bytes of a file, or all of a shorter one.
    ///
    /// # Errors
    /// Why it cannot be read, as the end of a sentence.
    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String>;
}

#[derive(Debug)]
pub(in crate::run) struct UnpackedFiles<'run> {
    pub(in crate::run) tree: &'run Tree,
    pub(in crate::run) root: BorrowedFd<'run>,
}

impl BundleFiles for UnpackedFiles<'_> {
    fn tree(&self) -> &Tree {
        self.tree
    }

    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String> {
        let file = open_beneath(self.root, path.as_bytes(), OFlags::RDONLY, Mode::empty())
            .map_err(|errno| format!("cannot be opened: {errno}"))?;
        let mut bytes = Vec::new();
        std::fs::File::from(file)
            .take(bytes_max)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    }
}

/// A bundle that was read and not unpacked.
impl BundleFiles for Surveyed {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String> {
        // Qualified: the trait has a method of the same name.
        let kept = Surveyed::head(self, path)
            .ok_or_else(|| "was skipped while the bundle was read".to_owned())?;
        let length = usize::try_from(bytes_max).map_or(kept.len(), |max| max.min(kept.len()));
        Ok(kept[..length].to_vec())
    }
}

/// No files: for a manifest that is not in a bundle yet.
impl BundleFiles for Tree {
    fn tree(&self) -> &Tree {
        self
    }

    fn head(&self, _path: &RelPath, _bytes_max: u64) -> Result<Vec<u8>, String> {
        Err("is in no bundle yet".to_owned())
    }
}
