//! Hides entries of the layers below, for overlayfs mounted with `userxattr`.
//!
//! A step after unpacking, since it needs all layers.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::error::{UnpackError, shown};
use crate::layer_view::LayerView;
use crate::target::{Target, failed};
use spec::path::{RelPath, escape};
use sys::file::CallError;

/// The xattr that marks a directory as opaque.
const OPAQUE: &str = "user.overlay.opaque";

/// Whether one of the layers below has an entry at a path without links.
pub type ExistsBelow<'a> = &'a dyn Fn(&RelPath) -> Result<bool, CallError>;

/// What a layer hides, if the layers below have it. No path is beneath another, and no entry of the layer
/// hides one already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hiding {
    /// Directories whose contents below are hidden.
    pub opaque: Vec<RelPath>,
    /// Entries that are removed.
    pub whiteouts: Vec<RelPath>,
}

impl Hiding {
    /// Writes the marks and whiteouts to `root`, the layer with this `view`. Missing directories are created
    /// with the modes of the layers below. No link is followed, whatever `root` contains.
    ///
    /// # Errors
    /// [`UnpackError`]: a file system error, or an error of `exists_below`.
    pub fn write(
        &self,
        root: BorrowedFd<'_>,
        view: &LayerView,
        exists_below: ExistsBelow<'_>,
    ) -> Result<(), UnpackError> {
        let mut layer = Layer {
            target: Target::new(root, None),
            view,
            directories: BTreeSet::new(),
        };
        for path in &self.opaque {
            if exists_in_lower_layer(exists_below, path)? {
                layer.create_directories(Some(path.clone()))?;
                layer.mark_opaque(path)?;
            }
        }
        for path in &self.whiteouts {
            if exists_in_lower_layer(exists_below, path)? {
                layer.create_directories(path.parent())?;
                layer.target.create_whiteout(path)?;
            }
        }
        Ok(())
    }
}

fn exists_in_lower_layer(
    exists_below: ExistsBelow<'_>,
    path: &RelPath,
) -> Result<bool, UnpackError> {
    exists_below(path).map_err(|source| UnpackError::Source {
        name: shown(path.as_bytes()),
        source,
    })
}

struct Layer<'a> {
    target: Target<'a>,
    view: &'a LayerView,
    /// Directories that exist in the layer.
    directories: BTreeSet<Vec<u8>>,
}

impl Layer<'_> {
    /// Creates `path` and its parents if they are missing.
    fn create_directories(&mut self, path: Option<RelPath>) -> Result<(), UnpackError> {
        let mut missing = Vec::new();
        let mut next = path;
        while let Some(path) = next {
            if self.directories.contains(path.as_bytes()) {
                break;
            }
            next = path.parent();
            missing.push(path);
        }
        for path in missing.iter().rev() {
            let bits = self.view.directory_mode(path);
            match self.target.create_directory_as(path, bits) {
                // Anything but a directory fails when something beneath it is opened.
                Err(UnpackError::Target { source, .. }) if source.errno == Errno::EXIST => (),
                created => created?,
            }
            self.directories.insert(path.as_bytes().to_vec());
        }
        Ok(())
    }

    fn mark_opaque(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = self.target.open(path, flags, Mode::empty())?;
        rustix::fs::fsetxattr(&directory, OPAQUE, b"y", XattrFlags::CREATE).map_err(|errno| {
            match errno {
                Errno::NOTSUP | Errno::PERM | Errno::ACCESS => UnpackError::NotOpaque {
                    name: shown(path.as_bytes()),
                    source: CallError::new("fsetxattr", escape(path.as_bytes()), errno),
                },
                errno => failed("fsetxattr", path, errno),
            }
        })
    }
}
