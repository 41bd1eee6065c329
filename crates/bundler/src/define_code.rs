//! `define_code`: from sources to the bytes of a bundle (AIP-26, "The defineCode standard
//! signature").

use std::io::Write;
use std::path::Path;

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::gather::{GatherOptions, gather};
use crate::manifests::Registry;
use crate::resolve::resolve_code;
use crate::write::{WrittenBundle, write};
use sources::github::GitHub;
use spec::code_block::CodeSource;
use spec::host_policy::UnpackCaps;

/// Inputs of a bundle.
#[derive(Clone, Copy)]
pub struct DefineCode<'call> {
    /// In overlay order: later sources win.
    pub code: &'call [CodeSource],
    /// Workspace on this host; needed only for absolute links into it.
    pub workspace_root: Option<&'call Path>,
    /// Client for repositories; only it handles credentials.
    pub github: &'call dyn GitHub,
    /// Files of the workspace, including manifests of `ref` sources: nothing outside is read.
    pub files: &'call DirectoryFiles,
    pub registry: &'call Registry,
    /// Copies the targets of links instead of the links.
    pub follow_symlinks: bool,
    pub caps: UnpackCaps,
}

impl std::fmt::Debug for DefineCode<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DefineCode")
            .field("code", &self.code)
            .field("workspace_root", &self.workspace_root)
            .field("follow_symlinks", &self.follow_symlinks)
            .field("caps", &self.caps)
            .finish_non_exhaustive()
    }
}

/// Writes the merged files of all sources to `out` as a `.tar.gz`. If every `github` source names a
/// commit, the same sources give the same bytes.
///
/// # Errors
/// [`BundleError`]: before the first byte for everything that manifests and listings show. After
/// an error the content of `out` is invalid.
pub fn define_code(
    args: DefineCode<'_>,
    out: &mut dyn Write,
) -> Result<WrittenBundle, BundleError> {
    let layers = resolve_code(args.code, args.files, args.registry)?;
    let options = GatherOptions {
        caps: args.caps,
        follow_symlinks: args.follow_symlinks,
        workspace: args.workspace_root,
        exclude: Vec::new(),
        lock: None,
    };
    let gathered = gather(&layers, None, args.files, Some(args.github), &options)?;
    write(&gathered, args.files, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::UnpackLimits;
    use sources::github::{FetchedTree, GitHubError, RefShape, ResolvedRef};
    use spec::code_block::SourceTarget;
    use spec::digest::Digest;
    use spec::host_policy::HostPolicy;
    use spec::path::RelPath;
    use std::os::fd::AsFd as _;

    const SHA: &str = "4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c";

    /// A service with one commit and its files in a directory.
    struct OneCommit<'test>(&'test Path);

    impl GitHub for OneCommit<'_> {
        fn resolve_ref(&self, _: &str, reference: &str) -> Result<ResolvedRef, GitHubError> {
            Ok(ResolvedRef {
                sha: SHA.to_owned(),
                shape: RefShape::of(reference),
                cached: false,
                warnings: Vec::new(),
            })
        }

        fn fetch(
            &self,
            _: &str,
            sha: &str,
            path: Option<&RelPath>,
        ) -> Result<FetchedTree, GitHubError> {
            assert_eq!(sha, SHA);
            let folder = path.map_or_else(String::new, RelPath::to_string);
            let directory = std::fs::File::open(self.0.join(folder)).expect("there");
            Ok(FetchedTree::of_directory(
                directory.into(),
                1,
                Digest::of(b""),
            ))
        }
    }

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, contents) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, contents).expect("written");
        }
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    /// Returns names and contents of the files of the bundle of these sources.
    fn defined(code: &[CodeSource], workspace: &Path, repository: &Path) -> Vec<(String, String)> {
        let files = DirectoryFiles::open_root(workspace).expect("opened");
        let args = DefineCode {
            code,
            workspace_root: None,
            github: &OneCommit(repository),
            files: &files,
            registry: &Registry::new(),
            follow_symlinks: false,
            caps: HostPolicy::default().unpack,
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let written = define_code(args, &mut first).expect("defined");
        define_code(args, &mut second).expect("defined again");
        assert!(first == second, "the same sources give the same bytes");
        assert_eq!(written.archive_digest, Digest::of(&first));
        assert_eq!(written.archive_bytes, first.len() as u64);
        let into = tempfile::tempdir().expect("a directory");
        let directory = std::fs::File::open(into.path()).expect("opened");
        let limits = UnpackLimits::default();
        let permit = spec::parse_permit::ParsePermit::for_trusted_text();
        let unpacked = archive::unpack(&permit, first.as_slice(), directory.as_fd(), &limits)
            .expect("unpacked");
        assert_eq!(unpacked.content_digest, written.content_digest);
        let files = unpacked.tree.iter();
        let files = files.filter(|(_, entry)| matches!(entry, archive::Entry::File { .. }));
        files
            .map(|(path, _)| {
                let text = std::fs::read_to_string(into.path().join(path.to_string()));
                (path.to_string(), text.expect("read"))
            })
            .collect()
    }

    #[test]
    fn later_sources_override_a_repository() {
        let ground = tempfile::tempdir().expect("a directory");
        let (workspace, repository) = (ground.path().join("work"), ground.path().join("repo"));
        write(&workspace, &[("lib/utils.ts", "mine")]);
        write(
            &repository,
            &[
                ("tool.ts", "shell"),
                ("lib/utils.ts", "shell"),
                ("src/deep/x", "x"),
            ],
        );
        let github = |path: Option<RelPath>, target| CodeSource::GitHub {
            repository: "o/r".to_owned(),
            reference: "v1.2.3".to_owned(),
            path,
            target,
        };
        let named = |files: &[(&str, &str)]| -> Vec<(String, String)> {
            let files = files.iter();
            files
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect()
        };
        let code = [
            github(None, SourceTarget::Same),
            CodeSource::Inline {
                path: path("tool.ts"),
                content: "inline".to_owned(),
            },
            CodeSource::Local {
                path: path("lib/utils.ts").into(),
                directory: false,
                target: SourceTarget::Same,
                glob: None,
            },
        ];
        let expected = [
            ("lib/utils.ts", "mine"),
            ("src/deep/x", "x"),
            ("tool.ts", "inline"),
        ];
        assert_eq!(defined(&code, &workspace, &repository), named(&expected));
        for (target, expected) in [
            (SourceTarget::Same, "src/deep/x"),
            (SourceTarget::Top, "deep/x"),
            (
                SourceTarget::Path {
                    path: path("vendor"),
                    directory: true,
                },
                "vendor/deep/x",
            ),
        ] {
            let code = [github(Some(path("src")), target)];
            let found = defined(&code, &workspace, &repository);
            assert_eq!(found, named(&[(expected, "x")]));
        }
    }
}
