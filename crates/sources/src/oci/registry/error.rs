//! Why a registry did not give or take something. No variant holds a credential.

use spec::digest::Digest;
use spec::units::limit;
use sys::file::CallError;

/// Why a registry did not give or take something. What a registry said is in it escaped and
/// shortened.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It would be spoken to without TLS.
    #[error("{registry}: without TLS nothing is fetched from it and nothing sent to it")]
    PlainHttp {
        /// `HOST[:PORT]`.
        registry: String,
    },
    /// It has no such manifest or blob.
    #[error("{place}: the registry has no {what}{}", said(.detail))]
    NotFound {
        /// `HOST[:PORT]/REPOSITORY`.
        place: String,
        /// `manifest TAG`, `blob DIGEST`.
        what: String,
        /// What it says itself, if anything.
        detail: Option<String>,
    },
    /// It wants to know who asks, or does not accept who says so.
    #[error("{request}: the registry refuses {}{}", asked_with(.credentials.as_deref()), said(.detail))]
    Unauthorized {
        request: String,
        /// Where the credentials were found; `None`: there are none.
        credentials: Option<String>,
        /// What it says itself, if anything.
        detail: Option<String>,
    },
    /// Whoever asks may not.
    #[error("{request}: the registry forbids it to {}{}", asked_with(.credentials.as_deref()), said(.detail))]
    Denied {
        request: String,
        /// Where the credentials were found; `None`: there are none.
        credentials: Option<String>,
        /// What it says itself, if anything.
        detail: Option<String>,
    },
    /// It was asked too often.
    #[error("{request}: the registry answered {status}{}", ends(.until.as_deref()))]
    RateLimited {
        request: String,
        /// Of the answer: 429.
        status: u16,
        until: Option<String>,
    },
    /// It could not be reached, or did not answer as it should, for all tries.
    #[error("{request}: no usable answer after {}: {cause}", times(*.tries))]
    Unavailable {
        request: String,
        tries: u32,
        cause: String,
    },
    /// A body ended before its end, or stood still for too long.
    #[error("{request}: the body broke off after {bytes} bytes: {cause}")]
    BrokenOff {
        request: String,
        bytes: u64,
        cause: String,
    },
    /// An answer that cannot be used, and would be the same again.
    #[error("{request}: the answer cannot be used: {cause}")]
    Unusable {
        request: String,
        /// What was found and what was expected.
        cause: String,
    },
    /// Other bytes than those that were asked for.
    #[error("{request}: found {what} with the digest {found}, expected {expected}")]
    WrongDigest {
        request: String,
        /// `a manifest`.
        what: &'static str,
        found: String,
        /// What was asked for, or what the registry itself said.
        expected: Digest,
    },
    /// A document that is larger than any may be.
    #[error("{request}: the {what} has more than {}", limit(.bytes_max))]
    TooLarge {
        request: String,
        /// `manifest`, `answer`.
        what: &'static str,
        bytes_max: u64,
    },
    /// The registry did not take what was sent.
    #[error("{request}: the registry answered {status}{}", said(.detail))]
    Refused {
        request: String,
        status: u16,
        /// What it says itself, if anything.
        detail: Option<String>,
    },
    /// The file with the credentials, or a program that has them.
    #[error("credentials for {registry}: {origin} {problem}")]
    Credentials {
        /// `HOST[:PORT]`.
        registry: String,
        /// The file or the program, escaped.
        origin: String,
        /// Completes the sentence. It holds nothing that the file or the program said.
        problem: String,
        /// The kernel's answer, where there is one.
        #[source]
        source: Option<CallError>,
    },
    /// What this host trusts, or how it is told to connect, is unusable.
    #[error("{registry}: {problem}")]
    Setting {
        /// `HOST[:PORT]`.
        registry: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// What is to be sent cannot be read.
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

fn ends(until: Option<&str>) -> String {
    until.map_or_else(String::new, |until| {
        format!("; it accepts requests again at {until}")
    })
}

fn times(tries: u32) -> String {
    match tries {
        1 => "one try".to_owned(),
        more => format!("{more} tries"),
    }
}

impl RegistryError {
    /// Whether the same may succeed when it is tried again, from where it broke off.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::BrokenOff { .. })
    }

    /// Stable name of the cause, in snake case.
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

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::PlainHttp { .. } => {
                "give --insecure, or name it in oci.insecure of the host's configuration: then \
                 whoever is on the network sees and changes what passes"
            }
            Self::NotFound { .. } => {
                "look at the repository and the tag; many registries answer so to a caller who may \
                 not read it: `docker login` or `skopeo login` write credentials for it"
            }
            Self::Unauthorized {
                credentials: None, ..
            } => {
                "log in with `docker login` or `skopeo login --authfile`; DOCKER_CONFIG names the \
                 directory with config.json"
            }
            Self::Unauthorized { .. } => {
                "the credentials may have ended or been withdrawn: log in anew"
            }
            Self::Denied { .. } => "ask whoever runs the registry for the right to do this",
            Self::RateLimited { .. } => {
                "wait, or log in; what is in the store already needs no request"
            }
            Self::Unavailable { .. } | Self::BrokenOff { .. } => {
                "look whether the registry is there and can be reached from this host, then try \
                 again"
            }
            Self::WrongDigest { .. } => {
                "the registry, or somebody on the way, changed it: nothing of it was used"
            }
            Self::Credentials { .. } => {
                "log in anew, or name another directory with config.json in DOCKER_CONFIG"
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
