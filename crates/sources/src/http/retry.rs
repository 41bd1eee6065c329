//! Retries.

use std::time::Duration;

use crate::http::fault::{Fault, RateLimit};
use crate::http::timeouts::Timeouts;

pub(crate) const TRIES_MAX: u32 = 4;

/// Why no further attempt is made.
#[derive(Debug)]
pub(crate) enum GaveUp<E> {
    Final(Box<E>),
    Unavailable {
        tries: u32,
        cause: String,
        limit: Option<RateLimit>,
        is_final: bool,
    },
}

/// Calls `once` until it succeeds, fails for good, or `TRIES_MAX` is reached. Calls `pause` with
/// cause and delay before each retry; its error ends the loop.
///
/// # Errors
/// [`GaveUp`].
pub(crate) fn retry<T, E>(
    timeouts: &Timeouts,
    pause: &mut dyn FnMut(&str, Duration) -> Result<(), E>,
    once: &mut dyn FnMut() -> Result<T, Fault<E>>,
) -> Result<T, GaveUp<E>> {
    let mut delay = timeouts.first_delay;
    let mut tries = 0;
    loop {
        tries += 1;
        let (cause, wait, limit) = match once() {
            Ok(done) => return Ok(done),
            Err(Fault::Final(error)) => return Err(GaveUp::Final(error)),
            Err(Fault::Unusable(cause)) => {
                return Err(GaveUp::Unavailable {
                    tries,
                    cause,
                    limit: None,
                    is_final: true,
                });
            }
            Err(Fault::Passing { cause, wait, limit }) => (cause, wait, limit),
        };
        let is_too_long = wait.is_some_and(|wait| timeouts.wait_max < wait);
        if TRIES_MAX <= tries || is_too_long {
            return Err(GaveUp::Unavailable {
                tries,
                cause,
                limit,
                is_final: false,
            });
        }
        // Never less than `Retry-After`, which would only be refused again.
        let for_now = wait.map_or(delay, |wait| wait.max(delay));
        pause(&cause, for_now).map_err(|error| GaveUp::Final(Box::new(error)))?;
        delay = delay.saturating_mul(2);
    }
}
