//! From a manifest to a bundle: its sources are resolved, gathered and written as one archive.
#![forbid(unsafe_code)]

pub mod github;
