//! Files in the form of the vectors: created on disk, and read back.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::outcome::Found;

/// Creates `files` below `root`. Hard links are created last.
pub(crate) fn make(root: &Path, files: &Map<String, Value>) {
    let mut hard_links = Vec::new();
    for (name, spec) in files {
        let path = root.join(OsStr::from_bytes(&name_of(name, spec)));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        if spec.get("directory").is_some() {
            std::fs::create_dir_all(&path).expect("made");
        } else if let Some(target) = spec.get("symlink") {
            std::os::unix::fs::symlink(text(target), &path).expect("made");
        } else if let Some(other) = spec.get("hardlink") {
            hard_links.push((root.join(text(other)), path));
        } else if spec.get("fifo").is_some() {
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                .expect("made");
        } else if spec.get("socket").is_some() {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("made"));
        } else {
            std::fs::write(&path, content(spec)).expect("written");
            let mode = std::fs::Permissions::from_mode(mode_of(spec));
            std::fs::set_permissions(&path, mode).expect("set");
        }
    }
    for (original, path) in hard_links {
        std::fs::hard_link(original, path).expect("made");
    }
}

/// Creates the files of a result below `root`.
pub(crate) fn make_found(root: &Path, found: &BTreeMap<Vec<u8>, Found>) {
    for (name, what) in found {
        let path = root.join(OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        match what {
            Found::EmptyDirectory => std::fs::create_dir(&path).expect("made"),
            Found::Symlink { target } => {
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &path).expect("made");
            }
            Found::File { mode, bytes } => {
                std::fs::write(&path, bytes).expect("written");
                let mode = std::fs::Permissions::from_mode(*mode);
                std::fs::set_permissions(&path, mode).expect("set");
            }
        }
    }
}

/// The entries below `root`, except non-empty directories.
pub(crate) fn look(root: &Path) -> BTreeMap<Vec<u8>, Found> {
    let mut found = BTreeMap::new();
    let mut pending: Vec<PathBuf> = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let entries: Vec<_> = std::fs::read_dir(root.join(&below))
            .expect("readable")
            .map(|entry| entry.expect("an entry"))
            .collect();
        if entries.is_empty() && below != Path::new("") {
            found.insert(bytes(&below), Found::EmptyDirectory);
        }
        for entry in entries {
            let path = below.join(entry.file_name());
            let full = entry.path();
            let status = std::fs::symlink_metadata(&full).expect("a status");
            if status.is_dir() {
                pending.push(path);
                continue;
            }
            let what = if status.is_symlink() {
                let target = std::fs::read_link(&full).expect("a target");
                Found::Symlink {
                    target: bytes(&target),
                }
            } else {
                Found::File {
                    mode: status.mode() & 0o7777,
                    bytes: std::fs::read(&full).expect("readable"),
                }
            };
            found.insert(bytes(&path), what);
        }
    }
    found
}

/// A tree in the form of an expectation.
pub(crate) fn expected(tree: &Map<String, Value>) -> BTreeMap<Vec<u8>, Found> {
    tree.iter()
        .map(|(name, spec)| {
            let found = if spec.get("directory").is_some() {
                Found::EmptyDirectory
            } else if let Some(target) = spec.get("symlink") {
                Found::Symlink {
                    target: text(target).as_bytes().to_vec(),
                }
            } else {
                Found::File {
                    mode: mode_of(spec),
                    bytes: content(spec),
                }
            };
            (name_of(name, spec), found)
        })
        .collect()
}

fn name_of(name: &str, spec: &Value) -> Vec<u8> {
    match spec.get("name_base64") {
        Some(name) => base64(text(name)),
        None => name.as_bytes().to_vec(),
    }
}

/// The bytes of a file.
pub(crate) fn content(spec: &Value) -> Vec<u8> {
    if let Value::String(text) = spec {
        return text.as_bytes().to_vec();
    }
    let known = spec.as_object().expect("text or a map").keys().all(|key| {
        [
            "name_base64",
            "text",
            "base64",
            "repeat",
            "count",
            "executable",
            "mode",
            "file",
        ]
        .contains(&key.as_str())
    });
    assert!(known, "{spec}");
    match (spec.get("text"), spec.get("base64"), spec.get("repeat")) {
        (Some(content), None, None) => text(content).as_bytes().to_vec(),
        (None, Some(content), None) => base64(text(content)),
        (None, None, Some(part)) => {
            let count = spec["count"].as_u64().expect("a count");
            text(part)
                .repeat(usize::try_from(count).expect("small"))
                .into_bytes()
        }
        _ => panic!("one of text, base64, repeat: {spec}"),
    }
}

/// The mode of a file: `mode`, or derived from `executable`.
pub(crate) fn mode_of(spec: &Value) -> u32 {
    match (spec.get("mode"), spec.get("executable")) {
        (Some(mode), None) => u32::from_str_radix(text(mode), 8).expect("octal"),
        (None, Some(Value::Bool(true))) => 0o755,
        (None, None) => 0o644,
        _ => panic!("mode or executable: {spec}"),
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("text: {value}"))
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Base64 with padding (RFC 4648, § 4).
pub(crate) fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let mut bits: u32 = 0;
    let mut count = 0;
    for character in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == character);
        bits = bits << 6 | u32::try_from(value.expect("base64")).expect("small");
        count += 6;
        if 8 <= count {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).expect("a byte"));
        }
    }
    bytes
}
