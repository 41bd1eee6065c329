//! Where what a run or a bundle is made of comes from: HTTP services, and OCI registries and layouts.
#![forbid(unsafe_code)]

pub mod http;
pub mod oci;
