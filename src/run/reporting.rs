//! Builds the report: phases, usage, exit, streams.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use crate::plan::grants::Origin;
use crate::run::dry_run::view::ViewOfRun;
use crate::run::error::{BODY_NOT_STARTED, RunError};
use crate::run::events::EventStream;
use crate::run::image::SelectedImage;
use crate::run::image::root::MountedImage;
use crate::run::launching::secret_values::Revealed;
use crate::run::outputs::{BodyOutput, OutputDocument, document, file_warnings};
use crate::run::phases::Phases;
use crate::run::planning::limits::EffectiveLimits;
use crate::run::planning::programs::invisible_arguments::ARGUMENT_NOT_VISIBLE;
use crate::run::planning::programs::line_ends::{NOT_FOUND, StartedProgram};
use crate::run::planning::resolved::ResolvedRun;
use crate::run::recorder::{Recorder, now};
use crate::run::sources::MaterializedSources;
use crate::run::supervision::{
    DenialsReport, Supervised, Watched, limit_warnings, network_report, refused_calls,
    signal_denials, usage_report,
};
use crate::run::unpacking::Bundle;
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use sandbox::supervise::judge::{Facts, Reason, judge};
use sandbox::supervise::watch::Observed;
use secrets::mask::Masks;
use spec::egress_report::EgressReport;
use spec::events::{EVENTS_VERSION, EventKind, Phase};
use spec::history::RecordedOutput;
use spec::image_report::RootKind;
use spec::limits::Limit;
use spec::observation::Observation;
use spec::outcome::Outcome;
use spec::path::{escape, escape_path};
use spec::report::{
    BundleView, Denial, Exit, Plan, Report, StagedReport, StreamReport, SyncedReport, WarningReport,
};
use spec::syscall_policy::SyscallPolicyName;
use spec::ulid::ulid;
use spec::utc::text_since_1970;

/// The result of a stage, and its warnings even if it failed.
#[derive(Debug)]
pub(super) struct WithWarnings<T> {
    pub(super) warnings: Vec<WarningReport>,
    pub(super) result: Result<T, RunError>,
}

impl<T> WithWarnings<T> {
    pub(super) fn ok(value: T, warnings: Vec<WarningReport>) -> Self {
        Self {
            warnings,
            result: Ok(value),
        }
    }
}

/// Collects what the stages return. Only `exec` and `dry_run` write to it.
#[derive(Debug)]
pub(super) struct ReportBuilder {
    report: Report,
    phases: Phases,
    started: Option<StartedProgram>,
}

impl ReportBuilder {
    pub(super) fn new(report: Report, events: EventStream) -> Self {
        Self {
            phases: Phases::new(report.run_id.clone(), events),
            report,
            started: None,
        }
    }

    /// Ends the current phase and begins `phase`.
    pub(super) fn begin_phase(&mut self, phase: Phase) {
        self.phases.begin(phase);
    }

    pub(super) fn emit_started(&self) {
        if self.phases.has_events() {
            self.phases.emit(EventKind::Started {
                events_version: EVENTS_VERSION,
                runner_version: self.report.runner_version,
                pid: std::process::id(),
            });
        }
    }

    pub(super) fn has_events(&self) -> bool {
        self.phases.has_events()
    }

    pub(super) fn syscall_policy(&self) -> SyscallPolicyName {
        self.report.plan.syscall_policy.unwrap_or_default()
    }

    /// Emits the denials, masked as the report will be.
    pub(super) fn emit_denials(&self, masks: &Masks) {
        self.phases.emit_denials(&self.report.denials, masks);
    }

    /// Emits denials that are new for the running body, masked as the report will be.
    pub(super) fn emit_first_denials(&self, denials: &[Denial], masks: &Masks) {
        self.phases.emit_first_denials(denials, masks);
    }

    /// Emits the results of the declared files and records them, masked as the report will be. A result that
    /// must be recorded but is not fails the run.
    pub(super) fn publish_outputs(&mut self, masks: &Masks, recorder: Option<&Recorder>) {
        if self.report.outputs.is_empty() {
            return;
        }
        let mut masked = Report::new(self.report.run_id.clone(), self.report.outcome);
        masked.outputs.clone_from(&self.report.outputs);
        masks.mask_report(&mut masked);
        self.phases.emit_outputs(&masked.outputs);
        let recorded = recorder.map_or(Ok(None), |recorder| {
            recorder.synced(&masked.run_id, &masked.outputs)
        });
        match recorded {
            Ok(warning) => self.warn(warning),
            Err(error) => {
                // Not refused: the body ran.
                self.report.outcome = Outcome::Failed;
                self.report.error = Some(error.report());
            }
        }
    }

    /// Adds the outcome of the stages and masks secret values.
    pub(super) fn finish(self, result: Result<(), RunError>, masks: RefCell<Masks>) -> Report {
        let mut report = self.report;
        report.timings = self.phases.finish();
        match result {
            Ok(()) => (),
            Err(RunError::Cancelled { signal }) => {
                report.outcome = Outcome::Cancelled;
                report.cancelled_by = Some(signal);
            }
            // The same outcome as after the start of the body, and not an error.
            Err(error @ RunError::TimedOut { .. }) => {
                report.outcome = Outcome::TimedOut;
                let message = error.to_string();
                let warning = WarningReport::new(BODY_NOT_STARTED, message);
                report.warnings.push(warning);
            }
            Err(error) => {
                if let RunError::Preparation(problem) = &error {
                    report.plan.preparation.extend(problem.row().cloned());
                }
                report.outcome = error.outcome();
                report.error = Some(error.report());
            }
        }
        // Comes last, so that all text of the report is masked.
        masks.into_inner().mask_report(&mut report);
        report
    }

    /// Returns the parts that the report and the plan share.
    pub(super) fn into_plan(self) -> (Plan, Vec<WarningReport>) {
        (self.report.plan, self.report.warnings)
    }

    pub(super) fn run_id(&self) -> &str {
        &self.report.run_id
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.report.outcome
    }

    /// Whether the body exited with 0 and no output has failed so far.
    pub(super) fn has_succeeded(&self) -> bool {
        let exit = self.report.exit.and_then(|exit| exit.code);
        self.report.outcome == Outcome::Exited && exit == Some(0)
    }

    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = WarningReport>) {
        self.report.warnings.extend(warnings);
    }

    /// Adds the warnings of a stage to the report and returns its value.
    pub(super) fn take_result<T>(&mut self, part: WithWarnings<T>) -> Result<T, RunError> {
        self.warn(part.warnings);
        part.result
    }

    pub(super) fn record_cgroup_backend(&mut self, name: &str) {
        name.clone_into(&mut self.report.plan.cgroup_backend);
    }

    pub(super) fn record_bundle(&mut self, bundle: &Bundle) {
        self.report.bundle = Some(bundle.report());
        self.warn(bundle.unpacked.warnings.iter().cloned());
    }

    pub(super) fn record_bundle_view(&mut self, view: BundleView) {
        if let Some(bundle) = &mut self.report.bundle {
            bundle.cache.view = view;
        }
    }

    pub(super) fn record_resolved(&mut self, resolved: &ResolvedRun) {
        self.started.clone_from(&resolved.started);
        let report = &mut self.report;
        report.warnings.extend(resolved.warnings.iter().cloned());
        if let Some(bundle) = &mut report.bundle {
            let manifest = &resolved.manifest;
            let name = manifest.token_id();
            bundle.name = name.map(|name| escape(name.as_bytes()));
            let version = manifest.version.as_deref();
            bundle.version = version.map(|version| escape(version.as_bytes()));
            if resolved.origin == Origin::Bundle {
                bundle.sources.clone_from(&manifest.commits);
            }
        }
        report.plan.run_form = resolved.form;
        report.plan.syscall_policy = Some(resolved.syscalls);
        report.plan.argv = escape_all(&resolved.argv);
        report.plan.bound_programs.clone_from(&resolved.bound);
        report.plan.runner.clone_from(&resolved.runner);
        report.plan.preparation.clone_from(&resolved.packages.rows);
        report.plan.image = resolved.image.as_ref().map(SelectedImage::report);
        let allowed = resolved.egress.allowed.iter();
        report.egress.allowed = allowed.map(ToString::to_string).collect();
    }

    pub(super) fn record_limits(&mut self, effective: &EffectiveLimits) {
        self.report
            .plan
            .limits
            .clone_from(&effective.limits.reports);
        self.report
            .plan
            .enforcement
            .clone_from(&effective.enforcement);
        self.warn(effective.warnings.iter().cloned());
    }

    pub(super) fn record_sources(&mut self, materialized: &mut MaterializedSources) {
        self.report.workspace_sources.append(&mut materialized.rows);
    }

    pub(super) fn record_image(&mut self, mounted: &MountedImage) {
        if !mounted.root.writable {
            self.record_read_only_root();
        }
        self.warn(mounted.not_writable.clone());
    }

    pub(super) fn record_read_only_root(&mut self) {
        if let Some(image) = &mut self.report.plan.image {
            image.root = RootKind::ReadOnly;
        }
    }

    pub(super) fn record_view(&mut self, view: Option<&ViewOfRun>) {
        self.report.view = view.map(|view| view.rows.clone());
    }

    pub(super) fn record_inputs(&mut self, inputs: Vec<StagedReport>) {
        self.report.inputs = inputs;
    }

    pub(super) fn record_secrets(&mut self, revealed: Revealed) {
        self.report.secrets.extend(revealed.secrets);
        self.warn(revealed.warnings);
    }

    /// Records what is known when the body has ended: streams, network, usage, exit, outcome.
    /// Returns the output document if the body wrote it to standard output.
    pub(super) fn record_end(
        &mut self,
        watched: Watched,
        files: DenialsReport,
        resources: &Resources,
        supervised: &Supervised,
        launched: &Launched,
    ) -> Option<Vec<u8>> {
        let report = &mut self.report;
        report.recorded_output = watched.recorded.map(|output| RecordedOutput {
            run_id: report.run_id.clone(),
            ..output
        });
        report.commands = watched.commands;
        report.samples = watched.samples;
        report.stdout = watched.stdout;
        report.stderr = watched.stderr;
        if let Some(network) = watched.network {
            let allowed = std::mem::take(&mut report.egress.allowed);
            report.egress = EgressReport {
                allowed,
                ..network.egress
            };
            report.denials.extend(network.denials);
            let failures = network.failures.iter();
            let warnings =
                failures.map(|failure| WarningReport::new("network_failed", failure.to_string()));
            report.warnings.extend(warnings);
        }
        let policy = report.plan.syscall_policy.unwrap_or_default();
        let calls = refused_calls::report(launched, policy);
        report.denials.extend(calls.denials);
        report.denials.extend(files.denials);
        let signals = signal_denials::report(&launched.refused_calls, supervised);
        report.denials.extend(signals.denials);
        report.observation = Observation {
            network: network_report::observation(&report.egress),
            syscalls: calls.observation,
            files: files.observation,
            signals: signals.observation,
            ..Observation::default()
        };
        self.record_exit(&watched.observed, resources, supervised, launched);
        watched.document
    }

    /// What the output document is read from.
    pub(super) fn body_output<'run>(&'run self, document: Option<&'run [u8]>) -> BodyOutput<'run> {
        BodyOutput {
            stdout: &self.report.stdout,
            stderr: &self.report.stderr,
            document,
            succeeded: self.has_succeeded(),
        }
    }

    /// Records the output document. Its error becomes the outcome of a body that succeeded.
    pub(super) fn record_output(&mut self, document: OutputDocument) {
        self.report.output = document.value;
        match document.result {
            Ok(()) => (),
            Err(error) if self.has_succeeded() => self.fail(&error),
            Err(error) => {
                let message = error.report().message;
                self.warn([WarningReport::new("output_unreadable", message)]);
            }
        }
    }

    /// Records the declared files. Errors of required ones become the outcome of a body that
    /// succeeded.
    pub(super) fn record_outputs(&mut self, outputs: Vec<SyncedReport>, required: &[String]) {
        let succeeded = self.has_succeeded();
        self.warn(file_warnings(&outputs, required, succeeded));
        let checked = document::check_files(required, &outputs);
        self.report.outputs = outputs;
        if succeeded && let Err(error) = checked {
            self.fail(&error);
        }
    }

    pub(super) fn record_kept_directory(&mut self, directory: &Path) {
        self.report.kept = Some(escape_path(directory));
    }

    /// Records how the body ended: usage, exit, outcome.
    fn record_exit(
        &mut self,
        observed: &Observed,
        resources: &Resources,
        supervised: &Supervised,
        launched: &Launched,
    ) {
        let report = &mut self.report;
        let counted = supervised
            .counted
            .unwrap_or_else(|| resources.group.count());
        let limits = &supervised.limits;
        let space = rustix::fs::fstatvfs(&launched.space).ok();
        let filled_bytes = supervised.filled_bytes;
        report.usage = usage_report::usage(observed, &counted, filled_bytes, space.as_ref());
        let full = space.and_then(|space| limit_warnings::of_disk(&space, &report.plan.limits));
        report.warnings.extend(full);
        let (denial, observation) = usage_report::refused_forks(&counted, &report.plan.limits);
        report.denials.extend(denial);
        report.observation.resources = observation;
        report.exit = observed.raw_status.map(Exit::of_wait_status);
        report.steps = launched.steps();
        for problem in &observed.problems {
            report
                .warnings
                .push(WarningReport::new("supervision_problem", problem.clone()));
        }
        let cpu_used_ms =
            report.usage.user_time_ms.unwrap_or(0) + report.usage.system_time_ms.unwrap_or(0);
        let cpu_time_reached = limits
            .time(Limit::CpuTime)
            .is_some_and(|limit| limit.as_millis() <= u128::from(cpu_used_ms));
        report.outcome = judge(Facts {
            raw_status: observed.raw_status,
            reason: observed.reason,
            oom_kills: report.usage.oom_kills.unwrap_or(0),
            cpu_time_reached,
        });
        if report.exit.is_some_and(|exit| exit.code == Some(NOT_FOUND)) {
            let started = self.started.as_ref();
            report
                .warnings
                .extend(started.and_then(StartedProgram::warning));
        }
        if report.exit.is_some_and(|exit| exit.code == Some(0)) {
            // The argument was no file name, or the command does not need the file.
            report
                .warnings
                .retain(|warning| warning.code != ARGUMENT_NOT_VISIBLE);
        }
        match observed.reason {
            Some(Reason::Cancelled(signal)) => report.cancelled_by = Some(signal),
            Some(Reason::IdleTime) => report.warnings.push(WarningReport::new(
                "sandbox_idle",
                "the sandbox ended because no command ran for its --idle-timeout".to_owned(),
            )),
            _ => (),
        }
        let of_memory = limit_warnings::of_memory(report, &counted, limits);
        report.warnings.extend(of_memory);
        if observed.unkillable {
            report.outcome = Outcome::Failed;
            report.error = Some(RunError::Unkillable.report());
        } else if report.outcome == Outcome::Failed {
            let how = describe_init_end(observed.init_status);
            report.error = Some(RunError::InitDied { how }.report());
        }
    }

    fn fail(&mut self, error: &RunError) {
        self.report.outcome = error.outcome();
        self.report.error = Some(error.report());
    }
}

/// Escapes arguments for the report.
#[must_use]
pub(super) fn escape_all(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| escape(word)).collect()
}

fn describe_init_end(raw_status: Option<i32>) -> String {
    let Some(raw_status) = raw_status else {
        return "its wait status is not known".to_owned();
    };
    match Exit::of_wait_status(raw_status) {
        Exit {
            signal: Some(signal),
            ..
        } => format!("signal {signal}"),
        Exit { code, .. } => format!("exit code {}", code.unwrap_or(0)),
    }
}

/// The complete captured output if it is text; a truncated part could be misread.
#[must_use]
pub(super) fn complete_text(stream: &StreamReport) -> Option<&[u8]> {
    stream
        .text()
        .filter(|_| stream.dropped_bytes == 0)
        .map(str::as_bytes)
}

/// Time and id of a new run.
pub(super) struct RunStart {
    since_1970: Duration,
    run_id: String,
}

impl RunStart {
    /// `random` makes the id unique.
    pub(super) fn now(random: [u8; 10]) -> Self {
        let since_1970 = now();
        Self {
            since_1970,
            run_id: ulid(unix_ms(since_1970), random),
        }
    }

    pub(super) fn unix_s(&self) -> i64 {
        i64::try_from(self.since_1970.as_secs()).unwrap_or_default()
    }

    pub(super) fn report(&self) -> Report {
        let mut report = Report::new(self.run_id.clone(), Outcome::Refused);
        report.started_at = text_since_1970(self.since_1970);
        report
    }
}

fn unix_ms(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_decoded_as_in_wait_2() {
        assert_eq!(
            (Exit::of_wait_status(0).code, Exit::of_wait_status(0).signal),
            (Some(0), None)
        );
        assert_eq!(Exit::of_wait_status(137 << 8).code, Some(137));
        let core = Exit::of_wait_status(11 | 0x80);
        assert_eq!(
            (core.code, core.signal, core.core_dump),
            (None, Some(11), true)
        );
    }
}
