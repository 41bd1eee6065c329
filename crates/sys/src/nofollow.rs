//! Opens paths without following links, for mounts in directories that other users may write.
//! Allocates nothing, so that a child may call it between fork(2) and execve(2).

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const NAME_MAX: usize = 255;

/// Opens the parent directory of `path` by component. Returns it with the last component.
///
/// # Errors
/// The errno of openat(2), with ENOTDIR for a link before the last component. EXDEV for a component
/// `..`, ENAMETOOLONG, ENOENT for an empty path or a final `/`.
pub fn open_parent(path: &CStr) -> Result<(OwnedFd, &CStr), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bytes = path.to_bytes_with_nul();
    let slash = bytes.iter().rposition(|byte| *byte == b'/');
    let (above, name) = bytes.split_at(slash.map_or(0, |slash| slash + 1));
    let start = if above.starts_with(b"/") { c"/" } else { c"." };
    let mut parent = rustix::fs::openat(CWD, start, flags, Mode::empty())?;
    for component in above.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => (),
            b".." => return Err(Errno::XDEV),
            // rustix copies a longer name to the heap.
            long if NAME_MAX < long.len() => return Err(Errno::NAMETOOLONG),
            name => parent = rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty())?,
        }
    }
    let name = CStr::from_bytes_with_nul(name).map_err(|_inner_nul| Errno::INVAL)?;
    match name.to_bytes() {
        b"" => Err(Errno::NOENT),
        b".." => Err(Errno::XDEV),
        long if NAME_MAX < long.len() => Err(Errno::NAMETOOLONG),
        _ => Ok((parent, name)),
    }
}

/// Opens `path` with `O_PATH` by component. Returns the descriptor and the file type.
///
/// # Errors
/// As [`open_parent`]; ELOOP for a link.
pub fn open(path: &CStr) -> Result<(OwnedFd, FileType), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path == c"/" {
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        return Ok((root, FileType::Directory));
    }
    let (parent, name) = open_parent(path)?;
    let found = rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
        FileType::Symlink => Err(Errno::LOOP),
        kind => Ok((found, kind)),
    }
}

/// Opens `path` with `O_PATH` by openat2(2), or by component as [`open`] if a seccomp filter answers
/// ENOSYS. Fails with ENOENT if the path does not exist, ELOOP or ENOTDIR for a link.
pub fn open_without_links(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => open(path).map(|(found, _kind)| found),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_opened_by_its_own_names_only() {
        let ground = tempfile::tempdir().expect("made");
        let ground = ground.path().canonicalize().expect("real");
        std::fs::create_dir_all(ground.join("deep/er")).expect("made");
        std::fs::write(ground.join("deep/file"), "").expect("written");
        symlink("deep", ground.join("link")).expect("linked");
        symlink("er", ground.join("deep/last")).expect("linked");
        let long = "x".repeat(256);
        for (name, expected) in [
            ("deep/er", Ok(FileType::Directory)),
            ("deep//er", Ok(FileType::Directory)),
            ("deep/./er", Ok(FileType::Directory)),
            ("deep/file", Ok(FileType::RegularFile)),
            ("link/er", Err(Errno::NOTDIR)),
            ("deep/last", Err(Errno::LOOP)),
            ("deep/last/x", Err(Errno::NOTDIR)),
            ("deep/er/../file", Err(Errno::XDEV)),
            ("deep/..", Err(Errno::XDEV)),
            ("deep/", Err(Errno::NOENT)),
            ("none/er", Err(Errno::NOENT)),
            (&long, Err(Errno::NAMETOOLONG)),
        ] {
            let path = format!("{}/{name}", ground.display());
            let path = CString::new(path).expect("no NUL");
            let found = open(&path).map(|(_, kind)| kind);
            assert_eq!(found, expected, "{name}");
        }
    }
}
