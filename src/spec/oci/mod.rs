//! OCI registries and artifacts as text: what names them, and the documents that they hold.
#![forbid(unsafe_code)]

pub mod canonical_json;
pub mod source_config;
