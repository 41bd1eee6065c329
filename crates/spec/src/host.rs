//! What was found out about the host before anything was planned.

/// What lies at a path of the host, without following a last link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEntry {
    Directory,
    /// A link and its target.
    Link(Vec<u8>),
    File,
}

/// Facts about the host that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSupport {
    /// Whether the supervisor may give the body an uid of its own: root with a mapped range.
    pub privileged: bool,
    /// Effective uid of the supervisor.
    pub uid: u32,
    /// Effective gid of the supervisor.
    pub gid: u32,
    /// Version of Landlock, 0 where there is none.
    pub landlock_abi: u32,
    /// Whether the kernel has time namespaces (Linux 5.6).
    pub time_namespace: bool,
    /// What of the candidates for the base view exists: absolute path and what is there, in the
    /// order of the candidates.
    pub entries: Vec<(&'static str, HostEntry)>,
}

impl HostSupport {
    /// What is at `path`, if that is one of the candidates and exists.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<&HostEntry> {
        self.entries
            .iter()
            .find(|(name, _)| *name == path)
            .map(|(_, entry)| entry)
    }
}
