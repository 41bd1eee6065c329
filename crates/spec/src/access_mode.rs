//! Read-only or read-write: one table of the words that manifests, flags and plans have for it.

/// What the body may do with a mount or a declared file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    ReadWrite,
    ReadOnly,
}

impl AccessMode {
    /// The default of mounts comes first.
    pub const ALL: [Self; 2] = [Self::ReadWrite, Self::ReadOnly];

    /// The mode of a mount (AIP-36).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
        }
    }

    /// The mode of a declared file (AIP-17), and of `--mount SRC:DST:MODE`.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
        }
    }

    /// Whether the body may write there.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::ReadWrite)
    }
}
