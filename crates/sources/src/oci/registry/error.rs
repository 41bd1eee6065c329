//! Errors of registries. No variant contains a credential.

use crate::http::{format_tries, format_until};
use spec::digest::Digest;
use spec::units::limit;
use sys::file::CallError;

/// Error of a registry request. Text from the registry is escaped and shortened.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The connection would use plain HTTP.
    #[error("{registry}: the registry does not speak TLS")]
    PlainHttp {
        /// `HOST[:PORT]`.
        registry: String,
    },
    #[error("{place}: the registry has no {what}{}", describe_detail(.detail))]
    NotFound {
        place: String,
        what: String,
        detail: Option<String>,
    },
    #[error("{request}: the server refuses {}{}", describe_credentials(.credentials.as_deref()), describe_detail(.detail))]
    Unauthorized {
        request: String,
        credentials: Option<String>,
        detail: Option<String>,
    },
    #[error("{request}: the registry denies the request to {}{}", describe_credentials(.credentials.as_deref()), describe_detail(.detail))]
    Denied {
        request: String,
        credentials: Option<String>,
        detail: Option<String>,
    },
    #[error("{request}: the server answered {status}{}", format_until(.until.as_deref()))]
    RateLimited {
        request: String,
        status: u16,
        until: Option<String>,
    },
    #[error("{request}: no usable answer after {}: {cause}", format_tries(*.tries))]
    Unavailable {
        request: String,
        tries: u32,
        cause: String,
    },
    #[error("{request}: the body broke off after {bytes} bytes: {cause}")]
    BrokenOff {
        request: String,
        bytes: u64,
        cause: String,
    },
    #[error("{request}: the answer cannot be used: {cause}")]
    Unusable {
        request: String,
        /// What was found and what was expected.
        cause: String,
    },
    #[error("{request}: found {what} with the digest {found}, expected {expected}")]
    WrongDigest {
        request: String,
        what: &'static str,
        found: String,
        /// The requested digest, or the one that the registry stated.
        expected: Digest,
    },
    #[error("{request}: the {what} has more than {}", limit(.bytes_max))]
    TooLarge {
        request: String,
        what: &'static str,
        bytes_max: u64,
    },
    #[error("{request}: the server answered {status}{}", describe_detail(.detail))]
    Refused {
        request: String,
        status: u16,
        detail: Option<String>,
    },
    #[error("credentials for {registry}: {origin} {problem}")]
    Credentials {
        registry: String,
        origin: String,
        /// Completes the sentence. Quotes neither the file nor the helper.
        problem: String,
        #[source]
        source: Option<CallError>,
    },
    #[error("{registry}: {problem}")]
    Setting {
        registry: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    #[error("{what} cannot be read")]
    Source {
        what: String,
        #[source]
        source: CallError,
    },
}

fn describe_detail(detail: &Option<String>) -> String {
    detail
        .as_ref()
        .map_or_else(String::new, |detail| format!("; it says: {detail}"))
}

fn describe_credentials(credentials: Option<&str>) -> String {
    match credentials {
        Some(origin) => format!("the credentials of {origin}"),
        None => "a caller without credentials".to_owned(),
    }
}

impl RegistryError {
    /// Whether a retry may succeed. It can resume from the received bytes.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::BrokenOff { .. })
    }

    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::PlainHttp { .. } => "registry_plain_http",
            Self::NotFound { .. } => "registry_not_found",
            Self::Unauthorized { .. } => "registry_unauthorized",
            Self::Denied { .. } => "registry_denied",
            Self::RateLimited { .. } => "registry_rate_limited",
            Self::Unavailable { .. } => "registry_unavailable",
            Self::BrokenOff { .. } => "registry_truncated",
            Self::Unusable { .. } => "registry_unusable",
            Self::WrongDigest { .. } => "registry_wrong_digest",
            Self::TooLarge { .. } => "registry_too_large",
            Self::Refused { .. } => "registry_refused",
            Self::Credentials { .. } => "registry_credentials",
            Self::Setting { .. } => "registry_setting",
            Self::Source { .. } => "registry_source",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::PlainHttp { .. } => {
                "to allow plain HTTP, use --insecure or add the registry to oci.insecure of the \
                 host's configuration; others on the network can then read and change the traffic"
            }
            Self::NotFound { .. } => {
                "check the repository and the tag; many registries answer like this to a caller \
                 without access: log in with `docker login` or `skopeo login`"
            }
            Self::Unauthorized {
                credentials: None, ..
            } => {
                "log in with `docker login` or `skopeo login --authfile`; DOCKER_CONFIG names the \
                 directory with config.json"
            }
            Self::Unauthorized { .. } => {
                "the credentials may have expired or been revoked: log in again"
            }
            Self::Denied { .. } => "ask the operator of the registry for this permission",
            Self::RateLimited { .. } => "wait, or log in; artifacts in the store need no request",
            Self::Unavailable { .. } | Self::BrokenOff { .. } => {
                "check that the server can be reached from this host, then try again"
            }
            Self::WrongDigest { .. } => {
                "the registry or a proxy returned other bytes; nothing of them was used"
            }
            Self::Credentials { .. } => {
                "log in again, or name another directory with config.json in DOCKER_CONFIG"
            }
            Self::Unusable { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::Setting { .. }
            | Self::Source { .. } => return None,
        };
        Some(text.to_owned())
    }
}
