//! Opens the directories of declared files: the workspace, and the directory of `--out-dir`.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::run::contract::IoContract;
use crate::run::error::RunError;
use crate::run::refusals::Refusals;
use crate::staging::{ScratchError, Workspace};
use spec::path::quoted;
use spec::request::Request;

/// A directory: its path and its open descriptor.
pub(in crate::run) type FileRoot = (PathBuf, Workspace);

#[derive(Debug, Default)]
pub(in crate::run) struct FileRoots {
    workspace: Option<FileRoot>,
    /// `--out-dir`.
    outputs: Option<FileRoot>,
    /// One of them could not be opened, and the error was collected.
    has_failed: bool,
}

impl FileRoots {
    /// Opens the workspace at `workspace` and the directory of `--out-dir`.
    ///
    /// # Errors
    /// [`RunError::Scratch`] and [`RunError::Argument`], unless `refusals` collects them.
    pub(in crate::run) fn open(
        request: &Request,
        workspace: Option<PathBuf>,
        refusals: &mut Refusals,
    ) -> Result<Self, RunError> {
        let mut has_failed = false;
        let mut open = |path: Option<PathBuf>, explain: fn(ScratchError) -> RunError| {
            let Some(path) = path else {
                return Ok::<_, RunError>(None);
            };
            let opened = Workspace::open(&path).map_err(explain);
            let opened = refusals.check(opened.map(|opened| (path, opened)))?;
            has_failed |= opened.is_none();
            Ok(opened)
        };
        let directory = request.bundle.output_directory.clone();
        Ok(Self {
            workspace: open(workspace, RunError::from)?,
            outputs: open(directory, output_directory_unusable)?,
            has_failed,
        })
    }

    pub(in crate::run) fn input_root(&self) -> Option<&FileRoot> {
        self.workspace.as_ref()
    }

    pub(in crate::run) fn output_root(&self) -> Option<&FileRoot> {
        self.outputs.as_ref().or(self.workspace.as_ref())
    }

    /// The workspace if inputs are declared; `None` if there is nothing to stage.
    ///
    /// # Errors
    /// [`RunError::Argument`] if files are declared and no directory is named for them.
    pub(in crate::run) fn workspace_of_inputs(
        &self,
        contract: &IoContract,
    ) -> Result<Option<&Workspace>, RunError> {
        let has_inputs = !contract.input_files.is_empty();
        let has_output_root = contract.output_files.is_empty() || self.output_root().is_some();
        match &self.workspace {
            Some((_, workspace)) => Ok(has_inputs.then_some(workspace)),
            None if self.has_failed || !has_inputs && has_output_root => Ok(None),
            None => Err(RunError::Argument {
                code: "workspace_missing",
                what: "the",
                object: "workspace".to_owned(),
                problem: "is unknown, but declared files need it".to_owned(),
                hint: Some("add --workspace DIR".to_owned()),
            }),
        }
    }
}

fn output_directory_unusable(error: ScratchError) -> RunError {
    let (path, call, errno) = match error {
        ScratchError::WorkspaceUnusable { path, call, errno } => (path, call, errno),
        other => return other.into(),
    };
    let hint = match errno {
        Errno::NOENT => format!("create it (mkdir -p -- {}), or name another", quoted(&path)),
        _ => "name a directory that you may read".to_owned(),
    };
    RunError::Argument {
        code: "output_directory_unusable",
        what: "--out-dir",
        hint: Some(hint),
        object: path,
        problem: format!("cannot be used: {call}: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_output_directory_is_to_be_created() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("file");
        std::fs::write(&file, "").expect("written");
        for (path, is_missing) in [(home.path().join("it's"), true), (file, false)] {
            let error = Workspace::open(&path).expect_err("no directory");
            let hint = output_directory_unusable(error).report().hint;
            let hint = hint.expect("a hint");
            assert_eq!(hint.contains("mkdir"), is_missing, "{hint}");
            assert_eq!(hint.contains(r"it'\''s"), is_missing, "{hint}");
        }
    }
}
