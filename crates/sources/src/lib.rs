//! Sources of files: repositories of GitHub, OCI registries and OCI layouts.
//!
//! [`github`] and the registries of [`oci`] share one HTTP client. Downloads are verified before
//! use and stored in a [`store::StoreDirectory`].
#![forbid(unsafe_code)]

pub mod github;
mod http;
pub mod oci;
pub mod progress;

pub use http::Timeouts;

fn escape_path(path: &std::path::Path) -> String {
    spec::path::escape(path.as_os_str().as_encoded_bytes())
}
