//! Folds paths to directories that contain several of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// A directory replaces this many paths in it, or more.
const FOLDED_MIN: usize = 3;

/// Replaces paths by their common directory, deepest directories first, if `may_fold` accepts it. The
/// result has no path below another one.
pub(super) fn fold(
    mut paths: BTreeSet<Vec<u8>>,
    may_fold: &dyn Fn(&[u8]) -> bool,
) -> BTreeSet<Vec<u8>> {
    let mut by_depth: BTreeMap<usize, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for path in &paths {
        for directory in ancestors(path) {
            let depth = directory.iter().filter(|byte| **byte == b'/').count();
            by_depth
                .entry(depth)
                .or_default()
                .insert(directory.to_vec());
        }
    }
    for directory in by_depth.into_values().rev().flatten() {
        let inside = below(&paths, &directory);
        if inside.len() >= FOLDED_MIN && may_fold(&directory) {
            for path in inside {
                paths.remove(&path);
            }
            paths.insert(directory);
        }
    }
    outermost(paths)
}

/// The paths that are not below another one.
pub(super) fn outermost(mut paths: BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let inner: Vec<Vec<u8>> = paths
        .iter()
        .filter(|path| ancestors(path).any(|above| paths.contains(above)))
        .cloned()
        .collect();
    for path in inner {
        paths.remove(&path);
    }
    paths
}

/// The directories above an absolute path, without `/`.
pub(super) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().skip(1);
    ends.filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| &path[..end])
}

fn below(paths: &BTreeSet<Vec<u8>>, directory: &[u8]) -> Vec<Vec<u8>> {
    let first = [directory, b"/"].concat();
    // `0` follows `/`.
    let end = [directory, b"0"].concat();
    paths.range(first..end).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(paths: &[&str], barriers: &[&str]) -> Vec<String> {
        let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let may_fold = |directory: &[u8]| {
            let mut barriers = barriers.iter();
            !barriers.any(|barrier| barrier.as_bytes() == directory)
        };
        let folded = fold(paths, &may_fold).into_iter();
        folded
            .map(|path| String::from_utf8(path).expect("text"))
            .collect()
    }

    #[test]
    fn three_paths_become_their_directory_unless_it_is_a_barrier() {
        for (paths, barriers, expected) in [
            (
                &["/o/t/a", "/o/t/b"][..],
                &[][..],
                &["/o/t/a", "/o/t/b"][..],
            ),
            (&["/o/t/a", "/o/t/b", "/o/t/c"], &["/o"], &["/o/t"]),
            (
                &["/o/t/a", "/o/t/b", "/o/t/c"],
                &["/o", "/o/t"],
                &["/o/t/a", "/o/t/b", "/o/t/c"],
            ),
            (&["/o/t/1/a", "/o/t/2/b", "/o/t/3/c"], &["/o"], &["/o/t"]),
            (
                &["/o/t/1/a", "/o/t/2/b", "/o/u/3/c"],
                &["/o"],
                &["/o/t/1/a", "/o/t/2/b", "/o/u/3/c"],
            ),
            (&["/o/t", "/o/t/a", "/o/t-x"], &["/o"], &["/o/t", "/o/t-x"]),
            (&[], &[], &[]),
        ] {
            assert_eq!(folded(paths, barriers), expected, "{paths:?} {barriers:?}");
        }
    }

    #[test]
    fn many_paths_become_few() {
        let paths: Vec<String> = (0..20_000)
            .map(|number| format!("/h/u/n/p{}/l/{number}", number % 100))
            .collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert_eq!(folded(&paths, &["/h", "/h/u"]), ["/h/u/n"]);
    }
}
