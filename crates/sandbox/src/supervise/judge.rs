//! Judge: what was observed becomes an outcome. Pure, so that coinciding causes are a table.

use spec::outcome::Outcome;

/// Why the supervisor ended the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The wall time limit was reached.
    WallTime,
    /// The CPU time limit was reached.
    CpuTime,
    /// The supervisor, which had to watch the memory itself, saw it above the limit.
    Memory,
    /// The output limit was reached under `--on-output-limit=kill`.
    Output,
    /// The caller sent this signal.
    Cancelled(i32),
}

/// What is known once everything has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The wait status of the body's first process; `None` where init ended without telling.
    pub raw_status: Option<i32>,
    /// Why the supervisor began to end the body; `None` where it did not.
    pub reason: Option<Reason>,
    /// Processes that the memory limit ended.
    pub oom_kills: u64,
    /// Whether the CPU time of the whole tree has reached its limit.
    pub cpu_time_reached: bool,
}

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// The one verdict.
///
/// The supervisor's own reason comes first: it decided before the body ended. Then the memory
/// limit, which shows as a SIGKILL that nobody of us sent while the kernel counted a kill. A body
/// that ends at the same instant as its deadline has ended: the watch looks for the end first.
#[must_use]
pub fn judge(facts: Facts) -> Outcome {
    match facts.reason {
        Some(Reason::WallTime) => return Outcome::TimedOut,
        Some(Reason::CpuTime) => return Outcome::CpuExhausted,
        Some(Reason::Memory) => return Outcome::OutOfMemory,
        Some(Reason::Output) => return Outcome::OutputLimit,
        Some(Reason::Cancelled(_)) => return Outcome::Cancelled,
        None => (),
    }
    let Some(raw_status) = facts.raw_status else {
        // The whole group was ended at once, init with it.
        return if 0 < facts.oom_kills {
            Outcome::OutOfMemory
        } else {
            Outcome::Failed
        };
    };
    match raw_status & 0x7f {
        0 => Outcome::Exited,
        SIGKILL if 0 < facts.oom_kills => Outcome::OutOfMemory,
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
    fn coinciding_causes_have_one_verdict() {
        let killed = Some(9);
        let exited = Some(0);
        let exited_137 = Some(137 << 8);
        let cases = [
            (facts(exited, None, 0), Outcome::Exited),
            (facts(exited_137, None, 0), Outcome::Exited),
            // A child of the body was ended by the memory limit; the body itself went on.
            (facts(exited, None, 3), Outcome::Exited),
            (facts(killed, None, 0), Outcome::Signaled),
            (facts(killed, None, 1), Outcome::OutOfMemory),
            (facts(None, None, 1), Outcome::OutOfMemory),
            (facts(None, None, 0), Outcome::Failed),
            // Out of memory at the deadline: the deadline had come first.
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
