//! Secrets: permission, resolution of values, and masking.
//!
//! [`resolve`] reads values from a provider after all requests are permitted. [`mask`] replaces them in
//! captured output and in the report.

mod command;
mod covered;
mod directory;
mod error;
pub mod mask;
pub mod program;
mod provider;
pub mod stream_mask;

pub use error::{SecretError, Unusable};

use std::os::fd::BorrowedFd;

use crate::provider::Provider;
use spec::document::excerpt;
use spec::inventory::{Consumer, Granted, Inventories, SecretKind, is_slug};
use spec::manifest::{SecretReference, SecretRequest};
use spec::request::EnvironmentEntry;
use spec::secret::Secret;
use spec::sources_policy::SecretsPolicy;
use sys::allocator::keep_from_children;

/// Maximum size of a value, in bytes, without its trailing newline.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// What a provider may need of the run.
#[derive(Clone, Copy)]
pub struct Context<'run> {
    /// All of the caller's variables.
    pub environment: &'run [EnvironmentEntry],
    /// A signalfd: waiting stops when it becomes readable.
    pub signals: Option<BorrowedFd<'run>>,
}

/// Omits the variables: they contain the values of the environment provider.
impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Context")
    }
}

/// A variable with its secret value.
#[derive(Debug)]
pub struct ResolvedSecret {
    pub variable: String,
    pub value: Secret,
    /// `None` for a literal, which is not a secret.
    pub source: Option<SecretSource>,
}

/// The source of a value, for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSource {
    pub slug: String,
    /// `vault SLUG` or `oauth ID`.
    pub reference: String,
    /// `directory`, `environment` or `command`.
    pub provider: &'static str,
    /// The permission of the inventory that allowed it, if there is an inventory.
    pub permission: Option<String>,
}

enum PermittedRequest<'run> {
    Literal(&'run SecretRequest, &'run str),
    Secret(PermittedSecret<'run>),
}

/// A permitted request with a known slug.
struct PermittedSecret<'run> {
    request: &'run SecretRequest,
    granted: Granted<'run>,
}

/// Resolves the value of each request, in order.
///
/// If there are inventories, only secrets that they grant to `consumer` are resolved; a slug in no
/// inventory is refused. All requests are checked before the first value is read.
///
/// # Errors
/// [`SecretError`]: not granted, or no usable value on this host.
pub fn resolve(
    requests: &[SecretRequest],
    policy: &SecretsPolicy,
    inventories: &Inventories,
    consumer: &Consumer,
    context: Context<'_>,
) -> Result<Vec<ResolvedSecret>, SecretError> {
    let permitted = check_permissions(requests, inventories, consumer)?;
    let provider = policy
        .provider
        .as_ref()
        .map(|provider| Provider::new(provider, context));
    permitted
        .into_iter()
        .map(|request| match request {
            PermittedRequest::Literal(request, text) => Ok(ResolvedSecret {
                variable: request.variable.clone(),
                value: Secret::new(text.as_bytes().to_vec()),
                source: None,
            }),
            PermittedRequest::Secret(secret) => read_value(&secret, provider.as_ref()),
        })
        .collect()
}

/// A secret that [`resolve`] would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedSecret {
    pub variable: String,
    /// The permission of the inventory that allows it, if there is an inventory.
    pub permission: Option<String>,
}

/// Checks each request as [`resolve`] does, without reading values.
///
/// # Errors
/// [`SecretError`]: not granted, or no provider on this host.
pub fn check(
    requests: &[SecretRequest],
    policy: &SecretsPolicy,
    inventories: &Inventories,
    consumer: &Consumer,
) -> Result<Vec<ExpectedSecret>, SecretError> {
    let context = Context {
        environment: &[],
        signals: None,
    };
    let provider = policy
        .provider
        .as_ref()
        .map(|provider| Provider::new(provider, context));
    let mut expected = Vec::new();
    for request in check_permissions(requests, inventories, consumer)? {
        if let PermittedRequest::Secret(secret) = request {
            secret.check_provider(provider.as_ref())?;
            expected.push(ExpectedSecret {
                variable: secret.request.variable.clone(),
                permission: secret.granted.permission,
            });
        }
    }
    Ok(expected)
}

/// For messages and the report: `vault SLUG` or `oauth ID`, escaped.
#[must_use]
pub fn describe_reference(reference: &SecretReference) -> String {
    match reference {
        SecretReference::Vault(slug) => format!("vault {}", excerpt(slug)),
        SecretReference::OAuth(id) => format!("oauth {}", excerpt(id)),
        SecretReference::Literal(_) => "literal".to_owned(),
    }
}

fn check_permissions<'run>(
    requests: &'run [SecretRequest],
    inventories: &'run Inventories,
    consumer: &Consumer,
) -> Result<Vec<PermittedRequest<'run>>, SecretError> {
    requests
        .iter()
        .map(|request| match &request.reference {
            SecretReference::Literal(text) => Ok(PermittedRequest::Literal(request, text)),
            _ => match inventories.check(request, consumer) {
                Ok(granted) => Ok(PermittedRequest::Secret(PermittedSecret {
                    request,
                    granted,
                })),
                Err(refused) => Err(SecretError::NotGranted(refused)),
            },
        })
        .collect()
}

impl PermittedSecret<'_> {
    fn unresolved(&self, provider: String, cause: Unusable) -> SecretError {
        SecretError::Unresolved {
            variable: self.request.variable.clone(),
            slug: excerpt(&self.granted.slug),
            provider,
            cause,
        }
    }

    /// Checks that there is a provider and that the slug is valid.
    fn check_provider<'run>(
        &self,
        provider: Option<&'run Provider<'run>>,
    ) -> Result<&'run Provider<'run>, SecretError> {
        match provider {
            None => Err(self.unresolved("no provider".to_owned(), Unusable::NoProvider)),
            // The slug becomes a path and an argument, so it must be neither `..` nor a flag.
            Some(provider) if !is_slug(&self.granted.slug) => {
                Err(self.unresolved(provider.describe(), Unusable::NoSlug))
            }
            Some(provider) => Ok(provider),
        }
    }
}

fn read_value(
    secret: &PermittedSecret<'_>,
    provider: Option<&Provider<'_>>,
) -> Result<ResolvedSecret, SecretError> {
    let PermittedSecret { request, granted } = secret;
    let provider = secret.check_provider(provider)?;
    let unresolved = |cause| Err(secret.unresolved(provider.describe(), cause));
    let value = match provider.value(&granted.slug) {
        Ok(value) => value,
        Err(Unusable::Cancelled { signal }) => return Err(SecretError::Cancelled { signal }),
        Err(cause) => return unresolved(cause),
    };
    let entries = granted.entries.iter();
    let field = entries
        .filter(|entry| entry.kind != SecretKind::Opaque)
        .find_map(|entry| entry.field_of_variable(&request.variable));
    let value = match field.map(|field| extract_field(&value, field)).transpose() {
        Ok(extracted) => extracted.unwrap_or(value),
        Err(cause) => return unresolved(cause),
    };
    if value.bytes().is_empty() {
        return unresolved(Unusable::Empty);
    }
    if value.bytes().contains(&0) {
        return unresolved(Unusable::Nul);
    }
    Ok(ResolvedSecret {
        variable: request.variable.clone(),
        value,
        source: Some(SecretSource {
            slug: excerpt(&granted.slug),
            reference: match &request.reference {
                SecretReference::OAuth(_) => describe_reference(&request.reference),
                _ => format!("vault {}", granted.slug),
            },
            provider: provider.name(),
            permission: granted.permission.clone(),
        }),
    })
}

/// Extracts one field of a structured value: a consumer of one field does not get the others.
fn extract_field(value: &Secret, field: &str) -> Result<Secret, Unusable> {
    let missing = || Unusable::NoField {
        field: excerpt(field),
    };
    // The other fields are overwritten when they are freed.
    keep_from_children(|| {
        // The parser's error is not shown: it may quote the value.
        let mut document: serde_json::Value =
            serde_json::from_slice(value.bytes()).map_err(|_quotes_it| missing())?;
        match document.get_mut(field).map(serde_json::Value::take) {
            Some(serde_json::Value::String(text)) => Ok(Secret::new(text.into_bytes())),
            _ => Err(missing()),
        }
    })
}

/// Removes one trailing newline, which most files have.
fn without_newline(mut bytes: Vec<u8>) -> Secret {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Secret::new(bytes)
}
