//! What a path of the predicted view is: the part of the view, the kind of file, and the rights of
//! the body. [`crate::plan::access`] decides what these permit.
//!
//! Access control lists are not considered for a body with its own uid.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::Access as AccessMode;
use rustix::io::Errno;

use crate::plan::access::{NodeKind, OnHost, Place, Rights, Seen, parent};
use crate::run::launching::predicted_view::{
    Node, PredictedView, beneath, forbids_programs, on_host,
};
use sandbox::view::{Access, BASE_CANDIDATES, BUNDLE, ViewStep};

/// Files of a process that only a process that may trace it can use (proc(5)). Init is not dumpable.
const GUARDED: [&str; 18] = [
    "auxv",
    "clear_refs",
    "cwd",
    "environ",
    "exe",
    "fd",
    "fdinfo",
    "io",
    "map_files",
    "maps",
    "mem",
    "ns",
    "numa_maps",
    "pagemap",
    "root",
    "smaps",
    "smaps_rollup",
    "stack",
];

/// A path of the view with its links resolved.
#[derive(Debug)]
pub(in crate::run) struct SeenPath {
    pub(in crate::run) path: Vec<u8>,
    pub(in crate::run) seen: Seen,
    /// Where its mount is; `None`: it is in none.
    pub(in crate::run) mount: Option<Vec<u8>>,
}

impl PredictedView<'_> {
    /// Resolves an absolute path as the body would. `writes_root`: an image's root is writable.
    ///
    /// # Errors
    /// ELOOP, ENOTDIR.
    pub(in crate::run) fn seen(&self, path: &[u8], writes_root: bool) -> Result<SeenPath, Errno> {
        let (mut path, node) = self.locate(path)?;
        if path.is_empty() {
            path.push(b'/');
        }
        let mount = self.find_mount(&path).map(|(step, _)| step);
        let place = self.place(&path, mount, writes_root);
        let rights = self.rights(&path);
        let mut seen = Seen {
            place,
            node: NodeKind::Unknown,
            rights: rights.unwrap_or(Rights::ALL),
            on_host: look_up(&path),
        };
        seen.node = match node {
            Node::Inaccessible => NodeKind::Inaccessible,
            // Owners and modes of an image are not read.
            Node::Directory | Node::File { .. } if matches!(place, Place::Image { .. }) => {
                NodeKind::Unknown
            }
            Node::Directory | Node::Link(_) => {
                // New entries of proc and devpts are the kernel's.
                seen.rights.write &= !matches!(place, Place::Proc | Place::Device);
                NodeKind::Directory
            }
            Node::File { executable, .. } => {
                if place == Place::Bundle {
                    seen.rights.execute = executable;
                }
                NodeKind::File
            }
            Node::Missing => self.missing(&path, &mut seen.rights),
            Node::Unknown => self.unknown(&path, &mut seen),
        };
        let mount = mount.and_then(target).map(<[u8]>::to_vec);
        Ok(SeenPath { path, seen, mount })
    }

    /// The rights that owner and mode of a host's file give the body; `None`: not a file of the host.
    pub(super) fn rights(&self, path: &[u8]) -> Option<Rights> {
        let (ViewStep::Bind { source, target, .. }, rest) = self.find_mount(path)? else {
            return None;
        };
        let path = on_host(source, rest);
        let found = path.metadata().ok()?;
        Some(self.rights_on_host(&path, &found, source, target))
    }

    /// `source` and `target` are those of the mount that `path` is in.
    pub(super) fn rights_on_host(
        &self,
        path: &Path,
        found: &Metadata,
        source: &[u8],
        target: &[u8],
    ) -> Rights {
        if !self.has_own_uid {
            let may = |mode| rustix::fs::access(path, mode).is_ok();
            return Rights {
                read: may(AccessMode::READ_OK),
                write: may(AccessMode::WRITE_OK),
                execute: may(AccessMode::EXEC_OK),
            };
        }
        let of_others = Rights::of_bits(found.mode());
        // The base view is mounted without owner mapping: the body owns nothing there.
        let owner = match on_host(source, b"").metadata() {
            Ok(owner) if !is_base(target) => owner,
            _ => return of_others,
        };
        let (is_owner, is_group) = (found.uid() == owner.uid(), found.gid() == owner.gid());
        let mut rights = match (is_owner, is_group) {
            (true, _) => Rights::of_bits(found.mode() >> 6),
            (false, true) => Rights::of_bits(found.mode() >> 3),
            (false, false) => of_others,
        };
        // Nobody writes a file whose owner the mount does not map (inode_permission of the kernel).
        rights.write &= is_owner && is_group;
        rights
    }

    fn place(&self, path: &[u8], mount: Option<&ViewStep>, writes_root: bool) -> Place {
        let is_masked = self.steps.iter().any(|step| match step {
            ViewStep::Mask { path: mask } => mask == path,
            ViewStep::MaskDirectory { path: mask } => beneath(path, mask).is_some(),
            _ => false,
        });
        if is_masked {
            return Place::Mask;
        }
        match mount {
            Some(ViewStep::Bind {
                source,
                target,
                access,
            }) => match access {
                Access::Device => Place::Device,
                Access::ReadOnly | Access::Writable => {
                    let (_, rest) = self.find_mount(path).unzip();
                    let of_host = on_host(source, rest.unwrap_or_default());
                    // Landlock permits no program in the files of the base view in /etc.
                    let is_settings = is_base(target) && target.starts_with(b"/etc/");
                    Place::Mount {
                        writable: *access == Access::Writable,
                        programs: !is_settings && !forbids_programs(&of_host),
                    }
                }
            },
            Some(ViewStep::Attach { access, .. } | ViewStep::AttachOverlay { access, .. }) => {
                Place::Mount {
                    writable: *access == Access::Writable,
                    programs: true,
                }
            }
            Some(ViewStep::SelfBind { path })
                if self.bundle.is_some() && path == BUNDLE.as_bytes() =>
            {
                Place::Bundle
            }
            Some(_) => Place::Private,
            None if beneath(path, b"/proc").is_some() => Place::Proc,
            None if beneath(path, b"/dev/pts").is_some() => Place::Device,
            None if self.is_made(path) || beneath(path, b"/runner").is_some() => Place::Fixed,
            None => match self.image {
                Some(_) => Place::Image {
                    writable: writes_root,
                },
                None => Place::Nowhere,
            },
        }
    }

    /// Whether the runner makes this file, or this directory, which an image may have too.
    fn is_made(&self, path: &[u8]) -> bool {
        self.steps.iter().any(|step| match step {
            ViewStep::File { path: at, .. } => at == path,
            ViewStep::Directory { path: at, .. } => {
                self.image.is_none() && (path == b"/" || beneath(at, path).is_some())
            }
            _ => false,
        })
    }

    /// `rights` become those of the directory.
    fn missing(&self, path: &[u8], rights: &mut Rights) -> NodeKind {
        let parent = parent(path);
        match self.locate(parent) {
            Ok((parent, Node::Directory)) => {
                *rights = self.rights(&parent).unwrap_or(Rights::ALL);
                NodeKind::Missing
            }
            _ => NodeKind::MissingDirectory,
        }
    }

    /// Paths that are made in a run, of which some are known all the same.
    fn unknown(&self, path: &[u8], seen: &mut Seen) -> NodeKind {
        match (seen.place, beneath(path, b"/proc")) {
            (Place::Proc, Some(inside)) => proc_node(inside, &mut seen.rights),
            // Everything else in /dev is listed.
            (Place::Nowhere, _) if beneath(path, b"/dev").is_some() => NodeKind::Missing,
            _ => NodeKind::Unknown,
        }
    }
}

/// A file of proc besides those of a process has the mode of the host's; the body is not its owner.
fn proc_node(inside: &[u8], rights: &mut Rights) -> NodeKind {
    let mut names = inside.split(|byte| *byte == b'/');
    let first = names.next().unwrap_or_default();
    if first == b"1" {
        let name = names.next().unwrap_or_default();
        if GUARDED.iter().any(|guarded| guarded.as_bytes() == name) {
            *rights = Rights::of_bits(0);
            return NodeKind::File;
        }
        return NodeKind::Unknown;
    }
    let of_process = [&b"self"[..], b"thread-self", b"net", b"mounts"];
    if first.iter().all(u8::is_ascii_digit) || of_process.contains(&first) {
        return NodeKind::Unknown;
    }
    match on_host(b"/proc", inside).symlink_metadata() {
        Ok(found) if found.is_symlink() => NodeKind::Unknown,
        Ok(found) => {
            *rights = Rights::of_bits(found.mode());
            if found.is_dir() {
                // New entries are the kernel's.
                rights.write = false;
                NodeKind::Directory
            } else {
                NodeKind::File
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => NodeKind::MissingDirectory,
        Err(_) => NodeKind::Unknown,
    }
}

fn is_base(target: &[u8]) -> bool {
    BASE_CANDIDATES.iter().any(|own| own.as_bytes() == target)
}

fn target(mount: &ViewStep) -> Option<&[u8]> {
    match mount {
        ViewStep::Bind { target, .. }
        | ViewStep::BindFromSpace { target, .. }
        | ViewStep::Attach { target, .. }
        | ViewStep::AttachOverlay { target, .. }
        | ViewStep::Tmpfs { target, .. }
        | ViewStep::SelfBind { path: target } => Some(target),
        _ => None,
    }
}

/// Whether the caller finds a path on the host.
pub(in crate::run) fn look_up(path: &[u8]) -> OnHost {
    match Path::new(std::ffi::OsStr::from_bytes(path)).symlink_metadata() {
        Ok(_) => OnHost::Present,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => OnHost::Unknown,
        Err(_) => OnHost::Absent,
    }
}
