//! Derives the outcome of a run from the observations. Has no effects, so that tests can combine
//! coinciding causes.

use spec::outcome::Outcome;

/// Reason why the supervisor ended the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    WallTime,
    /// No command ran in a sandbox that stays.
    IdleTime,
    CpuTime,
    /// Found by sampling, without a memory cgroup.
    Memory,
    /// With `--on-output-limit=kill`.
    Output,
    /// Number of the caller's signal.
    Cancelled(i32),
}

/// Facts after the end of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Wait status of the body's first process; `None` if init did not report it.
    pub raw_status: Option<i32>,
    pub reason: Option<Reason>,
    pub oom_kills: u64,
    /// The CPU time of the whole tree has reached its limit.
    pub cpu_time_reached: bool,
}

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// Decides the outcome.
///
/// The supervisor's reason comes first, because it existed before the body ended. Then comes the
/// memory limit: a SIGKILL that the supervisor did not send, with a counted OOM kill. A body that
/// ends at its deadline has exited, because the watch checks for the end first.
#[must_use]
pub fn judge(facts: Facts) -> Outcome {
    match facts.reason {
        Some(Reason::WallTime | Reason::IdleTime) => return Outcome::TimedOut,
        Some(Reason::CpuTime) => return Outcome::CpuExhausted,
        Some(Reason::Memory) => return Outcome::OutOfMemory,
        Some(Reason::Output) => return Outcome::OutputLimit,
        Some(Reason::Cancelled(_)) => return Outcome::Cancelled,
        None => (),
    }
    let Some(raw_status) = facts.raw_status else {
        // The whole cgroup was killed, including init.
        return if facts.oom_kills > 0 {
            Outcome::OutOfMemory
        } else {
            Outcome::Failed
        };
    };
    match raw_status & 0x7f {
        0 => Outcome::Exited,
        SIGKILL if facts.oom_kills > 0 => Outcome::OutOfMemory,
        SIGXCPU | SIGKILL if facts.cpu_time_reached => Outcome::CpuExhausted,
        _ => Outcome::Signaled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn facts(raw_status: Option<i32>, reason: Option<Reason>, oom_kills: u64) -> Facts {
        Facts {
            raw_status,
            reason,
            oom_kills,
            cpu_time_reached: false,
        }
    }

    #[test]
    fn coinciding_causes_have_one_outcome() {
        let killed = Some(9);
        let exited = Some(0);
        let exited_137 = Some(137 << 8);
        let cases = [
            (facts(exited, None, 0), Outcome::Exited),
            (facts(exited_137, None, 0), Outcome::Exited),
            // The memory limit killed a child of the body; the body itself continued.
            (facts(exited, None, 3), Outcome::Exited),
            (facts(killed, None, 0), Outcome::Signaled),
            (facts(killed, None, 1), Outcome::OutOfMemory),
            (facts(None, None, 1), Outcome::OutOfMemory),
            (facts(None, None, 0), Outcome::Failed),
            // Out of memory after the deadline.
            (facts(killed, Some(Reason::WallTime), 1), Outcome::TimedOut),
            (facts(exited, Some(Reason::WallTime), 0), Outcome::TimedOut),
            (
                facts(killed, Some(Reason::CpuTime), 0),
                Outcome::CpuExhausted,
            ),
            (facts(killed, Some(Reason::Output), 0), Outcome::OutputLimit),
            (
                facts(exited, Some(Reason::Cancelled(15)), 0),
                Outcome::Cancelled,
            ),
            (facts(Some(11), None, 1), Outcome::Signaled),
            (
                Facts {
                    cpu_time_reached: true,
                    ..facts(Some(SIGXCPU), None, 0)
                },
                Outcome::CpuExhausted,
            ),
            // The body raised SIGXCPU itself.
            (facts(Some(SIGXCPU), None, 0), Outcome::Signaled),
        ];
        for (facts, outcome) in cases {
            assert_eq!(judge(facts), outcome, "{facts:?}");
        }
    }
}
