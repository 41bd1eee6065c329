//! OCI image layouts (image-spec, image-layout.md): read as untrusted input, written atomically.

pub mod error;
mod files;
mod index;
mod reader;
mod writer;

pub use reader::{Layout, LayoutEntry};
pub use writer::{LayoutWriter, NewEntry};
