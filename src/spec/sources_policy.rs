//! What the host says about things that come from elsewhere: names on the network, secrets,
//! fetched sources.

use core::net::IpAddr;
use std::path::PathBuf;

use crate::spec::egress::EgressRule;

/// What egress lists may reach at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// `None`: no bound beside what the caller grants.
    pub allow: Option<Vec<EgressRule>>,
    /// Ranges of private addresses that names may resolve to.
    pub private_ranges: Vec<IpRange>,
}

/// A block of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange {
    /// Its first address.
    pub address: IpAddr,
    /// How many leading bits all its addresses share.
    pub prefix_bits: u8,
}

/// Where the values of secrets come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretsPolicy {
    /// Who knows values; `None`: only what the caller gives with `--secret`.
    pub provider: Option<SecretsProvider>,
    /// The inventory (`SECRETS.md`) that says who may have what, absolute.
    pub inventory: Option<PathBuf>,
}

/// Who knows the values of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretsProvider {
    /// One file for each slug, below an absolute directory.
    Directory(PathBuf),
    /// One variable of the caller for each slug, with this prefix before its name.
    Environment {
        /// Such as `VAULT_`.
        prefix: String,
    },
    /// A program and its first arguments; the slug comes last, the value on its standard output.
    Command(Vec<String>),
}

/// Where fetched sources are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePolicy {
    /// Absolute; `None`: `runner` below the user's cache directory.
    pub directory: Option<PathBuf>,
    /// Above this, what was not used for longest goes.
    pub size_bytes: u64,
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self {
            directory: None,
            size_bytes: 5 << 30,
        }
    }
}

/// The service that `github` sources are fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubPolicy {
    /// Where its REST API lies, without a `/` at the end.
    pub base_url: String,
    /// Where the token is: `env:NAME` or `file:PATH`, as `--secret` takes it.
    pub token: Option<String>,
}

impl Default for GitHubPolicy {
    fn default() -> Self {
        Self {
            base_url: "https://api.github.com".to_owned(),
            token: None,
        }
    }
}
