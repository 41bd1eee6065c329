//! OCI: registries and layouts, as where artifacts and images come from and go to.
//!
//! [`origin::Origin`] is what the rest of the program knows of both. [`registry::Registry`] speaks
//! to a registry and is the one place in this room that sees credentials; [`layout::Layout`] reads
//! a directory. [`store::Store`] keeps what was fetched, and [`pull`] puts the two together:
//! what is in the store is not asked for again. Nothing that comes out of either is believed before its digest was looked at.

pub mod artifact;
pub mod error;
pub mod layers;
pub mod layout;
pub mod listener;
pub mod opening;
pub mod origin;
pub mod pull;
pub mod push;
pub mod registry;
pub mod store;
