//! Formats of OCI registries and layouts: references, media types, configs.

pub mod canonical_json;
pub mod challenge;
pub mod image_config;
pub mod media;
pub mod reference;
pub mod source_config;
