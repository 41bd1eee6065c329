//! The keys for external resources: hosts on the network, secrets, fetched sources.
//!
//! No message repeats a token or a command line: both may contain a secret.

use serde::Deserialize;

use crate::credential::looks_issued;
use crate::egress::{EgressHost, EgressRule};
#[cfg(test)]
use crate::host_config::scalars::ABSOLUTE_PATH;
use crate::host_config::scalars::{AbsolutePath, Count, HostPath, Size, stated};
use crate::manifest::{is_slug, is_variable_name};
use crate::oci::reference::host_and_port;
use crate::path::escape;
use crate::sources_policy::{IpRange, SecretsProvider};

const SLUG_BYTES_MAX: usize = 256;

/// The key `egress`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenEgress {
    /// The only hosts that runs may reach; an empty list allows none. Default: any host. Of several
    /// files only the hosts that all of them allow count.
    #[serde(deserialize_with = "stated")]
    pub allow: Option<Vec<EgressRule>>,
    /// Private addresses that names may resolve to. Default: none. Of several files only the
    /// addresses that all of them allow count.
    #[serde(deserialize_with = "stated")]
    pub private_ranges: Option<Vec<IpRange>>,
    /// Refuse TLS with Encrypted Client Hello, which hides the host. True if any file sets it.
    pub refuse_ech: bool,
}

/// The key `flags`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenFlags {
    /// Paths of `--ro`.
    pub ro: Vec<HostPath>,
    /// Paths of `--rw`.
    pub rw: Vec<HostPath>,
    /// Hosts of `--allow-net`.
    pub allow_net: Vec<EgressRule>,
}

impl WrittenFlags {
    /// Adds those of another file.
    pub fn extend(&mut self, other: &Self) {
        self.ro.extend_from_slice(&other.ro);
        self.rw.extend_from_slice(&other.rw);
        self.allow_net.extend_from_slice(&other.allow_net);
    }
}

/// The key `secrets`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenSecrets {
    /// The provider of secret values. Default: only `--secret`.
    #[serde(deserialize_with = "stated")]
    pub provider: Option<SecretsProvider>,
    /// The inventory (SECRETS.md), which grants secrets to bodies. Default: none.
    #[serde(deserialize_with = "stated")]
    pub inventory: Option<AbsolutePath>,
}

/// The key `cache`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenCache {
    /// Default: `runner` in the user's cache directory.
    #[serde(deserialize_with = "stated")]
    pub directory: Option<AbsolutePath>,
    /// The least recently used sources above this size are removed. Default: 5g.
    #[serde(deserialize_with = "stated")]
    pub size: Option<Size>,
    /// The cache of unpacked bundles.
    pub bundles: WrittenBundleCache,
}

/// The key `cache.bundles`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenBundleCache {
    /// Default: in memory if there is enough, else in the user's cache directory. The last file
    /// counts.
    #[serde(deserialize_with = "stated")]
    pub directory: Option<AbsolutePath>,
    /// The least recently used bundles above this size are removed. Default: a quarter of a file
    /// system in memory and at most 1g, a tenth of a disk and at most 5g.
    #[serde(deserialize_with = "stated")]
    pub size: Option<Size>,
    /// Do not cache unpacked bundles. True if any file sets it.
    pub off: bool,
    /// Give each body a copy, even if an overlayfs could be used. True if any file sets it.
    pub copy: bool,
}

/// The key `github`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenGitHub {
    /// Base URL of the REST API. Default: `https://api.github.com`.
    #[serde(deserialize_with = "stated")]
    pub base_url: Option<BaseUrl>,
    /// Location of the token, not the token itself. The token is sent only to the base URL of the
    /// same file. Default: none.
    #[serde(deserialize_with = "stated")]
    pub token: Option<Token>,
}

/// The key `oci`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WrittenOci {
    /// Directory of pulled images and sources. Default: `oci` in the user's cache directory.
    #[serde(deserialize_with = "stated")]
    pub directory: Option<AbsolutePath>,
    /// The least recently used layers above this size are removed. Default: a quarter of the file
    /// system and at most 20g.
    #[serde(deserialize_with = "stated")]
    pub size: Option<Size>,
    /// Maximum download size of one layer. Default: 4g.
    #[serde(deserialize_with = "stated")]
    pub layer: Option<Size>,
    /// Maximum size of the files of one layer. Default: 16g.
    #[serde(deserialize_with = "stated")]
    pub unpacked: Option<Size>,
    /// Maximum number of files, directories and links in one layer. Default: 1000000.
    #[serde(deserialize_with = "stated")]
    pub entries: Option<Count>,
    /// PEM file of certificates that are trusted besides those of the host. The last file counts,
    /// unless an earlier file denies the grant `sources`. Default: none.
    #[serde(deserialize_with = "stated")]
    pub ca_file: Option<AbsolutePath>,
    /// Registries without TLS. Several files add up, unless an earlier file denies the grant
    /// `sources`.
    pub insecure: Vec<RegistryHost>,
    /// The registry of short image names: `docker://python:3.12` means `library/python:3.12` in it,
    /// `docker://team/name` means `team/name`. The last file counts, unless an earlier file denies
    /// the grant `sources`. Default: none; short names are refused.
    #[serde(deserialize_with = "stated")]
    pub default_registry: Option<RegistryHost>,
    /// Give each body a copy of a source, even if an overlayfs could be used. True if any file sets
    /// it.
    pub copy: bool,
    /// Mount image roots read-only. True if any file sets it.
    pub root_read_only: bool,
}

/// `HOST` or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[1-9][0-9]{0,4})?$")))]
#[serde(try_from = "String")]
pub struct RegistryHost(pub String);

impl TryFrom<String> for RegistryHost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let registry = text.to_ascii_lowercase();
        if host_and_port(&registry).is_some() {
            return Ok(Self(registry));
        }
        Err(format!(
            "`{}`: expected a registry such as registry.example.org:5000, without http:// and path",
            escape(text.as_bytes())
        ))
    }
}

impl TryFrom<String> for EgressRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|error| {
            let text = escape(text.as_bytes());
            format!("`{text}`: {error}; write `host`, `host:port` or `*.host`")
        })
    }
}

impl TryFrom<String> for IpRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|error| format!("`{}` {error}", escape(text.as_bytes())))
    }
}

#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WrittenProvider {
    /// A directory with one file for each slug.
    #[serde(deserialize_with = "stated")]
    directory: Option<AbsolutePath>,
    /// The prefix of the caller's variables, such as VAULT_.
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")))]
    #[serde(deserialize_with = "stated")]
    environment: Option<String>,
    /// The absolute path of a program and its first arguments. The slug is the last argument; the
    /// value is read from standard output.
    #[cfg_attr(test, schemars(length(min = 1), inner(regex(pattern = r"^[^\x00]*$"))))]
    #[cfg_attr(test, schemars(extend("prefixItems" = [{ "type": "string", "pattern": ABSOLUTE_PATH }])))]
    #[serde(deserialize_with = "stated")]
    command: Option<Vec<String>>,
}

impl TryFrom<WrittenProvider> for SecretsProvider {
    type Error = String;

    fn try_from(written: WrittenProvider) -> Result<Self, String> {
        match (written.directory, written.environment, written.command) {
            (Some(directory), None, None) => Ok(Self::Directory(directory.into())),
            (None, Some(prefix), None) => {
                if !is_variable_name(&prefix) {
                    return Err(
                        "expected the start of the name of a variable, such as VAULT_".to_owned(),
                    );
                }
                Ok(Self::Environment { prefix })
            }
            (None, None, Some(command)) => {
                let program = command.first().cloned().map(AbsolutePath::try_from);
                let is_absolute = program.is_some_and(|path| path.is_ok());
                if !is_absolute || command.iter().any(|word| word.contains('\0')) {
                    return Err(
                        "expected the absolute path of a program and its arguments, without NUL"
                            .to_owned(),
                    );
                }
                Ok(Self::Command(command))
            }
            _ => Err("expected one of directory, environment, command".to_owned()),
        }
    }
}

/// A slug such as @owner/name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?=.{1,256}$)@[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*){1,2}$")))]
#[serde(try_from = "String")]
pub struct Slug(pub String);

impl TryFrom<String> for Slug {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() <= SLUG_BYTES_MAX && is_slug(&text) {
            return Ok(Self(text));
        }
        Err(format!(
            "`{}` is not a slug such as @owner/name; paths of files are looked up as they are",
            escape(text.as_bytes())
        ))
    }
}

/// An https URL, or http on loopback, without user, `?` and `#`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:https://[^/@?#\\\s]+|http://(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]+)?)(?:/[^@?#\\\s]*)?$")))]
#[serde(try_from = "String")]
pub struct BaseUrl(pub String);

impl TryFrom<String> for BaseUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.contains(['@', '?', '#', '\\']);
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let authority = rest.split('/').next().unwrap_or(rest);
        let usable = match (scheme, EgressRule::parse(authority).map(|rule| rule.host)) {
            ("https", Ok(EgressHost::Name(_) | EgressHost::Address(_))) => true,
            // Plain HTTP would reveal the token on the network.
            ("http", Ok(EgressHost::Name(name))) => name.as_str() == "localhost",
            ("http", Ok(EgressHost::Address(address))) => address.is_loopback(),
            _ => false,
        };
        if plain && usable {
            return Ok(Self(text.trim_end_matches('/').to_owned()));
        }
        Err(
            "expected https://HOST/PATH without user, `?` and `#`; http:// only for loopback"
                .to_owned(),
        )
    }
}

/// `env:NAME` or `file:/PATH`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:env:[A-Za-z_][A-Za-z0-9_]*|file:(?![^\x00]*/\.\.(?:/|$))/[^\x00]*)$")))]
#[serde(try_from = "String")]
pub struct Token(pub String);

impl TryFrom<String> for Token {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let usable = match (text.strip_prefix("env:"), text.strip_prefix("file:")) {
            (Some(variable), _) => is_variable_name(variable),
            (_, Some(path)) => AbsolutePath::try_from(path.to_owned()).is_ok(),
            _ => false,
        };
        if usable {
            return Ok(Self(text));
        }
        Err(if looks_issued(&text) {
            "found a token in plain text; expected env:NAME or file:/PATH, where it is".to_owned()
        } else {
            "expected env:NAME or file:/PATH, where the token is".to_owned()
        })
    }
}
