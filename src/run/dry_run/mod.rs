//! `runner plan`: a run that stops before anything is created.
//!
//! The stages are those of [`crate::run::execute`], in the same order and with the same functions,
//! and fill the same part of the report. A run ends with the first refusal, a plan collects all.
//! Nothing is created on the host: no record, cgroup, uid, mount or file, and no program is
//! executed. The document contains no value of a variable or a secret.

mod decided_by;
mod facts;
mod manifest_alone;
mod network;
mod view;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::plan::grants::Ungranted;
use crate::plan::limits::Limits;
use crate::run::contract::{self, IoContract};
use crate::run::dry_run::decided_by::Rows;
use crate::run::dry_run::facts::HostFacts;
use crate::run::error::RunError;
use crate::run::file_roots::FileRoots;
use crate::run::image::Access;
use crate::run::inputs::{Inputs, open_inputs};
use crate::run::inside::{self, Inside, Program};
use crate::run::loaded_manifest::{self, BundleFiles, LoadedManifest};
use crate::run::not_started::{self, Attempt};
use crate::run::planning;
use crate::run::refusals::Refusals;
use crate::run::reporting::ReportBuilder;
use crate::run::resolved::{self, ResolvedRun};
use crate::run::secret_values;
use crate::run::sources;
use crate::run::unpacking::unpack_limits;
use crate::run::view as run_view;
use crate::staging::{self, FileLimits};
use archive::{OpenedArchive, Surveyed, Tree, survey, survey_directory};
use sandbox::error::SandboxError;
use sandbox::mounts;
use sandbox::steps::ChildStep;
use sandbox::view::{self as view_plan, ViewStep};
use secrets::ExpectedSecret;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::plan_report::{MissingGrant, PlanReport, PlanVerdict, PlannedBundle, RUN_ID};
use spec::report::Report;
use spec::request::{BundleArgument, Request, Subject, ViewEntry};
use spec::tokens::TokenValues;

/// Extensions of a BUNDLE that is a manifest without a bundle.
const MANIFEST_EXTENSIONS: [&str; 4] = ["md", "json", "yaml", "yml"];

/// Plans `request`: what a run would do, who decided it, and whether the body would be started.
#[must_use]
pub fn plan(request: &Request, policy: &HostPolicy) -> PlanReport {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut dry_run = DryRun {
        request,
        policy,
        start_unix_s: now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default()),
        refusals: Refusals::collecting(),
        report: ReportBuilder::new(Report::new(RUN_ID.to_owned(), Outcome::Refused)),
        document: PlanReport::new(),
    };
    let inputs = dry_run.open_inputs();
    dry_run.finish(inputs, HostFacts::look(request))
}

/// A plan with the state that all stages share.
struct DryRun<'plan> {
    request: &'plan Request,
    policy: &'plan HostPolicy,
    start_unix_s: i64,
    refusals: Refusals,
    report: ReportBuilder,
    document: PlanReport,
}

/// The caller's inputs, read.
struct ReadInputs {
    manifest: Option<LoadedManifest>,
    files: Files,
    file_roots: FileRoots,
}

/// The files of the bundle.
enum Files {
    /// A command has no bundle.
    Command,
    Surveyed(Box<Surveyed>),
    /// A manifest without a bundle; its program is assumed to exist.
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
            Self::Surveyed(surveyed) => Some(&**surveyed),
            Self::ManifestAlone { tree, .. } => Some(tree),
        }
    }
}

/// All decisions before a launch.
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
    ) -> PlanReport {
        let result = inputs.and_then(|inputs| self.stages(inputs, &facts?));
        let mut refused = self.refusals.into_vec();
        refused.extend(result.err());
        let (plan, warnings) = self.report.into_plan();
        PlanReport {
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
        }
    }

    fn stages(&mut self, inputs: ReadInputs, facts: &HostFacts) -> Result<(), RunError> {
        let ReadInputs {
            manifest,
            files,
            file_roots,
        } = inputs;
        self.report.cgroup_backend(facts.backend);
        self.describe_files(&files);
        let manifest = match files.as_bundle() {
            Some(bundle) => Some(resolved::manifest_of(
                self.request,
                self.policy,
                manifest,
                bundle,
            )?),
            None => manifest,
        };
        let rows = Rows::new(self.request, self.policy, manifest.as_ref());
        self.document.manifest = manifest.as_ref().map(decided_by::manifest);
        let mut resolved = self.choose(manifest, &files)?;
        let limits = self.decide_limits(&resolved, facts, &rows)?;
        let (contract, input_bytes) = self.check_files(&resolved, &file_roots)?;
        let secrets = secret_values::expect(self.request, self.policy, &resolved);
        let secrets = self.refusals.check(secrets)?.unwrap_or_default();
        // A run requests the values here.
        resolved.name_secrets(self.request);
        let steps = self.lay_out(&resolved, facts)?;
        let program = self.find_program(&resolved, limits.as_ref(), &files, &steps, facts)?;
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
        self.note_unchecked(&decided, facts);
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
        let limits = unpack_limits(policy);
        let named = loaded_manifest::document_names();
        let files = match archive {
            None => Files::Command,
            Some(OpenedArchive::File(file)) => {
                Files::Surveyed(Box::new(survey(Blocking(file), &limits, &named)?))
            }
            Some(OpenedArchive::Directory(source)) => {
                Files::Surveyed(Box::new(survey_directory(source.as_fd(), &limits, &named)?))
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
                    "the files: this is a manifest alone, and its `run` could not be checked \
                     against a bundle"
                        .to_owned(),
                );
                if *sources > 0 {
                    unchecked.push(format!(
                        "{sources} sources of `code`: `runner bundle` gathers their files"
                    ));
                }
            }
            Files::Surveyed(surveyed) => {
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

    fn choose(
        &mut self,
        manifest: Option<LoadedManifest>,
        files: &Files,
    ) -> Result<ResolvedRun, RunError> {
        let (request, policy, bundle) = (self.request, self.policy, files.as_bundle());
        let refusals = &mut self.refusals;
        let resolved = resolved::choose(request, policy, bundle, manifest, Access::Look, refusals)?;
        self.report.resolved(&resolved);
        if policy.oci.root_read_only {
            self.report.read_only_root();
        }
        Ok(resolved)
    }

    fn decide_limits(
        &mut self,
        resolved: &ResolvedRun,
        facts: &HostFacts,
        rows: &Rows<'_>,
    ) -> Result<Option<Limits>, RunError> {
        let (host, coverage) = (&facts.host, &facts.coverage);
        let effective =
            planning::resolve_limits(self.request, self.policy, host, coverage, resolved);
        let Some(mut effective) = self.refusals.check(effective)? else {
            return Ok(None);
        };
        rows.name_files(&mut effective.limits.reports);
        self.report.limits(&effective);
        for error in effective.refusals {
            self.refusals.refuse(error)?;
        }
        Ok(Some(effective.limits))
    }

    /// The contract of the files, and the sizes of the inputs.
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
        // A signal ends a plan by its default action.
        let wait_limit = contract::WaitLimit {
            time,
            signals: None,
        };
        let contract = contract::resolve(io, &self.request.bundle, tokens, granted, wait_limit);
        let Some(contract) = self.refusals.check(contract)? else {
            return Ok((None, Vec::new()));
        };
        let destinations = contract::check_destinations(&contract.output_files);
        self.refusals.check(destinations)?;
        let sizes = check_inputs(&contract, file_roots);
        let sizes = self.refusals.check(sizes)?.unwrap_or_default();
        Ok((Some(contract), sizes))
    }

    /// The steps of the view.
    fn lay_out(
        &mut self,
        resolved: &ResolvedRun,
        facts: &HostFacts,
    ) -> Result<Vec<ViewStep>, RunError> {
        let entries = planning::distinct(resolved);
        let mut mounts = Vec::with_capacity(entries.len());
        for entry in &entries {
            let looked = mounts::inspect(entry).map_err(RunError::from);
            mounts.extend(self.refusals.check(looked)?);
        }
        // A missing entry has its own refusal.
        if mounts.len() == entries.len() {
            let caller = &self.request.caller;
            let apart =
                run_view::keep_stores_apart(&mut resolved.view.clone(), caller, self.policy);
            self.refusals.check(apart)?;
        }
        let wanted = &resolved.manifest.workspace_sources;
        mounts.extend(wanted.iter().map(sources::placeholder));
        let named = sources::check(&resolved.manifest, self.request, self.policy);
        self.refusals.check(named)?;
        let asked = view_plan::asked(&mounts).map_err(RunError::from);
        let asked = self.refusals.check(asked)?.unwrap_or_default();
        let is_image = resolved.image.is_some();
        Ok(planning::lay_out(&facts.host, is_image, asked))
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
        let parts = planning::parts(self.request, resolved, memory_bytes, RUN_ID);
        let programs = planning::programs(resolved, &parts);
        let inside = Inside {
            steps,
            bundle: match files {
                Files::Surveyed(surveyed) => Some(&**surveyed),
                Files::Command | Files::ManifestAlone { .. } => None,
            },
            foreign: facts.host.privileged,
            image: resolved.image.as_ref(),
        };
        let attempt = Attempt {
            request: self.request,
            resolved,
            programs: &programs,
        };
        let program = self.refusals.check(start_of(&inside, &attempt))?;
        Ok(program.flatten())
    }

    fn note_unchecked(&mut self, decided: &Decided, facts: &HostFacts) {
        let document = &mut self.document;
        let unchecked = &mut document.unchecked;
        unchecked.extend(network::unchecked(self.request, &document.network));
        for expected in &decided.secrets {
            unchecked.push(format!(
                "the value of {}: nobody was asked for it",
                expected.variable
            ));
        }
        for source in &document.workspace_sources {
            if source.is_kept != Some(true) {
                let id = &source.id;
                unchecked.push(format!("workspace source {id}: nobody was asked for it"));
            }
        }
        let writable = decided
            .resolved
            .view
            .iter()
            .filter_map(|entry| match entry {
                ViewEntry::Bind {
                    source,
                    writable: true,
                    ..
                } => Some(inside::shown(source)),
                _ => None,
            });
        if facts.host.privileged {
            unchecked.extend(writable.map(|source| {
                format!("{source}: whether its file system can show the body as its owner")
            }));
        }
    }
}

fn missing_grants(error: &RunError) -> Vec<MissingGrant> {
    let RunError::Ungranted(missing) = error else {
        return Vec::new();
    };
    let row = |one: &Ungranted| MissingGrant {
        what: one.what.clone(),
        flag: one.flag.clone(),
    };
    missing.iter().map(row).collect()
}

fn check_inputs(contract: &IoContract, file_roots: &FileRoots) -> Result<Vec<u64>, RunError> {
    let Some(workspace) = file_roots.to_stage_from(contract)? else {
        return Ok(Vec::new());
    };
    let limits = FileLimits::default();
    Ok(staging::check_inputs(
        workspace,
        &contract.input_files,
        &limits,
    )?)
}

/// Predicts the start of the body; returns the program if the run form is resolved.
fn start_of(inside: &Inside<'_>, attempt: &Attempt<'_>) -> Result<Option<Program>, RunError> {
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
        not_started::explain(error, inside, attempt)
    })?;
    let found = inside.program(attempt.programs, directory);
    found.map(Some).map_err(|lack| {
        let program = escape(name);
        let error = match lack.errno() {
            Errno::NOENT => SandboxError::ProgramNotFound { program },
            errno => SandboxError::ProgramNotExecutable { program, errno },
        };
        not_started::explain(error, inside, attempt)
    })
}

/// Whether BUNDLE is a manifest rather than an archive.
fn manifest_alone(request: &Request) -> Option<&Path> {
    let Subject::Bundle(BundleArgument::Path(path)) = &request.subject else {
        return None;
    };
    let extension = path.extension()?.to_str()?;
    (MANIFEST_EXTENSIONS.contains(&extension) && path.is_file()).then_some(path)
}

/// Reads to the end from a descriptor that may be non-blocking.
struct Blocking(File);

impl io::Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut ends = [PollFd::new(&self.0, PollFlags::IN)];
                    poll(&mut ends, None)?;
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::host::{HostEntry, HostSupport};
    use spec::limits::Coverage;
    use spec::limits::Limit;
    use spec::report::EnforcementState;
    use spec::request::{Caller, GivenSecret};
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

    /// The plan of `files` on a host that is the same everywhere.
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
        let source = File::open(home.path()).expect("opened");
        let policy = HostPolicy::default();
        let mut dry_run = DryRun {
            request,
            policy: &policy,
            start_unix_s,
            refusals: Refusals::collecting(),
            report: ReportBuilder::new(Report::new(RUN_ID.to_owned(), Outcome::Refused)),
            document: PlanReport::new(),
        };
        let limits = unpack_limits(&policy);
        let named = loaded_manifest::manifest_names();
        let surveyed = survey_directory(source.as_fd(), &limits, &named).expect("surveyed");
        let workspace = request.bundle.workspace.clone();
        let file_roots = FileRoots::open(request, workspace, &mut dry_run.refusals);
        let inputs = file_roots.map(|file_roots| ReadInputs {
            manifest: None,
            files: Files::Surveyed(Box::new(surveyed)),
            file_roots,
        });
        dry_run.finish(inputs, Ok(facts()))
    }

    fn demo() -> [(&'static str, &'static [u8]); 2] {
        [
            ("manifest.yaml", MANIFEST.as_bytes()),
            ("sub/tool", b"\x7fELF"),
        ]
    }

    #[test]
    fn one_plan_is_the_one_that_was_read_by_a_person() {
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
    fn a_refused_plan_names_every_reason_and_still_says_the_rest() {
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
    fn what_could_not_be_executed_is_told_before_it_is_tried() {
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
