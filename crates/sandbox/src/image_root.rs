//! An image as the body's root: its top layer and the mounts over it.
//!
//! All names in an image are untrusted. So each component of a mount target is created as a
//! directory in the top layer, which hides links of the image.

use crate::image_user::ImageUser;
use crate::view::{Access, BASE_CANDIDATES, ViewStep, etc_files};

/// Entry of the top layer, parents first. Paths are relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filled {
    /// Mode 0755.
    Directory(Vec<u8>),
    /// Path and contents, mode 0644.
    File(Vec<u8>, Vec<u8>),
}

/// A part of the run's space that is bind-mounted at the same path of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graft {
    /// Relative to both roots.
    pub path: Vec<u8>,
    /// Only the top mount; those beneath it stay unchanged.
    pub read_only: bool,
}

/// Grafts of every run: path and read-only. Writable directories beneath a read-only one are
/// mounts.
const OWN: [(&str, bool); 7] = [
    ("proc", false),
    ("dev", true),
    ("bundle", false),
    ("scratch", false),
    ("runner", true),
    ("tmp", false),
    ("home/runner", false),
];

/// The image's user and group files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names<'image> {
    pub passwd: &'image [u8],
    pub group: &'image [u8],
}

/// Builds the top layer for an image with the mounts `asked`, run as `user`.
#[must_use]
pub fn filled(asked: &[ViewStep], user: &ImageUser, names: Names<'_>) -> Vec<Filled> {
    let mut list = Vec::new();
    for (path, _) in OWN {
        directories(path.as_bytes(), &mut list);
    }
    for (path, is_file) in outermost(asked) {
        match (is_file, path.iter().rposition(|byte| *byte == b'/')) {
            (false, _) => directories(path, &mut list),
            (true, parent) => {
                if let Some(at) = parent {
                    directories(&path[..at], &mut list);
                }
                list.push(Filled::File(path.to_vec(), Vec::new()));
            }
        }
    }
    directories(b"etc", &mut list);
    for (path, contents) in etc_files() {
        let contents = match path {
            "/etc/passwd" => user.passwd(names.passwd),
            "/etc/group" => user.group(names.group),
            _ => contents.into_bytes(),
        };
        let path = path.trim_start_matches('/').as_bytes().to_vec();
        list.push(Filled::File(path, contents));
    }
    list
}

/// Lists the grafts for the mounts `asked`, which the child has created in the run's space.
#[must_use]
pub fn grafts(asked: &[ViewStep]) -> Vec<Graft> {
    let own = OWN.iter().map(|(path, read_only)| Graft {
        path: path.as_bytes().to_vec(),
        read_only: *read_only,
    });
    let asked = outermost(asked).into_iter().map(|(path, _)| Graft {
        path: path.to_vec(),
        read_only: false,
    });
    own.chain(asked).collect()
}

/// Filters the base view for an image: without programs of the host.
#[must_use]
pub fn base_of_image(base: &[ViewStep]) -> Vec<ViewStep> {
    let of_host = |path: &[u8]| BASE_CANDIDATES.iter().any(|own| own.as_bytes() == path);
    let stays = |step: &&ViewStep| match step {
        ViewStep::Bind { access, .. } => *access == Access::Device,
        ViewStep::Directory { path, .. }
        | ViewStep::File { path, .. }
        | ViewStep::Symlink { path, .. } => !of_host(path),
        _ => true,
    };
    base.iter().filter(stays).cloned().collect()
}

/// Whether a top-level name belongs to the image; other names have their own Landlock rules.
#[must_use]
pub fn is_of_image(name: &[u8]) -> bool {
    !OWN.iter().any(|(path, _)| path.as_bytes() == name)
}

/// Targets that are not inside another mount, and whether each is a file.
fn outermost(asked: &[ViewStep]) -> Vec<(&[u8], bool)> {
    let targets = asked.iter().filter_map(|step| match step {
        ViewStep::Bind { target, .. }
        | ViewStep::BindOwn { target, .. }
        | ViewStep::Attach { target, .. }
        | ViewStep::AttachOverlay { target, .. }
        | ViewStep::Tmpfs { target, .. }
        | ViewStep::OwnMount { path: target } => Some(target.strip_prefix(b"/").unwrap_or(target)),
        ViewStep::Directory { .. }
        | ViewStep::File { .. }
        | ViewStep::Symlink { .. }
        | ViewStep::Proc
        | ViewStep::Devpts
        | ViewStep::Mask { .. }
        | ViewStep::MaskDirectory { .. } => None,
    });
    let mut all: Vec<&[u8]> = targets.collect();
    // A directory sorts before its content.
    all.sort_unstable_by(|one, other| parts(one).cmp(parts(other)));
    let mut kept: Vec<&[u8]> = Vec::new();
    for target in all {
        let is_own = OWN.iter().any(|(path, _)| is_in(target, path.as_bytes()));
        if !is_own && !kept.last().is_some_and(|last| is_in(target, last)) {
            kept.push(target);
        }
    }
    let is_file = |target: &[u8]| {
        asked.iter().any(|step| {
            matches!(step, ViewStep::File { path, .. }
                if path.strip_prefix(b"/").unwrap_or(path) == target)
        })
    };
    kept.into_iter()
        .map(|target| (target, is_file(target)))
        .collect()
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

fn is_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn directories(path: &[u8], list: &mut Vec<Filled>) {
    let ends = (1..path.len()).filter(|at| path[*at] == b'/');
    for end in ends.chain([path.len()]) {
        let directory = Filled::Directory(path[..end].to_vec());
        if !list.contains(&directory) {
            list.push(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{self, HOME};
    use spec::host::{HostEntry, HostSupport};

    fn bind(target: &str) -> ViewStep {
        ViewStep::Bind {
            source: b"/source".to_vec(),
            target: target.into(),
            access: Access::ReadOnly,
        }
    }

    fn file(path: &str) -> ViewStep {
        ViewStep::File {
            path: path.into(),
            contents: Vec::new(),
        }
    }

    #[test]
    fn every_component_of_every_place_is_made_and_parents_come_first() {
        let asked = [
            bind("/workspace/a/b"),
            bind("/workspace/a/b/c"),
            file("/opt/tool"),
            bind("/opt/tool"),
            bind("/bundle/vendor"),
            bind("/tmp/x"),
            bind("/home/runner/y"),
            bind("/home/other"),
        ];
        let list = filled(&asked, &ImageUser::default(), Names::default());
        let path = |one: &Filled| match one {
            Filled::Directory(path) | Filled::File(path, _) => path.clone(),
        };
        let paths: Vec<Vec<u8>> = list.iter().map(path).collect();
        for (at, one) in paths.iter().enumerate() {
            assert!(!paths[..at].contains(one), "{one:?} twice");
            if let Some(end) = one.iter().rposition(|byte| *byte == b'/') {
                let parent = Filled::Directory(one[..end].to_vec());
                assert!(list[..at].contains(&parent), "{one:?}");
            }
        }
        for graft in grafts(&asked) {
            assert!(paths.contains(&graft.path), "{graft:?}");
        }
        assert!(list.contains(&Filled::File(b"opt/tool".to_vec(), Vec::new())));
        let asked: Vec<Vec<u8>> = grafts(&asked)[OWN.len()..]
            .iter()
            .map(|graft| graft.path.clone())
            .collect();
        let expected: [&[u8]; 3] = [b"home/other", b"opt/tool", b"workspace/a/b"];
        assert_eq!(asked, expected);
    }

    #[test]
    fn a_name_that_begins_like_another_is_not_in_it() {
        let asked = [bind("/a"), bind("/a-b"), bind("/a/c"), bind("/bundles")];
        let places: Vec<&[u8]> = outermost(&asked)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let expected: [&[u8]; 3] = [b"a", b"a-b", b"bundles"];
        assert_eq!(places, expected);
    }

    #[test]
    fn own_paths_hide_the_image_except_a_home() {
        for name in ["proc", "dev", "bundle", "scratch", "runner", "tmp"] {
            assert!(!is_of_image(name.as_bytes()), "{name}");
        }
        assert!(is_of_image(b"home") && is_of_image(b"usr") && is_of_image(b"devil"));
    }

    #[test]
    fn nothing_of_the_host_s_programs_stays_in_the_view_of_an_image() {
        let host = HostSupport {
            entries: vec![
                ("/usr", HostEntry::Directory),
                ("/bin", HostEntry::Link(b"usr/bin".to_vec())),
                ("/etc/ssl", HostEntry::Directory),
                ("/etc/localtime", HostEntry::File),
            ],
            ..HostSupport::default()
        };
        let base = view::base(&host);
        let steps = base_of_image(&base);
        for step in &steps {
            if let ViewStep::Bind { source, .. } = step {
                assert!(source.starts_with(b"/dev/"), "{step:?}");
            }
        }
        let text = format!("{steps:?}");
        for gone in ["usr", "bin", "ssl", "localtime"] {
            let path = format!("{:?}", format!("/{gone}").into_bytes());
            assert!(!text.contains(&path), "{gone}");
        }
        assert!(steps.contains(&ViewStep::Proc) && steps.len() < base.len());
    }

    #[test]
    fn the_home_of_the_body_is_where_the_view_has_it() {
        assert!(OWN.contains(&(HOME.trim_start_matches('/'), false)));
    }
}
