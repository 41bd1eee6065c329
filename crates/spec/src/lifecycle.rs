//! The `lifecycle` of a `sandbox` block (AIP-36), for a sandbox that stays.

use std::time::Duration;

use crate::limits::TIME_MS_MAX;
use crate::path::escape;
use crate::sandbox_block::SandboxBlock;
use crate::sandboxes::IdleTimes;

/// The sandbox cannot do what its life cycle says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LifecycleError {
    /// Only its own idle time is known to a sandbox.
    #[error("`{key}: {event}`: a sandbox learns of no event but `idle-SECONDS`, from `idle-1` on")]
    UnknownEvent {
        key: &'static str,
        /// Escaped.
        event: String,
    },
    /// The idle time stands still in a pause.
    #[error(
        "the sandbox would be paused before it has been idle for long enough to end, and time stands \
         still in a pause"
    )]
    NeverEnds,
    /// There is no cgroup that can be frozen.
    #[error("this sandbox cannot be paused: it has no cgroup that can be frozen")]
    NoFreezer,
}

impl IdleTimes {
    /// The times of `flags`, else those of `block`.
    ///
    /// # Errors
    /// [`LifecycleError`].
    pub fn resolve(
        flags: Self,
        block: Option<&SandboxBlock>,
        can_pause: bool,
    ) -> Result<Self, LifecycleError> {
        let of_block = |key, event: fn(&SandboxBlock) -> &Option<String>| {
            let event = block.and_then(|block| event(block).as_deref());
            event.map(|event| idle_time(key, event)).transpose()
        };
        let pause = of_block("lifecycle.pause_after_idle", |block| {
            &block.pause_after_idle
        })?;
        let end = of_block("lifecycle.destroy_on", |block| &block.destroy_on)?;
        let times = Self {
            end: flags.end.or(end),
            pause: flags.pause.or(pause),
        };
        match times {
            Self { pause: Some(_), .. } if !can_pause => Err(LifecycleError::NoFreezer),
            Self {
                end: Some(end),
                pause: Some(pause),
            } if pause < end => Err(LifecycleError::NeverEnds),
            times => Ok(times),
        }
    }
}

fn idle_time(key: &'static str, event: &str) -> Result<Duration, LifecycleError> {
    let digits = event.strip_prefix("idle-");
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let seconds = digits.and_then(|digits| digits.parse::<u64>().ok());
    let seconds = seconds.filter(|seconds| (1..=TIME_MS_MAX / 1_000).contains(seconds));
    let unknown = || LifecycleError::UnknownEvent {
        key,
        event: escape(event.as_bytes()),
    };
    seconds.map(Duration::from_secs).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pause: Option<&str>, end: Option<&str>) -> SandboxBlock {
        SandboxBlock {
            pause_after_idle: pause.map(str::to_owned),
            destroy_on: end.map(str::to_owned),
            ..SandboxBlock::default()
        }
    }

    fn of(pause: Option<&str>, end: Option<&str>) -> Result<IdleTimes, LifecycleError> {
        IdleTimes::resolve(IdleTimes::default(), Some(&block(pause, end)), true)
    }

    #[test]
    fn idle_events_are_times_and_flags_come_first() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let times = of(Some("idle-600"), Some("idle-60")).expect("known");
        assert_eq!((times.pause, times.end), (seconds(600), seconds(60)));
        assert_eq!(of(None, None), Ok(IdleTimes::default()));
        let flags = IdleTimes {
            end: seconds(5),
            pause: None,
        };
        let times = IdleTimes::resolve(flags, Some(&block(None, Some("idle-9"))), false);
        assert_eq!(times.expect("known").end, seconds(5));
        assert_eq!(IdleTimes::resolve(flags, None, false), Ok(flags));
    }

    #[test]
    fn what_a_sandbox_cannot_do_is_refused() {
        for event in [
            "workspace-close",
            "idle",
            "idle-",
            "idle-0",
            "idle--1",
            "idle-+1",
            "idle-1s",
            "idle-1.5",
            "idle-99999999999999999999",
            "idle-18446744073709551615",
            "IDLE-1",
            "idle-1\n",
        ] {
            for (pause, end, key) in [
                (Some(event), None, "lifecycle.pause_after_idle"),
                (None, Some(event), "lifecycle.destroy_on"),
            ] {
                let expected = LifecycleError::UnknownEvent {
                    key,
                    event: escape(event.as_bytes()),
                };
                assert_eq!(of(pause, end), Err(expected));
            }
        }
        assert_eq!(
            of(Some("idle-1"), Some("idle-2")),
            Err(LifecycleError::NeverEnds)
        );
        let paused = block(Some("idle-1"), None);
        let refused = IdleTimes::resolve(IdleTimes::default(), Some(&paused), false);
        assert_eq!(refused, Err(LifecycleError::NoFreezer));
    }
}
