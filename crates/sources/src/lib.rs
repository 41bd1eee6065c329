//! Sources of files: repositories of GitHub, OCI registries and OCI layouts.
//!
//! [`github`] and the registries of [`oci`] share one HTTP client, whose requests a process without
//! rights makes: servers are strangers. Downloads are verified before use and stored in a
//! [`store::StoreDirectory`].
//!
//! The calling process must have one thread: the first request of a client forks it.
#![forbid(unsafe_code)]

mod answers;
pub mod github;
mod http;
pub mod oci;
pub mod progress;
mod verified;

pub use http::{FetcherAnswer, Timeouts, read_fetcher_answer};

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    // Serialization of the types of this crate cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn unix_s() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    since.unwrap_or_default().as_secs()
}
