//! The built-in system call policies by name.

use filter::{Arch, PolicyError, SyscallPolicy, default_policy, strict_policy};
use spec::syscall_policy::SyscallPolicyName;

/// Parses the policy `name` for this architecture.
///
/// # Errors
/// `PolicyError` if its files are malformed or contradictory.
pub fn read(name: SyscallPolicyName) -> Result<SyscallPolicy, PolicyError> {
    match name {
        SyscallPolicyName::Default => default_policy(Arch::NATIVE),
        SyscallPolicyName::Strict => strict_policy(Arch::NATIVE),
    }
}
