//! The seccomp programs of the built-in policies, which the build script compiles from `policies/`.

use filter::bpf::Instruction;
use filter::{TRACED_CALLS, TracedCall};
use spec::syscall_policy::SyscallPolicyName;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The programs of a policy for this architecture.
#[derive(Debug, Clone, Copy)]
pub struct Programs {
    /// Refuses calls itself.
    pub silent: &'static [Instruction],
    /// Lets a listener refuse those that are worth a report. Refuses the same calls.
    pub observed: &'static [Instruction],
    /// As `observed`; the listener gets also the calls of [`TRACED_CALLS`] that are allowed.
    pub traced: &'static [Instruction],
}

/// The programs of `policy`.
#[must_use]
pub fn programs(policy: SyscallPolicyName) -> Programs {
    let (silent, observed, traced) = match policy {
        SyscallPolicyName::Default => (DEFAULT, DEFAULT_OBSERVED, DEFAULT_TRACED),
        SyscallPolicyName::Strict => (STRICT, STRICT_OBSERVED, STRICT_TRACED),
    };
    Programs {
        silent,
        observed,
        traced,
    }
}

/// What init is left with once the body of a run runs.
pub(crate) fn of_init() -> &'static [Instruction] {
    INIT
}

/// The call with this number, if it names a path.
#[must_use]
pub(crate) fn traced_call(number: u32) -> Option<&'static TracedCall> {
    let at = TRACED_NUMBERS.binary_search_by_key(&number, |(number, _)| *number);
    let (_, index) = TRACED_NUMBERS.get(at.ok()?)?;
    TRACED_CALLS.get(*index)
}
