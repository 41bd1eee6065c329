//! `needs.npm` and `needs.pip` as requirements that versions match.
#![forbid(unsafe_code)]

pub mod npm;
pub mod pip;

/// Why a need is not a supported requirement: completes "the need … ".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NeedError {
    #[error("does not start with the name of a package")]
    Name,
    /// Tags, URLs, aliases, markers.
    #[error("has a version that is no range of versions, so nothing here can be compared with it")]
    Version,
}
