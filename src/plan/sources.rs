//! Workspace sources: which of the places that are mounted lie in which of them.

use spec::path::RelPath;

/// A place in a tree at which something else is going to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Below the tree's own place.
    pub path: RelPath,
    /// Whether a directory is mounted there.
    pub is_directory: bool,
}

/// The places among `all` (inside, and whether a directory is mounted there) that lie in the tree
/// at `target` itself, and in nothing that is mounted below it.
#[must_use]
pub(crate) fn places_in(target: &[u8], all: &[(&[u8], bool)]) -> Vec<Place> {
    let below = |path: &[u8], above: &[u8]| {
        let rest = path.strip_prefix(above)?.strip_prefix(b"/")?;
        RelPath::parse(rest).ok()
    };
    let lies_deeper = |path: &[u8]| {
        all.iter()
            .any(|(other, _)| below(other, target).is_some() && below(path, other).is_some())
    };
    all.iter()
        .filter(|(path, _)| !lies_deeper(path))
        .filter_map(|(path, is_directory)| {
            Some(Place {
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
    fn a_place_lies_in_the_nearest_tree_above_it() {
        let all: &[(&[u8], bool)] = &[
            (b"/w", true),
            (b"/w/a", true),
            (b"/w/a/b", false),
            (b"/w/c/d", false),
            (b"/wide", true),
        ];
        let found = |target: &[u8]| -> Vec<(String, bool)> {
            places_in(target, all)
                .into_iter()
                .map(|place| (place.path.to_string(), place.is_directory))
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
