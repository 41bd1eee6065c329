//! Directories in the OCI image layout (image-spec, image-layout.md): read as somebody else's,
//! written whole or not at all.

pub mod error;
mod files;
mod index;
mod reader;
mod writer;

pub use reader::{Layout, LayoutEntry};
pub use writer::{LayoutWriter, NewEntry};
