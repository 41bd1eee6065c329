//! From a manifest to a bundle.
//!
//! [`bundle()`] runs all steps: [`locate`](locate::locate) finds the manifest,
//! [`resolve`](resolve::resolve) reads it and replaces `ref` sources by their content, a lock file pins
//! the references, [`gather`](gather::gather) lists the files and fetches repositories,
//! [`write`](write::write()) reads each file once and writes the archive.
//!
//! [`check`](check::check) reports all errors of a manifest, [`source`] builds source artifacts.
#![forbid(unsafe_code)]

mod advice;
pub mod bundle;
pub mod check;
pub mod credentials;
pub mod define_code;
pub mod error;
pub mod files;
mod filter;
mod folders;
mod follow;
pub mod gather;
mod gathered;
mod hosting;
mod ignored;
mod large_content;
pub mod layer;
mod left_out;
pub mod locate;
pub mod manifests;
pub mod matching;
pub mod origin;
pub mod output;
mod outputs;
pub mod overlay;
mod pattern;
mod pinned;
pub mod resolve;
pub mod runnable;
mod schemas;
mod secrets;
pub mod source;
mod walk;
pub mod write;

pub use bundle::bundle;
pub use check::check;
pub use define_code::{DefineCode, define_code};
pub use error::BundleError;
pub use gather::{GatherOptions, Gathered, gather};
pub use origin::{SourceKind, SourceOrigin};
pub use pinned::LockUse;
pub use resolve::{Resolution, ResolveRequest, resolve};
pub use write::{WrittenBundle, write};
