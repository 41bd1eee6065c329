//! Secrets: permission, resolution of values, and masking.
//!
//! Values are requested from a provider only after all requests are permitted: [`resolve`]. Values that a
//! body prints are masked in all captured output: [`mask`].

mod command;
mod directory;
mod error;
pub mod mask;
pub mod program;
mod provider;

pub use error::{SecretError, Unusable};

use std::os::fd::BorrowedFd;

use crate::provider::Provider;
use spec::document::excerpt;
use spec::inventory::{Consumer, Granted, Inventories, SecretKind, is_slug};
use spec::manifest::{SecretReference, SecretRequest};
use spec::request::EnvironmentEntry;
use spec::secret::Secret;
use spec::sources_policy::SecretsPolicy;

/// Maximum size of a value, in bytes, without its trailing newline.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// Context of the run that a provider may need.
#[derive(Clone, Copy)]
pub struct Around<'run> {
    /// All of the caller's variables.
    pub environment: &'run [EnvironmentEntry],
    /// A signalfd: waiting stops when it becomes readable.
    pub signals: Option<BorrowedFd<'run>>,
}

/// Omits the variables: they contain the values of the environment provider.
impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Around")
    }
}

/// One variable and its value.
#[derive(Debug)]
pub struct ResolvedSecret {
    pub variable: String,
    pub value: Secret,
    /// The source of the value; `None` for a literal, which is not a secret.
    pub reveal: Option<Reveal>,
}

/// The source of a value, for the report, which never contains the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reveal {
    /// `vault SLUG` or `oauth ID`.
    pub reference: String,
    /// `directory`, `environment` or `command`.
    pub provider: &'static str,
    /// The permission of the inventory that allowed it, if there is an inventory.
    pub permission: Option<String>,
}

/// A permitted request.
enum Judged<'run> {
    Literal(&'run SecretRequest, &'run str),
    Allowed(Allowed<'run>),
}

/// A permitted request with a known slug.
struct Allowed<'run> {
    request: &'run SecretRequest,
    granted: Granted<'run>,
}

/// Resolves the value of each request, in order.
///
/// If there are inventories, only secrets that they grant to `who` are requested; a slug in no inventory
/// is refused. All requests are checked before the first value is requested.
///
/// # Errors
/// [`SecretError`]: not granted, or no usable value on this host.
pub fn resolve(
    requests: &[SecretRequest],
    policy: &SecretsPolicy,
    inventories: &Inventories,
    who: &Consumer,
    around: Around<'_>,
) -> Result<Vec<ResolvedSecret>, SecretError> {
    let judged = judge_all(requests, inventories, who)?;
    let provider = policy
        .provider
        .as_ref()
        .map(|provider| Provider::new(provider, around));
    judged
        .into_iter()
        .map(|one| match one {
            Judged::Literal(request, text) => Ok(ResolvedSecret {
                variable: request.variable.clone(),
                value: Secret::new(text.as_bytes().to_vec()),
                reveal: None,
            }),
            Judged::Allowed(allowed) => reveal(&allowed, provider.as_ref()),
        })
        .collect()
}

/// The expected resolution of a request, and its permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub variable: String,
    /// The permission of the inventory that allows it, if there is an inventory.
    pub permission: Option<String>,
}

/// Checks each request as [`resolve`] does, without requesting values.
///
/// # Errors
/// [`SecretError`]: not granted, or no provider on this host.
pub fn expect(
    requests: &[SecretRequest],
    policy: &SecretsPolicy,
    inventories: &Inventories,
    who: &Consumer,
) -> Result<Vec<Expected>, SecretError> {
    let around = Around {
        environment: &[],
        signals: None,
    };
    let provider = policy
        .provider
        .as_ref()
        .map(|provider| Provider::new(provider, around));
    let mut expected = Vec::new();
    for one in judge_all(requests, inventories, who)? {
        if let Judged::Allowed(allowed) = one {
            allowed.ask(provider.as_ref())?;
            expected.push(Expected {
                variable: allowed.request.variable.clone(),
                permission: allowed.granted.permission,
            });
        }
    }
    Ok(expected)
}

/// For messages and the report: `vault SLUG` or `oauth ID`, escaped.
#[must_use]
pub fn shown(reference: &SecretReference) -> String {
    match reference {
        SecretReference::Vault(slug) => format!("vault {}", excerpt(slug)),
        SecretReference::OAuth(id) => format!("oauth {}", excerpt(id)),
        SecretReference::Literal(_) => "literal".to_owned(),
    }
}

fn judge_all<'run>(
    requests: &'run [SecretRequest],
    inventories: &'run Inventories,
    who: &Consumer,
) -> Result<Vec<Judged<'run>>, SecretError> {
    requests
        .iter()
        .map(|request| match &request.reference {
            SecretReference::Literal(text) => Ok(Judged::Literal(request, text)),
            _ => match inventories.check(request, who) {
                Ok(granted) => Ok(Judged::Allowed(Allowed { request, granted })),
                Err(refused) => Err(SecretError::NotGranted(refused)),
            },
        })
        .collect()
}

impl Allowed<'_> {
    fn unresolved(&self, provider: String, cause: Unusable) -> SecretError {
        SecretError::Unresolved {
            variable: self.request.variable.clone(),
            slug: excerpt(&self.granted.slug),
            provider,
            cause,
        }
    }

    /// Selects the provider of the value.
    fn ask<'run>(
        &self,
        provider: Option<&'run Provider<'run>>,
    ) -> Result<&'run Provider<'run>, SecretError> {
        match provider {
            None => Err(self.unresolved("no provider".to_owned(), Unusable::NoProvider)),
            // The slug becomes a path and an argument, so it must be neither `..` nor a flag.
            Some(provider) if !is_slug(&self.granted.slug) => {
                Err(self.unresolved(provider.shown(), Unusable::NoSlug))
            }
            Some(provider) => Ok(provider),
        }
    }
}

fn reveal(
    allowed: &Allowed<'_>,
    provider: Option<&Provider<'_>>,
) -> Result<ResolvedSecret, SecretError> {
    let request = allowed.request;
    let provider = allowed.ask(provider)?;
    let unresolved = |provider, cause| Err(allowed.unresolved(provider, cause));
    let value = match provider.value(&allowed.granted.slug) {
        Ok(value) => value,
        Err(Unusable::Cancelled { signal }) => return Err(SecretError::Cancelled { signal }),
        Err(cause) => return unresolved(provider.shown(), cause),
    };
    let entries = allowed.granted.entries.iter();
    let field = entries
        .filter(|entry| entry.kind != SecretKind::Opaque)
        .find_map(|entry| entry.field_of_variable(&request.variable));
    let value = match field.map(|field| field_of(&value, field)).transpose() {
        Ok(chosen) => chosen.unwrap_or(value),
        Err(cause) => return unresolved(provider.shown(), cause),
    };
    if let Some(cause) = unfit(value.bytes()) {
        return unresolved(provider.shown(), cause);
    }
    Ok(ResolvedSecret {
        variable: request.variable.clone(),
        value,
        reveal: Some(Reveal {
            reference: match &request.reference {
                SecretReference::OAuth(_) => shown(&request.reference),
                _ => format!("vault {}", allowed.granted.slug),
            },
            provider: provider.name(),
            permission: allowed.granted.permission.clone(),
        }),
    })
}

/// Why a value cannot be stored in a variable.
fn unfit(value: &[u8]) -> Option<Unusable> {
    if value.is_empty() {
        Some(Unusable::Empty)
    } else if value.contains(&0) {
        Some(Unusable::Nul)
    } else {
        None
    }
}

/// Extracts one field of a structured value: a consumer of one field does not get the others.
fn field_of(value: &Secret, field: &str) -> Result<Secret, Unusable> {
    let missing = || Unusable::NoField {
        field: excerpt(field),
    };
    // The parser's error is not shown: it may quote the value.
    let mut document: serde_json::Value =
        serde_json::from_slice(value.bytes()).map_err(|_quotes_it| missing())?;
    match document.get_mut(field).map(serde_json::Value::take) {
        Some(serde_json::Value::String(text)) => Ok(Secret::new(text.into_bytes())),
        _ => Err(missing()),
    }
}

/// The provider's value without one trailing newline, which most files have.
fn without_newline(mut bytes: Vec<u8>) -> Secret {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Secret::new(bytes)
}
