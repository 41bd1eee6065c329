//! What is tried again, and how often.

use std::time::Duration;

use crate::http::fault::{Fault, RateLimit};
use crate::http::patience::Patience;

/// How often one request is tried.
pub(crate) const TRIES_MAX: u32 = 4;

/// Why nothing is tried any longer.
#[derive(Debug)]
pub enum GaveUp<E> {
    /// It failed for good.
    Final(Box<E>),
    /// It may pass, but did not.
    Unavailable {
        /// How often it was tried.
        tries: u32,
        /// The last one's outcome.
        cause: String,
        /// Where it is because too much was asked.
        limit: Option<RateLimit>,
        /// Whether another try would have been the same.
        is_final: bool,
    },
}

/// Does `once` until it succeeds, fails for good, or `TRIES_MAX` are used up. Before each further
/// try `pause` is told why and for how long to wait; its error ends it.
///
/// # Errors
/// [`GaveUp`].
pub fn tried<T, E>(
    patience: &Patience,
    pause: &mut dyn FnMut(&str, Duration) -> Result<(), E>,
    once: &mut dyn FnMut() -> Result<T, Fault<E>>,
) -> Result<T, GaveUp<E>> {
    let mut delay = patience.first_delay;
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
        let is_too_long = wait.is_some_and(|wait| patience.wait_max < wait);
        if TRIES_MAX <= tries || is_too_long {
            return Err(GaveUp::Unavailable {
                tries,
                cause,
                limit,
                is_final: false,
            });
        }
        // What the service asks for counts; less than the delay would only be refused again.
        let for_now = wait.map_or(delay, |wait| wait.max(delay));
        pause(&cause, for_now).map_err(|error| GaveUp::Final(Box::new(error)))?;
        delay = delay.saturating_mul(2);
    }
}
