//! Sources of artifacts: HTTP services, OCI registries and OCI layouts.
#![forbid(unsafe_code)]

pub mod http;
pub mod oci;
