//! Detection of credential files by `policies/credential-files.yaml`.

use crate::error::SourceProblem;
use crate::files::WorkspaceFiles;
use crate::ignored::{Patterns, start_of};
use spec::credential_files::{self, LOOKED_AT_BYTES, Lines};
use spec::path::RelPath;

pub(crate) struct CredentialRules(Vec<CompiledRule>);

struct CompiledRule {
    id: String,
    patterns: Patterns,
    lines: Option<Lines>,
}

impl CredentialRules {
    pub(crate) fn new() -> Result<Self, String> {
        let rules = credential_files::rules()?.into_iter().map(|rule| {
            let patterns = Patterns::parse(&rule.paths.join("\n"))
                .map_err(|(_, reason)| format!("{}: {reason}", rule.id))?;
            Ok(CompiledRule {
                id: rule.id,
                patterns,
                lines: rule.lines,
            })
        });
        rules.collect::<Result<_, String>>().map(Self)
    }

    pub(crate) fn find(
        &self,
        files: &dyn WorkspaceFiles,
        path: &RelPath,
        is_directory: bool,
    ) -> Result<Option<&str>, SourceProblem> {
        let mut start = None;
        for rule in &self.0 {
            if rule.patterns.say(path.as_bytes(), is_directory) != Some(true) {
                continue;
            }
            let Some(lines) = &rule.lines else {
                return Ok(Some(&rule.id));
            };
            if is_directory {
                continue;
            }
            let start = match &start {
                Some(start) => start,
                None => start.insert(start_of(files, path, LOOKED_AT_BYTES as u64)?),
            };
            if lines.are_in(start) {
                return Ok(Some(&rule.id));
            }
        }
        Ok(None)
    }
}
