//! Images, unpacked layer by layer for overlayfs.
//!
//! A process without rights unpacks them (crate `reader`). The store keeps each layer under a key of the
//! digests of its blob and of all blobs below, because links in the layers below decide the paths of its
//! entries. The note of a layer contains the [`LayerView`] for the next one.

mod image;
mod left;
mod merged;
mod packages;
mod problem;

use crate::oci::error::OciError;
use archive::LayerView;
use spec::digest::Digest;
use spec::oci::image_config::ImageConfig;
use spec::report::WarningReport;

pub use image::image;
pub use merged::{Kind, LookupError, Merged};
pub use packages::{PackageLayer, unpack_packages};
pub use problem::ImageProblem;
/// A locked layer. It is not removed while this value lives.
pub use store::KeyedTree as LockedLayer;

/// Most layers with entries: the limit of lower directories for overlayfs.
pub const LAYERS_MAX: usize = 40;

/// An unpacked image.
#[derive(Debug)]
pub struct Image {
    pub digest: Digest,
    pub config: ImageConfig,
    /// Lowest first, without empty and hidden layers.
    pub layers: Vec<LockedLayer>,
    /// All layers were already unpacked.
    pub cached: bool,
    /// No request was made to the origin.
    pub from_store: bool,
    pub warnings: Vec<WarningReport>,
}

impl Image {
    /// Returns the merged view of all layers.
    #[must_use]
    pub fn merged(&self) -> Merged<'_> {
        Merged::new(&self.layers)
    }

    /// Returns the view that a layer on top of this image needs.
    ///
    /// # Errors
    /// [`OciError::Store`], or [`OciError::Image`] if the note of the last layer is damaged.
    pub fn view(&self) -> Result<LayerView, OciError> {
        match self.layers.last() {
            Some(layer) => image::read_view(layer),
            None => Ok(LayerView::default()),
        }
    }

    /// Reads the file at `path`, following links inside the root; `None` if no file is there.
    ///
    /// # Errors
    /// [`LookupError`]: larger than `bytes_max`, or a failed system call.
    pub fn read_file(&self, path: &[u8], bytes_max: u64) -> Result<Option<Vec<u8>>, LookupError> {
        self.merged().read_file(path, bytes_max)
    }

    /// Lists the directories in the directory `path`, without links. The list is empty for the
    /// root, for a non-directory and for more than `names_max` names.
    ///
    /// # Errors
    /// [`LookupError`]: a failed system call.
    pub fn directories_in(
        &self,
        path: &[u8],
        names_max: usize,
    ) -> Result<Vec<Vec<u8>>, LookupError> {
        self.merged().directories_in(path, names_max)
    }

    /// Returns the type of the entry at `path`, following links inside the root; `None` if it does
    /// not exist or the links form a loop.
    ///
    /// # Errors
    /// [`LookupError`]: a failed system call.
    pub fn kind_of(&self, path: &[u8]) -> Result<Option<Kind>, LookupError> {
        self.merged().kind_of(path)
    }
}
