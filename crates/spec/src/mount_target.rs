//! Mount points inside the view: `at`, `mountPath`, `--mount …:DST`.

use crate::path::{PathError, RelPath};

pub(crate) const MOUNT_TARGET_BYTES_MAX: usize = 4_096;

/// Directories in which nothing can be mounted, and why. Completes "the mount point …".
const RESERVED_TREES: [(&str, &str); 8] = [
    (
        "/proc",
        "is in /proc, which shows the processes of the sandbox",
    ),
    ("/dev", "is in /dev, which has the devices of the sandbox"),
    ("/sys", "is in /sys, which does not exist in a sandbox"),
    ("/usr", "is in /usr, which has the programs of the sandbox"),
    ("/bin", "is in /bin, which has the programs of the sandbox"),
    (
        "/sbin",
        "is in /sbin, which has the programs of the sandbox",
    ),
    ("/etc", "is in /etc, which has the files of the sandbox"),
    (
        "/runner",
        "is in /runner, which has the body's input and output",
    ),
];

/// Paths that cannot be mount points, and why. Mounts below them are possible.
const RESERVED: [(&str, &str); 5] = [
    ("/bundle", "is where the bundle is unpacked"),
    ("/scratch", "is where input and output files are"),
    (
        "/tmp",
        "is the sandbox's directory for temporary files, empty at the start",
    ),
    ("/home", "contains the home directory of the body"),
    ("/home/runner", "is the home directory of the body"),
];

/// The absolute path of a mount point inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountTarget(String);

/// Why a path is not a mount point. Completes "the mount point …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountTargetError {
    #[error("is not absolute")]
    Relative,
    #[error("is the root directory of the body")]
    WholeView,
    #[error("{0}")]
    Path(PathError),
    #[error("is longer than 4096 bytes")]
    TooLong,
    #[error("{why}")]
    Reserved { why: &'static str },
}

impl MountTarget {
    /// Parses `text` without normalisation.
    ///
    /// # Errors
    /// [`MountTargetError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, MountTargetError> {
        let inside = text.strip_prefix('/').ok_or(MountTargetError::Relative)?;
        if inside.is_empty() {
            return Err(MountTargetError::WholeView);
        }
        if text.len() > MOUNT_TARGET_BYTES_MAX {
            return Err(MountTargetError::TooLong);
        }
        if inside.starts_with('/') {
            return Err(MountTargetError::Path(PathError::EmptySegment));
        }
        RelPath::parse(inside.as_bytes()).map_err(MountTargetError::Path)?;
        let first = inside.split('/').next().unwrap_or(inside);
        if first.starts_with("lib") {
            let why = "is in /lib*, which has the libraries of the sandbox";
            return Err(MountTargetError::Reserved { why });
        }
        let tree = RESERVED_TREES
            .iter()
            .find(|(tree, _)| tree.strip_prefix('/') == Some(first));
        let path = RESERVED.iter().find(|(path, _)| *path == text);
        match tree.or(path) {
            Some((_, why)) => Err(MountTargetError::Reserved { why }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The absolute path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Number of segments. Sorting by it puts parents first.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.matches('/').count()
    }
}

impl std::fmt::Display for MountTarget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&crate::path::escape(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_cannot_hide_the_system() {
        for text in [
            "/workspace",
            "/vendor/python-libs",
            "/tmp/x",
            "/bundle/data",
            "/opt",
            "/home/other",
            "/home/runner/.cache",
        ] {
            assert!(MountTarget::parse(text).is_ok(), "{text}");
        }
        for text in [
            "/proc",
            "/proc/self",
            "/dev",
            "/sys/fs",
            "/usr/local",
            "/bin",
            "/lib",
            "/lib64/x",
            "/libx32",
            "/etc",
            "/etc/passwd",
            "/runner",
            "/runner/out",
            "/bundle",
            "/scratch",
            "/tmp",
            "/home",
            "/home/runner",
            "/sbin/init",
        ] {
            assert!(
                matches!(
                    MountTarget::parse(text),
                    Err(MountTargetError::Reserved { .. })
                ),
                "{text}"
            );
        }
        assert_eq!(MountTarget::parse("/"), Err(MountTargetError::WholeView));
        assert_eq!(MountTarget::parse("a"), Err(MountTargetError::Relative));
        assert_eq!(MountTarget::parse(""), Err(MountTargetError::Relative));
        for text in [
            "/a/../etc",
            "//etc",
            "/a//b",
            "/a/.",
            "/a/",
            "/./proc",
            "/a\0",
        ] {
            assert!(
                matches!(MountTarget::parse(text), Err(MountTargetError::Path(_))),
                "{text}"
            );
        }
        assert_eq!(
            MountTarget::parse(&"/a".repeat(2_049)),
            Err(MountTargetError::TooLong)
        );
    }
}
