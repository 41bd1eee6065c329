//! From a manifest to a bundle.
//!
//! [`resolve`](resolve::resolve) reads manifests and replaces `ref` sources by their content.
//! [`gather`](gather::gather) lists the files, fetches repositories and merges everything.
//! [`write`](write::write) reads each file once and writes the archive.
//!
//! [`making`] has these stages in order, with the lock file: the place to start reading.
#![forbid(unsafe_code)]

mod bundle_filter;
pub mod check;
mod credentials;
pub mod define_code;
pub mod error;
pub mod files;
mod filter;
mod folders;
mod follow;
pub mod gather;
mod gathering;
pub mod hosting;
mod ignored;
pub mod layer;
pub mod locate;
pub(crate) mod locking;
pub mod making;
pub mod manifests;
pub mod origin;
pub mod output;
pub mod overlay;
mod pattern;
pub mod resolve;
pub mod runnable;
mod secrets;
pub mod source;
pub(crate) mod source_problem;
mod walk;
mod weight;
pub mod write;

pub use check::check;
pub use define_code::{DefineCode, define_code};
pub use error::{ComposeError, ErrorClass, SizeLimit, SourceProblem};
pub use gather::{GatherOptions, Gathered, gather};
pub use origin::{SourceKind, SourceOrigin};
pub use overlay::Overlay;
pub use resolve::{Resolution, ResolveRequest, resolve};
pub use write::{WrittenBundle, content_digest, write};
