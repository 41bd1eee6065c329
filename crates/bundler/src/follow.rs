//! `--symlinks=follow`: resolves paths with links within one directory.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::{BundleError, FollowProblem};
use crate::files::{DirectoryFiles, Found, FoundKind, Stamp};
use spec::path::{RelPath, escape};

/// The limit of path_resolution(7).
const LINKS_MAX: usize = 40;

/// A path without links, and its file.
pub(crate) struct Followed {
    /// `None`: the directory itself.
    pub path: Option<RelPath>,
    pub found: Found,
}

/// Resolves all links in `start`, including the last segment. `root` is the host path of `files`,
/// for absolute links into it. `None`: not found, without a link in the path.
pub(crate) fn follow(
    files: &DirectoryFiles,
    root: Option<&Path>,
    start: &RelPath,
) -> Result<Option<Followed>, BundleError> {
    let find = |path: &RelPath| {
        let found = files.find(path);
        found.map_err(|error| BundleError::unreadable(path, error))
    };
    // The flag marks segments of a link target: if one is missing, the error names the link.
    let mut pending: VecDeque<(Vec<u8>, bool)> = start
        .segments()
        .map(|segment| (segment.to_vec(), false))
        .collect();
    let mut resolved: Option<RelPath> = None;
    let mut found = None;
    let mut last_link: Option<(RelPath, Vec<u8>)> = None;
    let mut links = 0;
    let link_error = |link: &Option<(RelPath, Vec<u8>)>, why| match link {
        Some((path, target)) => Err(BundleError::Follow {
            path: path.clone(),
            target: escape(target),
            why,
        }),
        None => Ok(None),
    };
    while let Some((segment, is_from_link)) = pending.pop_front() {
        match segment.as_slice() {
            b"" | b"." => continue,
            b".." => {
                let Some(directory) = resolved else {
                    return link_error(&last_link, FollowProblem::Escapes);
                };
                resolved = directory.parent();
                found = None;
                continue;
            }
            _ => (),
        }
        let path = RelPath::parse(&segment).and_then(|name| match &resolved {
            Some(above) => above.join(&name),
            None => Ok(name),
        });
        let Ok(path) = path else {
            return link_error(&last_link, FollowProblem::Dangling);
        };
        let Some(entry) = find(&path)? else {
            if is_from_link {
                return link_error(&last_link, FollowProblem::Dangling);
            }
            return Ok(None);
        };
        if entry.kind != FoundKind::Symlink {
            resolved = Some(path);
            found = Some(entry);
            continue;
        }
        links += 1;
        let target = files
            .read_link(&path)
            .map_err(|error| BundleError::unreadable(&path, error))?;
        last_link = Some((path, target.clone()));
        if links > LINKS_MAX {
            return link_error(&last_link, FollowProblem::Loop);
        }
        let inside = match target.first() {
            Some(b'/') => {
                resolved = None;
                strip_root(root, &target)
            }
            _ => Some(target.as_slice()),
        };
        let Some(inside) = inside else {
            return link_error(&last_link, FollowProblem::Escapes);
        };
        found = None;
        for segment in inside.rsplit(|byte| *byte == b'/') {
            pending.push_front((segment.to_vec(), true));
        }
    }
    // The path ended in `.`, `..` or the root.
    let found = match (&resolved, found) {
        (_, Some(found)) => found,
        (Some(path), None) => match find(path)? {
            Some(found) => found,
            None => return link_error(&last_link, FollowProblem::Dangling),
        },
        (None, None) => Found {
            kind: FoundKind::Directory,
            stamp: Stamp::default(),
        },
    };
    Ok(Some(Followed {
        path: resolved,
        found,
    }))
}

/// The part of the absolute path `target` that is below `root`.
fn strip_root<'target>(root: Option<&Path>, target: &'target [u8]) -> Option<&'target [u8]> {
    let below = Path::new(OsStr::from_bytes(target)).strip_prefix(root?);
    below.ok().map(|below| below.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_target_is_below_the_root_or_outside() {
        for (root, target, below) in [
            ("/work", "/work/a/../b", Some("a/../b")),
            ("/work", "/work", Some("")),
            ("/work", "/workshop/a", None),
            ("/", "/etc/x", Some("etc/x")),
        ] {
            let found = strip_root(Some(Path::new(root)), target.as_bytes());
            assert_eq!(found, below.map(str::as_bytes), "{target} below {root}");
        }
        assert_eq!(strip_root(None, b"/etc/x"), None);
    }
}
