//! Rules for symbolic links of a bundle: relative, lexically inside, through no other link.

use std::collections::HashSet;

use crate::error::Refusal;
use crate::tree::{Entry, Tree};
use spec::path::{PATH_BYTES_MAX, RelPath, escape};

/// Maximum number of segments of a link target; each costs one look-up.
const TARGET_SEGMENTS_MAX: usize = 256;

/// Checks the rules that do not depend on other links.
///
/// # Errors
/// The first rule that the link breaks.
pub fn check_target(link: &RelPath, target: &[u8]) -> Result<(), Refusal> {
    if target.is_empty() {
        return Err(empty());
    }
    if target.contains(&0) {
        return Err(refused(
            "symlink_nul",
            "is a symlink whose target contains a NUL byte",
        ));
    }
    if target.len() > PATH_BYTES_MAX
        || target.split(|byte| *byte == b'/').count() > TARGET_SEGMENTS_MAX
    {
        return Err(too_long());
    }
    if target[0] == b'/' {
        let target = escape(target);
        return Err(refused(
            "symlink_absolute",
            format!("is a symlink to the absolute path `{target}`; expected a relative one"),
        ));
    }
    visit_path(link, target, |_, _| Ok(()))
}

/// Checks every link of a complete tree against all others; reports the first violation by path.
///
/// # Errors
/// The link and the rule that it breaks.
pub fn check_all(tree: &Tree) -> Result<(), (RelPath, Refusal)> {
    let links: Vec<(&RelPath, &[u8])> = tree
        .iter()
        .filter_map(|(path, entry)| match entry {
            Entry::Symlink { target } => Some((path, target.as_slice())),
            Entry::File { .. } | Entry::Directory => None,
        })
        .collect();
    let paths: HashSet<&[u8]> = links.iter().map(|(path, _)| path.as_bytes()).collect();
    for (link, target) in links {
        check_target(link, target)
            .and_then(|()| check_path(link, target, &paths))
            .map_err(|error| (link.clone(), error))?;
    }
    Ok(())
}

/// Refuses a path to or through another link. `paths` are the paths of all links of the tree.
fn check_path(link: &RelPath, target: &[u8], paths: &HashSet<&[u8]>) -> Result<(), Refusal> {
    visit_path(link, target, |path, is_last| {
        if !paths.contains(path) {
            return Ok(());
        }
        if path == link.as_bytes() {
            return Err(refused("symlink_loop", "is a symlink to itself"));
        }
        let (target, other) = (escape(target), escape(path));
        Err(if is_last {
            refused(
                "symlink_chained",
                format!(
                    "is a symlink to another symlink, `{other}`; expected a file or a directory"
                ),
            )
        } else {
            refused(
                "symlink_through_link",
                format!(
                    "is a symlink to `{target}`, which passes through another symlink, `{other}`"
                ),
            )
        })
    })
}

/// Visits each path from the link's directory to its target, with `..` resolved lexically: this equals
/// the kernel's resolution if no visited path is a link.
fn visit_path(
    link: &RelPath,
    target: &[u8],
    mut visit: impl FnMut(&[u8], bool) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut path: Vec<u8> = link
        .parent()
        .map_or_else(Vec::new, |parent| parent.as_bytes().to_vec());
    let mut segments = target
        .split(|byte| *byte == b'/')
        .filter(|segment| !segment.is_empty() && *segment != b".")
        .peekable();
    while let Some(segment) = segments.next() {
        if segment == b".." {
            if path.is_empty() {
                let target = escape(target);
                return Err(refused(
                    "symlink_escapes",
                    format!(
                        "is a symlink to `{target}`, which leaves the bundle; expected a path \
                         inside it"
                    ),
                ));
            }
            let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            path.truncate(slash);
            continue;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(segment);
        if path.len() > PATH_BYTES_MAX {
            return Err(too_long());
        }
        visit(&path, segments.peek().is_none())?;
    }
    Ok(())
}

fn refused(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(code, message).with_hint(Refusal::COPY_OR_RELATIVE)
}

pub(crate) fn empty() -> Refusal {
    refused("symlink_empty", "is a symlink without a target")
}

pub(crate) fn too_long() -> Refusal {
    refused(
        "symlink_too_long",
        "is a symlink whose target is longer than 4095 bytes or 256 segments",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TreeLimits;

    fn tree(links: &[(&str, &str)]) -> Tree {
        let limits = TreeLimits {
            entries: 1000,
            name_bytes: 1 << 20,
        };
        let mut tree = Tree::default();
        for (path, target) in links {
            let path = RelPath::parse(path.as_bytes()).expect("a path");
            let target = target.as_bytes().to_vec();
            tree.insert(path, Entry::Symlink { target }, limits)
                .expect("fits");
        }
        tree
    }

    fn code(links: &[(&str, &str)]) -> &'static str {
        check_all(&tree(links)).map_or_else(|(_, error)| error.code(), |()| "kept")
    }

    #[test]
    fn a_link_that_stays_inside_is_kept_as_written() {
        for target in [
            "x", "./x", "b/../x", "../x", "..", ".", "x/", "b//x", "../a/x", "../..",
        ] {
            assert_eq!(code(&[("a/b/l", target)]), "kept", "{target}");
        }
    }

    #[test]
    fn a_link_that_escapes_is_refused_even_where_it_comes_back() {
        for target in ["../../x", "../../a/x", "x/../../../a", "../.."] {
            assert_eq!(code(&[("a/l", target)]), "symlink_escapes", "{target}");
        }
        assert_eq!(code(&[("l", "..")]), "symlink_escapes");
        assert_eq!(code(&[("l", "/etc/passwd")]), "symlink_absolute");
        assert_eq!(code(&[("l", "")]), "symlink_empty");
        assert_eq!(code(&[("l", "a\0b")]), "symlink_nul");
        assert_eq!(code(&[("l", &"a/".repeat(300))]), "symlink_too_long");
        assert_eq!(code(&[("l", &"aa/..".repeat(2000))]), "symlink_too_long");
    }

    #[test]
    fn a_link_to_or_through_a_link_is_refused() {
        assert_eq!(code(&[("l", "l")]), "symlink_loop");
        assert_eq!(code(&[("a", "b"), ("b", "a")]), "symlink_chained");
        assert_eq!(code(&[("a", "b"), ("b", "c")]), "symlink_chained");
        assert_eq!(
            code(&[("cur", "."), ("par", "cur/..")]),
            "symlink_through_link"
        );
        assert_eq!(
            code(&[("d/l", "m/../x"), ("d/m", "..")]),
            "symlink_through_link"
        );
        assert_eq!(code(&[("d/l", "m/."), ("d/m", "..")]), "symlink_chained");
    }
}
