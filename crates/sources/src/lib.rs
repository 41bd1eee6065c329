//! Sources of artifacts: repositories of github, OCI registries and OCI layouts.
//!
//! [`github`] and the registries of [`oci`] share one HTTP client. Everything that is fetched is
//! verified before use and kept by the protocol of [`store::StoreDirectory`].
#![forbid(unsafe_code)]

pub mod github;
mod http;
pub mod oci;
pub mod progress;

pub use http::Timeouts;
