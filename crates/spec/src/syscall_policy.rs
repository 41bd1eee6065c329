//! The built-in system call policies.

use serde::{Deserialize, Serialize};

/// A built-in system call policy, ordered from loose to strict. Of two stated policies the stricter
/// one applies.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyscallPolicyName {
    /// `policies/syscalls-default.yaml`: the system calls that common programs need.
    #[default]
    Default,
    /// `default` without the system calls that `policies/syscalls-strict.yaml` removes.
    Strict,
}

impl SyscallPolicyName {
    /// All policies, the loosest first.
    pub const ALL: [Self; 2] = [Self::Default, Self::Strict];

    /// The name in flags, files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Strict => "strict",
        }
    }
}
