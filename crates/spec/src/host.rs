//! The parts of the host support that plans depend on. They are collected before planning.

/// Type of a path of the host, without following a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEntry {
    Directory,
    Link(Vec<u8>),
    File,
}

/// What the host supports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSupport {
    /// Whether the supervisor can give the body its own uid: root with a mapped range.
    pub privileged: bool,
    pub uid: u32,
    pub gid: u32,
    /// Version of the Landlock ABI; 0: unsupported.
    pub landlock_abi: u32,
    pub time_namespace: bool,
    /// Paths of the base view that exist on this host: absolute path and type.
    pub entries: Vec<(&'static str, HostEntry)>,
}

impl HostSupport {
    /// Returns the type of a path of the base view; `None` if it does not exist.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<&HostEntry> {
        self.entries
            .iter()
            .find(|(name, _)| *name == path)
            .map(|(_, entry)| entry)
    }
}
