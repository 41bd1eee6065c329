//! The body's view of the file system: the steps that create the new root, in order.
//!
//! The new root is one tmpfs of limited size, the writable space. Writable directories are bind
//! mounts of it, and the root mount becomes read-only at the end. So one size limit covers
//! everything that the body writes, and the supervisor accesses it through one descriptor.

use crate::mounts::MountError;
use spec::body_network::ADDRESS_V4;
use spec::host::{HostEntry, HostSupport};
use spec::mount_target::{MountTarget, MountTargetError};
use spec::path::escape;
use spec::request::ViewEntry;

pub(crate) const INSIDE_ID: u32 = 1000;
/// Home of the body.
pub const HOME: &str = "/home/runner";
/// Directories that the supervisor populates before the launch.
const POPULATED: [&str; 2] = [BUNDLE, SCRATCH];
pub(crate) const HOST_NAME: &str = "runner";
/// NIS domain name of a host that has none.
pub(crate) const NO_DOMAIN: &[u8] = b"(none)";
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

/// Number of the first steps of [`base`] that must precede the supervisor's access: they create the
/// directories that it populates.
pub(crate) const EARLY_STEPS: usize = 4;

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
/// World-readable files of proc that identify the host or reveal its activity. The mode protects
/// the other files, because the user namespace does not map uid 0.
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
/// Every user may set triggers on the files of /proc/pressure (Linux 6.5), which load the host's
/// scheduler; /proc/fs names the host's disks.
const PROC_DIRECTORY_MASKS: [&str; 2] = ["/proc/pressure", "/proc/fs"];

/// Reason for refusing a device of the host.
pub const NO_DEVICES: &str =
    "devices of the host cannot be mounted: the sandbox cannot limit what a driver does";

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
    /// Returns [`Self::Writable`] or [`Self::ReadOnly`].
    #[must_use]
    pub fn of(writable: bool) -> Self {
        if writable {
            Self::Writable
        } else {
            Self::ReadOnly
        }
    }
}

/// Directory of the writable space for the layers of overlayfs, copies of sources and empty mounts.
/// If it is used, the child covers it, so that the body reaches the content only through mounts.
pub const OVERLAYS: &str = "runner/overlays";

/// One step. All paths are absolute paths inside, except the source of [`Self::Bind`], a path of the
/// host, and the target of [`Self::Symlink`].
///
/// In the child `Path` is a C string and `Contents` a slice, both in the shared arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewStep<Path = Vec<u8>, Contents = Vec<u8>> {
    /// Creates a directory if it does not exist.
    Directory {
        path: Path,
        mode: u32,
    },
    /// Creates a file. A file without `contents` may exist already.
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
    /// Attaches a tree that the supervisor has cloned, because the body's uid cannot traverse
    /// directories of root.
    Attach {
        /// Index into the trees of the launch.
        tree: usize,
        /// The tree already has these attributes.
        access: Access,
        target: Path,
    },
    /// Attaches an overlayfs requested before the launch.
    AttachOverlay {
        overlay: usize,
        /// The overlayfs already has these attributes.
        access: Access,
        target: Path,
    },
    /// Bind-mounts a directory of the writable space at another path.
    BindFromSpace {
        source: Path,
        target: Path,
        access: Access,
    },
    /// Bind-mounts a directory on itself, so that it stays writable under a read-only root mount.
    SelfBind {
        path: Path,
    },
    Tmpfs {
        target: Path,
        size_bytes: u64,
    },
    Proc,
    Devpts,
    /// Covers a file of proc with /dev/null if it exists.
    Mask {
        path: Path,
    },
    /// Covers a directory of proc with an empty read-only directory if it exists.
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
    plan_system_directories(host, &mut steps);
    plan_etc_files(&mut steps);
    steps.push(ViewStep::Proc);
    // Before devpts is mounted: it binds /dev/pts, which is still empty.
    for path in PROC_DIRECTORY_MASKS {
        steps.push(ViewStep::MaskDirectory { path: path.into() });
    }
    plan_devices(&mut steps);
    for name in PROC_MASKS {
        steps.push(ViewStep::Mask {
            path: format!("/proc/{name}").into_bytes(),
        });
    }
    for path in WRITABLE {
        steps.push(ViewStep::SelfBind { path: path.into() });
    }
    steps
}

fn plan_system_directories(host: &HostSupport, steps: &mut Vec<ViewStep>) {
    for path in BASE_CANDIDATES {
        let (bytes, source) = (path.as_bytes().to_vec(), path.as_bytes().to_vec());
        match host.entry(path) {
            None => continue,
            // Merged /usr: create the same link; its target is mounted.
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

fn plan_etc_files(steps: &mut Vec<ViewStep>) {
    for (path, contents) in etc_files() {
        steps.push(ViewStep::File {
            path: path.into(),
            contents: contents.into_bytes(),
        });
    }
}

/// Files of /etc that the runner writes. An image replaces the contents of `passwd` and `group`.
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
            // git, Java and others resolve their own host name; this avoids a DNS query.
            format!("127.0.0.1 localhost\n127.0.0.1 {HOST_NAME}\n::1 localhost\n::1 {HOST_NAME}\n"),
        ),
        // Without network access this address is unreachable, so lookups fail at once.
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

fn plan_devices(steps: &mut Vec<ViewStep>) {
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

fn directory(path: impl AsRef<[u8]>) -> ViewStep {
    ViewStep::Directory {
        path: path.as_ref().to_vec(),
        mode: 0o755,
    }
}

/// A requested mount with its resolved source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedMount {
    pub target: Vec<u8>,
    pub is_directory: bool,
    pub source: MountSource,
}

/// Source of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountSource {
    Host {
        path: Vec<u8>,
        access: Access,
    },
    Tree {
        tree: usize,
        access: Access,
    },
    Overlay {
        overlay: usize,
        access: Access,
    },
    /// A directory of the writable space.
    Space {
        path: Vec<u8>,
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
        let (target, source) = match entry {
            ViewEntry::Tmpfs { target, size_bytes } => {
                let size_bytes = *size_bytes;
                (target, MountSource::Tmpfs { size_bytes })
            }
            ViewEntry::Bind {
                source,
                target,
                writable,
            } => {
                let source = MountSource::Host {
                    path: bytes(source),
                    access: Access::of(*writable),
                };
                (target, source)
            }
        };
        Self {
            target: bytes(target),
            is_directory,
            source,
        }
    }

    fn step(&self) -> ViewStep {
        let target = self.target.clone();
        match &self.source {
            MountSource::Tmpfs {
                size_bytes: Some(size_bytes),
            } => ViewStep::Tmpfs {
                target,
                size_bytes: *size_bytes,
            },
            MountSource::Tmpfs { size_bytes: None } => ViewStep::SelfBind { path: target },
            MountSource::Host { path, access } => ViewStep::Bind {
                source: path.clone(),
                target,
                access: *access,
            },
            MountSource::Tree { tree, access } => ViewStep::Attach {
                tree: *tree,
                access: *access,
                target,
            },
            MountSource::Overlay { overlay, access } => ViewStep::AttachOverlay {
                overlay: *overlay,
                access: *access,
                target,
            },
            MountSource::Space { path, access } => ViewStep::BindFromSpace {
                source: path.clone(),
                target,
                access: *access,
            },
        }
    }
}

fn refused_target(code: &'static str, target: &[u8], problem: String) -> MountError {
    MountError::Refused {
        code,
        what: "mount target",
        object: format!("`{}`", escape(target)),
        problem,
        hint: Some("choose another path inside, such as /data".to_owned()),
    }
}

/// Checks the target of a mount. It must obey the rules of [`MountTarget`]; in /etc, paths outside the
/// base view are allowed as well.
pub fn check_target(target: &[u8]) -> Result<(), MountError> {
    let refuse = |problem| Err(refused_target("mount_target_refused", target, problem));
    match std::str::from_utf8(target).map(MountTarget::parse) {
        Err(_not_text) => refuse("is not UTF-8".to_owned()),
        Ok(Err(MountTargetError::Reserved { .. })) if is_free_in_etc(target) => Ok(()),
        Ok(Err(error)) => refuse(error.to_string()),
        Ok(Ok(_target)) => Ok(()),
    }
}

/// Whether `target` is in /etc and the base view has nothing at or above it.
fn is_free_in_etc(target: &[u8]) -> bool {
    let files = etc_files();
    let files = files.iter().map(|(path, _)| *path);
    let mut base = files.chain(BASE_CANDIDATES).map(str::as_bytes);
    is_beneath(target, b"/etc") && !base.any(|path| path == target || is_beneath(target, path))
}

/// Builds the steps of requested mounts, parents before children. Refuses a target that is not
/// allowed or used twice.
pub fn asked(mounts: &[RequestedMount]) -> Result<Vec<ViewStep>, MountError> {
    let mut sorted: Vec<&RequestedMount> = mounts.iter().collect();
    sorted.sort_by_key(|mount| &mount.target);
    let mut steps = Vec::new();
    let mut previous: Option<&[u8]> = None;
    for mount in sorted {
        let target = &mount.target;
        check_target(target)?;
        if previous == Some(target) {
            let problem = "is the target of two mounts".to_owned();
            return Err(refused_target("mount_duplicate", target, problem));
        }
        previous = Some(target);
        steps.extend(plan_mount_point(target, mount.is_directory));
        let mut populated = POPULATED.into_iter().map(str::as_bytes);
        let mut others = mounts.iter().map(|other| other.target.as_slice());
        if mount.source == (MountSource::Tmpfs { size_bytes: None })
            && (populated.any(|above| is_beneath(target, above))
                || others.any(|above| is_beneath(target, above)))
        {
            steps.extend(plan_empty(target, mount.is_directory, steps.len()));
        } else {
            steps.push(mount.step());
        }
    }
    Ok(steps)
}

pub(crate) fn is_beneath(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

/// Mounts an empty directory or file of the writable space inside another mount, so that the body
/// neither sees nor changes the content there.
fn plan_empty(target: &[u8], is_directory: bool, number: usize) -> [ViewStep; 3] {
    let source = format!("/{OVERLAYS}/empty-{number}").into_bytes();
    [
        directory(format!("/{OVERLAYS}")),
        mount_point(&source, is_directory),
        ViewStep::BindFromSpace {
            source,
            target: target.to_vec(),
            access: Access::Writable,
        },
    ]
}

fn plan_mount_point(target: &[u8], is_directory: bool) -> Vec<ViewStep> {
    let mut steps: Vec<ViewStep> = target
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| directory(&target[..end]))
        .collect();
    steps.push(mount_point(target, is_directory));
    steps
}

fn mount_point(path: &[u8], is_directory: bool) -> ViewStep {
    if is_directory {
        directory(path)
    } else {
        ViewStep::File {
            path: path.to_vec(),
            contents: Vec::new(),
        }
    }
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
    fn a_mount_over_a_system_directory_or_a_directory_of_the_runner_is_refused() {
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
    fn parents_are_mounted_before_children_and_a_target_only_once() {
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
    fn an_empty_directory_beneath_another_mount_is_from_the_writable_space() {
        let empty = |target: &str| RequestedMount {
            target: target.into(),
            is_directory: true,
            source: MountSource::Tmpfs { size_bytes: None },
        };
        let bind = |target: &str| RequestedMount {
            source: MountSource::Host {
                path: b"/x".to_vec(),
                access: Access::Writable,
            },
            ..empty(target)
        };
        for (mounts, from_space) in [
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
            let is_from_space = |step: &ViewStep| matches!(step, ViewStep::BindFromSpace { .. });
            let is_self_bind = |step: &ViewStep| matches!(step, ViewStep::SelfBind { .. });
            let found = (
                steps.iter().any(is_from_space),
                steps.iter().any(is_self_bind),
            );
            assert_eq!(found, (from_space, !from_space), "{mounts:?}");
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
