//! Opens the directories of declared files: the workspace, and the directory of `--out-dir`.

use std::path::PathBuf;

use crate::run::contract::IoContract;
use crate::run::error::RunError;
use crate::run::refusals::Refusals;
use crate::staging::{ScratchError, Workspace};
use spec::request::Request;

/// A directory: its path and its open descriptor.
pub(in crate::run) type FileRoot = (PathBuf, Workspace);

#[derive(Debug, Default)]
pub(in crate::run) struct FileRoots {
    workspace: Option<FileRoot>,
    /// `--out-dir`.
    outputs: Option<FileRoot>,
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
        let mut open = |path: Option<PathBuf>, explain: fn(ScratchError) -> RunError| {
            let Some(path) = path else {
                return Ok(None);
            };
            let opened = Workspace::open(&path).map_err(explain);
            refusals.check(opened.map(|opened| (path, opened)))
        };
        Ok(Self {
            workspace: open(workspace, RunError::from)?,
            outputs: open(
                request.bundle.output_directory.clone(),
                output_directory_unusable,
            )?,
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
    /// [`RunError::Argument`] if files are declared and no directory is known for them.
    pub(in crate::run) fn workspace_of_inputs(
        &self,
        contract: &IoContract,
    ) -> Result<Option<&Workspace>, RunError> {
        let has_inputs = !contract.input_files.is_empty();
        let has_output_root = contract.output_files.is_empty() || self.output_root().is_some();
        match &self.workspace {
            Some((_, workspace)) => Ok(has_inputs.then_some(workspace)),
            None if !has_inputs && has_output_root => Ok(None),
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
    let (path, problem) = match error {
        ScratchError::WorkspaceUnusable { path, call, errno } => (path, format!("{call}: {errno}")),
        other => return other.into(),
    };
    RunError::Argument {
        code: "output_directory_unusable",
        what: "--out-dir",
        hint: Some(format!("create it (mkdir -p -- '{path}'), or name another")),
        object: path,
        problem: format!("cannot be used: {problem}"),
    }
}
