//! The keys about what comes from elsewhere: names on the network, secrets, fetched sources.
//!
//! No message repeats the text of a token or of a command line: both may hold a secret.

use core::net::IpAddr;

use serde::Deserialize;

use crate::credential::looks_issued;
use crate::egress::EgressRule;
#[cfg(test)]
use crate::host_config::scalars::ABSOLUTE_PATH;
use crate::host_config::scalars::{AbsolutePath, Count, Size, stated};
use crate::host_name::HostName;
use crate::manifest::{is_slug, is_variable_name};
use crate::oci_policy::OciStatement;
use crate::path::escape;
use crate::sources_policy::{BundleCachePolicy, IpRange, SecretsProvider};

/// Longest slug, in bytes.
const SLUG_BYTES_MAX: usize = 256;

/// The key `egress`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenEgress {
    /// Hosts that any run may reach at most; an empty list allows none. Default: no bound. Several
    /// files: only what all of them allow.
    #[serde(deserialize_with = "stated")]
    pub(super) allow: Option<Vec<Rule>>,
    /// Private addresses that names may resolve to. Default: none. Several files: only what all of
    /// them allow.
    #[serde(deserialize_with = "stated")]
    pub(super) private_ranges: Option<Vec<Range>>,
    /// Refuse TLS hellos with Encrypted Client Hello, whose host cannot be seen. True once a file
    /// says so.
    pub(super) refuse_ech: bool,
}

/// The key `secrets`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenSecrets {
    /// The provider of secret values. Default: only `--secret`.
    #[serde(deserialize_with = "stated")]
    pub(super) provider: Option<Provider>,
    /// The inventory (SECRETS.md), which says who may have which secret. Default: none.
    #[serde(deserialize_with = "stated")]
    pub(super) inventory: Option<AbsolutePath>,
}

/// The key `cache`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenCache {
    /// Default: `runner` in the user's cache directory.
    #[serde(deserialize_with = "stated")]
    pub(super) directory: Option<AbsolutePath>,
    /// The least recently used sources above this size are removed. Default: 5g.
    #[serde(deserialize_with = "stated")]
    pub(super) size: Option<Size>,
    /// The cache of unpacked bundles.
    pub(super) bundles: WrittenBundleCache,
}

/// The key `cache.bundles`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenBundleCache {
    /// Default: in memory where there is enough, else in the user's cache directory. The last file
    /// counts.
    #[serde(deserialize_with = "stated")]
    directory: Option<AbsolutePath>,
    /// The least recently used bundles above this size are removed. Default: a quarter of a file
    /// system in memory and at most 1g, a tenth of a disk and at most 5g.
    #[serde(deserialize_with = "stated")]
    size: Option<Size>,
    /// Keep and use no unpacked bundles. True once a file says so.
    off: bool,
    /// Give each body a copy, even where an overlayfs is possible. True once a file says so.
    copy: bool,
}

impl From<WrittenBundleCache> for BundleCachePolicy {
    fn from(written: WrittenBundleCache) -> Self {
        Self {
            directory: written.directory.map(Into::into),
            size_bytes: written.size.map(|size| size.0),
            off: written.off,
            copy: written.copy,
        }
    }
}

/// The key `github`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenGitHub {
    /// Base URL of the REST API. Default: https://api.github.com.
    #[serde(deserialize_with = "stated")]
    pub(super) base_url: Option<BaseUrl>,
    /// Where the token is, never the token itself. It is sent only to the base URL of the same
    /// file. Default: none.
    #[serde(deserialize_with = "stated")]
    pub(super) token: Option<Token>,
}

/// The key `oci`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenOci {
    /// Directory of pulled images and sources. Default: `oci` in the user's cache directory.
    #[serde(deserialize_with = "stated")]
    directory: Option<AbsolutePath>,
    /// The least recently used layers above this size are removed. Default: a quarter of the file
    /// system and at most 20g.
    #[serde(deserialize_with = "stated")]
    size: Option<Size>,
    /// Maximum size of one layer as sent. Default: 4g.
    #[serde(deserialize_with = "stated")]
    layer: Option<Size>,
    /// Maximum size of the files of one layer. Default: 16g.
    #[serde(deserialize_with = "stated")]
    unpacked: Option<Size>,
    /// Maximum number of files, directories and links in one layer. Default: 1000000.
    #[serde(deserialize_with = "stated")]
    entries: Option<Count>,
    /// PEM file of certificates that are trusted besides those of the host. The last file counts,
    /// unless an earlier file denies the grant `sources`. Default: none.
    #[serde(deserialize_with = "stated")]
    ca_file: Option<AbsolutePath>,
    /// Registries without TLS. Several files add up, unless an earlier file denies the grant
    /// `sources`.
    insecure: Vec<RegistryHost>,
    /// The registry of short image names: `docker://python:3.12` is `library/python:3.12` there,
    /// `docker://team/name` is `team/name`. The last file counts, unless an earlier file denies the
    /// grant `sources`. Default: none; short names are refused.
    #[serde(deserialize_with = "stated")]
    default_registry: Option<RegistryHost>,
    /// Give each body a copy of a source, even where an overlayfs is possible. True once a file
    /// says so.
    copy: bool,
    /// Mount image roots read-only. True once a file says so.
    root_read_only: bool,
}

impl From<WrittenOci> for OciStatement {
    fn from(written: WrittenOci) -> Self {
        Self {
            directory: written.directory.map(Into::into),
            size_bytes: written.size.map(|size| size.0),
            archive_bytes: written.layer.map(|size| size.0),
            unpacked_bytes: written.unpacked.map(|size| size.0),
            entries: written.entries.map(|count| count.0),
            ca_file: written.ca_file.map(Into::into),
            insecure: written.insecure.into_iter().map(|host| host.0).collect(),
            default_registry: written.default_registry.map(|host| host.0),
            copy: written.copy,
            root_read_only: written.root_read_only,
        }
    }
}

/// `HOST` or `HOST:PORT`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)(?::[0-9]{1,5})?$")))]
#[serde(try_from = "String")]
struct RegistryHost(String);

impl TryFrom<String> for RegistryHost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.starts_with('[') || host.ends_with(']') => {
                (host, Some(port))
            }
            _ => (text.as_str(), None),
        };
        let is_port = |port: &str| {
            port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|port| 0 < port)
        };
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match bracketed {
            Some(address) => address.parse::<core::net::Ipv6Addr>().is_ok(),
            None => {
                host.parse::<core::net::Ipv4Addr>().is_ok()
                    || HostName::parse(host.as_bytes()).is_ok()
            }
        };
        if is_host && port.is_none_or(is_port) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(format!(
            "`{}`: expected a registry such as registry.example.org:5000, without http:// and path",
            escape(text.as_bytes())
        ))
    }
}

/// `host`, `host:port`, `*.host` (one or more labels, not the host itself), or an IP address. No
/// URL, no range, no bare `*`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("maxLength" = 262, "pattern" = r"^(?:(?:\*\.(?=[^:]*\.))?(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)(?::|$))[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|(?!\[?::[fF]{4}:)(?:\[(?=[^\]]*:)[0-9A-Fa-f:.]{2,45}\](?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]{2,45}))$")))]
#[serde(try_from = "String")]
pub(super) struct Rule(pub(super) EgressRule);

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        EgressRule::parse(&text).map(Self).map_err(|error| {
            let text = escape(text.as_bytes());
            format!("`{text}`: {error}; write `host`, `host:port` or `*.host`")
        })
    }
}

/// A block of addresses such as 10.0.0.0/8 or fd00::/8, without bits behind the prefix.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])/(?:3[0-2]|[12]?[0-9])|(?!::[fF]{4}:)(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]{2,45}/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))$")))]
#[serde(try_from = "String")]
pub(super) struct Range(pub(super) IpRange);

impl TryFrom<String> for Range {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        IpRange::parse(&text)
            .map(Self)
            .map_err(|error| format!("`{}` {error}", escape(text.as_bytes())))
    }
}

#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct WrittenProvider {
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

/// One of `directory`, `environment` and `command`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "WrittenProvider", extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(try_from = "WrittenProvider")]
pub(super) struct Provider(pub(super) SecretsProvider);

impl TryFrom<WrittenProvider> for Provider {
    type Error = String;

    fn try_from(written: WrittenProvider) -> Result<Self, String> {
        let provider = match (written.directory, written.environment, written.command) {
            (Some(directory), None, None) => SecretsProvider::Directory(directory.into()),
            (None, Some(prefix), None) => {
                if !is_variable_name(&prefix) {
                    return Err(
                        "expected the start of the name of a variable, such as VAULT_".to_owned(),
                    );
                }
                SecretsProvider::Environment { prefix }
            }
            (None, None, Some(command)) => {
                let program = command.first().is_some_and(|program| {
                    program.starts_with('/') && !program.split('/').any(|segment| segment == "..")
                });
                if !program || command.iter().any(|word| word.contains('\0')) {
                    return Err(
                        "expected the absolute path of a program and its arguments, without NUL"
                            .to_owned(),
                    );
                }
                SecretsProvider::Command(command)
            }
            _ => {
                return Err("expected one of directory, environment, command".to_owned());
            }
        };
        Ok(Self(provider))
    }
}

/// A slug such as @owner/name.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?=.{1,256}$)@[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*){1,2}$")))]
#[serde(try_from = "String")]
pub(super) struct Slug(pub(super) String);

impl TryFrom<String> for Slug {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = text.len() <= SLUG_BYTES_MAX && is_slug(&text);
        if plain {
            return Ok(Self(text));
        }
        Err(format!(
            "`{}` is not a slug such as @owner/name; paths of files are looked up as they are",
            escape(text.as_bytes())
        ))
    }
}

/// An https URL, or http on loopback, without user, `?` and `#`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:https://[^/@?#\\\s]+|http://(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]+)?)(?:/[^@?#\\\s]*)?$")))]
#[serde(try_from = "String")]
pub(super) struct BaseUrl(pub(super) String);

impl TryFrom<String> for BaseUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.contains(['@', '?', '#', '\\']);
        let host_of = |rest: &str| rest.split('/').next().unwrap_or(rest).to_owned();
        let usable = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => !host_of(rest).is_empty(),
            // A token in plain HTTP is everybody's, except where it never leaves the host.
            (_, Some(rest)) => is_loopback(&host_of(rest)),
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

/// Whether `host`, with or without a port, is an address of loopback or `localhost`.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or(inner),
        None => host.split(':').next().unwrap_or(host),
    };
    name == "localhost"
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// `env:NAME` or `file:/PATH`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?:env:[A-Za-z_][A-Za-z0-9_]*|file:(?![^\x00]*/\.\.(?:/|$))/[^\x00]*)$")))]
#[serde(try_from = "String")]
pub(super) struct Token(pub(super) String);

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
