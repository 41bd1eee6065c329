//! `runner plan`: a run that stops before anything is created.
//!
//! It has the stages of [`crate::run::execute`], in the same order and with the same functions. A run
//! ends with the first refusal, a plan collects all. A plan creates nothing on the host (no record,
//! cgroup, uid, mount or file) and executes no program. The document contains no value of a variable
//! or a secret.

mod decided_by;
mod facts;
mod granted;
mod manifest_alone;
mod network;
mod unchecked;
pub(in crate::run) mod view;
pub(in crate::run) mod why;

use std::path::Path;

use rustix::io::Errno;

use crate::plan::grants::Ungranted;
use crate::plan::limits::Limits;
use crate::run::contract::{self, IoContract};
use crate::run::dry_run::decided_by::Rows;
use crate::run::dry_run::facts::HostFacts;
use crate::run::dry_run::why::Planned;
use crate::run::error::RunError;
use crate::run::events::EventStream;
use crate::run::host::resources;
use crate::run::image::finding::Access;
use crate::run::inputs::file_roots::FileRoots;
use crate::run::inputs::loaded_manifest::LoadedManifest;
use crate::run::inputs::{Inputs, open_inputs};
use crate::run::interruptible::WaitLimit;
use crate::run::launching::launch_plan;
use crate::run::launching::predicted_view::{PredictedView, Program};
use crate::run::launching::secret_values::RequestedSecrets;
use crate::run::launching::start_failure::{self, Attempt};
use crate::run::planning::programs::line_ends::StartedProgram;
use crate::run::planning::resolved::{self, ResolvedRun};
use crate::run::planning::{limits, store_overlap};
use crate::run::recorder::now;
use crate::run::refusals::Refusals;
use crate::run::reporting::ReportBuilder;
use crate::run::sources;
use crate::run::supervision::published_ports;
use crate::run::unpacking::bundle_files::{BundleFiles, SurveyedBundle};
use crate::run::unpacking::unpack_limits;
use crate::staging::{self, FileLimits};
use archive::Tree;
use sandbox::error::SandboxError;
use sandbox::mounts;
use sandbox::records::RunRecords;
use sandbox::steps::ChildStep;
use sandbox::view::{self as view_plan, ViewStep};
use secrets::ExpectedSecret;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::plan_report::{MissingGrant, PlanReport, PlanVerdict, PlannedBundle, RUN_ID};
use spec::report::Report;
use spec::request::{BundleArgument, Request, Subject};
use spec::tokens::TokenValues;
use spec::units::count;
use spec::why_report::{Answer, Question};

/// Extensions of a BUNDLE that is a manifest without a bundle.
const MANIFEST_EXTENSIONS: [&str; 4] = ["md", "json", "yaml", "yml"];

/// Plans `request`: what a run would do, who decided it, and whether the body would be started.
#[must_use]
pub fn plan(request: &Request, policy: &HostPolicy) -> PlanReport {
    dry_run(request, policy, None).0
}

/// Plans `request`, and says which rule of it decides about `question`. The answer is `None` if the
/// plan ends before it has a view.
#[must_use]
pub(crate) fn why(
    request: &Request,
    policy: &HostPolicy,
    question: &Question,
) -> (PlanReport, Option<Answer>) {
    dry_run(request, policy, Some(question))
}

fn dry_run(
    request: &Request,
    policy: &HostPolicy,
    question: Option<&Question>,
) -> (PlanReport, Option<Answer>) {
    let mut dry_run = DryRun {
        request,
        policy,
        start_unix_s: i64::try_from(now().as_secs()).unwrap_or_default(),
        refusals: Refusals::collecting(),
        report: ReportBuilder::new(
            Report::new(RUN_ID.to_owned(), Outcome::Refused),
            EventStream::default(),
        ),
        document: PlanReport::new(),
        question,
        answer: None,
    };
    let inputs = dry_run.open_inputs();
    dry_run.finish(inputs, HostFacts::inspect(request))
}

/// A plan with the state that all stages share.
struct DryRun<'plan> {
    request: &'plan Request,
    policy: &'plan HostPolicy,
    start_unix_s: i64,
    refusals: Refusals,
    report: ReportBuilder,
    document: PlanReport,
    question: Option<&'plan Question>,
    answer: Option<Answer>,
}

struct ReadInputs {
    manifest: Option<LoadedManifest>,
    files: Files,
    file_roots: FileRoots,
}

enum Files {
    /// A command has no bundle.
    Command,
    Surveyed(Box<SurveyedBundle>),
    /// A manifest without a bundle. Its program is assumed to exist.
    ManifestAlone {
        tree: Tree,
        /// Number of sources that `runner bundle` would read.
        sources: usize,
    },
}

impl Files {
    fn as_bundle(&self) -> Option<&dyn BundleFiles> {
        match self {
            Self::Command => None,
            Self::Surveyed(bundle) => Some(&**bundle),
            Self::ManifestAlone { tree, .. } => Some(tree),
        }
    }
}

struct Decided {
    resolved: ResolvedRun,
    limits: Option<Limits>,
    contract: Option<IoContract>,
    input_bytes: Vec<u64>,
    secrets: Vec<ExpectedSecret>,
    steps: Vec<ViewStep>,
    program: Option<Program>,
}

impl DryRun<'_> {
    fn finish(
        mut self,
        inputs: Result<ReadInputs, RunError>,
        facts: Result<HostFacts, RunError>,
    ) -> (PlanReport, Option<Answer>) {
        let result = inputs.and_then(|inputs| self.stages(inputs, &facts?));
        let mut refused = self.refusals.into_vec();
        refused.extend(result.err());
        let (plan, warnings) = self.report.into_plan();
        let document = PlanReport {
            plan,
            warnings,
            verdict: match refused.first().map(RunError::outcome) {
                None => PlanVerdict::WouldStart,
                Some(Outcome::Refused) => PlanVerdict::WouldBeRefused,
                Some(_) => PlanVerdict::WouldFail,
            },
            error: refused.first().map(RunError::report),
            further_errors: refused.iter().skip(1).map(RunError::report).collect(),
            missing_grants: refused.iter().flat_map(missing_grants).collect(),
            ..self.document
        };
        (document, self.answer)
    }

    fn stages(&mut self, inputs: ReadInputs, facts: &HostFacts) -> Result<(), RunError> {
        let ReadInputs {
            manifest,
            files,
            file_roots,
        } = inputs;
        self.report.record_cgroup_backend(facts.backend);
        let directory = resources::runtime_directory(&self.request.caller);
        let records = RunRecords::check(&directory).map_err(RunError::from);
        self.refusals.check(records)?;
        self.describe_files(&files);
        let manifest = match files.as_bundle() {
            Some(bundle) => Some(resolved::load_manifest(
                self.request,
                self.policy,
                manifest,
                bundle,
            )?),
            None => manifest,
        };
        let rows = Rows::new(self.request, self.policy, manifest.as_ref());
        self.document.manifest = manifest.as_ref().map(decided_by::describe_manifest);
        let mut resolved = self.resolve(manifest, &files)?;
        let limits = self.decide_limits(&resolved, facts, &rows)?;
        let (contract, input_bytes) = self.check_files(&resolved, &file_roots)?;
        let secrets = self.check_secrets(&resolved)?;
        // A run asks the providers for the values here; a plan uses the names only.
        resolved.add_secret_names(self.request);
        let steps = self.plan_view(&resolved, facts)?;
        let program = self.find_program(&resolved, limits.as_ref(), &files, &steps, facts)?;
        let file = published_ports::check_file(&self.request.network);
        self.refusals.check(file)?;
        let decided = Decided {
            resolved,
            limits,
            contract,
            input_bytes,
            secrets,
            steps,
            program,
        };
        rows.write(&mut self.document, &decided, &file_roots);
        unchecked::note(&mut self.document, self.request, &decided, facts);
        self.answer = self
            .question
            .map(|question| {
                let planned = Planned {
                    request: self.request,
                    policy: self.policy,
                    resolved: &decided.resolved,
                    facts,
                    inside: &inside(&decided.resolved, &files, &decided.steps, facts),
                    document: &self.document,
                };
                planned.answer(question)
            })
            .transpose()?;
        Ok(())
    }

    /// Opens and reads the caller's inputs; writes no file.
    fn open_inputs(&mut self) -> Result<ReadInputs, RunError> {
        let (request, policy) = (self.request, self.policy);
        if let Some(path) = manifest_alone(request) {
            return manifest_alone::open(path, request, policy, &mut self.refusals);
        }
        let Inputs {
            manifest,
            archive,
            file_roots,
            ..
        } = open_inputs(request, policy, &mut self.refusals)?;
        let files = match archive {
            None => Files::Command,
            Some(source) => {
                let bundle =
                    SurveyedBundle::read(source, unpack_limits(policy), manifest.is_some())?;
                Files::Surveyed(Box::new(bundle))
            }
        };
        Ok(ReadInputs {
            manifest,
            files,
            file_roots,
        })
    }

    fn describe_files(&mut self, files: &Files) {
        match files {
            Files::Command => (),
            Files::ManifestAlone { sources, .. } => {
                let unchecked = &mut self.document.unchecked;
                unchecked.push(
                    "the files: this is a manifest without a bundle, so its `run` is not checked \
                     against files"
                        .to_owned(),
                );
                if *sources > 0 {
                    unchecked.push(format!(
                        "{} of `code`: `runner bundle` gathers the files",
                        count(*sources, "source")
                    ));
                }
            }
            Files::Surveyed(bundle) => {
                let surveyed = &bundle.surveyed;
                self.report.warn(surveyed.warnings.iter().cloned());
                self.document.bundle = Some(PlannedBundle {
                    content_digest: surveyed.content_digest,
                    archive_digest: surveyed.archive_digest,
                    bytes: surveyed.bytes,
                    entries: surveyed.entries,
                });
            }
        }
    }

    fn resolve(
        &mut self,
        manifest: Option<LoadedManifest>,
        files: &Files,
    ) -> Result<ResolvedRun, RunError> {
        let (request, policy, bundle) = (self.request, self.policy, files.as_bundle());
        let refusals = &mut self.refusals;
        let resolved = resolved::resolve(
            request,
            policy,
            bundle,
            manifest,
            Access::StoreOnly,
            refusals,
        )?;
        self.report.record_resolved(&resolved);
        let started = resolved.started.as_ref();
        self.report.warn(started.and_then(StartedProgram::warning));
        if policy.oci.root_read_only {
            self.report.record_read_only_root();
        }
        Ok(resolved)
    }

    fn check_secrets(&mut self, resolved: &ResolvedRun) -> Result<Vec<ExpectedSecret>, RunError> {
        let requested = RequestedSecrets::collect(self.request, self.policy, resolved);
        let Some(requested) = self.refusals.check(requested)? else {
            return Ok(Vec::new());
        };
        self.report.warn(requested.warnings());
        let secrets = requested.check(self.policy);
        Ok(self.refusals.check(secrets)?.unwrap_or_default())
    }

    fn decide_limits(
        &mut self,
        resolved: &ResolvedRun,
        facts: &HostFacts,
        rows: &Rows<'_>,
    ) -> Result<Option<Limits>, RunError> {
        let (host, coverage) = (&facts.host, &facts.coverage);
        let effective = limits::resolve_limits(self.request, self.policy, host, coverage, resolved);
        let Some(mut effective) = self.refusals.check(effective)? else {
            return Ok(None);
        };
        rows.name_files(&mut effective.limits.reports);
        self.report.record_limits(&effective);
        for error in effective.refusals {
            self.refusals.refuse(error)?;
        }
        Ok(Some(effective.limits))
    }

    fn check_files(
        &mut self,
        resolved: &ResolvedRun,
        file_roots: &FileRoots,
    ) -> Result<(Option<IoContract>, Vec<u64>), RunError> {
        let tokens = TokenValues {
            run_id: RUN_ID,
            manifest_id: resolved.manifest.token_id().unwrap_or("tool"),
            start_unix_s: self.start_unix_s,
        };
        let granted = resolved.grants.outputs;
        let (io, time) = (&resolved.manifest.io, self.request.limits.wall_time());
        // No handler is installed: a signal ends a plan.
        let wait_limit = WaitLimit {
            time,
            signals: None,
        };
        let contract = contract::resolve(io, &self.request.bundle, tokens, granted, wait_limit);
        let Some(contract) = self.refusals.check(contract)? else {
            return Ok((None, Vec::new()));
        };
        if let Some((root, _)) = file_roots.output_root() {
            let (outputs, caller) = (&contract.output_files, &self.request.caller);
            let apart = store_overlap::keep_outputs_apart(outputs, root, caller, self.policy);
            self.refusals.check(apart)?;
        }
        let destinations = staging::check_outputs(&contract.output_files);
        self.refusals.check(destinations.map_err(RunError::from))?;
        let sizes = check_inputs(&contract, file_roots);
        let sizes = self.refusals.check(sizes)?.unwrap_or_default();
        Ok((Some(contract), sizes))
    }

    fn plan_view(
        &mut self,
        resolved: &ResolvedRun,
        facts: &HostFacts,
    ) -> Result<Vec<ViewStep>, RunError> {
        let entries = launch_plan::distinct_mounts(resolved);
        let mut mounts = Vec::with_capacity(entries.len());
        for entry in &entries {
            let inspected = mounts::inspect(entry).map_err(RunError::from);
            mounts.extend(self.refusals.check(inspected)?);
        }
        // An impossible mount was refused above.
        if mounts.len() == entries.len() {
            let caller = &self.request.caller;
            let apart =
                store_overlap::keep_stores_apart(&mut resolved.view.clone(), caller, self.policy);
            self.refusals.check(apart)?;
        }
        let workspace_sources = &resolved.manifest.workspace_sources;
        mounts.extend(workspace_sources.iter().map(sources::placeholder_mount));
        let references = sources::parse_references(&resolved.manifest, self.request, self.policy);
        self.refusals.check(references)?;
        let asked = view_plan::asked(&mounts).map_err(RunError::from);
        let asked = self.refusals.check(asked)?.unwrap_or_default();
        let is_image = resolved.image.is_some();
        Ok(launch_plan::view_steps(&facts.host, is_image, asked))
    }

    fn find_program(
        &mut self,
        resolved: &ResolvedRun,
        limits: Option<&Limits>,
        files: &Files,
        steps: &[ViewStep],
        facts: &HostFacts,
    ) -> Result<Option<Program>, RunError> {
        let memory_bytes = limits.map_or(0, Limits::memory_bytes);
        let parts = launch_plan::environment_parts(self.request, resolved, memory_bytes, RUN_ID);
        let programs = launch_plan::program_candidates(resolved, &parts);
        let inside = inside(resolved, files, steps, facts);
        let attempt = Attempt {
            request: self.request,
            resolved,
            programs: &programs,
        };
        let program = self.refusals.check(predict_start(&inside, &attempt))?;
        Ok(program.flatten())
    }
}

fn missing_grants(error: &RunError) -> Vec<MissingGrant> {
    let RunError::Ungranted(missing) = error else {
        return Vec::new();
    };
    let row = |grant: &Ungranted| MissingGrant {
        what: grant.what.clone(),
        flag: grant.flag.clone(),
    };
    missing.iter().map(row).collect()
}

fn check_inputs(contract: &IoContract, file_roots: &FileRoots) -> Result<Vec<u64>, RunError> {
    let Some(workspace) = file_roots.workspace_of_inputs(contract)? else {
        return Ok(Vec::new());
    };
    let limits = FileLimits::default();
    Ok(staging::check_inputs(
        workspace,
        &contract.input_files,
        &limits,
    )?)
}

fn inside<'plan>(
    resolved: &'plan ResolvedRun,
    files: &'plan Files,
    steps: &'plan [ViewStep],
    facts: &HostFacts,
) -> PredictedView<'plan> {
    PredictedView {
        steps,
        bundle: match files {
            Files::Surveyed(bundle) => Some(&**bundle),
            Files::Command | Files::ManifestAlone { .. } => None,
        },
        has_own_uid: facts.host.privileged,
        image: resolved.image.as_ref(),
    }
}

/// Predicts the start of the body; returns the program if the run form is resolved.
fn predict_start(
    inside: &PredictedView<'_>,
    attempt: &Attempt<'_>,
) -> Result<Option<Program>, RunError> {
    let Some(name) = attempt.resolved.argv.first() else {
        return Ok(None);
    };
    let directory = &attempt.resolved.working_directory;
    inside.enter(directory).map_err(|errno| {
        let step = ChildStep::WorkingDirectory;
        let error = SandboxError::Child {
            step,
            act: step.act(),
            object: format!(" {}", escape(directory)),
            errno,
        };
        start_failure::explain(error, inside, attempt)
    })?;
    let found = inside.program(attempt.programs, directory);
    found.map(Some).map_err(|error| {
        let program = escape(name);
        let error = match error.errno() {
            Errno::NOENT => SandboxError::ProgramNotFound { program },
            errno => SandboxError::ProgramNotExecutable { program, errno },
        };
        start_failure::explain(error, inside, attempt)
    })
}

fn manifest_alone(request: &Request) -> Option<&Path> {
    let Subject::Bundle(BundleArgument::Path(path)) = &request.subject else {
        return None;
    };
    let extension = path.extension()?.to_str()?;
    (MANIFEST_EXTENSIONS.contains(&extension) && path.is_file()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::host::{HostEntry, HostSupport};
    use spec::limits::Coverage;
    use spec::limits::Limit;
    use spec::report::EnforcementState;
    use spec::request::{Caller, GivenSecret, ViewEntry};
    use spec::secret::Secret;

    const MANIFEST: &str = "\
id: demo
version: 1.2.3
run: {exec: [./tool, one, 'two words']}
runner: {engine: in-process, limits: {memory_mb: 128, timeout_ms: 5000}}
secrets: {API_KEY: {vault: my-key}}
sandbox: {provider: local, config: {cwd: sub}, limits: {timeout_ms: 9000}}
outputsFiles: {o: {path: 'out/<runId>/<isoDate>.txt'}}
driver: x
metadata: {runner: {provenance: {/runner/limits: base/CODE.md, /secrets: other/CODE.md}}}
";

    fn facts() -> HostFacts {
        let covered = |axis, state, enforced_by, reason: Option<&str>| Coverage {
            axis,
            state,
            enforced_by,
            reason: reason.map(str::to_owned),
        };
        HostFacts {
            host: HostSupport {
                privileged: false,
                uid: 1000,
                gid: 1000,
                landlock_abi: 4,
                time_namespace: true,
                entries: vec![
                    ("/usr", HostEntry::Directory),
                    ("/bin", HostEntry::Link(b"usr/bin".to_vec())),
                    ("/etc/ssl", HostEntry::Directory),
                ],
            },
            backend: "none",
            coverage: vec![
                covered("memory", EnforcementState::Weaker, "poll", Some("no group")),
                covered("processes", EnforcementState::Enforced, "cgroup-v2", None),
                covered(
                    "cpu_share",
                    EnforcementState::Absent,
                    "none",
                    Some("no group"),
                ),
                covered(
                    "cpu_time",
                    EnforcementState::Weaker,
                    "poll",
                    Some("no group"),
                ),
            ],
        }
    }

    fn request() -> Request {
        let subject = Subject::Bundle(BundleArgument::Stdin);
        let mut request = Request::captured(subject, Caller::default());
        request.streams.capture = false;
        request.environment = vec![(b"A".to_vec(), b"not for the plan".to_vec())];
        request.secrets = vec![GivenSecret {
            variable: b"API_KEY".to_vec(),
            reference: "env:KEY".to_owned(),
            value: Secret::new(b"not for the plan".to_vec()),
        }];
        request.limits.values.set(Limit::Memory, 64 << 20);
        request.limits.values.set(Limit::WallTime, 7_200_000);
        request.view = vec![ViewEntry::Tmpfs {
            target: "/cache".into(),
            size_bytes: Some(1 << 20),
        }];
        request.bundle.workspace = Some("/".into());
        request
    }

    /// The plan of `files` on an invented host, so that it is the same everywhere.
    fn planned(request: &Request, files: &[(&str, &[u8])]) -> PlanReport {
        planned_at(1_700_000_000, request, files)
    }

    fn planned_at(start_unix_s: i64, request: &Request, files: &[(&str, &[u8])]) -> PlanReport {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(home.path().join("sub")).expect("made");
        for (name, contents) in files {
            let path = home.path().join(name);
            std::fs::write(&path, contents).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("set");
        }
        let source = std::fs::File::open(home.path()).expect("opened");
        let policy = HostPolicy::default();
        let mut dry_run = DryRun {
            request,
            policy: &policy,
            start_unix_s,
            refusals: Refusals::collecting(),
            report: ReportBuilder::new(
                Report::new(RUN_ID.to_owned(), Outcome::Refused),
                EventStream::default(),
            ),
            document: PlanReport::new(),
            question: None,
            answer: None,
        };
        let source = archive::OpenedArchive::Directory(source.into());
        let surveyed =
            SurveyedBundle::read(source, unpack_limits(&policy), false).expect("surveyed");
        let workspace = request.bundle.workspace.clone();
        let file_roots = FileRoots::open(request, workspace, &mut dry_run.refusals);
        let inputs = file_roots.map(|file_roots| ReadInputs {
            manifest: None,
            files: Files::Surveyed(Box::new(surveyed)),
            file_roots,
        });
        dry_run.finish(inputs, Ok(facts())).0
    }

    fn demo() -> [(&'static str, &'static [u8]); 2] {
        [
            ("manifest.yaml", MANIFEST.as_bytes()),
            ("sub/tool", b"\x7fELF"),
        ]
    }

    #[test]
    fn the_plan_of_the_demo_equals_the_golden_file() {
        let plan = planned(&request(), &demo());
        let mut text = serde_json::to_string_pretty(&plan).expect("JSON");
        text.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plan/demo.json");
        support::golden::assert_golden(path.as_ref(), &text);
        assert_eq!(plan.verdict, PlanVerdict::WouldStart, "{plan:#?}");
        assert!(!text.contains("not for the plan"));
    }

    #[test]
    fn the_same_request_gives_the_same_plan_and_another_clock_changes_nothing() {
        let first = planned(&request(), &demo());
        assert_eq!(first, planned_at(0, &request(), &demo()));
    }

    #[test]
    fn a_refused_plan_has_every_reason_and_all_other_rows() {
        let mut request = request();
        request.secrets.clear();
        request.bundle.workspace = None;
        request.limits.values.set(Limit::Cpus, 1_000);
        let plan = planned(&request, &demo());
        assert_eq!(plan.verdict, PlanVerdict::WouldBeRefused);
        let codes: Vec<&str> = plan
            .error
            .iter()
            .chain(&plan.further_errors)
            .map(|error| error.code.as_str())
            .collect();
        assert_eq!(
            codes,
            [
                "grant_required",
                "limit_unenforceable",
                "workspace_missing",
                "secret_unresolved"
            ]
        );
        let flags: Vec<&str> = plan
            .missing_grants
            .iter()
            .map(|missing| missing.flag.as_str())
            .collect();
        assert_eq!(flags, ["--secret API_KEY=env:API_KEY", "--workspace DIR"]);
        assert!(plan.plan.limit(Limit::Cpus).is_some());
        let mut axes = plan.plan.enforcement.iter();
        let share = axes.find(|axis| axis.axis == "cpu_share").expect("an axis");
        assert_eq!(share.state, EnforcementState::Absent);
        assert!(plan.program.is_some() && !plan.view.is_empty());
    }

    #[test]
    fn a_workspace_that_cannot_be_opened_is_one_error() {
        let mut request = request();
        request.bundle.workspace = Some("/nonexistent".into());
        let plan = planned(&request, &demo());
        let error = plan.error.expect("an error");
        assert_eq!(error.code, "workspace_unusable");
        assert_eq!(plan.further_errors, []);
    }

    /// The files of `planned` are executable, so that only the start of `RUNNER` is kept at first.
    #[test]
    fn a_block_document_without_an_extension_is_read_whole() {
        let block = format!(
            "# {}\nengine: in-process\nlimits: {{memory_mb: 128}}\n",
            "x".repeat(300)
        );
        let manifest = b"run: {exec: [./tool]}\nrunner: {file: ./RUNNER}\n";
        let files = [
            ("manifest.yaml", &manifest[..]),
            ("RUNNER", block.as_bytes()),
            ("tool", b"\x7fELF"),
        ];
        let request = Request::captured(Subject::Bundle(BundleArgument::Stdin), Caller::default());
        let plan = planned(&request, &files);
        assert_eq!(plan.error, None);
        let memory = plan.plan.limit(Limit::Memory).expect("a limit");
        assert_eq!(memory.source, "runner.limits.memory_mb");
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_refused() {
        for (contents, code) in [
            (&b"\x7fELF"[..], None),
            (b"#!/nonexistent/sh\n", Some("program_not_found")),
            (b"#!/bundle/sub/tool\n", Some("program_not_executable")),
            (b"#!\n", Some("program_not_executable")),
            (b"echo\n", Some("program_not_executable")),
            (b"", Some("program_not_executable")),
        ] {
            let mut files = demo();
            files[1].1 = contents;
            let plan = planned(&request(), &files);
            let found = plan.error.as_ref().map(|error| error.code.as_str());
            assert_eq!(found, code, "{}", String::from_utf8_lossy(contents));
        }
    }
}
