//! The host's policy for registry artifacts: storage, sizes and trusted registries.

use std::path::PathBuf;

use crate::host_config::WrittenOci;

/// The policy for images and workspace sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciPolicy {
    /// Absolute; `None`: `oci` below the user's cache directory.
    pub directory: Option<PathBuf>,
    /// Above this size the least recently used artifacts are removed; `None`: a share of the file
    /// system.
    pub size_bytes: Option<u64>,
    pub archive_bytes: u64,
    pub unpacked_bytes: u64,
    pub entries: u64,
    /// CA certificates that are trusted besides those of the host, absolute.
    pub ca_file: Option<PathBuf>,
    /// Registries without TLS: `HOST` or `HOST:PORT`, as in references.
    pub insecure: Vec<String>,
    /// Registry of short image names: `HOST` or `HOST:PORT`; `None`: short names are refused.
    pub default_registry: Option<String>,
    pub copy: bool,
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
    /// Whether it states trusted registries or certificates. After a file that denies the grant
    /// `sources`, that has no effect.
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

    /// Merges several files, earliest first. Limits: the smallest. Directory and size: the last.
    /// `copy` and `root_read_only`: true once stated. CA certificates and default registry (the
    /// last) and registries without TLS (the union): only of files for which `trusts` is true.
    pub(super) fn merge<'file>(
        files: impl Iterator<Item = &'file WrittenOci> + Clone,
        trusts: impl Fn(usize) -> bool,
    ) -> Self {
        let default = Self::default();
        let smallest = |key: fn(&WrittenOci) -> Option<u64>, default: u64| {
            files.clone().filter_map(key).min().unwrap_or(default)
        };
        let mut merged = Self {
            archive_bytes: smallest(|file| Some(file.layer?.0), default.archive_bytes),
            unpacked_bytes: smallest(|file| Some(file.unpacked?.0), default.unpacked_bytes),
            entries: smallest(|file| Some(file.entries?.0), default.entries),
            ..default
        };
        for (index, file) in files.enumerate() {
            merged.copy |= file.copy;
            merged.root_read_only |= file.root_read_only;
            if let Some(directory) = &file.directory {
                merged.directory = Some(directory.clone().into());
            }
            if let Some(size) = file.size {
                merged.size_bytes = Some(size.0);
            }
            if !trusts(index) {
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
