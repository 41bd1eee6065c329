//! What OCI registries and layouts have, as names and texts: references and media types.

pub mod challenge;
pub mod media;
pub mod reference;
