//! The archive of a bundle, compared with the `tar` crate and with the unpacked tree.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::AsFd as _;

use super::PERMIT;
use super::ground::{Ground, Made, seal, stored};
use archive::{Entry, Tree, UnpackError, UnpackLimits, Unpacked, write_canonical};
use spec::digest::Digest;

/// Directories that bundles leave out.
const LEFT_OUT: [&[u8]; 3] = [b".git", b".hg", b".svn"];
const LIMITS: UnpackLimits = UnpackLimits {
    compressed_bytes: 1 << 20,
    unpacked_bytes: 1 << 20,
    entries: 64,
};

/// The first byte selects whether the checksums of the tar are corrected. An accepted archive is
/// unpacked exactly as the other library reads it, only below the target, and reading without
/// unpacking returns the same.
pub(crate) fn check(bytes: &[u8]) {
    let Some((options, tar)) = bytes.split_first() else {
        return;
    };
    let mut tar = tar.to_vec();
    if options & 1 == 0 {
        seal(&mut tar);
    }
    let ground = Ground::new();
    let directory = ground.open();
    let archive = stored(&tar);
    let unpacked = archive::unpack(&PERMIT, archive.as_slice(), directory.as_fd(), &LIMITS);
    let made = ground.made();
    check_survey(&archive, &unpacked);
    let unpacked = match unpacked {
        Ok(unpacked) => unpacked,
        Err(error) => {
            assert!(error.is_refusal(), "{error:?}");
            let text = error.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
            let has_link = made.values().any(|one| matches!(one, Made::Link(_)));
            assert!(!has_link, "a link after a refusal");
            return;
        }
    };
    assert!(unpacked.entries <= LIMITS.entries && unpacked.bytes <= LIMITS.unpacked_bytes);
    check_made(&unpacked.tree, &made);
    check_names(&tar, &unpacked.tree, &made);
    let mut canonical = Vec::new();
    write_canonical(&unpacked.tree, directory.as_fd(), &mut canonical).expect("written");
    assert_eq!(Digest::of(&canonical), unpacked.content_digest);
    let again = Ground::new();
    let packed = stored(&canonical);
    // The canonical form may be longer than the input: a hard link becomes a file.
    let limits = UnpackLimits {
        compressed_bytes: 16 << 20,
        ..LIMITS
    };
    let second = archive::unpack(&PERMIT, packed.as_slice(), again.open().as_fd(), &limits);
    let second = second.expect("the canonical form is accepted");
    assert_eq!(second.tree, unpacked.tree);
    assert_eq!(second.content_digest, unpacked.content_digest);
    assert_eq!(again.made(), made);
}

fn check_survey(archive: &[u8], unpacked: &Result<Unpacked, UnpackError>) {
    match (
        unpacked,
        archive::survey(&PERMIT, archive, &LIMITS, &["manifest.yaml"]),
    ) {
        (Ok(unpacked), Ok(surveyed)) => {
            assert_eq!(surveyed.tree, unpacked.tree);
            assert_eq!(surveyed.archive_digest, unpacked.archive_digest);
            let digest = surveyed.content_digest;
            assert!(digest.is_none() || digest == Some(unpacked.content_digest));
        }
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        (unpacked, surveyed) => panic!("{unpacked:?}\n{surveyed:?}"),
    }
}

/// The tree on disk equals the tree in memory.
fn check_made(tree: &Tree, made: &BTreeMap<Vec<u8>, Made>) {
    assert_eq!(tree.len(), made.len());
    for (path, entry) in tree.iter() {
        let same = match (entry, &made[path.as_bytes()]) {
            (Entry::Directory, Made::Directory { mode }) => *mode == 0o755,
            (Entry::File { executable, bytes }, Made::File { mode, data }) => {
                *mode == if *executable { 0o755 } else { 0o644 } && *bytes == data.len() as u64
            }
            (Entry::Symlink { target }, Made::Link(found)) => target == found,
            _ => false,
        };
        assert!(same, "{path}: {entry:?}");
    }
}

/// The tree equals that of the other library; later entries replace earlier ones.
fn check_names(tar: &[u8], tree: &Tree, made: &BTreeMap<Vec<u8>, Made>) {
    // If the other library refuses a field that this parser reads as empty, such as a size without
    // a digit, no parser reads another entry.
    let Some(theirs) = read_by_tar(tar) else {
        return;
    };
    for (path, one) in &theirs {
        let found = made
            .get(path)
            .unwrap_or_else(|| panic!("{path:?}: not there"));
        let same = match (one, found) {
            (Made::Directory { .. }, Made::Directory { .. }) => true,
            (one, found) => one == found,
        };
        assert!(same, "{}: {one:?}, {found:?}", path.escape_ascii());
    }
    for (path, entry) in tree.iter() {
        let path = path.as_bytes();
        let is_above = |other: &Vec<u8>| {
            other
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let is_implied = *entry == Entry::Directory && theirs.keys().any(is_above);
        assert!(
            is_implied || theirs.contains_key(path),
            "{}: out of nowhere",
            path.escape_ascii()
        );
    }
}

/// All entries as the other library reads them; `None` if it refuses one.
fn read_by_tar(tar: &[u8]) -> Option<BTreeMap<Vec<u8>, Made>> {
    let mut archive = tar::Archive::new(tar);
    let mut read: BTreeMap<Vec<u8>, Made> = BTreeMap::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.ok()?;
        // It reads extended headers line by line, and ignores a value of two lines.
        if entry
            .pax_extensions()
            .ok()?
            .is_some_and(|mut all| all.any(|one| one.is_err()))
        {
            return None;
        }
        let written = entry.path_bytes().into_owned();
        let kind = entry.header().entry_type();
        let path = without_dot(&written).to_vec();
        if kind.is_pax_global_extensions() || matches!(path.as_slice(), b"" | b".") {
            continue;
        }
        let is_left_out = path
            .split(|byte| *byte == b'/')
            .any(|segment| LEFT_OUT.contains(&segment));
        if is_left_out {
            continue;
        }
        let link = entry
            .link_name_bytes()
            .map(|link| link.into_owned())
            .unwrap_or_default();
        let is_old = entry.header().as_ustar().is_none() && entry.header().as_gnu().is_none();
        let one = if kind.is_dir() || (is_old && written.ends_with(b"/")) {
            Made::Directory { mode: 0o755 }
        } else if kind.is_symlink() {
            Made::Link(link)
        } else if kind.is_hard_link() {
            read[without_dot(&link)].clone()
        } else {
            let mut data = Vec::new();
            entry.read_to_end(&mut data).expect("its data");
            let is_executable = entry.header().mode().ok()? & 0o100 != 0;
            let mode = if is_executable { 0o755 } else { 0o644 };
            Made::File { mode, data }
        };
        read.insert(path, one);
    }
    Some(read)
}

/// A name without a leading `./` and a trailing `/`.
fn without_dot(name: &[u8]) -> &[u8] {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    name.strip_suffix(b"/").unwrap_or(name)
}
