//! From the first word of a report to its last: whatever happens in between, there is one.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::run::error::{BODY_NOT_STARTED, RunError};
use crate::run::reporting::Finished;
use secrets::mask::Masks;
use spec::outcome::Outcome;
use spec::report::{Report, WarningReport};
use spec::ulid::ulid;
use spec::utc::text_of_milliseconds;

/// When a run began, and its id.
pub(super) struct Beginning {
    since_1970: Duration,
    run_id: String,
}

impl Beginning {
    /// `seed` makes the id unique.
    pub(super) fn now(seed: [u8; 10]) -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            since_1970,
            run_id: ulid(unix_ms(since_1970), seed),
        }
    }

    /// Seconds since 1970.
    pub(super) fn unix_s(&self) -> i64 {
        i64::try_from(self.since_1970.as_secs()).unwrap_or_default()
    }

    /// The report of a run that has done nothing yet.
    pub(super) fn report(&self) -> Report {
        let mut report = Report::new(self.run_id.clone(), Outcome::Refused);
        report.started_at = text_of_milliseconds(unix_ms(self.since_1970));
        report
    }
}

fn unix_ms(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or_default()
}

/// Adds to the report how the run ended, and masks the values of secrets in it.
pub(super) fn conclude(finished: Finished, masks: RefCell<Masks>) -> Report {
    let Finished { mut report, result } = finished;
    match result {
        Ok(()) => (),
        Err(RunError::Cancelled { signal }) => {
            report.outcome = Outcome::Cancelled;
            report.cancelled_by = Some(signal);
        }
        // As where the body had been started: what ended the run is the outcome, and no error.
        Err(error @ RunError::TimedOut { .. }) => {
            report.outcome = Outcome::TimedOut;
            let message = error.to_string();
            let told = WarningReport::new(BODY_NOT_STARTED, message);
            report.warnings.push(told);
        }
        Err(error) => {
            if let RunError::Preparation(problem) = &error {
                report.plan.preparation.extend(problem.row().cloned());
            }
            report.outcome = error.outcome();
            report.error = Some(error.report());
        }
    }
    // Last of all: whatever was said of the body's words before, values are not part of it.
    masks.into_inner().mask_report(&mut report);
    report
}
