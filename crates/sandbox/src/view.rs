//! The body's view of the file system: the steps that create the new root, in order.
//!
//! The new root is the only limited tmpfs. Writable directories are bind mounts of it, and the root
//! mount becomes read-only at the end. So one size limit covers everything, and the supervisor
//! reaches it through one descriptor.

use spec::body_network::ADDRESS_V4;
use spec::host::{HostEntry, HostSupport};
use spec::mount_target::{MountTarget, MountTargetError};
use spec::path::escape;
use spec::request::ViewEntry;

/// Uid and gid of the body inside.
pub(crate) const INSIDE_ID: u32 = 1000;
/// Home of the body.
pub const HOME: &str = "/home/runner";
const FILLED: [&str; 2] = [BUNDLE, SCRATCH];
pub(crate) const HOST_NAME: &str = "runner";
/// Directory of the bundle.
pub const BUNDLE: &str = "/bundle";
/// Directory of declared inputs and outputs: `_workflowFsRoot`.
pub const SCRATCH: &str = "/scratch";
/// File of the structured input.
pub const INPUT: &str = "/runner/input.json";
/// File of the structured output.
pub const OUTPUT: &str = "/runner/out/output.json";
/// Directories that the body may write, each a mount.
pub const WRITABLE: [&str; 6] = [BUNDLE, SCRATCH, "/runner/out", "/tmp", HOME, "/dev/shm"];

/// Number of the first steps of [`base`] that create the directories that the supervisor fills.
pub(crate) const FILLED_BY_SUPERVISOR: usize = 4;

/// Paths of the host in the base view, if they exist.
pub const BASE_CANDIDATES: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/etc/services",
    "/etc/protocols",
    "/etc/localtime",
    "/etc/alternatives",
    // Debian's Java needs it: links from /usr/lib/jvm lead here.
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/java-25-openjdk",
];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// World-readable files of proc that would identify the host or reveal its activity. Other files
/// are protected by their mode, because the user namespace does not map uid 0.
const PROC_MASKS: [&str; 9] = [
    "keys",
    "key-users",
    "kallsyms",
    "config.gz",
    "partitions",
    "diskstats",
    "interrupts",
    "locks",
    "sys/kernel/random/boot_id",
];
/// Every user may set triggers on pressure files (Linux 6.5), which load the host's scheduler.
const PRESSURE: &str = "/proc/pressure";

/// Message for a refused device of the host.
pub const NO_DEVICES: &str = "a body gets no device of the host: nothing here would limit what its \
     driver does for it";

/// Access mode of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Read, execute and write.
    Writable,
    /// Open a device node.
    Device,
}

impl Access {
    /// Converts from whether the mount is writable.
    #[must_use]
    pub fn of(writable: bool) -> Self {
        match writable {
            true => Self::Writable,
            false => Self::ReadOnly,
        }
    }
}

/// Directory of the space for overlay data. A view that contains the space must cover it.
pub const PLACES: &str = "runner/overlays";

/// One step. Targets are absolute paths inside; sources are paths of the host.
///
/// In the child `Path` is a C string and `Contents` a slice, both in the memory that it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewStep<Path = Vec<u8>, Contents = Vec<u8>> {
    /// Creates a directory if it does not exist.
    Directory {
        path: Path,
        mode: u32,
    },
    /// Creates or replaces a file.
    File {
        path: Path,
        contents: Contents,
    },
    Symlink {
        path: Path,
        target: Path,
    },
    /// Bind-mounts a path of the host recursively.
    Bind {
        source: Path,
        target: Path,
        access: Access,
    },
    /// Attaches a tree that the supervisor has cloned, for directories of root that the body's uid
    /// cannot traverse.
    Attach {
        /// Index into the trees of the launch.
        tree: usize,
        /// Also set on the tree's own mount.
        access: Access,
        target: Path,
    },
    /// Attaches an overlayfs requested before the launch.
    AttachOverlay {
        overlay: usize,
        /// Also set on the overlayfs itself.
        access: Access,
        target: Path,
    },
    /// Bind-mounts a directory of the new root at another place, before its own place is covered.
    BindOwn {
        source: Path,
        target: Path,
        access: Access,
    },
    /// Bind-mounts a directory of the new root on itself, so that it stays writable.
    OwnMount {
        path: Path,
    },
    Tmpfs {
        target: Path,
        size_bytes: u64,
    },
    Proc,
    Devpts,
    /// Covers a file of proc, if it exists, with /dev/null.
    Mask {
        path: Path,
    },
    /// Covers a directory of proc, if it exists, with an empty read-only directory.
    MaskDirectory {
        path: Path,
    },
}

/// Builds the steps that every run has.
#[must_use]
pub fn base(host: &HostSupport) -> Vec<ViewStep> {
    let mut steps = Vec::with_capacity(72);
    for path in [
        "/bundle",
        "/scratch",
        "/runner",
        "/runner/out",
        "/tmp",
        "/home",
        HOME,
    ] {
        steps.push(directory(path));
    }
    for path in ["/usr", "/etc", "/proc", "/dev", "/dev/shm", "/dev/pts"] {
        steps.push(directory(path));
    }
    system_directories(host, &mut steps);
    own_files(&mut steps);
    steps.push(ViewStep::Proc);
    // Must come before the terminals are mounted, while the directory is empty.
    steps.push(ViewStep::MaskDirectory {
        path: PRESSURE.into(),
    });
    devices(&mut steps);
    for name in PROC_MASKS {
        steps.push(ViewStep::Mask {
            path: format!("/proc/{name}").into_bytes(),
        });
    }
    for path in WRITABLE {
        steps.push(ViewStep::OwnMount { path: path.into() });
    }
    steps
}

fn system_directories(host: &HostSupport, steps: &mut Vec<ViewStep>) {
    for path in BASE_CANDIDATES {
        let (bytes, source) = (path.as_bytes().to_vec(), path.as_bytes().to_vec());
        match host.entry(path) {
            None => continue,
            // Merged /usr: create the link again; its target is visible.
            Some(HostEntry::Link(target)) if !path.starts_with("/etc/") => {
                steps.push(ViewStep::Symlink {
                    path: bytes,
                    target: target.clone(),
                });
                continue;
            }
            Some(HostEntry::Directory) => {
                steps.push(ViewStep::Directory {
                    path: bytes.clone(),
                    mode: 0o755,
                });
            }
            // The bind follows links below /etc, such as localtime.
            Some(HostEntry::File | HostEntry::Link(_)) => {
                steps.push(ViewStep::File {
                    path: bytes.clone(),
                    contents: Vec::new(),
                });
            }
        }
        steps.push(ViewStep::Bind {
            source,
            target: bytes,
            access: Access::ReadOnly,
        });
    }
}

fn own_files(steps: &mut Vec<ViewStep>) {
    for (path, contents) in etc_files() {
        steps.push(ViewStep::File {
            path: path.into(),
            contents: contents.into_bytes(),
        });
    }
}

/// Files of /etc that neither host nor image decides. The files of users are those of a run without
/// image.
#[must_use]
pub(crate) fn etc_files() -> [(&'static str, String); 5] {
    let id = INSIDE_ID;
    [
        (
            "/etc/passwd",
            format!(
                "runner:x:{id}:{id}:runner:{HOME}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        ("/etc/group", format!("runner:x:{id}:\nnogroup:x:65534:\n")),
        (
            "/etc/hosts",
            // Many programs resolve their own host name (git, Java); this avoids a network lookup.
            format!("127.0.0.1 localhost\n127.0.0.1 {HOST_NAME}\n::1 localhost\n::1 {HOST_NAME}\n"),
        ),
        // Without network access this address is unreachable too, and lookups fail at once.
        (
            "/etc/resolv.conf",
            format!("nameserver {ADDRESS_V4}\noptions timeout:2 attempts:2\n"),
        ),
        (
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
                .to_owned(),
        ),
    ]
}

fn devices(steps: &mut Vec<ViewStep>) {
    for name in DEVICES {
        let path = format!("/dev/{name}").into_bytes();
        steps.push(ViewStep::File {
            path: path.clone(),
            contents: Vec::new(),
        });
        steps.push(ViewStep::Bind {
            source: path.clone(),
            target: path,
            access: Access::Device,
        });
    }
    steps.push(ViewStep::Devpts);
    for (name, target) in [
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        steps.push(ViewStep::Symlink {
            path: name.into(),
            target: target.into(),
        });
    }
}

fn directory(path: &str) -> ViewStep {
    ViewStep::Directory {
        path: path.into(),
        mode: 0o755,
    }
}

/// A requested mount with its resolved source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedMount {
    pub target: Vec<u8>,
    pub is_directory: bool,
    pub shown: Shown,
}

/// Source of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    Host {
        source: Vec<u8>,
        access: Access,
    },
    /// A tree that the supervisor has cloned.
    Tree {
        tree: usize,
        access: Access,
    },
    /// An overlayfs requested from the child.
    Overlay {
        overlay: usize,
        access: Access,
    },
    /// A directory of the writable space.
    Own {
        source: Vec<u8>,
        access: Access,
    },
    Tmpfs {
        /// `None`: limited only by the disk limit of the run.
        size_bytes: Option<u64>,
    },
}

impl RequestedMount {
    /// Converts `entry`; `is_directory` is the type of its source.
    #[must_use]
    pub fn of(entry: &ViewEntry, is_directory: bool) -> Self {
        let bytes = |path: &std::path::Path| path.as_os_str().as_encoded_bytes().to_vec();
        let (target, shown) = match entry {
            ViewEntry::Tmpfs { target, size_bytes } => {
                let size_bytes = *size_bytes;
                (target, Shown::Tmpfs { size_bytes })
            }
            ViewEntry::Bind {
                source,
                target,
                writable,
            } => {
                let shown = Shown::Host {
                    source: bytes(source),
                    access: Access::of(*writable),
                };
                (target, shown)
            }
        };
        Self {
            target: bytes(target),
            is_directory,
            shown,
        }
    }

    fn step(&self) -> ViewStep {
        let target = self.target.clone();
        match &self.shown {
            Shown::Tmpfs {
                size_bytes: Some(size_bytes),
            } => ViewStep::Tmpfs {
                target,
                size_bytes: *size_bytes,
            },
            Shown::Tmpfs { size_bytes: None } => ViewStep::OwnMount { path: target },
            Shown::Host { source, access } => ViewStep::Bind {
                source: source.clone(),
                target,
                access: *access,
            },
            Shown::Tree { tree, access } => ViewStep::Attach {
                tree: *tree,
                access: *access,
                target,
            },
            Shown::Overlay { overlay, access } => ViewStep::AttachOverlay {
                overlay: *overlay,
                access: *access,
                target,
            },
            Shown::Own { source, access } => ViewStep::BindOwn {
                source: source.clone(),
                target,
                access: *access,
            },
        }
    }
}

/// Reason for a refused mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// Nothing can be mounted at this path inside.
    #[error("mount target `{target}` {problem}")]
    Target {
        target: String,
        problem: String,
        /// The flag that mounts the same source at an allowed path.
        instead: Option<String>,
    },
    #[error("two mounts at `{target}`")]
    Duplicate { target: String },
}

impl ViewError {
    /// Stable error code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Target { .. } => "mount_target_refused",
            Self::Duplicate { .. } => "mount_duplicate",
        }
    }

    /// Advice for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Target {
                instead: Some(flag),
                ..
            } => format!("show it at another place: {flag}"),
            _ => "choose another place inside, such as /data".to_owned(),
        }
    }
}

/// Checks the target of a mount: the rules of [`MountTarget`], not the body's home, and in /etc
/// only paths outside the base view.
///
/// # Errors
/// [`ViewError::Target`].
pub fn check_target(target: &[u8]) -> Result<(), ViewError> {
    let refuse = |problem: String| {
        Err(ViewError::Target {
            target: escape(target),
            problem,
            instead: None,
        })
    };
    if target == HOME.as_bytes() {
        return refuse("is the body's own home".to_owned());
    }
    match std::str::from_utf8(target).map(MountTarget::parse) {
        Err(_not_text) => refuse("is not UTF-8".to_owned()),
        Ok(Err(MountTargetError::Reserved { .. })) if is_free_in_etc(target) => Ok(()),
        Ok(Err(error)) => refuse(error.to_string()),
        Ok(Ok(_target)) => Ok(()),
    }
}

/// Whether `target` is in /etc and the base view has nothing at or above it.
fn is_free_in_etc(target: &[u8]) -> bool {
    let written = etc_files();
    let written = written.iter().map(|(path, _)| *path);
    let mut taken = written.chain(BASE_CANDIDATES).map(str::as_bytes);
    is_beneath(target, b"/etc") && !taken.any(|path| path == target || is_beneath(target, path))
}

/// Builds the steps of requested mounts, parents before children.
///
/// # Errors
/// [`ViewError`] for a refused or duplicate target.
pub fn asked(mounts: &[RequestedMount]) -> Result<Vec<ViewStep>, ViewError> {
    let mut order: Vec<&RequestedMount> = mounts.iter().collect();
    order.sort_by_key(|mount| &mount.target);
    let mut steps = Vec::new();
    let mut before: Option<&[u8]> = None;
    for mount in order {
        let target = &mount.target;
        check_target(target)?;
        if before == Some(target) {
            return Err(ViewError::Duplicate {
                target: escape(target),
            });
        }
        before = Some(target);
        steps.extend(place(target, mount.is_directory));
        let is_empty = mount.shown == Shown::Tmpfs { size_bytes: None };
        let mut filled = FILLED.into_iter().map(str::as_bytes);
        let mut others = mounts.iter().map(|other| other.target.as_slice());
        if is_empty
            && (filled.any(|above| is_beneath(target, above))
                || others.any(|above| is_beneath(target, above)))
        {
            steps.extend(empty_of_own(target, steps.len()));
        } else {
            steps.push(mount.step());
        }
    }
    Ok(steps)
}

fn is_beneath(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

/// Mounts an empty directory of the space inside another mount, so that the content of that mount
/// is neither visible nor written.
fn empty_of_own(target: &[u8], number: usize) -> [ViewStep; 3] {
    let directory = |path: &[u8]| ViewStep::Directory {
        path: path.to_vec(),
        mode: 0o755,
    };
    let source = format!("/{PLACES}/empty-{number}").into_bytes();
    [
        directory(format!("/{PLACES}").as_bytes()),
        directory(&source),
        ViewStep::BindOwn {
            source,
            target: target.to_vec(),
            access: Access::Writable,
        },
    ]
}

fn place(target: &[u8], is_directory: bool) -> Vec<ViewStep> {
    let mut steps: Vec<ViewStep> = target
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| ViewStep::Directory {
            path: target[..at].to_vec(),
            mode: 0o755,
        })
        .collect();
    steps.push(if is_directory {
        ViewStep::Directory {
            path: target.to_vec(),
            mode: 0o755,
        }
    } else {
        ViewStep::File {
            path: target.to_vec(),
            contents: Vec::new(),
        }
    });
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(target: &str) -> RequestedMount {
        let entry = ViewEntry::Bind {
            source: "/src".into(),
            target: target.into(),
            writable: false,
        };
        RequestedMount::of(&entry, true)
    }

    #[test]
    fn a_mount_over_a_system_directory_or_a_place_of_ours_is_refused() {
        for target in [
            "/",
            "/proc",
            "/proc/self",
            "/dev/shm",
            "/usr",
            "/usr/lib/x",
            "/etc",
            "/etc/passwd",
            "/etc/ssl/private",
            "/runner",
            "/bundle",
            "/scratch",
            "/tmp",
            "relative",
            "/a/../b",
            "/a//b",
            "/a/.",
            "/a/",
        ] {
            assert!(asked(&[bind(target)]).is_err(), "{target}");
        }
        for target in [
            "/data",
            "/bundle/vendor",
            "/tmp/x",
            "/etc/hostname",
            "/etc/nginx/conf.d",
            "/etc/sslx",
            "/user",
            "/workspace/a",
            "/homes",
        ] {
            assert!(asked(&[bind(target)]).is_ok(), "{target}");
        }
    }

    #[test]
    fn parents_are_mounted_before_children_and_a_place_only_once() {
        let steps = asked(&[bind("/a/b"), bind("/a")]).expect("accepted");
        let order: Vec<&[u8]> = steps
            .iter()
            .filter_map(|step| match step {
                ViewStep::Bind { target, .. } => Some(&target[..]),
                _ => None,
            })
            .collect();
        assert_eq!(order, [&b"/a"[..], b"/a/b"]);
        assert!(asked(&[bind("/a"), bind("/a")]).is_err());
    }

    #[test]
    fn an_empty_directory_beneath_another_mount_is_no_part_of_it() {
        let empty = |target: &str| RequestedMount {
            target: target.into(),
            is_directory: true,
            shown: Shown::Tmpfs { size_bytes: None },
        };
        let bind = |target: &str| RequestedMount {
            shown: Shown::Host {
                source: b"/x".to_vec(),
                access: Access::Writable,
            },
            ..empty(target)
        };
        for (mounts, own) in [
            (vec![empty("/a/b")], false),
            (vec![empty("/ab"), bind("/a")], false),
            (vec![empty("/a/b"), bind("/a/b/c")], false),
            (vec![empty("/a/b"), bind("/a")], true),
            (vec![bind("/a"), empty("/a/b/c")], true),
            (vec![empty("/bundle/node_modules")], true),
            (vec![empty("/scratch/deep/er")], true),
            (vec![empty("/bundles/own")], false),
        ] {
            let steps = asked(&mounts).expect("accepted");
            let is_own = |step: &ViewStep| matches!(step, ViewStep::BindOwn { .. });
            let is_of_place = |step: &ViewStep| matches!(step, ViewStep::OwnMount { .. });
            let seen = (steps.iter().any(is_own), steps.iter().any(is_of_place));
            assert_eq!(seen, (own, !own), "{mounts:?}");
        }
    }

    #[test]
    fn a_merged_usr_keeps_its_links_and_localtime_is_followed() {
        let host = HostSupport {
            entries: vec![
                ("/usr", HostEntry::Directory),
                ("/bin", HostEntry::Link(b"usr/bin".to_vec())),
                (
                    "/etc/localtime",
                    HostEntry::Link(b"/usr/share/zoneinfo/UTC".to_vec()),
                ),
            ],
            ..HostSupport::default()
        };
        let steps = base(&host);
        assert!(steps.contains(&ViewStep::Symlink {
            path: b"/bin".to_vec(),
            target: b"usr/bin".to_vec()
        }));
        assert!(steps.contains(&ViewStep::Bind {
            source: b"/etc/localtime".to_vec(),
            target: b"/etc/localtime".to_vec(),
            access: Access::ReadOnly,
        }));
    }
}
