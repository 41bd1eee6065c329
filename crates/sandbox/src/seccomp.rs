//! The seccomp programs of the built-in policies, which the build script compiles from `policies/`.

use filter::bpf::Instruction;
use spec::syscall_policy::SyscallPolicyName;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The program of `policy` for this architecture.
#[must_use]
pub fn program(policy: SyscallPolicyName) -> &'static [Instruction] {
    match policy {
        SyscallPolicyName::Default => DEFAULT,
        SyscallPolicyName::Strict => STRICT,
    }
}
