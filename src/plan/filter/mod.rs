//! The seccomp filter: policy data compiled to a tree of BPF instructions.
//!
//! `policies/syscalls-default.yaml` decides. [`SyscallPolicy::read`] joins it with the numbers of
//! one architecture, [`compile`] makes the program that the kernel runs, and
//! [`SyscallPolicy::ruling`] answers the same question in plain code, with the rule's name. For
//! the default policy all of that is done ahead of time: the `default_*` files are generated and
//! checked in, and nothing is parsed at start.
#![forbid(unsafe_code)]

mod compile;
mod default_aarch64;
mod default_rules;
mod default_x86_64;
mod interpret;
mod policy;
mod read;

use crate::spec::bpf::Instruction;

pub use compile::compile;
pub use interpret::{Branch, SeccompData, interpret, interpret_observed};
pub use policy::{
    Arguments, Call, Case, Condition, Decision, FOREIGN_ARCHITECTURE, Reporting, Rule, Ruling,
    SyscallPolicy, UNKNOWN, UNLISTED, X32,
};
pub use read::PolicyError;

/// An architecture that the filter knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// The one that this program was built for.
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

/// What becomes of refusals that are worth a line in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// A plain errno; nobody hears of it.
    Plain,
    /// Handed to the supervisor's listener, which answers with the same errno and counts.
    Listener,
}

/// The default policy for `arch`, built in.
#[must_use]
pub fn default_policy(arch: Arch) -> &'static SyscallPolicy {
    match arch {
        Arch::X86_64 => &default_x86_64::POLICY,
        Arch::Aarch64 => &default_aarch64::POLICY,
    }
}

/// The default policy compiled ahead of time; for [`Arch::NATIVE`] it can be loaded as it is.
#[must_use]
pub fn default_program(arch: Arch, variant: Variant) -> &'static [Instruction] {
    match (arch, variant) {
        (Arch::X86_64, Variant::Plain) => &default_x86_64::PLAIN,
        (Arch::X86_64, Variant::Listener) => &default_x86_64::LISTENER,
        (Arch::Aarch64, Variant::Plain) => &default_aarch64::PLAIN,
        (Arch::Aarch64, Variant::Listener) => &default_aarch64::LISTENER,
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
