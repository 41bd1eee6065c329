//! What a run was granted, for the audit trail in the history.

use crate::run::Run;
use crate::run::dry_run::decided_by::Rows;
use crate::run::error::RunError;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::recorder::Recorder;
use secrets::mask::Masks;
use spec::history::{Granted, SecretDecision};
use spec::path::escape_path;
use spec::plan_report::{PlannedEntry, PlannedPath};
use spec::report::{StagedReport, WarningReport};
use spec::request::ViewEntry;
use sys::allocator::keep_from_children;

impl Run<'_> {
    /// Records what was decided about secrets. Returns why it cannot be recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(in crate::run) fn record_secrets(
        &self,
        decisions: &[SecretDecision],
        run_id: &str,
    ) -> Result<Option<WarningReport>, RunError> {
        self.recorder()
            .map_or(Ok(None), |recorder| recorder.secrets(run_id, decisions))
    }

    /// Records what the run is granted besides secrets. Returns why it cannot be recorded. `masks` are the
    /// secrets that may be in a path.
    ///
    /// # Errors
    /// It must be recorded.
    pub(in crate::run) fn record_grants(
        &self,
        resolved: &ResolvedRun,
        masks: &Masks,
        run_id: &str,
    ) -> Result<Option<WarningReport>, RunError> {
        match self.recorder().filter(|recorder| recorder.is_wanted()) {
            Some(recorder) => {
                // Masking copies the values of secrets.
                let granted = keep_from_children(|| self.granted(resolved, masks));
                recorder.grants(run_id, &granted)
            }
            None => Ok(None),
        }
    }

    /// Records the files that were staged. Returns why they cannot be recorded.
    ///
    /// # Errors
    /// They must be recorded.
    pub(in crate::run) fn record_staged(
        &self,
        staged: &[StagedReport],
        run_id: &str,
    ) -> Result<Option<WarningReport>, RunError> {
        self.recorder()
            .map_or(Ok(None), |recorder| recorder.staged(run_id, staged))
    }

    /// Writes what is not recorded yet. Returns why it cannot be recorded.
    ///
    /// # Errors
    /// It must be recorded.
    pub(in crate::run) fn write_pending_records(&self) -> Result<Option<WarningReport>, RunError> {
        self.recorder().map_or(Ok(None), Recorder::write_pending)
    }

    fn granted(&self, resolved: &ResolvedRun, masks: &Masks) -> Granted {
        let rows = Rows::of_origin(self.request, self.policy, resolved.origin);
        let masked = |mut text: String| {
            masks.mask_text(&mut text);
            text
        };
        let path = |entry: &ViewEntry| match entry {
            ViewEntry::Bind {
                source,
                target,
                writable,
            } => Some(PlannedPath {
                path: masked(escape_path(target)),
                what: PlannedEntry::Host,
                from: Some(masked(escape_path(source))),
                writable: *writable,
                size_bytes: None,
                decided_by: rows.entry_decided_by(entry, resolved),
            }),
            ViewEntry::Tmpfs { .. } => None,
        };
        Granted {
            paths: resolved.view.iter().filter_map(path).collect(),
            hosts: rows.egress(resolved),
            variables: rows.passed_variables(resolved),
        }
    }
}
