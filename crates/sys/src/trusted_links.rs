//! Opens paths of the caller, following only links that belong to the caller or root. Links of other
//! users would redirect the caller's rights. Unlike `fs.protected_symlinks` this holds in every
//! directory, and a link is accepted if root owns it, but not because the directory's owner owns it.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Limit of path_resolution(7).
const LINKS_MAX: u32 = 40;

/// Reason why a path was not opened.
#[derive(Debug)]
pub enum Unopened {
    /// `link` is the component that is a link; its owner `uid` is neither root nor the effective uid.
    Link { link: Vec<u8>, uid: u32 },
    /// Errno of openat(2), fstat(2) or readlinkat(2).
    Call(Errno),
}

impl From<Errno> for Unopened {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// Opens `path` with `O_PATH` by component, so that no component can be replaced between check and
/// use. Follows magic links of /proc by the text that readlink(2) returns.
pub fn open(path: &[u8]) -> Result<OwnedFd, Unopened> {
    walk(path, |_| Ok(()))
}

/// As [`open`], for a path that a stranger chose: it mounts nothing. Fails with EXDEV below an automount
/// point (autofs), where each name that is looked up may be one.
pub fn open_without_automount(path: &[u8]) -> Result<OwnedFd, Unopened> {
    walk(path, |directory| {
        match rustix::fs::fstatfs(directory)?.f_type {
            AUTOFS => Err(Errno::XDEV),
            _ => Ok(()),
        }
    })
}

/// `AUTOFS_SUPER_MAGIC` of `<linux/magic.h>`.
const AUTOFS: rustix::fs::FsWord = 0x0187;

/// `enter` is called with each directory before a name is looked up in it.
fn walk(path: &[u8], enter: impl Fn(&OwnedFd) -> Result<(), Errno>) -> Result<OwnedFd, Unopened> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open_start = |start: &str| rustix::fs::openat(CWD, start, flags, Mode::empty());
    let reversed_components = |path: &[u8]| -> Vec<Vec<u8>> {
        let components = path.split(|byte| *byte == b'/').rev();
        components.map(<[u8]>::to_vec).collect()
    };
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let is_absolute = |path: &[u8]| path.starts_with(b"/");
    let mut current = open_start(if is_absolute(path) { "/" } else { "." })?;
    let mut rest = reversed_components(path);
    let mut links = 0;
    while let Some(component) = rest.pop() {
        if matches!(&*component, b"" | b".") {
            continue;
        }
        enter(&current)?;
        let next = rustix::fs::openat(&current, &*component, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            current = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Unopened::Link {
                link: component,
                uid: stat.st_uid,
            });
        }
        let target = rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes();
        if is_absolute(&target) {
            current = open_start("/")?;
        }
        rest.extend(reversed_components(&target));
    }
    Ok(current)
}
