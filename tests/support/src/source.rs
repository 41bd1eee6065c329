//! Directories of the source tree and of the build.

use std::path::{Path, PathBuf};

/// A path of the source tree, or of its copy in `RUNNER_TESTS_SOURCE` if the user of the tests may
/// not reach the tree.
pub fn source_path(path: &str) -> PathBuf {
    let copy = std::env::var_os("RUNNER_TESTS_SOURCE").map(PathBuf::from);
    let tree = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    copy.unwrap_or_else(tree).join(path)
}

/// The directory in which cargo built the programs for this test: `target/debug`. The test itself
/// is one level deeper, in `deps`.
pub(crate) fn build_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this program");
    test.ancestors()
        .nth(2)
        .expect("a directory above")
        .to_owned()
}
