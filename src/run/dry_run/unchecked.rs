//! What only a run can check.

use crate::run::dry_run::facts::HostFacts;
use crate::run::dry_run::{Decided, network};
use spec::path::escape_path;
use spec::plan_report::PlanReport;
use spec::request::{Request, ViewEntry};

pub(super) fn note(
    document: &mut PlanReport,
    request: &Request,
    decided: &Decided,
    facts: &HostFacts,
) {
    let unchecked = &mut document.unchecked;
    unchecked.extend(network::unchecked(request, &document.network));
    for expected in &decided.secrets {
        unchecked.push(format!(
            "the value of {}: no provider was asked for it",
            expected.variable
        ));
    }
    for source in &document.workspace_sources {
        if source.is_kept != Some(true) {
            let id = &source.id;
            unchecked.push(format!(
                "workspace source {id}: no registry was asked for it"
            ));
        }
    }
    let writable = decided
        .resolved
        .view
        .iter()
        .filter_map(|entry| match entry {
            ViewEntry::Bind {
                source,
                writable: true,
                ..
            } => Some(escape_path(source)),
            _ => None,
        });
    if facts.host.privileged {
        unchecked.extend(writable.map(|source| {
            format!("{source}: whether its file system can map its owner to the body")
        }));
    }
}
