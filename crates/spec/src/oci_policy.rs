//! The host's policy for registry artifacts: storage, sizes and trusted registries.

use std::path::PathBuf;

use crate::host_config::{Statement, WrittenOci};
use crate::host_policy::smallest;

/// The policy for images and workspace sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciPolicy {
    /// Absolute; `None`: `oci` below the user's cache directory.
    pub directory: Option<PathBuf>,
    /// Above this size the least recently used artifacts are removed; `None`: a share of the file
    /// system.
    pub size_bytes: Option<u64>,
    /// Of one compressed layer.
    pub archive_bytes: u64,
    /// Of one unpacked layer.
    pub unpacked_bytes: u64,
    /// Of one layer.
    pub entries: u64,
    /// CA certificates that are trusted besides those of the host, absolute.
    pub ca_file: Option<PathBuf>,
    /// Registries without TLS: `HOST` or `HOST:PORT`, as in references.
    pub insecure: Vec<String>,
    /// Registry of short image names: `HOST` or `HOST:PORT`; `None`: short names are refused.
    pub default_registry: Option<String>,
    /// Each body gets a copy of a source, even if an overlayfs could be used.
    pub copy: bool,
    /// Image roots are mounted read-only.
    pub root_read_only: bool,
}

impl Default for OciPolicy {
    fn default() -> Self {
        Self {
            directory: None,
            size_bytes: None,
            archive_bytes: 4 << 30,
            unpacked_bytes: 16 << 30,
            entries: 1_000_000,
            ca_file: None,
            insecure: Vec::new(),
            default_registry: None,
            copy: false,
            root_read_only: false,
        }
    }
}

impl WrittenOci {
    /// Whether it states trusted registries or certificates. They have no effect if an earlier file
    /// denies the grant `sources`.
    pub(super) fn states_trust(&self) -> bool {
        self.ca_file.is_some() || !self.insecure.is_empty() || self.default_registry.is_some()
    }
}

impl OciPolicy {
    /// Whether `registry`, as in a reference, is used without TLS.
    #[must_use]
    pub fn is_insecure(&self, registry: &str) -> bool {
        self.insecure.iter().any(|known| known == registry)
    }

    /// Merges several files, earliest first:
    ///
    /// - limits: the smallest;
    /// - directory and size: the last;
    /// - `copy` and `root_read_only`: true if any file sets it;
    /// - only of files that are `trusted`: the last CA certificates and the last default registry, and
    ///   all registries without TLS.
    pub(super) fn merge(statements: &[Statement], trusted: &[bool]) -> Self {
        let default = Self::default();
        let limit = |key: fn(&WrittenOci) -> Option<u64>, default| {
            smallest(statements, |file| key(&file.oci), default)
        };
        let mut merged = Self {
            archive_bytes: limit(|file| Some(file.layer?.0), default.archive_bytes),
            unpacked_bytes: limit(|file| Some(file.unpacked?.0), default.unpacked_bytes),
            entries: limit(|file| Some(file.entries?.0), default.entries),
            ..default
        };
        for (file, is_trusted) in statements.iter().map(|file| &file.oci).zip(trusted) {
            merged.copy |= file.copy;
            merged.root_read_only |= file.root_read_only;
            if let Some(directory) = &file.directory {
                merged.directory = Some(directory.clone().into());
            }
            if let Some(size) = file.size {
                merged.size_bytes = Some(size.0);
            }
            if !is_trusted {
                continue;
            }
            if let Some(ca_file) = &file.ca_file {
                merged.ca_file = Some(ca_file.clone().into());
            }
            if let Some(registry) = &file.default_registry {
                merged.default_registry = Some(registry.0.clone());
            }
            for registry in &file.insecure {
                if !merged.insecure.contains(&registry.0) {
                    merged.insecure.push(registry.0.clone());
                }
            }
        }
        merged
    }
}
