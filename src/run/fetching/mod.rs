//! Fetches from registries: the observer that reports progress and ends at a signal. Used for images,
//! workspace sources and packages.

pub(super) mod artifacts;
pub(super) mod progress;
