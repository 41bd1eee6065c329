//! What OCI registries and layouts have, as names and texts: references and media types.
#![forbid(unsafe_code)]

pub mod challenge;
pub mod media;
pub mod reference;
