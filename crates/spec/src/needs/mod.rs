//! `needs.npm` and `needs.pip` as requirements that a version satisfies or does not.
#![forbid(unsafe_code)]

pub mod npm;
pub mod pip;

/// Why a need is no requirement that can be looked for: completes "the need … ".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NeedError {
    /// The name is none of the registry's grammar.
    #[error("does not start with the name of a package")]
    Name,
    /// Tags, URLs, aliases, markers.
    #[error("has a version that is no range of versions, so nothing here can be compared with it")]
    Version,
}
