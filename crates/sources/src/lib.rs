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

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    // Serialization of the types of this crate cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn unix_s() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    since.unwrap_or_default().as_secs()
}

fn escape_path(path: &std::path::Path) -> String {
    spec::path::escape(path.as_os_str().as_encoded_bytes())
}
