//! `--ro`, `--rw`, `--socket`, `--mount` and `--tmpfs` as entries of the body's view.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::cli::args::ViewFlags;
use crate::cli::context::ProcessContext;
use crate::cli::request::{RequestError, absolute};
use spec::access_mode::AccessMode;
use spec::path::escape;
use spec::request::ViewEntry;
use spec::units::parse_size_bytes;

/// The paths of `--socket` inside.
pub(super) fn sockets(
    flags: &ViewFlags,
    context: &ProcessContext,
) -> Result<Vec<PathBuf>, RequestError> {
    let inside = |path: &PathBuf| absolute("socket", path, context).map(|path| normalize(&path));
    flags.socket.iter().map(inside).collect()
}

pub(super) fn entries(
    flags: &ViewFlags,
    context: &ProcessContext,
) -> Result<Vec<ViewEntry>, RequestError> {
    let mut entries = Vec::new();
    for (flag, paths, writable) in [
        ("ro", &flags.ro, false),
        ("socket", &flags.socket, false),
        ("rw", &flags.rw, true),
    ] {
        for path in paths {
            let source = absolute(flag, path, context)?;
            entries.push(ViewEntry::Bind {
                target: normalize(&source),
                source,
                writable,
            });
        }
    }
    for value in &flags.mount {
        entries.push(parse_mount(value, context)?);
    }
    for value in &flags.tmpfs {
        entries.push(parse_tmpfs(value)?);
    }
    Ok(entries)
}

fn parse_mount(value: &OsStr, context: &ProcessContext) -> Result<ViewEntry, RequestError> {
    let malformed = || RequestError::Flag {
        flag: "mount",
        found: escape(value.as_bytes()),
        expected: "SRC:DST or SRC:DST:ro, DST absolute, such as ./data:/data:ro",
    };
    let parts: Vec<&[u8]> = value.as_bytes().split(|byte| *byte == b':').collect();
    let (source, target, writable) = match parts.as_slice() {
        [source, target] => (*source, *target, true),
        [source, target, mode] => {
            let mut modes = AccessMode::ALL.into_iter();
            let mode = modes.find(|candidate| candidate.short().as_bytes() == *mode);
            (*source, *target, mode.ok_or_else(malformed)?.is_writable())
        }
        _ => return Err(malformed()),
    };
    let target = Path::new(OsStr::from_bytes(target));
    if source.is_empty() || !target.is_absolute() {
        return Err(malformed());
    }
    Ok(ViewEntry::Bind {
        source: absolute("mount", Path::new(OsStr::from_bytes(source)), context)?,
        target: target.to_owned(),
        writable,
    })
}

fn parse_tmpfs(value: &OsStr) -> Result<ViewEntry, RequestError> {
    let malformed = || RequestError::Flag {
        flag: "tmpfs",
        found: escape(value.as_bytes()),
        expected: "DST or DST:SIZE, DST absolute, such as /var/cache:64m",
    };
    let bytes = value.as_bytes();
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
                .filter(|bytes| *bytes > 0)
                .ok_or_else(malformed)
        })
        .transpose()?;
    Ok(ViewEntry::Tmpfs { target, size_bytes })
}

/// Removes `.` and `..`, which the target of a mount must not have.
pub(super) fn normalize(path: &Path) -> PathBuf {
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
