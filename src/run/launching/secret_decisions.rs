//! What was decided about each secret of a run, for the audit trail in the history.

use secrets::{SecretError, describe_reference};
use spec::document::excerpt;
use spec::history::{Decision, SecretDecision};
use spec::inventory::Consumer;
use spec::manifest::{SecretReference, SecretRequest};
use spec::path::escape;
use spec::report::SecretReport;
use spec::request::{Request, Subject};

/// Who gets the secrets of a run.
pub(super) fn describe_consumer(request: &Request, consumer: &Consumer) -> String {
    match &request.subject {
        Subject::Bundle(_) => consumer.describe(),
        Subject::Sandbox => "the commands of the sandbox".to_owned(),
        Subject::Command(words) => {
            let program = words.first().map(|word| escape(word));
            format!("the command `{}`", program.unwrap_or_default())
        }
    }
}

/// The slug that a manifest names.
pub(super) fn slug_of(reference: &SecretReference) -> Option<String> {
    match reference {
        SecretReference::Vault(slug) => Some(excerpt(slug)),
        SecretReference::OAuth(id) => Some(format!("oauth/{}", excerpt(id))),
        SecretReference::Literal(_) => None,
    }
}

/// A secret that the body gets.
pub(super) fn granted(
    secret: &SecretReport,
    slug: Option<String>,
    consumer: &str,
) -> SecretDecision {
    SecretDecision {
        variable: secret.variable.clone(),
        slug,
        consumer: consumer.to_owned(),
        decision: Decision::Granted,
        reason: format!("{}: {}", secret.granted_by, secret.reference),
    }
}

/// The secret that ends the run, if one does.
pub(super) fn failed(error: &SecretError, consumer: &str) -> Option<SecretDecision> {
    let decided = |variable: &str, slug: &str, decision| SecretDecision {
        variable: variable.to_owned(),
        slug: Some(slug.to_owned()),
        consumer: consumer.to_owned(),
        decision,
        reason: error.to_string(),
    };
    match error {
        SecretError::NotGranted(refused) => {
            Some(decided(&refused.variable, &refused.slug, Decision::Refused))
        }
        SecretError::Unresolved { variable, slug, .. } => {
            Some(decided(variable, slug, Decision::Unresolved))
        }
        SecretError::Cancelled { .. } => None,
    }
}

/// The secrets that the host denies to every bundle.
pub(super) fn denied_by_host(requests: &[SecretRequest], consumer: &str) -> Vec<SecretDecision> {
    let secrets = requests.iter().filter(|one| one.reference.is_secret());
    let decision = |secret: &SecretRequest| SecretDecision {
        variable: secret.variable.clone(),
        slug: slug_of(&secret.reference),
        consumer: consumer.to_owned(),
        decision: Decision::Refused,
        reason: format!("deny_grants: {}", describe_reference(&secret.reference)),
    };
    secrets.map(decision).collect()
}
