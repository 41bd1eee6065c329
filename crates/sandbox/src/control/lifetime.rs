//! When a sandbox ends by itself, and how a client moves that.

use std::time::{Duration, Instant};

use super::Refusal;
use super::server::{Commands, read_request, replace};
use spec::limits::{UNLIMITED, milliseconds};
use spec::sandboxes::{IdleTimes, LifetimeMaximum, UpdateAnswer, UpdateRequest};
use sys::link::Received;

/// Times from the start, without pauses.
#[derive(Debug, Clone, Default)]
pub struct Lifetime {
    /// When it ends; `None`: it has no time limit.
    pub end: Option<Duration>,
    /// The latest end that the configuration allows, and its `FILE:LINE`.
    pub maximum: Option<(Duration, String)>,
}

impl Lifetime {
    /// When it is to end; `None`: never.
    ///
    /// # Errors
    /// That is later than it may.
    fn end_after(
        &self,
        timeout_ms: u64,
        now: Duration,
    ) -> Result<Option<Duration>, LifetimeMaximum> {
        let timeout = (timeout_ms != UNLIMITED).then(|| Duration::from_millis(timeout_ms));
        let end = timeout.map(|timeout| now.saturating_add(timeout));
        match &self.maximum {
            Some((maximum, place)) if end.is_none_or(|end| end > *maximum) => {
                Err(LifetimeMaximum {
                    time_ms: milliseconds(*maximum),
                    left_ms: milliseconds(maximum.saturating_sub(now)),
                    place: place.clone(),
                })
            }
            _ => Ok(end),
        }
    }
}

/// The idle end that is asked for.
///
/// # Errors
/// The sandbox would be paused before, and never end.
fn idle_end(times: IdleTimes, wanted: &UpdateRequest) -> Result<Option<Duration>, UpdateAnswer> {
    let end = wanted.idle_timeout_ms.map(Duration::from_millis);
    match (end, times.pause) {
        (Some(end), Some(pause)) if pause < end => Err(UpdateAnswer::PausedBefore {
            pause_after_idle_ms: milliseconds(pause),
        }),
        _ => Ok(end),
    }
}

impl Commands {
    /// Moves the end of the sandbox.
    pub(super) fn update(&mut self, received: &mut Received) -> Result<(), Refusal> {
        let (wanted, file) = read_request(received).ok_or(Refusal::Malformed)?;
        let answer = match self.apply(&wanted, self.clock.elapsed(Instant::now())) {
            Ok(()) => UpdateAnswer::Updated,
            Err(refused) => refused,
        };
        replace(file, &answer).map_err(|_error| Refusal::Malformed)
    }

    fn apply(&mut self, wanted: &UpdateRequest, now: Duration) -> Result<(), UpdateAnswer> {
        let idle_end = idle_end(self.idle_times, wanted)?;
        if let Some(timeout_ms) = wanted.timeout_ms {
            let end = self.lifetime.end_after(timeout_ms, now);
            self.lifetime.end = end.map_err(UpdateAnswer::AboveMaximum)?;
        }
        if idle_end.is_some() {
            self.idle_times.end = idle_end;
            self.last_use = now;
        }
        Ok(())
    }

    /// When the sandbox ends by its time limit. `None`: it has none, or is paused.
    pub(crate) fn end_of_life(&self, now: Instant) -> Option<Instant> {
        self.clock.instant_of(self.lifetime.end?, now)
    }

    /// How long it has lived, and how long it will, without pauses.
    pub(super) fn times_ms(&self, now: Instant) -> (u64, Option<u64>) {
        let run_time = self.clock.elapsed(now);
        let left = self.lifetime.end.map(|end| end.saturating_sub(run_time));
        (milliseconds(run_time), left.map(milliseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_end_is_counted_from_now_and_no_later_than_the_maximum() {
        let free = Lifetime {
            end: Some(SECOND),
            maximum: None,
        };
        assert_eq!(free.end_after(5_000, 3 * SECOND), Ok(Some(8 * SECOND)));
        assert_eq!(free.end_after(UNLIMITED, SECOND), Ok(None));
        let longest = free.end_after(UNLIMITED - 1, Duration::MAX);
        assert_eq!(longest, Ok(Some(Duration::MAX)));
        let bounded = Lifetime {
            maximum: Some((10 * SECOND, "/etc/x:3".to_owned())),
            ..free
        };
        assert_eq!(bounded.end_after(7_000, 3 * SECOND), Ok(Some(10 * SECOND)));
        for (timeout_ms, now, left_ms) in [
            (7_001, 3 * SECOND, 7_000),
            (UNLIMITED, SECOND, 9_000),
            (1, 11 * SECOND, 0),
        ] {
            let maximum = LifetimeMaximum {
                time_ms: 10_000,
                left_ms,
                place: "/etc/x:3".to_owned(),
            };
            assert_eq!(bounded.end_after(timeout_ms, now), Err(maximum));
        }
    }

    #[test]
    fn an_idle_end_after_the_idle_pause_is_refused() {
        let times = IdleTimes {
            end: None,
            pause: Some(SECOND),
        };
        let wanted = |idle_timeout_ms| UpdateRequest {
            timeout_ms: None,
            idle_timeout_ms,
        };
        assert_eq!(idle_end(times, &wanted(None)), Ok(None));
        assert_eq!(idle_end(times, &wanted(Some(1_000))), Ok(Some(SECOND)));
        let refused = UpdateAnswer::PausedBefore {
            pause_after_idle_ms: 1_000,
        };
        assert_eq!(idle_end(times, &wanted(Some(1_001))), Err(refused));
    }
}
