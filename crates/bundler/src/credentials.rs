//! Detection of credential files by `policies/credential-files.yaml`.

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::ignored::Patterns;
use spec::credential_files::{self, Lines, SEARCHED_BYTES};
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

/// The rules of the list.
#[derive(Debug)]
pub struct CredentialRules(Vec<CompiledRule>);

#[derive(Debug)]
struct CompiledRule {
    id: String,
    patterns: Patterns,
    lines: Option<Lines>,
}

impl CredentialRules {
    /// Compiles the built-in list.
    ///
    /// # Errors
    /// [`BundleError::CredentialList`]; a test compiles it.
    pub fn new() -> Result<Self, BundleError> {
        let rules = credential_files::rules().map_err(BundleError::CredentialList)?;
        let permit = ParsePermit::for_trusted_text();
        let rules = rules.into_iter().map(|rule| {
            let patterns = Patterns::parse(&permit, &rule.paths.join("\n"));
            let patterns = patterns.map_err(|(_, reason)| {
                BundleError::CredentialList(format!("{}: {reason}", rule.id))
            })?;
            Ok(CompiledRule {
                id: rule.id,
                patterns,
                lines: rule.lines,
            })
        });
        rules.collect::<Result<_, BundleError>>().map(Self)
    }

    /// Returns the id of the first rule that matches the entry at `path`.
    ///
    /// # Errors
    /// A file whose lines decide cannot be read.
    pub fn find_rule(
        &self,
        files: &DirectoryFiles,
        path: &RelPath,
        is_directory: bool,
    ) -> Result<Option<&str>, BundleError> {
        let mut start = None;
        for rule in &self.0 {
            if rule.patterns.ignores(path.as_bytes(), is_directory) != Some(true) {
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
                None => start.insert(
                    files
                        .read_start(path, SEARCHED_BYTES as u64)
                        .map_err(|error| BundleError::unreadable(path, error))?,
                ),
            };
            if lines.are_in(start) {
                return Ok(Some(&rule.id));
            }
        }
        Ok(None)
    }
}
