//! The rows of the limits: what would hold, whose word it is, and who else spoke.

use crate::plan::limits::{GRACE_DEFAULT, Limits};
use crate::run::explain::rows::Rows;
use spec::plan_report::{DEFAULT, PlannedLimit, Speaker};
use spec::report::{Enforcement, EnforcementState};

impl Rows<'_> {
    /// Every limit, and how strongly it would hold.
    pub(super) fn limits(&self, limits: &Limits, enforcement: &[Enforcement]) -> Vec<PlannedLimit> {
        let by_key = |by: &str| match by.contains('.') || by.starts_with('/') {
            true => self.key(by),
            false => by.to_owned(),
        };
        let mut rows: Vec<PlannedLimit> = Vec::new();
        for (report, speakers) in limits.reports.iter().zip(&limits.speakers) {
            let axis = report
                .limit
                .axis()
                .and_then(|axis| enforcement.iter().find(|found| found.axis == axis));
            let state = match (report.effective, axis) {
                (None, _) => None,
                (Some(_), Some(axis)) => Some(axis.state),
                (Some(_), None) => Some(EnforcementState::Enforced),
            };
            rows.push(PlannedLimit {
                name: report.limit.name().to_owned(),
                value: report.effective,
                decided_by: by_key(&report.source),
                speakers: speakers
                    .iter()
                    .map(|speaker| Speaker {
                        by: by_key(&speaker.by),
                        value: speaker.value,
                    })
                    .collect(),
                enforced_by: report.enforced_by.to_owned(),
                state,
                reason: axis.and_then(|axis| axis.reason.clone()),
            });
        }
        rows.push(self.grace(limits));
        rows
    }

    fn grace(&self, limits: &Limits) -> PlannedLimit {
        let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis());
        let speaker = |by: &str, time| Speaker {
            by: by.to_owned(),
            value: milliseconds(time).unwrap_or(u64::MAX),
        };
        let of_flag = self.request.limits.grace.map(|time| speaker("flag", time));
        let mut speakers: Vec<Speaker> = of_flag.into_iter().collect();
        speakers.push(speaker(DEFAULT, GRACE_DEFAULT));
        PlannedLimit {
            name: "grace_ms".to_owned(),
            value: milliseconds(limits.grace).ok(),
            decided_by: speakers[0].by.clone(),
            speakers,
            enforced_by: "supervisor".to_owned(),
            state: Some(EnforcementState::Enforced),
            reason: None,
        }
    }
}
