//! Errors of registries. No variant contains a credential.

use crate::http::{tries_shown, until_shown};
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
    #[error("{place}: the registry has no {what}{}", said(.detail))]
    NotFound {
        place: String,
        what: String,
        detail: Option<String>,
    },
    #[error("{request}: the registry refuses {}{}", asked_with(.credentials.as_deref()), said(.detail))]
    Unauthorized {
        request: String,
        credentials: Option<String>,
        detail: Option<String>,
    },
    #[error("{request}: the registry forbids it to {}{}", asked_with(.credentials.as_deref()), said(.detail))]
    Denied {
        request: String,
        credentials: Option<String>,
        detail: Option<String>,
    },
    #[error("{request}: the registry answered {status}{}", until_shown(.until.as_deref()))]
    RateLimited {
        request: String,
        status: u16,
        until: Option<String>,
    },
    #[error("{request}: no usable answer after {}: {cause}", tries_shown(*.tries))]
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
    #[error("{request}: the registry answered {status}{}", said(.detail))]
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

fn said(detail: &Option<String>) -> String {
    detail
        .as_ref()
        .map_or_else(String::new, |detail| format!("; it says: {detail}"))
}

fn asked_with(credentials: Option<&str>) -> String {
    match credentials {
        Some(origin) => format!("the credentials of {origin}"),
        None => "a caller without credentials".to_owned(),
    }
}

impl RegistryError {
    /// Whether a retry may succeed, resuming where it broke off.
    #[must_use]
    pub fn is_passing(&self) -> bool {
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
                "give --insecure, or name it in oci.insecure of the host's configuration: then \
                 others on the network can read and change the traffic"
            }
            Self::NotFound { .. } => {
                "check the repository and the tag; many registries answer so to a caller who may \
                 not read it: `docker login` or `skopeo login` write credentials for it"
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
            Self::RateLimited { .. } => "wait, or log in; what is in the store needs no request",
            Self::Unavailable { .. } | Self::BrokenOff { .. } => {
                "check that the registry is up and can be reached from this host, then try again"
            }
            Self::WrongDigest { .. } => {
                "the registry, or a proxy before it, changed it; nothing of it was used"
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
