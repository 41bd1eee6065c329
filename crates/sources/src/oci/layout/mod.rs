//! OCI image layouts (image-spec, image-layout.md): read as untrusted input, written atomically.

pub mod error;
mod files;
mod index;
mod reader;
mod writer;

pub use index::LayoutEntry;
pub use reader::Layout;
pub use writer::LayoutWriter;
