//! `--symlinks=follow`: resolves paths with links within one directory.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::{FollowProblem, SourceProblem};
use crate::files::{Found, FoundKind, WorkspaceFiles};
use spec::path::{RelPath, escape};
use sys::file::CallError;

/// The limit of path_resolution(7).
const LINKS_MAX: usize = 40;

pub(crate) struct Followed {
    pub path: Option<RelPath>,
    pub found: Found,
}

pub(crate) enum NotFollowed {
    /// Not found, without a link in the path.
    Missing,
    Link(Box<SourceProblem>),
    Call(CallError),
}

/// Resolves all links in `start`, including the last segment. `root` is the host path of `files`,
/// for absolute links into it.
pub(crate) fn follow(
    files: &dyn WorkspaceFiles,
    root: Option<&Path>,
    start: &RelPath,
) -> Result<Followed, NotFollowed> {
    // The flag marks segments from a link: if one of them is missing, the link is the cause.
    let mut pending: VecDeque<(Vec<u8>, bool)> = start
        .segments()
        .map(|segment| (segment.to_vec(), false))
        .collect();
    let mut here: Option<RelPath> = None;
    let mut found = None;
    let mut last_link: Option<(RelPath, Vec<u8>)> = None;
    let mut links = 0;
    let blame = |link: &Option<(RelPath, Vec<u8>)>, why| match link {
        Some((path, target)) => NotFollowed::Link(Box::new(SourceProblem::Follow {
            path: path.clone(),
            target: escape(target),
            why,
        })),
        None => NotFollowed::Missing,
    };
    while let Some((segment, is_of_link)) = pending.pop_front() {
        match segment.as_slice() {
            b"" | b"." => continue,
            b".." => {
                let Some(left) = here else {
                    return Err(blame(&last_link, FollowProblem::Escapes));
                };
                here = left.parent();
                found = None;
                continue;
            }
            _ => (),
        }
        let name = RelPath::parse(&segment);
        let path = match (&here, name) {
            (Some(above), Ok(name)) => above.join(&name).ok(),
            (None, Ok(name)) => Some(name),
            (_, Err(_)) => None,
        };
        let Some(path) = path else {
            return Err(blame(&last_link, FollowProblem::Dangling));
        };
        let Some(there) = files.look(&path).map_err(NotFollowed::Call)? else {
            return Err(match is_of_link {
                true => blame(&last_link, FollowProblem::Dangling),
                false => NotFollowed::Missing,
            });
        };
        if there.kind != FoundKind::Symlink {
            here = Some(path);
            found = Some(there);
            continue;
        }
        links += 1;
        let target = files.read_link(&path).map_err(NotFollowed::Call)?;
        last_link = Some((path, target.clone()));
        if LINKS_MAX < links {
            return Err(blame(&last_link, FollowProblem::Loop));
        }
        let inside = match target.first() {
            Some(b'/') => {
                here = None;
                beneath(root, &target)
            }
            _ => Some(target.as_slice()),
        };
        let Some(inside) = inside else {
            return Err(blame(&last_link, FollowProblem::Escapes));
        };
        found = None;
        for segment in inside.rsplit(|byte| *byte == b'/') {
            pending.push_front((segment.to_vec(), true));
        }
    }
    // The path ended in `.`, `..` or the root.
    let found = match (&here, found) {
        (_, Some(found)) => found,
        (Some(path), None) => match files.look(path).map_err(NotFollowed::Call)? {
            Some(found) => found,
            None => return Err(blame(&last_link, FollowProblem::Dangling)),
        },
        (None, None) => Found {
            kind: FoundKind::Directory,
            stamp: crate::files::Stamp::default(),
        },
    };
    Ok(Followed { path: here, found })
}

fn beneath<'target>(root: Option<&Path>, target: &'target [u8]) -> Option<&'target [u8]> {
    let rest = target.strip_prefix(root?.as_os_str().as_bytes())?;
    match rest.first() {
        None | Some(b'/') => Some(rest),
        Some(_) => None,
    }
}
