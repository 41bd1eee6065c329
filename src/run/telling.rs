//! From the first word of a report to its last: whatever happens in between, there is one.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::run::Run;
use crate::run::error::{BODY_NOT_STARTED, RunError};
use crate::run::progress::{NoListener, ProgressListener};
use secrets::mask::Masks;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::report::{Report, WarningReport};
use spec::request::Request;
use spec::ulid::ulid;
use spec::utc::text_of_milliseconds;

/// The time since 1970.
pub(super) fn started() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The name of a run that was begun then; `seed` makes it its own.
pub(super) fn run_id_at(started: Duration, seed: [u8; 10]) -> String {
    ulid(unix_ms(started), seed)
}

fn unix_ms(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or_default()
}

/// Nobody who would be told of a run.
pub(super) fn no_listener() -> Arc<dyn ProgressListener> {
    Arc::new(NoListener)
}

/// The report, after `tell` has told all that it knows.
pub(super) fn told(
    request: &Request,
    policy: &HostPolicy,
    started: Duration,
    mut report: Report,
    tell: impl FnOnce(&Run<'_>, &mut Report) -> Result<(), RunError>,
) -> Report {
    report.started_at = text_of_milliseconds(unix_ms(started));
    let masks = RefCell::new(Masks::default());
    let listener = no_listener();
    let run = Run {
        request,
        policy,
        start_unix_s: i64::try_from(started.as_secs()).unwrap_or_default(),
        masks: &masks,
        preparing: None,
        listener: &listener,
    };
    match tell(&run, &mut report) {
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
                report.preparation.extend(problem.row().cloned());
            }
            report.outcome = error.outcome();
            report.error = Some(error.report());
        }
    }
    // Last of all: whatever was said of the body's words before, values are not part of it.
    masks.into_inner().mask_report(&mut report);
    report
}
