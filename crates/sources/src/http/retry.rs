//! Retries.

use std::time::Duration;

use crate::http::attempt::{AttemptError, RateLimit};
use crate::http::timeouts::Timeouts;

const TRIES_MAX: u32 = 4;

/// Why no further attempt is made.
#[derive(Debug)]
pub(crate) enum RetryError<E> {
    /// The error of the caller.
    Final(Box<E>),
    /// The response is unusable, and a retry would not change it.
    Unusable {
        tries: u32,
        cause: String,
    },
    RateLimited(RateLimit),
    /// The last attempt failed with a temporary error.
    Unavailable {
        tries: u32,
        cause: String,
    },
}

/// Calls `once` until it succeeds, fails permanently, or [`TRIES_MAX`] is reached. Calls `pause`
/// with cause and delay before each retry; its error ends the loop.
pub(crate) fn retry<T, E>(
    timeouts: &Timeouts,
    pause: &mut dyn FnMut(&str, Duration) -> Result<(), E>,
    once: &mut dyn FnMut() -> Result<T, AttemptError<E>>,
) -> Result<T, RetryError<E>> {
    let mut delay = timeouts.first_delay;
    let mut tries = 0;
    loop {
        tries += 1;
        let (cause, wait, limit) = match once() {
            Ok(done) => return Ok(done),
            Err(AttemptError::Final(error)) => return Err(RetryError::Final(error)),
            Err(AttemptError::Unusable(cause)) => {
                return Err(RetryError::Unusable { tries, cause });
            }
            Err(AttemptError::Temporary { cause, wait, limit }) => (cause, wait, limit),
        };
        let is_too_long = wait.is_some_and(|wait| wait > timeouts.wait_max);
        if tries >= TRIES_MAX || is_too_long {
            return Err(match limit {
                Some(limit) => RetryError::RateLimited(limit),
                None => RetryError::Unavailable { tries, cause },
            });
        }
        // At least `Retry-After`: the server refuses an earlier request.
        let next_delay = wait.map_or(delay, |wait| wait.max(delay));
        pause(&cause, next_delay).map_err(|error| RetryError::Final(Box::new(error)))?;
        delay = delay.saturating_mul(2);
    }
}
