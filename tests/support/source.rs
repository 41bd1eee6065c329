//! Data files of the source tree, for tests that read them when they run.

use std::path::{Path, PathBuf};

/// A path of the source tree: of the copy that `RUNNER_TESTS_SOURCE` names, where the tests run as a
/// user who may not reach the tree itself.
pub(crate) fn source_path(path: &str) -> PathBuf {
    let copy = std::env::var_os("RUNNER_TESTS_SOURCE").map(PathBuf::from);
    copy.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_owned())
        .join(path)
}
