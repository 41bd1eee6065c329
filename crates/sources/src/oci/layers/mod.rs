//! Images: their layers unpacked for overlayfs, each once, and what is to be seen in them together.
//!
//! A layer lies in the store under the `ChainID` of itself and those below it (OCI image-spec,
//! config.md), because where its entries went depends on the links of those. Beside it stands what
//! the next one must know ([`LayerView`]).

mod making;
mod merged;
mod problem;

use crate::oci::error::OciError;
use archive::LayerView;
use spec::digest::Digest;
use spec::oci::image_config::ImageConfig;
use spec::report::WarningReport;

pub use making::image;
pub use merged::{Kind, LookError, Merged};
pub use problem::{ImageError, ImageProblem};
/// A layer in use: nobody removes it while this lives.
pub use store::OnShelf as HeldLayer;

/// Most layers of an image that hold anything: what an overlayfs takes below it.
pub const LAYERS_MAX: usize = 40;

/// An image that is unpacked.
#[derive(Debug)]
pub struct Image {
    pub digest: Digest,
    /// What its config says.
    pub config: ImageConfig,
    /// Lowest first, without those of which nothing is seen.
    pub layers: Vec<HeldLayer>,
    /// Whether all layers were unpacked before.
    pub cached: bool,
    /// Whether nothing was asked for at its origin.
    pub from_store: bool,
    /// What was left out of it.
    pub warnings: Vec<WarningReport>,
}

impl Image {
    /// What is to be seen in all layers together.
    #[must_use]
    pub fn merged(&self) -> Merged<'_> {
        Merged::new(&self.layers)
    }

    /// What a layer over this image must know of it.
    ///
    /// # Errors
    /// [`OciError::Store`], [`OciError::Image`] where what is beside the last layer is damaged.
    pub fn view(&self) -> Result<LayerView, OciError> {
        match self.layers.last() {
            Some(layer) => making::view_beside(layer),
            None => Ok(LayerView::default()),
        }
    }

    /// The bytes of the file at `path` in the image's root, links followed inside of it; `None`
    /// where no file is there.
    ///
    /// # Errors
    /// [`LookError`]: it has more than `bytes_max` bytes, or the layers cannot be looked at.
    pub fn read_file(&self, path: &[u8], bytes_max: u64) -> Result<Option<Vec<u8>>, LookError> {
        self.merged().read_file(path, bytes_max)
    }

    /// The names of the directories in the directory `path`, no links; none where it has more than
    /// `most` names, or is the root or no directory.
    ///
    /// # Errors
    /// [`LookError`]: the layers cannot be looked at.
    pub fn directories_in(&self, path: &[u8], most: usize) -> Result<Vec<Vec<u8>>, LookError> {
        self.merged().directories_in(path, most)
    }

    /// What lies at `path` in the image's root, links followed inside of it; `None`: nothing, or
    /// the links lead in a circle.
    ///
    /// # Errors
    /// [`LookError`]: the layers cannot be looked at.
    pub fn kind_of(&self, path: &[u8]) -> Result<Option<Kind>, LookError> {
        self.merged().kind_of(path)
    }
}
