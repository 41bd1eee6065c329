//! `needs.npm` and `needs.pip` as requirements that versions match.

pub mod npm;
pub mod pip;

/// Why a need is not a supported requirement. Completes "the need …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NeedError {
    #[error("does not start with the name of a package")]
    Name,
    /// Tags, URLs, aliases, markers.
    #[error("has a version that is not a version range, so no version can be compared with it")]
    Version,
}

fn parse_number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}
