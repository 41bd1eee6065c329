//! `--syscalls`: the system call policy of one run.

use spec::host_policy::HostPolicy;
use spec::syscall_policy::SyscallPolicyName;

/// The value of `--syscalls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SyscallsArgument {
    /// What programs in use need
    Default,
    /// Without what only few programs need
    Strict,
}

/// `--syscalls` asks for a looser policy than the host's.
#[derive(Debug, thiserror::Error)]
#[error("--syscalls {asked}, but the host policy says `syscalls: {held}`")]
pub struct LooserSyscalls {
    /// What the flag names.
    pub asked: &'static str,
    /// What the host policy names.
    pub held: &'static str,
}

impl LooserSyscalls {
    /// What to do.
    pub(crate) const HINT: &str =
        "leave the flag out, or ask whoever keeps /etc/runner/config.yaml";
}

/// What the flag asks for: a stricter policy than the host's, or the same.
///
/// # Errors
/// [`LooserSyscalls`].
pub(super) fn read(
    given: Option<SyscallsArgument>,
    policy: &HostPolicy,
) -> Result<Option<SyscallPolicyName>, LooserSyscalls> {
    let asked = given.map(|given| match given {
        SyscallsArgument::Default => SyscallPolicyName::Default,
        SyscallsArgument::Strict => SyscallPolicyName::Strict,
    });
    match asked {
        Some(asked) if asked < policy.syscalls => Err(LooserSyscalls {
            asked: asked.name(),
            held: policy.syscalls.name(),
        }),
        _ => Ok(asked),
    }
}
