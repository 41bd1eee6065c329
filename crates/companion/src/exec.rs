//! `runner exec` for a run that others asked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Nobody reads what a body writes beyond it.
const OUTPUT: &str = "--max-output=16m";

/// Where the files of a run are, and what decides of it.
#[derive(Debug)]
pub struct ExecPlan<'run> {
    pub bundle: &'run Path,
    pub workspace: &'run Path,
    /// Of whoever is responsible: all that the run may do.
    pub flags: &'run [OsString],
    /// Keys of input files, and their names in the workspace.
    pub inputs_files: Vec<(&'run str, String)>,
    /// The structured input; `None`: there is none.
    pub inputs: Option<PathBuf>,
    pub events: PathBuf,
    pub report: PathBuf,
    pub outputs: PathBuf,
    /// Appended to the arguments of the body.
    pub arguments: &'run [String],
}

impl ExecPlan<'_> {
    /// The words after `runner`. Of a flag that is there twice the last one counts.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let flag = |name: &str, path: &Path| {
            let mut word = OsString::from(name);
            word.push(path);
            word
        };
        // A second bundle among the flags is refused, so that this is the one.
        let mut words = vec!["exec".into(), self.bundle.into(), OUTPUT.into()];
        let workspace = flag("--workspace=", self.workspace);
        words.push(workspace.clone());
        words.extend(self.flags.iter().cloned());
        if !self.inputs_files.is_empty() {
            words.push(workspace);
        }
        for (key, name) in &self.inputs_files {
            words.push(format!("--in={key}={name}").into());
        }
        if let Some(inputs) = &self.inputs {
            words.push(flag("--inputs=@", inputs));
        }
        words.push(flag("--events=", &self.events));
        words.push(flag("--json=", &self.report));
        words.push(flag("--out-dir=", &self.outputs));
        words.push("--".into());
        words.extend(self.arguments.iter().map(OsString::from));
        words
    }
}
