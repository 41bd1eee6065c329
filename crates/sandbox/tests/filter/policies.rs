//! The built-in system call policies, read from their files.

use std::sync::LazyLock;

use filter::{Arch, SyscallPolicy, default_policy, strict_policy};
use spec::syscall_policy::SyscallPolicyName;

/// The policy `name` for `arch`.
pub(crate) fn built_in_policy(name: SyscallPolicyName, arch: Arch) -> &'static SyscallPolicy {
    static DEFAULT: LazyLock<[SyscallPolicy; 2]> =
        LazyLock::new(|| Arch::ALL.map(|arch| default_policy(arch).expect("a sound policy")));
    static STRICT: LazyLock<[SyscallPolicy; 2]> =
        LazyLock::new(|| Arch::ALL.map(|arch| strict_policy(arch).expect("a sound policy")));
    let policies = match name {
        SyscallPolicyName::Default => &*DEFAULT,
        SyscallPolicyName::Strict => &*STRICT,
    };
    let mut policies = policies.iter();
    let found = policies.find(|policy| policy.arch == arch);
    found.expect("a policy for each architecture")
}
