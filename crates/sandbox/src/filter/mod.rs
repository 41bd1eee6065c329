//! The seccomp filter: policy data compiled to a tree of BPF instructions.
//!
//! [`SyscallPolicy::read`] joins `policies/syscalls-default.yaml` with the numbers of one
//! architecture, [`SyscallPolicy::tightened`] removes what `policies/syscalls-strict.yaml` refuses,
//! [`compile`] creates the program, and [`SyscallPolicy::ruling`] evaluates the rules in plain
//! code. The files `built_in_rules`, `default_*` and `strict_*` are generated and checked in, so
//! that nothing is parsed at start.
#![forbid(unsafe_code)]

mod built_in_rules;
mod compile;
mod default_aarch64;
mod default_x86_64;
mod interpret;
mod local_sockets;

mod policy;
mod read;
mod strict_aarch64;
mod strict_x86_64;
mod tightening;

use spec::bpf::Instruction;
use spec::syscall_policy::SyscallPolicyName;

pub use compile::compile;
pub use interpret::{Branch, SeccompData, interpret, interpret_observed};
pub(crate) use local_sockets::without_unix_sockets;
pub(crate) use policy::FOREIGN_ARCHITECTURE;
pub(crate) use policy::UNLISTED;
pub(crate) use policy::X32;
pub use policy::{
    Arguments, Call, Case, Condition, Decision, Reporting, Rule, Ruling, SyscallPolicy, UNKNOWN,
};

/// A supported architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// The architecture of this build.
    pub const NATIVE: Self = {
        #[cfg(target_arch = "x86_64")]
        {
            Self::X86_64
        }
        #[cfg(target_arch = "aarch64")]
        {
            Self::Aarch64
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        compile_error!("no system call policy for this architecture: see policies/README.md")
    };

    /// `AUDIT_ARCH_…` of `<linux/audit.h>`: the ELF machine, 64-bit, little-endian.
    #[must_use]
    pub const fn audit_value(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }
}

/// Handling of reported refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// A plain errno, without a report.
    Plain,
    /// Sent to the supervisor's listener, which returns the same errno and counts.
    Listener,
}

/// The built-in policy `name` for `arch`.
#[must_use]
pub fn built_in_policy(name: SyscallPolicyName, arch: Arch) -> &'static SyscallPolicy {
    match (name, arch) {
        (SyscallPolicyName::Default, Arch::X86_64) => &default_x86_64::POLICY,
        (SyscallPolicyName::Default, Arch::Aarch64) => &default_aarch64::POLICY,
        (SyscallPolicyName::Strict, Arch::X86_64) => &strict_x86_64::POLICY,
        (SyscallPolicyName::Strict, Arch::Aarch64) => &strict_aarch64::POLICY,
    }
}

/// The built-in policy `name`, compiled; loadable for [`Arch::NATIVE`].
#[must_use]
pub fn built_in_program(
    name: SyscallPolicyName,
    arch: Arch,
    variant: Variant,
) -> &'static [Instruction] {
    use SyscallPolicyName::{Default, Strict};
    match (name, arch, variant) {
        (Default, Arch::X86_64, Variant::Plain) => &default_x86_64::PLAIN,
        (Default, Arch::X86_64, Variant::Listener) => &default_x86_64::LISTENER,
        (Default, Arch::Aarch64, Variant::Plain) => &default_aarch64::PLAIN,
        (Default, Arch::Aarch64, Variant::Listener) => &default_aarch64::LISTENER,
        (Strict, Arch::X86_64, Variant::Plain) => &strict_x86_64::PLAIN,
        (Strict, Arch::X86_64, Variant::Listener) => &strict_x86_64::LISTENER,
        (Strict, Arch::Aarch64, Variant::Plain) => &strict_aarch64::PLAIN,
        (Strict, Arch::Aarch64, Variant::Listener) => &strict_aarch64::LISTENER,
    }
}

/// Id of the rule that decides about call `number` with `arguments`.
#[must_use]
pub fn explain_syscall<'p>(
    policy: &'p SyscallPolicy,
    number: u32,
    arguments: &Arguments,
) -> &'p str {
    &policy.ruling(number, arguments).rule.id
}
