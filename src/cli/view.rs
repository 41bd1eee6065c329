//! What the body sees: `--ro`, `--rw`, `--socket`, `--mount` and `--tmpfs` as entries of its view.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::cli::args::ViewFlags;
use crate::cli::request::{RequestError, absolute};
use crate::cli::surroundings::Surroundings;
use spec::access_mode::AccessMode;
use spec::path::escape;
use spec::request::ViewEntry;
use spec::units::parse_size_bytes;

/// Where the sockets of `--socket` appear.
pub(super) fn sockets(
    flags: &ViewFlags,
    surroundings: &Surroundings,
) -> Result<Vec<PathBuf>, RequestError> {
    let place = |path: &PathBuf| absolute("socket", path, surroundings).map(|path| normal(&path));
    flags.socket.iter().map(place).collect()
}

/// What the body is to see of the host, and what it gets anew.
pub(super) fn view(
    flags: &ViewFlags,
    surroundings: &Surroundings,
) -> Result<Vec<ViewEntry>, RequestError> {
    let mut entries = Vec::new();
    for (flag, paths, writable) in [
        ("ro", &flags.ro, false),
        ("socket", &flags.socket, false),
        ("rw", &flags.rw, true),
    ] {
        for path in paths {
            let source = absolute(flag, path, surroundings)?;
            entries.push(ViewEntry::Bind {
                target: normal(&source),
                source,
                writable,
            });
        }
    }
    for given in &flags.mount {
        entries.push(mount(given, surroundings)?);
    }
    for given in &flags.tmpfs {
        entries.push(tmpfs(given)?);
    }
    Ok(entries)
}

fn mount(given: &OsStr, surroundings: &Surroundings) -> Result<ViewEntry, RequestError> {
    let malformed = || RequestError::Flag {
        flag: "mount",
        found: escape(given.as_bytes()),
        expected: "SRC:DST or SRC:DST:ro, DST absolute, such as ./data:/data:ro",
    };
    let parts: Vec<&[u8]> = given.as_bytes().split(|byte| *byte == b':').collect();
    let (source, target, writable) = match parts.as_slice() {
        [source, target] => (*source, *target, true),
        [source, target, mode] => {
            let mut modes = AccessMode::ALL.into_iter();
            let mode = modes.find(|known| known.short().as_bytes() == *mode);
            (*source, *target, mode.ok_or_else(malformed)?.is_writable())
        }
        _ => return Err(malformed()),
    };
    let target = Path::new(OsStr::from_bytes(target));
    if source.is_empty() || !target.is_absolute() {
        return Err(malformed());
    }
    Ok(ViewEntry::Bind {
        source: absolute("mount", Path::new(OsStr::from_bytes(source)), surroundings)?,
        target: target.to_owned(),
        writable,
    })
}

fn tmpfs(given: &OsStr) -> Result<ViewEntry, RequestError> {
    let malformed = || RequestError::Flag {
        flag: "tmpfs",
        found: escape(given.as_bytes()),
        expected: "DST or DST:SIZE, DST absolute, such as /var/cache:64m",
    };
    let bytes = given.as_bytes();
    let (target, size) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let target = PathBuf::from(OsStr::from_bytes(target));
    if !target.is_absolute() {
        return Err(malformed());
    }
    let size_bytes = size
        .map(|size| {
            std::str::from_utf8(size)
                .ok()
                .and_then(|text| parse_size_bytes(text).ok())
                .filter(|bytes| 0 < *bytes)
                .ok_or_else(malformed)
        })
        .transpose()?;
    Ok(ViewEntry::Tmpfs { target, size_bytes })
}

/// A path inside: without `.` and `..`, which a mount's target must not have.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => (),
        }
    }
    clean
}
