//! The keys about what comes from elsewhere: names on the network, secrets, fetched sources.
//!
//! No message repeats the text of a token or of a command line: both may hold a secret.

use std::net::IpAddr;

use serde::Deserialize;

use crate::cli::config::scalars::{AbsolutePath, Count, Size, stated};
use spec::credential::looks_issued;
use spec::egress::EgressRule;
use spec::host_name::HostName;
use spec::manifest::{is_slug, is_variable_name};
use spec::oci_policy::OciStatement;
use spec::path::escape;
use spec::sources_policy::{BundleCachePolicy, IpRange, SecretsProvider};

/// Longest slug, in bytes.
const SLUG_BYTES_MAX: usize = 256;

/// `egress`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenEgress {
    #[serde(deserialize_with = "stated")]
    pub(super) allow: Option<Vec<Rule>>,
    #[serde(deserialize_with = "stated")]
    pub(super) private_ranges: Option<Vec<Range>>,
    pub(super) refuse_ech: bool,
}

/// `secrets`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenSecrets {
    #[serde(deserialize_with = "stated")]
    pub(super) provider: Option<Provider>,
    #[serde(deserialize_with = "stated")]
    pub(super) inventory: Option<AbsolutePath>,
}

/// `cache`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenCache {
    #[serde(deserialize_with = "stated")]
    pub(super) directory: Option<AbsolutePath>,
    #[serde(deserialize_with = "stated")]
    pub(super) size: Option<Size>,
    pub(super) bundles: WrittenBundleCache,
}

/// `cache.bundles`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenBundleCache {
    #[serde(deserialize_with = "stated")]
    directory: Option<AbsolutePath>,
    #[serde(deserialize_with = "stated")]
    size: Option<Size>,
    off: bool,
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

/// `github`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenGitHub {
    #[serde(deserialize_with = "stated")]
    pub(super) base_url: Option<BaseUrl>,
    #[serde(deserialize_with = "stated")]
    pub(super) token: Option<Token>,
}

/// `oci`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenOci {
    #[serde(deserialize_with = "stated")]
    directory: Option<AbsolutePath>,
    #[serde(deserialize_with = "stated")]
    size: Option<Size>,
    #[serde(deserialize_with = "stated")]
    layer: Option<Size>,
    #[serde(deserialize_with = "stated")]
    unpacked: Option<Size>,
    #[serde(deserialize_with = "stated")]
    entries: Option<Count>,
    #[serde(deserialize_with = "stated")]
    ca_file: Option<AbsolutePath>,
    insecure: Vec<RegistryHost>,
    #[serde(deserialize_with = "stated")]
    default_registry: Option<RegistryHost>,
    copy: bool,
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

/// An entry of `oci.insecure`, and `oci.default_registry`.
#[derive(Deserialize)]
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
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                host.parse::<std::net::Ipv4Addr>().is_ok()
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

/// An entry of `egress.allow`.
#[derive(Deserialize)]
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

/// An entry of `egress.private_ranges`.
#[derive(Deserialize)]
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
#[serde(deny_unknown_fields, default)]
struct WrittenProvider {
    #[serde(deserialize_with = "stated")]
    directory: Option<AbsolutePath>,
    #[serde(deserialize_with = "stated")]
    environment: Option<String>,
    #[serde(deserialize_with = "stated")]
    command: Option<Vec<String>>,
}

/// `secrets.provider`.
#[derive(Deserialize)]
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

/// A key of `refs`.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
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

/// `github.base_url`.
#[derive(Deserialize)]
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

/// `github.token`: where the token is, never the token.
#[derive(Deserialize)]
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
