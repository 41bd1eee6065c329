//! Opens paths of the caller through links of the caller or root only. Links of other users would
//! redirect the caller's rights: the rule of `fs.protected_symlinks`, for every directory.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Limit of path_resolution(7).
const LINKS_MAX: u32 = 40;

/// Reason why a path was not opened.
#[derive(Debug)]
pub enum Unopened {
    /// The link belongs neither to root nor to the effective uid.
    Link { link: Vec<u8>, uid: u32 },
    /// Errno of openat(2), fstat(2) or readlinkat(2).
    Call(Errno),
}

impl From<Errno> for Unopened {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// Opens `path` with `O_PATH` by component, so that no component can change between check and use.
/// Links of /proc are followed by their text.
///
/// # Errors
/// [`Unopened`].
pub fn open(path: &[u8]) -> Result<OwnedFd, Unopened> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = |place: &str| rustix::fs::openat(CWD, place, step, Mode::empty());
    let words = |path: &[u8]| -> Vec<Vec<u8>> {
        let words = path.split(|byte| *byte == b'/').rev();
        words.map(<[u8]>::to_vec).collect()
    };
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let start = |path: &[u8]| match path.first() {
        Some(b'/') => Some("/"),
        _ => None,
    };
    let mut here = at(start(path).unwrap_or("."))?;
    let mut rest = words(path);
    let mut links = 0;
    while let Some(word) = rest.pop() {
        if matches!(&*word, b"" | b".") {
            continue;
        }
        let next = rustix::fs::openat(&here, &*word, step, Mode::empty())?;
        let stat = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            here = next;
            continue;
        }
        links += 1;
        if LINKS_MAX < links {
            return Err(Errno::LOOP.into());
        }
        if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Unopened::Link {
                link: word,
                uid: stat.st_uid,
            });
        }
        let target = rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes();
        if let Some(root) = start(&target) {
            here = at(root)?;
        }
        rest.extend(words(&target));
    }
    Ok(here)
}
