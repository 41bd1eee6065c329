//! The built-in system call policies.

use serde::{Deserialize, Serialize};

/// A built-in system call policy, the looser one first: of two that are stated the later holds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyscallPolicyName {
    /// `policies/syscalls-default.yaml`: what programs in use need.
    #[default]
    Default,
    /// The same without what `policies/syscalls-strict.yaml` refuses.
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
