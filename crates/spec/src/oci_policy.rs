//! What the host says about artifacts from registries: where they are kept, how big they may be,
//! which registries are spoken to how.

use std::path::PathBuf;

/// What holds for images and workspace sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciPolicy {
    /// Absolute; `None`: `oci` below the user's cache directory.
    pub directory: Option<PathBuf>,
    /// Above this, what was not used for longest goes; `None`: a part of its file system.
    pub size_bytes: Option<u64>,
    /// One layer as it is sent.
    pub archive_bytes: u64,
    /// The files of one layer together.
    pub unpacked_bytes: u64,
    /// Files, directories and links of one layer.
    pub entries: u64,
    /// Certificates that are trusted beside those of the host, absolute.
    pub ca_file: Option<PathBuf>,
    /// Registries that are spoken to without TLS: `HOST` or `HOST:PORT`, as references name them.
    pub insecure: Vec<String>,
    /// Whose repositories short names of images are: `HOST` or `HOST:PORT`; `None`: there are none.
    pub default_registry: Option<String>,
    /// Whether a body gets a copy of a source also where an overlayfs could be laid over it.
    pub copy: bool,
    /// Whether no body may write the root of its image.
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

/// What one file states of it; `None` and empty where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OciStatement {
    /// `oci.directory`.
    pub directory: Option<PathBuf>,
    /// `oci.size`.
    pub size_bytes: Option<u64>,
    /// `oci.layer`.
    pub archive_bytes: Option<u64>,
    /// `oci.unpacked`.
    pub unpacked_bytes: Option<u64>,
    /// `oci.entries`.
    pub entries: Option<u64>,
    /// `oci.ca_file`.
    pub ca_file: Option<PathBuf>,
    /// `oci.insecure`.
    pub insecure: Vec<String>,
    /// `oci.default_registry`.
    pub default_registry: Option<String>,
    /// `oci.copy`; `false` says nothing.
    pub copy: bool,
    /// `oci.root_read_only`; `false` says nothing.
    pub root_read_only: bool,
}

impl OciStatement {
    /// Whether it says whose word is believed: not for a file after one that denies `sources`.
    pub(super) fn states_trust(&self) -> bool {
        self.ca_file.is_some() || !self.insecure.is_empty() || self.default_registry.is_some()
    }
}

impl OciPolicy {
    /// Whether `registry`, as a reference names it, is spoken to without TLS.
    #[must_use]
    pub fn is_insecure(&self, registry: &str) -> bool {
        self.insecure.iter().any(|known| known == registry)
    }

    /// What several files say together, earliest first. Caps: the smallest. The place and its size:
    /// the last. `copy` and `root_read_only` stay once they were stated. Certificates and the
    /// default registry (the last) and registries without TLS (all of them) are taken of the files
    /// that `trusts` says may speak of them.
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
