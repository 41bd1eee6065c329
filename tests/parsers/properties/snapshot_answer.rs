//! The answers of the process that unpacks snapshots of sources and archives of repositories.

use archive::{Entry, UnpackLimits, Unpacked};
use reader::{read_hosted_answer, read_snapshot_answer};

/// What is accepted is a tree within the limits, or an error that may be shown.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

/// Whether it is a tree of one of them.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let limits = UnpackLimits {
        unpacked_bytes: 1000,
        entries: 5,
        ..UnpackLimits::default()
    };
    let is_snapshot = match read_snapshot_answer(bytes, &limits) {
        Ok(unpacked) => {
            let mut entries = unpacked.tree.iter();
            assert!(!entries.any(|(_, entry)| matches!(entry, Entry::Symlink { .. })));
            check_tree(&unpacked, &limits);
            true
        }
        Err(problem) => super::check_problem(&problem),
    };
    let is_hosted = match read_hosted_answer(bytes, &limits) {
        Ok(hosted) => {
            for text in [hosted.comment, hosted.instead].into_iter().flatten() {
                super::assert_plain(&text);
            }
            check_tree(&hosted.unpacked, &limits);
            true
        }
        Err(problem) => super::check_problem(&problem),
    };
    is_snapshot || is_hosted
}

fn check_tree(unpacked: &Unpacked, limits: &UnpackLimits) {
    assert!(unpacked.bytes <= limits.unpacked_bytes);
    assert!(unpacked.entries <= limits.entries);
    assert_eq!(unpacked.entries, unpacked.tree.len() as u64);
    assert_eq!(unpacked.bytes, unpacked.tree.file_bytes());
    assert_eq!(unpacked.archive_digest, None);
    super::check_warnings(&unpacked.warnings);
}
