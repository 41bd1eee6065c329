//! Facts about the host, collected before planning.

/// Type of a path of the host, without following a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEntry {
    Directory,
    Link(Vec<u8>),
    File,
}

/// Facts about the host that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSupport {
    /// Whether the supervisor can give the body its own uid: root with a mapped range.
    pub privileged: bool,
    pub uid: u32,
    pub gid: u32,
    /// Version of the Landlock ABI; 0: unsupported.
    pub landlock_abi: u32,
    pub time_namespace: bool,
    /// The existing candidates for the base view: absolute path and type, in the order of the
    /// candidates.
    pub entries: Vec<(&'static str, HostEntry)>,
}

impl HostSupport {
    /// Finds `path` among the existing candidates.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<&HostEntry> {
        self.entries
            .iter()
            .find(|(name, _)| *name == path)
            .map(|(_, entry)| entry)
    }
}
