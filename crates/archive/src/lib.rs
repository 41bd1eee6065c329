//! Unpacks untrusted archives beneath an open directory, and writes canonical tars.
#![forbid(unsafe_code)]

mod ahead;
pub mod canonical;
pub mod compressed;
pub mod deb;
mod entries;
mod entry_rules;
pub mod error;
pub mod gzip;
pub mod hiding;
mod inflated;
pub mod layer;
pub(crate) mod layer_view;
mod layer_writer;
pub mod links;
pub mod listing;
pub mod open;
pub mod pack;
mod path_mapping;
pub mod pax;
mod processor;
pub mod survey;
pub(crate) mod tar_header;
pub mod target;
mod threaded_hash;
pub mod transfer;
pub mod tree;
mod tree_writer;
pub mod unpack;
mod whiteout;

pub use canonical::content_digest;
pub use canonical::write_canonical;
pub use compressed::{Compression, Hashed};
pub use entry_rules::SEGMENTS_MAX;
pub use error::{Refusal, UnpackError};
pub use layer::{UnpackedLayer, unpack_layer};
pub use layer_view::LayerView;
pub use open::{OpenedArchive, open_archive};
pub use pack::{unpack_directory, unpack_directory_as};
pub use processor::detect_processor_features;
pub use survey::{Surveyed, kept_bytes_max, survey, survey_directory};
pub use tree::{Entry, Tree};
pub use tree_writer::{case_collision_warning, is_in_version_control, left_out_warning};
pub use unpack::unpack_hosted;
pub use unpack::{AHEAD_FROM_BYTES, UnpackLimits, Unpacked, unpack, unpack_ahead, unpack_snapshot};
