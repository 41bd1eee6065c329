//! `define_code`: from sources to the bytes of a bundle (AIP-26, "The defineCode standard
//! signature").

use std::io::Write;
use std::path::Path;

use crate::compose::error::ComposeError;
use crate::compose::files::WorkspaceFiles;
use crate::compose::gather::{GatherOptions, gather};
use crate::compose::github::GitHub;
use crate::compose::manifests::Registry;
use crate::compose::resolve::resolve_code;
use crate::compose::write::{WrittenBundle, write};
use crate::spec::code_block::CodeSource;
use crate::spec::host_policy::UnpackCaps;

/// What a bundle is made of, and through whom its files are had.
#[derive(Clone, Copy)]
pub struct DefineCode<'call> {
    /// The sources, in the order in which they lie over each other; later ones win.
    pub code: &'call [CodeSource],
    /// Where the workspace lies on this host; only absolute links into it need that.
    pub workspace_root: Option<&'call Path>,
    /// Repositories: the only one who sees credentials.
    pub github: &'call dyn GitHub,
    /// The files of the workspace; manifests of `ref` sources are read through it too.
    /// [`crate::compose::files::DirectoryFiles`] are those of a directory of this host.
    pub files: &'call dyn WorkspaceFiles,
    /// Files that registry slugs in those manifests stand for.
    pub registry: &'call Registry,
    /// Whether what links point to is copied in their place.
    pub follow_symlinks: bool,
    /// How large the bundle may be.
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

/// Writes the merged files of all sources to `out`, as a `.tar.gz`. Where every `github` source
/// names a commit, the same sources give the same bytes. Nothing else is written anywhere.
///
/// # Errors
/// [`ComposeError`]: before a byte is written for all that can be known from manifests and
/// listings. After an error `out` holds no bundle.
pub fn define_code(
    args: DefineCode<'_>,
    out: &mut dyn Write,
) -> Result<WrittenBundle, ComposeError> {
    let layers = resolve_code(args.code, args.files, args.registry)?;
    let options = GatherOptions {
        caps: args.caps,
        follow_symlinks: args.follow_symlinks,
        workspace: args.workspace_root,
        exclude: Vec::new(),
    };
    let gathered = gather(&layers, None, args.files, args.github, &options)?;
    write(&gathered, out)
}
