//! A directory to unpack hostile archives into, and tars with correct checksums.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// One entry of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    Directory { mode: u32 },
    File { mode: u32, data: Vec<u8> },
    Link(Vec<u8>),
    Whiteout,
}

/// An empty directory beside another one.
pub(crate) struct Ground {
    outside: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let outside = tempfile::tempdir().expect("a directory");
        fs::create_dir(outside.path().join("inside")).expect("made");
        fs::write(outside.path().join("secret"), b"secret").expect("written");
        Self { outside }
    }

    /// The directory, opened.
    pub(crate) fn open(&self) -> File {
        File::open(self.outside.path().join("inside")).expect("opened")
    }

    /// Everything in the directory; checks that nothing outside was changed.
    pub(crate) fn made(&self) -> BTreeMap<Vec<u8>, Made> {
        let mut beside: Vec<_> = fs::read_dir(self.outside.path())
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        beside.sort();
        assert_eq!(beside, ["inside", "secret"], "something lies beside");
        let secret = fs::read(self.outside.path().join("secret")).expect("read");
        assert_eq!(secret, b"secret", "a file outside was changed");
        let mut made = BTreeMap::new();
        walk(&self.outside.path().join("inside"), &[], &mut made);
        made
    }
}

fn walk(directory: &Path, name: &[u8], made: &mut BTreeMap<Vec<u8>, Made>) {
    for entry in fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        let last = path.file_name().expect("a name").as_bytes();
        let name = match name {
            [] => last.to_vec(),
            above => [above, b"/", last].concat(),
        };
        let status = fs::symlink_metadata(&path).expect("a status");
        let mode = status.mode() & 0o7777;
        let one = if status.is_dir() {
            walk(&path, &name, made);
            Made::Directory { mode }
        } else if status.is_symlink() {
            Made::Link(
                fs::read_link(&path)
                    .expect("read")
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            )
        } else if status.is_file() {
            Made::File {
                mode,
                data: fs::read(&path).expect("read"),
            }
        } else {
            let is_whiteout = status.file_type().is_char_device() && status.rdev() == 0;
            assert!(is_whiteout, "{}: a special file", path.display());
            Made::Whiteout
        };
        made.insert(name, one);
    }
}

/// Corrects the checksums of all possible headers, walking the file as a tar reader does: otherwise
/// a changed byte never gets past the first header.
pub(crate) fn seal(tar: &mut [u8]) {
    let mut at = 0;
    while let Some(block) = tar.get_mut(at..at + 512) {
        at += 512;
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = block[124..136]
            .iter()
            .take_while(|byte| (b'0'..=b'7').contains(*byte));
        let size = digits.fold(0_usize, |size, digit| size * 8 + usize::from(digit - b'0'));
        at = at.saturating_add(size.next_multiple_of(512));
    }
}

/// `data` as one uncompressed gzip member.
pub(crate) fn stored(data: &[u8]) -> Vec<u8> {
    let mut member = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let mut pieces = data.chunks(0xffff).peekable();
    loop {
        let piece = pieces.next().unwrap_or_default();
        let is_last = pieces.peek().is_none();
        let length = u16::try_from(piece.len()).expect("short");
        member.push(u8::from(is_last));
        member.extend_from_slice(&length.to_le_bytes());
        member.extend_from_slice(&(!length).to_le_bytes());
        member.extend_from_slice(piece);
        if is_last {
            break;
        }
    }
    member.extend_from_slice(&super::gzip::crc_32(data).to_le_bytes());
    let length = u32::try_from(data.len()).expect("short");
    member.extend_from_slice(&length.to_le_bytes());
    member
}
