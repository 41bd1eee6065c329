//! Directories of the source tree and of the build.

use std::path::{Path, PathBuf};

/// A path of the source tree: of the copy that `RUNNER_TESTS_SOURCE` names, where the tests run as a
/// user who may not reach the tree itself.
pub fn source_path(path: &str) -> PathBuf {
    let copy = std::env::var_os("RUNNER_TESTS_SOURCE").map(PathBuf::from);
    let tree = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    copy.unwrap_or_else(tree).join(path)
}

/// Where cargo put the programs that it built with this test: `target/debug`. The test itself lies
/// one level deeper, in `deps`.
pub(crate) fn build_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this program");
    test.ancestors()
        .nth(2)
        .expect("a directory above")
        .to_owned()
}
