//! Resolves the hosts that a run may reach.

use crate::run::error::RunError;
use crate::run::refusals::Refusals;
use egress::allowlist::EgressPlan;
use spec::egress::{EgressHost, EgressRule};
use spec::host_policy::HostPolicy;
use spec::manifest::Manifest;
use spec::network::HostLearning;
use spec::report::WarningReport;
use spec::request::Request;

/// The caller's own manifest grants its requests itself, but the host policy may deny them.
///
/// # Errors
/// [`RunError::Argument`].
pub(super) fn check_grant(policy: &HostPolicy, manifest: &Manifest) -> Result<(), RunError> {
    match manifest.egress.first() {
        Some(first) if policy.deny_grants.egress => Err(RunError::Argument {
            code: "grant_forbidden",
            what: "the manifest's egress to",
            object: first.rule.to_string(),
            problem: format!(
                "({}) is denied by the host policy (deny_grants)",
                first.source
            ),
            hint: Some("ask the administrator of this host".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// Resolves the egress list, with a warning for each entry without effect.
///
/// # Errors
/// The error of such an entry under `--strict`, unless `refusals` collects it.
pub(super) fn resolve(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    warnings: &mut Vec<WarningReport>,
    refusals: &mut Refusals,
) -> Result<EgressPlan, RunError> {
    let learning = request.network.learning;
    let of_manifest = match learning {
        HostLearning::Off | HostLearning::Public => manifest.egress.as_slice(),
        HostLearning::Closed => &[],
    };
    let mut plan = EgressPlan::new(of_manifest, &request.network.allow, &policy.egress);
    plan.refuse_ech |= request.strict;
    if learning == HostLearning::Public {
        match &policy.egress.allow {
            None => plan.learns = true,
            Some(listed) => plan.allowed.clone_from(listed),
        }
    }
    let added = &request.network.added_hosts;
    for warning in plan.warnings(of_manifest, added, &policy.egress) {
        if request.strict {
            refusals.refuse(RunError::Argument {
                code: "strict_refuses",
                what: "the egress list",
                object: "has entries without effect:".to_owned(),
                problem: warning.message.clone(),
                hint: Some("remove the entry, or omit --strict".to_owned()),
            })?;
        }
        warnings.push(warning);
    }
    Ok(plan)
}

/// What the manifest asks for, as far as it needs no grant to be learned from.
pub(super) fn asked_while_learning(
    learning: HostLearning,
    manifest: &Manifest,
) -> impl Iterator<Item = EgressRule> + '_ {
    let asked = manifest.egress.iter().map(|request| &request.rule);
    let asked = asked.filter(move |rule| match learning {
        HostLearning::Off => false,
        HostLearning::Closed => true,
        HostLearning::Public => matches!(rule.host, EgressHost::Name(_)),
    });
    asked.cloned()
}
