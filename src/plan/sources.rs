//! Workspace sources: which mount points are inside the tree of which source.

use spec::path::RelPath;

/// A mount point in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountPoint {
    /// Relative to the tree.
    pub path: RelPath,
    pub is_directory: bool,
}

/// The mount points among `all` (path inside the sandbox, is a directory) that are in the tree at
/// `target` and not in another tree that is mounted below it.
#[must_use]
pub(crate) fn mount_points_in(target: &[u8], all: &[(&[u8], bool)]) -> Vec<MountPoint> {
    let below = |path: &[u8], above: &[u8]| {
        let rest = path.strip_prefix(above)?.strip_prefix(b"/")?;
        RelPath::parse(rest).ok()
    };
    let is_in_nested_mount = |path: &[u8]| {
        all.iter()
            .any(|(other, _)| below(other, target).is_some() && below(path, other).is_some())
    };
    all.iter()
        .filter(|(path, _)| !is_in_nested_mount(path))
        .filter_map(|(path, is_directory)| {
            Some(MountPoint {
                path: below(path, target)?,
                is_directory: *is_directory,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_in_the_nearest_tree_above_it() {
        let all: &[(&[u8], bool)] = &[
            (b"/w", true),
            (b"/w/a", true),
            (b"/w/a/b", false),
            (b"/w/c/d", false),
            (b"/wide", true),
        ];
        let found = |target: &[u8]| -> Vec<(String, bool)> {
            mount_points_in(target, all)
                .into_iter()
                .map(|point| (point.path.to_string(), point.is_directory))
                .collect()
        };
        assert_eq!(
            found(b"/w"),
            [("a".to_owned(), true), ("c/d".to_owned(), false)]
        );
        assert_eq!(found(b"/w/a"), [("b".to_owned(), false)]);
        assert_eq!(found(b"/wide"), []);
    }
}
