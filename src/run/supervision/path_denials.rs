//! Files that a traced body could not use because of its view, in the report.

use rustix::io::Errno;

use crate::plan::access::{Rule, parent};
use crate::run::Run;
use crate::run::dry_run::view::ViewOfRun;
use crate::run::dry_run::why::paths::{Decided, PathRules};
use crate::run::launching::predicted_view::PredictedView;
use crate::run::supervision::{DenialsReport, Supervised, audit_denials};
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use spec::merged::{DISTINCT_MAX, Occurrences};
use spec::observation::KindObservation;
use spec::path::escape;
use spec::path_use::{PathOperation, PathOutcome, PathUse, PathUses};
use spec::report::{Certainty, Denial};
use spec::units::count;
use spec::why_report::Operation;
use sys::trusted_links::{self, Unopened};

const NOT_TRACED: &str =
    "only --trace observes them; `runner why --path PATH` says what the body sees";

const SOCKETS_UNSEEN: &str =
    "what Landlock refuses of unix sockets in mounted directories is not seen";

impl Run<'_> {
    /// The rules of the view of a run, which `inside` predicts.
    pub(super) fn path_rules<'run>(
        &'run self,
        view: &'run ViewOfRun,
        inside: &'run PredictedView<'run>,
    ) -> PathRules<'run> {
        PathRules {
            request: self.request,
            policy: self.policy,
            // All paths are absolute.
            working_directory: b"/",
            inside,
            rows: &view.rows,
            refuses_sockets: view.refuses_sockets,
        }
    }

    /// The denials of files and programs. A look-up that failed is one if the view is the reason.
    pub(in crate::run) fn report_paths(
        &self,
        resources: &Resources,
        supervised: &Supervised,
        launched: &Launched,
    ) -> DenialsReport {
        let (Some(uses), Some(view)) = (launched.refused_calls.path_uses(), &supervised.view)
        else {
            return DenialsReport::unobserved(NOT_TRACED);
        };
        let inside = view.predicted(supervised.image.as_ref(), resources.host.privileged);
        let rules = self.path_rules(view, &inside);
        let failed = uses.failed.distinct();
        let mut denials: Vec<Denial> = failed
            .filter_map(|(path_use, equal)| denial(&rules, path_use, *equal))
            .collect();
        if let Ok(trail) = &supervised.audit {
            denials.extend(audit_denials::of_paths(trail, &rules, &denials));
        }
        let beyond = denials.iter().skip(DISTINCT_MAX).map(|denial| denial.count);
        let beyond = beyond.sum();
        denials.truncate(DISTINCT_MAX);
        DenialsReport {
            denials,
            observation: observation(uses, beyond, lacks(supervised, view.confines_sockets)),
        }
    }
}

/// What is not seen of Landlock's refusals.
fn lacks(supervised: &Supervised, confines_sockets: bool) -> Option<String> {
    match &supervised.audit {
        Ok(trail) => trail.lacks(),
        Err(why) => confines_sockets.then(|| format!("{SOCKETS_UNSEEN} ({why})")),
    }
}

fn observation(uses: &PathUses, beyond: u64, lacks: Option<String>) -> KindObservation {
    let unread = (uses.unknown > 0).then(|| {
        let calls = count(uses.unknown, "path");
        format!("{calls} could not be read or looked up")
    });
    let lost = (uses.failed.unlisted() > 0).then(|| {
        let calls = count(uses.failed.unlisted(), "look-up");
        format!("{calls} that failed were too many to be examined")
    });
    let reasons: Vec<String> = [unread, lost, lacks].into_iter().flatten().collect();
    if reasons.is_empty() {
        KindObservation::complete(beyond)
    } else {
        KindObservation::partial(reasons.join("; "), beyond)
    }
}

/// The denial, if the view is why `path_use` failed, and not that a file does not exist anywhere.
pub(super) fn denial(
    rules: &PathRules<'_>,
    path_use: &PathUse,
    equal: Occurrences,
) -> Option<Denial> {
    let PathUse {
        operation,
        path,
        outcome,
    } = path_use;
    let asked = operation.asked();
    // A new file is missing everywhere. Where its directory is hidden, that is what was missed.
    let missed = match (operation, outcome) {
        (PathOperation::Create, PathOutcome::Absent) => parent(path),
        _ => path,
    };
    let is_absent = *outcome == PathOutcome::Absent;
    match find_on_host(missed) {
        Ok(()) => (),
        // Deciding would look there, too.
        Err(Errno::XDEV) => return None,
        Err(_) if is_absent => return None,
        Err(_) => (),
    }
    let question = if is_absent { Operation::Read } else { asked };
    let decided = rules.decide(missed, question).ok()?;
    let is_reason = match (outcome, decided.class.rule) {
        (PathOutcome::Absent, Rule::NotInView | Rule::EmptyAtStart)
        | (PathOutcome::ReadOnly, Rule::ReadOnly)
        | (PathOutcome::NoExec, Rule::NoPrograms) => true,
        // The files of the host have changed, or the mode is the reason.
        _ => false,
    };
    is_reason.then(|| Denial {
        rule: decided.class.rule.name().to_owned(),
        errno: decided.class.errno.map(str::to_owned),
        hint: change(rules, &decided, *operation),
        certainty: Some(Certainty::Inferred),
        ..by_landlock(*operation, path, equal)
    })
}

/// The denial that an audit record of Landlock says.
pub(super) fn refused(
    rules: &PathRules<'_>,
    operation: PathOperation,
    path: &[u8],
    equal: Occurrences,
) -> Denial {
    let decided = match find_on_host(path) {
        Ok(()) => rules.decide(path, operation.asked()).ok(),
        Err(_) => None,
    };
    Denial {
        hint: decided.and_then(|decided| change(rules, &decided, operation)),
        ..by_landlock(operation, path, equal)
    }
}

fn change(
    rules: &PathRules<'_>,
    decided: &Decided<'_>,
    operation: PathOperation,
) -> Option<String> {
    match operation {
        PathOperation::Connect => rules.socket_change(decided),
        _ => rules.change(decided, operation.asked()),
    }
}

fn by_landlock(operation: PathOperation, path: &[u8], equal: Occurrences) -> Denial {
    Denial {
        kind: match operation {
            PathOperation::Execute => "exec",
            _ => "file",
        }
        .to_owned(),
        object: escape(path),
        operation: Some(operation),
        rule: "landlock".to_owned(),
        errno: Some("EACCES".to_owned()),
        reason: None,
        protocol: None,
        host: None,
        ip: None,
        port: None,
        hint: None,
        certainty: None,
        count: equal.count,
        first_ms: Some(equal.first_ms),
    }
}

/// Whether the caller sees the path on the host. The body chose it: nothing is mounted for it.
///
/// # Errors
/// EXDEV: it is below an automount point. Others: the caller does not see it.
fn find_on_host(path: &[u8]) -> Result<(), Errno> {
    match trusted_links::open_without_automount(path) {
        Ok(_) => Ok(()),
        Err(Unopened::Call(errno)) => Err(errno),
        Err(Unopened::Link { .. }) => Err(Errno::ACCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::observation::ObservationState;

    #[test]
    fn an_observation_says_what_it_lacks() {
        let mut uses = PathUses::default();
        let complete = observation(&uses, 3, None);
        assert_eq!(complete, KindObservation::complete(3));
        uses.unknown = 2;
        let partial = observation(&uses, 0, Some(SOCKETS_UNSEEN.to_owned()));
        assert_eq!(partial.state, ObservationState::Partial);
        let expected = format!("2 paths could not be read or looked up; {SOCKETS_UNSEEN}");
        assert_eq!(partial.reason, Some(expected));
    }
}
