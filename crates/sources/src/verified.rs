//! Keeps the process that unpacked a tree to its word.

use std::os::fd::BorrowedFd;

use archive::Unpacked;
use reader::Problem;

/// Compares what the reader told with the directory `root` that it filled: it is not trusted to name
/// the tree that others will find under the digest.
///
/// # Errors
/// They differ.
pub(crate) fn check(root: BorrowedFd<'_>, unpacked: Unpacked) -> Result<Unpacked, Problem> {
    match store::check_tree(root, &unpacked.tree, &unpacked.content_digest) {
        None => Ok(unpacked),
        Some(problem) => Err(Problem::of_reader(&format!(
            "its reader told another tree than it left: {problem}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use archive::UnpackLimits;

    ///
    #[test]
    fn a_tree_is_kept_only_under_its_own_digest() {
        let source = tempfile::tempdir().expect("a directory");
        std::fs::write(source.path().join("tool"), "1").expect("written");
        let into = tempfile::tempdir().expect("a directory");
        let [from, root] =
            [source.path(), into.path()].map(|path| std::fs::File::open(path).expect("opened"));
        let limits = UnpackLimits::default();
        let told = archive::unpack_directory_as(from.as_fd(), root.as_fd(), &limits, None);
        let told = told.expect("a tree");
        check(root.as_fd(), told.clone()).expect("the tree that was told");
        std::fs::write(into.path().join("tool"), "2").expect("written");
        let found = check(root.as_fd(), told).expect_err("another tree");
        assert!(
            found.message.contains("another tree than it left"),
            "{found}"
        );
    }
}
