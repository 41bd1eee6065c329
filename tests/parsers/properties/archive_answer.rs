//! The answer of the process that unpacks.

use archive::UnpackLimits;
use reader::read_archive_answer;

/// What is accepted is a tree within the limits, or an error that may be shown.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

/// Whether it is a tree.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let limits = UnpackLimits {
        unpacked_bytes: 1000,
        entries: 5,
        ..UnpackLimits::default()
    };
    match read_archive_answer(bytes, &limits) {
        Ok(unpacked) => {
            assert!(unpacked.bytes <= limits.unpacked_bytes);
            assert!(unpacked.entries <= limits.entries);
            assert_eq!(unpacked.entries, unpacked.tree.len() as u64);
            assert_eq!(unpacked.bytes, unpacked.tree.file_bytes());
            assert_eq!(unpacked.archive_digest, None);
            super::check_warnings(&unpacked.warnings);
            true
        }
        Err(problem) => super::check_problem(&problem),
    }
}
