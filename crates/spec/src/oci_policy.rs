//! The host's policy for registry artifacts: storage, sizes and trusted registries.

use std::path::PathBuf;

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

/// The contents of `oci` in one file. Keys that it does not state are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OciStatement {
    pub directory: Option<PathBuf>,
    pub size_bytes: Option<u64>,
    pub archive_bytes: Option<u64>,
    pub unpacked_bytes: Option<u64>,
    pub entries: Option<u64>,
    pub ca_file: Option<PathBuf>,
    pub insecure: Vec<String>,
    pub default_registry: Option<String>,
    /// `false` is the same as unset.
    pub copy: bool,
    /// `false` is the same as unset.
    pub root_read_only: bool,
}

impl OciStatement {
    /// Whether it states trusted registries or certificates. A denied grant `sources` forbids that
    /// for later files.
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
    /// last) and registries without TLS (the union): only from the files in `trusts`.
    pub(super) fn merged<'file>(
        files: impl Iterator<Item = &'file OciStatement> + Clone,
        trusts: impl Fn(usize) -> bool,
    ) -> Self {
        let default = Self::default();
        let smallest = |key: fn(&OciStatement) -> Option<u64>, default: u64| {
            files.clone().filter_map(key).min().unwrap_or(default)
        };
        let mut merged = Self {
            archive_bytes: smallest(|file| file.archive_bytes, default.archive_bytes),
            unpacked_bytes: smallest(|file| file.unpacked_bytes, default.unpacked_bytes),
            entries: smallest(|file| file.entries, default.entries),
            copy: files.clone().any(|file| file.copy),
            ..default
        };
        for (index, file) in files.enumerate() {
            merged.root_read_only |= file.root_read_only;
            if file.directory.is_some() {
                merged.directory.clone_from(&file.directory);
            }
            merged.size_bytes = file.size_bytes.or(merged.size_bytes);
            if !trusts(index) {
                continue;
            }
            if file.ca_file.is_some() {
                merged.ca_file.clone_from(&file.ca_file);
            }
            if file.default_registry.is_some() {
                merged.default_registry.clone_from(&file.default_registry);
            }
            for registry in &file.insecure {
                if !merged.insecure.contains(registry) {
                    merged.insecure.push(registry.clone());
                }
            }
        }
        merged
    }
}
