//! An image as the body's root: its top layer and the bind mounts over it.
//!
//! All names in an image are untrusted. So the top layer contains each component of a mount target
//! as a directory, which hides links of the image.

use crate::image_user::ImageUser;
use crate::view::{Access, BASE_CANDIDATES, ViewStep, etc_files, is_beneath};

/// Entry of the top layer. The path is relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopLayerEntry {
    Directory(Vec<u8>),
    /// Mode 0644.
    File {
        path: Vec<u8>,
        contents: Vec<u8>,
    },
}

/// Bind mount of a path of the writable space at the same path of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBind {
    pub path: Vec<u8>,
    /// Makes the top mount read-only. Mounts beneath it keep their own attributes.
    pub read_only: bool,
}

/// Paths of the runner in every image, and whether the bind mount is read-only. Writable
/// directories beneath a read-only path are separate mounts.
const RUNNER_DIRECTORIES: [(&str, bool); 7] = [
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
pub struct UserFiles<'image> {
    pub passwd: &'image [u8],
    pub group: &'image [u8],
}

/// Builds the top layer, parents first, for an image with the requested mounts `mounts` that runs
/// as `user`.
#[must_use]
pub fn plan_top_layer(
    mounts: &[ViewStep],
    user: &ImageUser,
    files: UserFiles<'_>,
) -> Vec<TopLayerEntry> {
    let mut list = Vec::new();
    for (path, _) in RUNNER_DIRECTORIES {
        push_directories(path.as_bytes(), &mut list);
    }
    for (path, is_file) in outermost_targets(mounts) {
        if !is_file {
            push_directories(path, &mut list);
            continue;
        }
        if let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
            push_directories(&path[..end], &mut list);
        }
        list.push(TopLayerEntry::File {
            path: path.to_vec(),
            contents: Vec::new(),
        });
    }
    push_directories(b"etc", &mut list);
    for (path, contents) in etc_files() {
        let contents = match path {
            "/etc/passwd" => user.passwd(files.passwd),
            "/etc/group" => user.group(files.group),
            _ => contents.into_bytes(),
        };
        let path = path.trim_start_matches('/').as_bytes().to_vec();
        list.push(TopLayerEntry::File { path, contents });
    }
    list
}

/// Lists the bind mounts over an image. The child has created `mounts` in the writable space.
#[must_use]
pub fn plan_binds(mounts: &[ViewStep]) -> Vec<ImageBind> {
    let fixed = RUNNER_DIRECTORIES.map(|(path, read_only)| ImageBind {
        path: path.as_bytes().to_vec(),
        read_only,
    });
    let requested = outermost_targets(mounts).into_iter();
    let requested = requested.map(|(path, _)| ImageBind {
        path: path.to_vec(),
        // The requested mount already has the attributes of its access.
        read_only: false,
    });
    fixed.into_iter().chain(requested).collect()
}

/// Returns the steps of the base view that an image does not replace.
#[must_use]
pub fn without_host_programs(base: &[ViewStep]) -> Vec<ViewStep> {
    let is_of_host = |path: &[u8]| BASE_CANDIDATES.iter().any(|host| host.as_bytes() == path);
    let stays = |step: &&ViewStep| match step {
        ViewStep::Bind { access, .. } => *access == Access::Device,
        ViewStep::Directory { path, .. }
        | ViewStep::File { path, .. }
        | ViewStep::Symlink { path, .. } => !is_of_host(path),
        _ => true,
    };
    base.iter().filter(stays).cloned().collect()
}

/// Whether a top-level name belongs to the image. The runner's names have their own Landlock rules.
#[must_use]
pub(crate) fn is_from_image(name: &[u8]) -> bool {
    !RUNNER_DIRECTORIES
        .iter()
        .any(|(path, _)| path.as_bytes() == name)
}

/// Targets that are not inside another mount, and whether each is a file.
fn outermost_targets(mounts: &[ViewStep]) -> Vec<(&[u8], bool)> {
    let targets = mounts.iter().filter_map(|step| match step {
        ViewStep::Bind { target, .. }
        | ViewStep::BindFromSpace { target, .. }
        | ViewStep::Attach { target, .. }
        | ViewStep::AttachOverlay { target, .. }
        | ViewStep::Tmpfs { target, .. }
        | ViewStep::SelfBind { path: target } => Some(target.strip_prefix(b"/").unwrap_or(target)),
        ViewStep::Directory { .. }
        | ViewStep::File { .. }
        | ViewStep::Symlink { .. }
        | ViewStep::Proc
        | ViewStep::Devpts
        | ViewStep::Mask { .. }
        | ViewStep::MaskDirectory { .. } => None,
    });
    let mut sorted: Vec<&[u8]> = targets.collect();
    // By component, so that content directly follows its directory: by bytes `a-b` is between `a` and
    // `a/c`.
    sorted.sort_unstable_by(|left, right| components(left).cmp(components(right)));
    let mut outermost: Vec<&[u8]> = Vec::new();
    for target in sorted {
        let mut fixed = RUNNER_DIRECTORIES.iter().map(|(path, _)| path.as_bytes());
        if !fixed.any(|path| is_at_or_beneath(target, path))
            && !outermost
                .last()
                .is_some_and(|last| is_at_or_beneath(target, last))
        {
            outermost.push(target);
        }
    }
    let is_file = |target: &[u8]| {
        mounts.iter().any(|step| {
            matches!(step, ViewStep::File { path, .. }
                if path.strip_prefix(b"/").unwrap_or(path) == target)
        })
    };
    outermost
        .into_iter()
        .map(|target| (target, is_file(target)))
        .collect()
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

fn is_at_or_beneath(path: &[u8], directory: &[u8]) -> bool {
    path == directory || is_beneath(path, directory)
}

fn push_directories(path: &[u8], list: &mut Vec<TopLayerEntry>) {
    let ends = (1..path.len()).filter(|at| path[*at] == b'/');
    for end in ends.chain([path.len()]) {
        let directory = TopLayerEntry::Directory(path[..end].to_vec());
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
    fn every_component_of_every_target_is_created_and_parents_come_first() {
        let mounts = [
            bind("/workspace/a/b"),
            bind("/workspace/a/b/c"),
            file("/opt/tool"),
            bind("/opt/tool"),
            bind("/bundle/vendor"),
            bind("/tmp/x"),
            bind("/home/runner/y"),
            bind("/home/other"),
        ];
        let list = plan_top_layer(&mounts, &ImageUser::default(), UserFiles::default());
        let path = |entry: &TopLayerEntry| match entry {
            TopLayerEntry::Directory(path) | TopLayerEntry::File { path, .. } => path.clone(),
        };
        let paths: Vec<Vec<u8>> = list.iter().map(path).collect();
        for (at, path) in paths.iter().enumerate() {
            assert!(!paths[..at].contains(path), "{path:?} twice");
            if let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
                let parent = TopLayerEntry::Directory(path[..end].to_vec());
                assert!(list[..at].contains(&parent), "{path:?}");
            }
        }
        let binds = plan_binds(&mounts);
        for bind in &binds {
            assert!(paths.contains(&bind.path), "{bind:?}");
        }
        assert!(list.contains(&TopLayerEntry::File {
            path: b"opt/tool".to_vec(),
            contents: Vec::new(),
        }));
        let requested: Vec<&[u8]> = binds[RUNNER_DIRECTORIES.len()..]
            .iter()
            .map(|bind| &bind.path[..])
            .collect();
        let expected: [&[u8]; 3] = [b"home/other", b"opt/tool", b"workspace/a/b"];
        assert_eq!(requested, expected);
    }

    #[test]
    fn a_name_that_begins_like_another_is_not_in_it() {
        let mounts = [bind("/a"), bind("/a-b"), bind("/a/c"), bind("/bundles")];
        let targets: Vec<&[u8]> = outermost_targets(&mounts)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let expected: [&[u8]; 3] = [b"a", b"a-b", b"bundles"];
        assert_eq!(targets, expected);
    }

    #[test]
    fn paths_of_the_runner_hide_the_image_except_a_home() {
        for name in ["proc", "dev", "bundle", "scratch", "runner", "tmp"] {
            assert!(!is_from_image(name.as_bytes()), "{name}");
        }
        assert!(is_from_image(b"home") && is_from_image(b"usr") && is_from_image(b"devil"));
    }

    #[test]
    fn no_program_of_the_host_stays_in_the_view_of_an_image() {
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
        let steps = without_host_programs(&base);
        for step in &steps {
            if let ViewStep::Bind { source, .. } = step {
                assert!(source.starts_with(b"/dev/"), "{step:?}");
            }
        }
        let (text, base_text) = (format!("{steps:?}"), format!("{base:?}"));
        for gone in ["/usr", "/bin", "/etc/ssl", "/etc/localtime"] {
            let path = format!("{:?}", gone.as_bytes());
            assert!(base_text.contains(&path), "{gone}");
            assert!(!text.contains(&path), "{gone}");
        }
        assert!(steps.contains(&ViewStep::Proc) && steps.len() < base.len());
    }

    #[test]
    fn the_home_of_the_body_is_that_of_the_view() {
        assert!(RUNNER_DIRECTORIES.contains(&(HOME.trim_start_matches('/'), false)));
    }
}
