//! The host's policy for external resources: hosts on the network, secrets, fetched sources.

use core::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::egress::{EgressRule, intersect_lists};

/// Limits of all egress lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// `None`: any host that the caller grants.
    pub allow: Option<Vec<EgressRule>>,
    pub private_ranges: Vec<IpRange>,
    /// Whether to refuse TLS with Encrypted Client Hello.
    pub refuse_ech: bool,
}

/// A block of addresses such as 10.0.0.0/8 or fd00::/8, without bits behind the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Range", with = "String", extend("pattern" = r"^(?:(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])/(?:3[0-2]|[12]?[0-9])|(?!::[fF]{4}:)(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]{2,45}/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))$")))]
#[serde(try_from = "String")]
pub struct IpRange {
    pub address: IpAddr,
    pub prefix_bits: u8,
}

/// Why a text is not a block of addresses. Completes "`TEXT` …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IpRangeError {
    #[error("is not a block of addresses such as 10.0.0.0/8 or fd00::/8")]
    Malformed,
    #[error("has more prefix bits than its address has bits ({0})")]
    PrefixTooLong(u8),
    /// `10.0.0.5/8`: the address or the prefix is wrong.
    #[error("has bits behind its prefix; that block is written {0}")]
    BitsBehindPrefix(IpRange),
    #[error("is an IPv4 block written as IPv6")]
    MappedAddress,
}

impl IpRange {
    /// Parses `ADDRESS/BITS`. Bits after the prefix must be zero.
    ///
    /// # Errors
    /// [`IpRangeError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, IpRangeError> {
        let (address, bits) = text.split_once('/').ok_or(IpRangeError::Malformed)?;
        let address: IpAddr = address
            .parse()
            .map_err(|_no_address| IpRangeError::Malformed)?;
        let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit())
            && (bits == "0" || !bits.starts_with('0'));
        let prefix_bits = bits.parse().ok().filter(|_| is_plain);
        let prefix_bits = prefix_bits.ok_or(IpRangeError::Malformed)?;
        if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
            return Err(IpRangeError::MappedAddress);
        }
        if address_bits(address) < prefix_bits {
            return Err(IpRangeError::PrefixTooLong(address_bits(address)));
        }
        let first = first_address(address, prefix_bits);
        let range = Self {
            address: first,
            prefix_bits,
        };
        if first == address {
            Ok(range)
        } else {
            Err(IpRangeError::BitsBehindPrefix(range))
        }
    }

    /// Whether the block contains `address`. IPv4 addresses match IPv4 blocks only.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && first_address(address, self.prefix_bits) == self.address
    }

    /// Whether the block is exactly `address`.
    #[must_use]
    pub fn is_exactly(&self, address: IpAddr) -> bool {
        self.address == address && self.prefix_bits == address_bits(address)
    }

    /// Returns the smaller block if one contains the other.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let (wider, narrower) = if self.prefix_bits < other.prefix_bits {
            (self, other)
        } else {
            (other, self)
        };
        wider.contains(narrower.address).then_some(*narrower)
    }
}

impl std::fmt::Display for IpRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_bits)
    }
}

const fn address_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn first_address(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = !u32::MAX.checked_shr(u32::from(prefix_bits)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = !u128::MAX.checked_shr(u32::from(prefix_bits)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// Returns the intersection of two lists, without blocks inside other blocks.
#[must_use]
pub(crate) fn intersect_ranges(left: &[IpRange], right: &[IpRange]) -> Vec<IpRange> {
    intersect_lists(left, right, IpRange::intersection)
}

/// Source of secret values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretsPolicy {
    pub provider: Option<SecretsProvider>,
    pub inventory: Option<PathBuf>,
}

/// One of `directory`, `environment` and `command`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Provider", with = "crate::host_config::WrittenProvider", extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(try_from = "crate::host_config::WrittenProvider")]
pub enum SecretsProvider {
    /// An absolute directory with one file per slug.
    Directory(PathBuf),
    /// One variable of the caller per slug, with a prefix.
    Environment {
        /// Such as `VAULT_`.
        prefix: String,
    },
    /// A program and its first arguments. The slug is the last argument; the value is read from
    /// standard output.
    Command(Vec<String>),
}

/// The cache of fetched sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePolicy {
    /// Absolute; `None`: `runner` below the user's cache directory.
    pub directory: Option<PathBuf>,
    /// Above this size the least recently used entries are removed.
    pub size_bytes: u64,
    pub bundles: BundleCachePolicy,
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self {
            directory: None,
            size_bytes: 5 << 30,
            bundles: BundleCachePolicy::default(),
        }
    }
}

/// The cache of unpacked bundles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleCachePolicy {
    /// Absolute; `None`: in memory if that is large enough, else below the user's cache directory.
    pub directory: Option<PathBuf>,
    /// Above this size the least recently used entries are removed; `None`: a share of the file
    /// system.
    pub size_bytes: Option<u64>,
    pub off: bool,
    /// Whether to copy a cached tree for each body, even if an overlayfs could be used.
    pub copy: bool,
}

/// The service of `github` sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubPolicy {
    /// URL of the REST API, without a `/` at the end.
    pub base_url: String,
    /// Source of the token: `env:NAME` or `file:PATH`, as in `--secret`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpRange {
        IpRange::parse(text).expect(text)
    }

    #[test]
    fn a_block_contains_addresses_of_its_family() {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        for (block, inside, holds, is_exactly) in [
            ("10.0.0.0/8", "10.1.2.3", true, false),
            ("10.0.0.0/8", "10.0.0.0", true, false),
            ("10.0.0.0/8", "11.1.2.3", false, false),
            ("0.0.0.0/0", "1.2.3.4", true, false),
            ("127.0.0.1/32", "127.0.0.1", true, true),
            ("127.0.0.1/32", "127.0.0.2", false, false),
            ("fd00::/8", "fd00::1", true, false),
            ("::1/128", "::1", true, true),
            ("::/0", "10.0.0.0", false, false),
        ] {
            let block = range(block);
            assert_eq!(block.contains(address(inside)), holds, "{block} {inside}");
            assert_eq!(
                block.is_exactly(address(inside)),
                is_exactly,
                "{block} {inside}"
            );
        }
    }

    #[test]
    fn only_the_canonical_form_of_a_block_is_parsed() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "192.168.1.1/32",
            "fd00::/8",
            "::/0",
            "::1/128",
        ] {
            assert_eq!(range(text).to_string(), text);
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10/8",
            "a/8",
            "10.0.0.0/8/8",
            "10.0.0.0/999",
            "fe80::1%1/64",
            " 10.0.0.0/8",
        ] {
            assert_eq!(IpRange::parse(text), Err(IpRangeError::Malformed), "{text}");
        }
        assert_eq!(
            IpRange::parse("10.0.0.0/33"),
            Err(IpRangeError::PrefixTooLong(32))
        );
        assert_eq!(
            IpRange::parse("fd00::/129"),
            Err(IpRangeError::PrefixTooLong(128))
        );
        assert_eq!(
            IpRange::parse("10.0.0.5/8"),
            Err(IpRangeError::BitsBehindPrefix(range("10.0.0.0/8")))
        );
        assert_eq!(
            IpRange::parse("::ffff:10.0.0.0/104"),
            Err(IpRangeError::MappedAddress)
        );
    }

    #[test]
    fn a_block_contains_the_addresses_with_its_prefix() {
        for (block, address, holds) in [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("192.168.1.1/32", "192.168.1.1", true),
            ("192.168.1.1/32", "192.168.1.0", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::/0", "10.0.0.1", false),
            ("0.0.0.0/0", "::1", false),
        ] {
            let address: IpAddr = address.parse().expect(address);
            assert_eq!(range(block).contains(address), holds, "{block} {address}");
        }
    }

    #[test]
    fn two_lists_of_blocks_are_intersected() {
        for (one, two, both) in [
            ("10.0.0.0/8", "10.1.0.0/16 192.168.0.0/16", "10.1.0.0/16"),
            ("10.1.0.0/16", "10.0.0.0/8", "10.1.0.0/16"),
            ("10.0.0.0/8", "11.0.0.0/8", ""),
            ("10.0.0.0/8", "fd00::/8", ""),
            ("", "10.0.0.0/8", ""),
            ("10.0.0.0/8 10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.0.0/16 10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/8"),
            ("::/0", "fd00::/8 fe80::/10", "fd00::/8 fe80::/10"),
        ] {
            let list = |text: &str| text.split_whitespace().map(range).collect::<Vec<_>>();
            let found: Vec<String> = intersect_ranges(&list(one), &list(two))
                .iter()
                .map(IpRange::to_string)
                .collect();
            assert_eq!(found.join(" "), both, "{one} and {two}");
        }
    }
}
