//! OCI registries, layouts and the local store.
//!
//! [`registry::Registry`] and [`layout::Layout`] implement [`origin::Origin`]. Only `registry`
//! handles credentials. [`pull`] fetches missing blobs into [`store::Store`]. Every digest is
//! verified before use.

pub mod artifact;
pub mod error;
mod fetcher;
mod hashing;
pub mod layers;
pub mod layout;
pub mod observer;
pub mod opening;
pub mod origin;
pub mod pull;
pub mod push;
pub mod registry;
pub mod store;
