//! Which limits this host can enforce, by which mechanism, and how strongly.

use super::{LimitError, Limits};
use spec::limits::{Coverage, EnforcedBy, Limit};
use spec::report::{Enforcement, EnforcementState};
use spec::request::LimitsMode;

/// Sets the mechanism of each limit and refuses what this host cannot enforce. `mode` decides what is
/// refused: `Stated` a stated limit that is absent, `Require` also any that is weaker or absent,
/// `BestEffort` nothing.
///
/// # Errors
/// [`LimitError::Unenforceable`].
pub(crate) fn apply_coverage(
    limits: &mut Limits,
    coverage: &[Coverage],
    mode: LimitsMode,
) -> Result<Vec<Enforcement>, LimitError> {
    let mut enforcement = Vec::with_capacity(limits.reports.len());
    for report in &mut limits.reports {
        if report.effective.is_none() {
            continue;
        }
        let axis = match report.limit.row().enforced_by {
            EnforcedBy::Always(mechanism) => {
                report.enforced_by = mechanism;
                continue;
            }
            EnforcedBy::Axis(axis) => axis,
        };
        let covered = coverage.iter().find(|covered| covered.axis == axis);
        let state = covered.map_or(EnforcementState::Absent, |covered| covered.state);
        let reason = covered.and_then(|covered| covered.reason.clone());
        report.enforced_by = covered.map_or("none", |covered| covered.enforced_by);
        let refused = match (mode, state) {
            (LimitsMode::BestEffort, _) | (_, EnforcementState::Enforced) => false,
            (LimitsMode::Require, _) => true,
            (LimitsMode::Stated, EnforcementState::Weaker) => false,
            (LimitsMode::Stated, EnforcementState::Absent) => report.requested.is_some(),
        };
        if refused {
            return Err(LimitError::Unenforceable {
                axis: axis.to_owned(),
                reason: reason.unwrap_or_else(|| "nothing here can".to_owned()),
            });
        }
        enforcement.push(Enforcement {
            axis: axis.to_owned(),
            state,
            reason,
        });
    }
    Ok(enforcement)
}

/// Stated limits that are not fully enforced, each with the axis that says why.
pub(crate) fn weaker_than_stated<'plan>(
    limits: &'plan Limits,
    enforcement: &'plan [Enforcement],
) -> impl Iterator<Item = (Limit, &'plan Enforcement)> {
    limits
        .reports
        .iter()
        .filter(|report| report.requested.is_some())
        .filter_map(|report| {
            let axis = report.limit.axis()?;
            let found = enforcement.iter().find(|entry| entry.axis == axis)?;
            (found.state != EnforcementState::Enforced).then_some((report.limit, found))
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::merged;
    use super::*;
    use spec::request::LimitOptions;

    #[test]
    fn a_stated_limit_that_nothing_holds_is_refused_unless_best_effort() {
        let flags = LimitOptions {
            values: [(Limit::Cpus, 1500)].into(),
            ..LimitOptions::default()
        };
        let mut limits = merged(&flags, &[]);
        assert_eq!(limits.values.get(Limit::Cpus), Some(1500));
        let weak = |axis| Coverage {
            axis,
            state: EnforcementState::Weaker,
            enforced_by: "poll",
            reason: Some("no cgroup".to_owned()),
        };
        let coverage = [weak("memory"), weak("processes")];
        assert!(apply_coverage(&mut limits, &coverage, LimitsMode::Stated).is_err());
        let enforcement =
            apply_coverage(&mut limits, &coverage, LimitsMode::BestEffort).expect("runs");
        assert!(
            enforcement
                .iter()
                .any(|axis| axis.state == EnforcementState::Absent)
        );
        let mut limits = merged(&LimitOptions::default(), &[]);
        assert!(apply_coverage(&mut limits, &coverage, LimitsMode::Stated).is_ok());
        assert!(apply_coverage(&mut limits, &coverage, LimitsMode::Require).is_err());
        let flags = LimitOptions {
            values: [(Limit::Memory, 64 << 20)].into(),
            ..LimitOptions::default()
        };
        let mut limits = merged(&flags, &[]);
        let enforcement = apply_coverage(&mut limits, &coverage, LimitsMode::Stated).expect("runs");
        let weaker: Vec<Limit> = weaker_than_stated(&limits, &enforcement)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(weaker, [Limit::Memory]);
    }
}
