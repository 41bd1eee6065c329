//! Warnings about a snapshot.

use crate::gather::Gathered;
use crate::left_out::{LeftOut, join_first};
use crate::source::git::GitFacts;
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use spec::units::count;

const LARGE_BYTES: u64 = 10 << 20;
const NAMES_MAX: usize = 20;

/// Causes of warnings.
pub(super) struct Facts<'call> {
    pub(super) distrust: Option<&'call str>,
    pub(super) git: Option<&'call GitFacts>,
    pub(super) untracked: &'call [&'call RelPath],
    pub(super) submodules_included: bool,
    pub(super) left_out: &'call LeftOut,
}

impl Facts<'_> {
    pub(super) fn warnings(&self, gathered: &Gathered) -> Vec<WarningReport> {
        let mut warnings = gathered.warnings.clone();
        let mut warn = |code: &str, message: String| {
            warnings.push(WarningReport::new(code, message));
        };
        if let Some(distrust) = self.distrust {
            warn(
                "source_not_believed",
                format!("{distrust}: the directory is built without an origin"),
            );
        }
        if self.left_out.count > 0 {
            warn(
                "source_left_out",
                format!(
                    "{} cannot be in a snapshot, left out: {}",
                    count(self.left_out.count, "entry"),
                    self.left_out.describe(NAMES_MAX)
                ),
            );
        }
        let large: Vec<String> = gathered
            .overlay
            .files()
            .filter(|(_, bytes)| *bytes > LARGE_BYTES)
            .map(|(path, bytes)| format!("`{path}` ({} MiB)", bytes >> 20))
            .collect();
        if !large.is_empty() {
            let text = format!("the snapshot has files above 10 MiB: {}", list(&large));
            warn("source_large_file", text);
        }
        if let Some(facts) = self.git {
            self.warn_of_git(facts, gathered, &mut warn);
        }
        warnings
    }

    fn warn_of_git(
        &self,
        facts: &GitFacts,
        gathered: &Gathered,
        warn: &mut dyn FnMut(&str, String),
    ) {
        if !facts.changed.is_empty() {
            let names: Vec<String> = facts
                .changed
                .iter()
                .map(|name| format!("`{}`", escape(name)))
                .collect();
            warn(
                "source_dirty",
                format!("files differ from the commit: {}", list(&names)),
            );
        }
        if !self.untracked.is_empty() {
            let names: Vec<String> = self
                .untracked
                .iter()
                .map(|path| format!("`{path}`"))
                .collect();
            warn(
                "source_untracked",
                format!(
                    "untracked files are in the snapshot (.staxignore can exclude them): {}",
                    list(&names)
                ),
            );
        }
        let empty = facts.submodules.keys().filter(|submodule| {
            let above = [submodule.as_bytes(), b"/"].concat();
            !gathered
                .overlay
                .files()
                .any(|(path, _)| path.as_bytes().starts_with(&above))
        });
        let empty: Vec<String> = empty.map(|path| format!("`{path}`")).collect();
        if self.submodules_included && !empty.is_empty() {
            let text = format!("submodules without files: {}", list(&empty));
            warn("source_submodule_empty", text);
        }
    }
}

fn list(names: &[String]) -> String {
    join_first(names.iter().cloned(), NAMES_MAX)
}
