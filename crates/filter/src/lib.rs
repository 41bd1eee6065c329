//! The seccomp filter: policy data compiled to a tree of BPF instructions.
//!
//! [`SyscallPolicy::read`] joins `policies/syscalls-default.yaml` with the numbers of one
//! architecture. `SyscallPolicy::tightened` applies `policies/syscalls-strict.yaml`.
//! [`compile`] creates the program, and [`SyscallPolicy::ruling`] evaluates the rules in plain code.
//!
//! Build scripts compile the policies ([`program_statics`]), so that `runner` parses nothing when it starts.
//! The build waits for this crate, so it has few dependencies.
#![forbid(unsafe_code)]

pub mod bpf;
mod compile;
mod explain;
mod interpret;
mod local_sockets;
mod policy;
mod read;
mod tightening;
mod traced;

use bpf::Instruction;
pub use compile::{compile, compile_observed, compile_traced};
pub use explain::{CallAnswer, Explanation};
pub use interpret::{Branch, Examined, SeccompData, examine, interpret, interpret_observed};
pub use local_sockets::without_unix_sockets;
pub use policy::{
    Arguments, Call, Case, Condition, Decision, Reporting, Rule, Ruling, SyscallPolicy, UNKNOWN,
};
pub(crate) use policy::{UNLISTED, X32};
pub use read::PolicyError;
pub use traced::{
    LastLink, PathAccess, PathArgument, SignalArguments, SignalTarget, SocketAddress, TRACED_CALLS,
    TracedCall, UNSEEN_MESSAGE,
};

const RULES: &str = include_str!("../../../policies/syscalls-default.yaml");
const TIGHTENING: &str = include_str!("../../../policies/syscalls-strict.yaml");
const READER: &str = include_str!("../../../policies/syscalls-reader.yaml");
const FETCHER: &str = include_str!("../../../policies/syscalls-fetcher.yaml");
const INIT: &str = include_str!("../../../policies/syscalls-init.yaml");
const RELAY: &str = include_str!("../../../policies/syscalls-relay.yaml");
const SUPERVISOR: &str = include_str!("../../../policies/syscalls-supervisor.yaml");
const NUMBERS_X86_64: &str = include_str!("../../../policies/syscall-numbers-x86_64.txt");
const NUMBERS_AARCH64: &str = include_str!("../../../policies/syscall-numbers-aarch64.txt");

/// A supported architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// All supported architectures.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

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

    /// Name in `target_arch` and in the names of the number tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// `AUDIT_ARCH_…` of `<linux/audit.h>`: the ELF machine, 64-bit, little-endian.
    #[must_use]
    pub const fn audit_value(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number tables of this and of the other architecture.
    const fn numbers(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => (NUMBERS_X86_64, NUMBERS_AARCH64),
            Self::Aarch64 => (NUMBERS_AARCH64, NUMBERS_X86_64),
        }
    }
}

/// Name of a static, and the function that compiles its program.
pub type NamedProgram<'run> = (
    &'run str,
    &'run dyn Fn(Arch) -> Result<Vec<Instruction>, PolicyError>,
);

/// Rust source of statics with the `programs`, for a build script; `target` is `CARGO_CFG_TARGET_ARCH`.
///
/// # Errors
/// There are no policies for `target`; [`PolicyError`].
pub fn program_statics(
    target: &str,
    programs: &[NamedProgram<'_>],
) -> Result<String, Box<dyn std::error::Error>> {
    let arch = Arch::ALL.into_iter().find(|arch| arch.name() == target);
    let arch = arch.ok_or("no system call policy for this architecture: see policies/README.md")?;
    let mut statics = String::new();
    for (name, program) in programs {
        let program = program(arch)?;
        statics.push_str(&format!("static {name}: &[Instruction] = &{program:?};\n"));
    }
    Ok(statics)
}

fn policy(text: &str, arch: Arch) -> Result<SyscallPolicy, PolicyError> {
    let (numbers, other_numbers) = arch.numbers();
    SyscallPolicy::read(text, arch, numbers, other_numbers)
}

/// Reads the default policy for `arch` from `policies/`.
///
/// # Errors
/// `PolicyError` if its files are malformed or contradictory.
pub fn default_policy(arch: Arch) -> Result<SyscallPolicy, PolicyError> {
    policy(RULES, arch)
}

/// The file access of a process that reads untrusted input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderFiles {
    /// Opens no files.
    None,
    /// Creates files, directories and symbolic links.
    Tree,
    /// Also creates hard links and sets times.
    Layer,
}

/// Reads the policy of the process that reads untrusted input.
///
/// # Errors
/// As [`default_policy`].
pub fn reader_policy(arch: Arch, files: ReaderFiles) -> Result<SyscallPolicy, PolicyError> {
    let policy = policy(READER, arch)?;
    Ok(match files {
        ReaderFiles::Layer => policy,
        ReaderFiles::Tree => policy.without("layer"),
        ReaderFiles::None => policy.without("layer").without("files"),
    })
}

/// Reads the policy of the process that makes requests to servers.
///
/// # Errors
/// As [`default_policy`].
pub fn fetcher_policy(arch: Arch) -> Result<SyscallPolicy, PolicyError> {
    policy(FETCHER, arch)
}

/// Reads the policy of the relay or, with `sockets`, of the resolver, which creates sockets instead of
/// accepting connections.
///
/// # Errors
/// As [`default_policy`].
pub fn relay_policy(arch: Arch, sockets: bool) -> Result<SyscallPolicy, PolicyError> {
    let policy = policy(RELAY, arch)?;
    Ok(policy.without(if sockets { "relay-" } else { "resolver-" }))
}

/// Reads the policy of the supervisor after the body's start. With `traces`, it also reads the paths that
/// the body uses.
///
/// # Errors
/// As [`default_policy`].
pub fn supervisor_policy(arch: Arch, traces: bool) -> Result<SyscallPolicy, PolicyError> {
    let policy = policy(SUPERVISOR, arch)?;
    Ok(if traces {
        policy
    } else {
        policy.without("trace-")
    })
}

/// Reads the policy of init while the body runs. With `is_planted`, it also allows the bug of a test program.
///
/// # Errors
/// As [`default_policy`].
pub fn init_policy(arch: Arch, is_planted: bool) -> Result<SyscallPolicy, PolicyError> {
    let policy = policy(INIT, arch)?;
    Ok(if is_planted {
        policy
    } else {
        policy.without("planted-")
    })
}

/// Reads the strict policy for `arch` from `policies/`.
pub fn strict_policy(arch: Arch) -> Result<SyscallPolicy, PolicyError> {
    let (_, other_numbers) = arch.numbers();
    default_policy(arch)?.tightened(TIGHTENING, other_numbers)
}
