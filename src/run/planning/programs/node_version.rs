//! Reads the version of a Node from its files. Never executes it: outside the sandbox, that could
//! execute a file that a body wrote.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::run::planning::programs::text_files::find_in;
use spec::detection::NodeVersion;
use spec::parse_permit::ParsePermit;

/// The header beside the program's directory, in every release and in packages of it.
const HEADER: &str = "include/node/node_version.h";
/// Prefix of the version in the release's archive URLs, which the program contains
/// (`process.release.sourceUrl`).
const RELEASE: &[u8] = b"/node-v";
/// A program has about 100 MiB.
const PROGRAM_BYTES_MAX: u64 = 512 << 20;
const PART_BYTES: usize = 1 << 20;
/// Length of `/node-v22.18.0` with its terminator.
const OVERLAP_BYTES: usize = 32;

/// Cache of the versions read in one run.
#[derive(Debug, Default)]
pub(in crate::run::planning) struct NodeVersions {
    known: RefCell<BTreeMap<PathBuf, Result<NodeVersion, String>>>,
}

impl NodeVersions {
    /// The version of the program at `path`, read on first use.
    ///
    /// # Errors
    /// Why it is unknown, as the end of "`node` …".
    pub(in crate::run::planning) fn get(&self, path: &Path) -> Result<NodeVersion, String> {
        if let Some(known) = self.known.borrow().get(path) {
            return known.clone();
        }
        let found = find(path);
        self.known
            .borrow_mut()
            .insert(path.to_path_buf(), found.clone());
        found
    }
}

fn find(path: &Path) -> Result<NodeVersion, String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let real = path.canonicalize().map_err(unread)?;
    let prefix = real.parent().and_then(Path::parent);
    if let Some(version) = prefix.and_then(|prefix| read_header(&prefix.join(HEADER))) {
        return Ok(version);
    }
    // A program that a PATH of the caller or of the policy finds.
    let permit = ParsePermit::for_trusted_text();
    search_program(&permit, &real)
        .map_err(unread)?
        .ok_or_else(|| {
            format!("has no known version: neither the program nor {HEADER} beside it names one")
        })
}

fn open(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(std::io::ErrorKind::InvalidInput.into())
    }
}

fn read_header(path: &Path) -> Option<NodeVersion> {
    let version = find_in(path, &|text| {
        let number = |name: &str| {
            text.lines().find_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let is_it = words.next() == Some("#define") && words.next() == Some(name);
                is_it.then(|| words.next()).flatten()
            })
        };
        let (major, minor) = (number("NODE_MAJOR_VERSION")?, number("NODE_MINOR_VERSION")?);
        Some(format!("v{major}.{minor}.0"))
    });
    NodeVersion::parse(&version?)
}

fn search_program(permit: &ParsePermit, path: &Path) -> std::io::Result<Option<NodeVersion>> {
    let mut file = open(path)?.take(PROGRAM_BYTES_MAX);
    let mut part = vec![0; PART_BYTES];
    let mut kept = 0;
    loop {
        let count = file.read(part.get_mut(kept..).unwrap_or_default())?;
        let Some(filled) = part.get(..kept + count) else {
            return Ok(None);
        };
        if let Some(version) = find_version(permit, filled) {
            return Ok(Some(version));
        }
        if count == 0 {
            return Ok(None);
        }
        // A match may span two reads.
        let from = filled.len().saturating_sub(OVERLAP_BYTES);
        kept = filled.len() - from;
        part.copy_within(from..from + kept, 0);
    }
}

fn find_version(_permit: &ParsePermit, bytes: &[u8]) -> Option<NodeVersion> {
    let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| at).find_map(|at| {
        let rest = bytes.get(at..)?.strip_prefix(RELEASE)?;
        let length = rest
            .iter()
            .position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let word = std::str::from_utf8(rest.get(..length)?).ok()?;
        NodeVersion::parse(&format!("v{word}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_TEXT: &str = "#ifndef SRC_NODE_VERSION_H_\n\n#define NODE_MAJOR_VERSION 22\n\
         #define NODE_MINOR_VERSION 18\n#define NODE_PATCH_VERSION 0\n";

    /// The installation prefix of `program`, and its version header if it exists.
    fn prefix(program: &[u8], header: Option<&str>) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("bin/node");
        std::fs::create_dir(directory.path().join("bin")).expect("made");
        std::fs::write(&path, program).expect("written");
        if let Some(text) = header {
            let header = directory.path().join(HEADER);
            std::fs::create_dir_all(header.parent().expect("above")).expect("made");
            std::fs::write(header, text).expect("written");
        }
        (directory, path)
    }

    fn version(major: u32, minor: u32) -> Result<NodeVersion, String> {
        Ok(NodeVersion { major, minor })
    }

    #[test]
    fn the_header_beside_the_program_has_the_version() {
        let (_directory, path) = prefix(b"", Some(HEADER_TEXT));
        let versions = NodeVersions::default();
        assert_eq!(versions.get(&path), version(22, 18));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(versions.get(&path), version(22, 18), "looked for once");
    }

    #[test]
    fn the_program_itself_names_its_release_wherever_it_does() {
        let name = b"https://example.org/download/release/v24.1.0/node-v24.1.0.tar.gz\0";
        for before in [0, 1, PART_BYTES - 60, PART_BYTES - 3, 2 * PART_BYTES - 40] {
            let text = [&vec![b'x'; before][..], name].concat();
            let (_directory, path) = prefix(&text, Some("no header"));
            assert_eq!(
                NodeVersions::default().get(&path),
                version(24, 1),
                "{before}"
            );
        }
    }

    #[test]
    fn a_program_without_a_version_is_an_error_and_never_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let started = directory.path().join("started");
        let text = format!("#!/bin/sh\n: >{}\necho v22.18.0\n", started.display());
        for program in [
            text.as_bytes(),
            b"",
            b"/node-v",
            b"/node-v22",
            b"/node-vx.y.z\0",
        ] {
            let (_prefix, path) = prefix(program, None);
            assert!(NodeVersions::default().get(&path).is_err());
        }
        assert!(!started.exists());
        let nowhere = Path::new("/nonexistent");
        assert!(NodeVersions::default().get(nowhere).is_err());
    }

    #[test]
    fn a_fifo_or_a_directory_is_never_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("node");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("made");
        assert!(NodeVersions::default().get(&fifo).is_err());
        assert!(NodeVersions::default().get(directory.path()).is_err());
    }
}
