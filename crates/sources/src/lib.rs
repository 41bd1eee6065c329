//! Sources of artifacts: repositories of github, OCI registries and OCI layouts.
//!
//! [`http`] is the client that [`github`] and the registries of [`oci`] share. Everything that is
//! fetched is verified before use and kept in a [`store::Shelf`].
#![forbid(unsafe_code)]

pub mod github;
pub mod http;
pub mod oci;
pub mod progress;
