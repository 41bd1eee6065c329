//! A run up to its launch, and nothing of it made: what would be done, and who decided it.
//!
//! The stages are those of [`crate::run::execute`], in its order and through the same functions.
//! Where a run ends with the first refusal, a plan notes it and goes on. Nothing is made on the
//! host: no record, no cgroup, no uid, no mount, no file, and no program is executed. No value of a
//! variable or a secret goes into the document.

mod facts;
mod limits;
mod network;
mod paths;
mod rows;
mod unbundled;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::plan::limits::Limits;
use crate::run::chosen::{self, Chosen};
use crate::run::command;
use crate::run::contract::{self, IoContract};
use crate::run::error::RunError;
use crate::run::explain::facts::HostFacts;
use crate::run::explain::rows::Rows;
use crate::run::image::Access;
use crate::run::inputs::{Inputs, open_inputs};
use crate::run::inside::{self, Inside, Program};
use crate::run::not_started::{self, Attempt};
use crate::run::places::Places;
use crate::run::planning;
use crate::run::refusals::Refusals;
use crate::run::secret_values;
use crate::run::sources;
use crate::run::subject::{self, BundleFiles, Subject as ManifestSubject};
use crate::run::unpacking::unpack_limits;
use crate::run::view;
use crate::staging::{self, FileLimits, InputFile, Workspace};
use archive::{OpenedArchive, Surveyed, Tree, survey, survey_directory};
use sandbox::error::SandboxError;
use sandbox::mounts;
use sandbox::steps::ChildStep;
use sandbox::view::{self as view_plan, RequestedMount, ViewStep};
use secrets::Expected;
use spec::host::HostSupport;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::plan_report::{MissingGrant, PlanReport, PlanVerdict, PlannedBundle, RUN_ID};
use spec::request::{BundleArgument, Request, Subject, ViewEntry};
use spec::run_form::{Run, bundle_path};
use spec::tokens::TokenValues;

/// Endings of a BUNDLE that is a manifest alone.
const MANIFEST_ENDINGS: [&str; 4] = ["md", "json", "yaml", "yml"];

/// Says what would be done for `request`, and whether it would be started. Nothing is made.
#[must_use]
pub fn explain(request: &Request, policy: &HostPolicy) -> PlanReport {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let planner = Planner {
        request,
        policy,
        start_unix_s: now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default()),
    };
    let given = |refusals: &mut Refusals| planner.read_what_was_given(refusals);
    planner.tell(&given, HostFacts::look(request))
}

struct Planner<'plan> {
    request: &'plan Request,
    policy: &'plan HostPolicy,
    start_unix_s: i64,
}

/// What the caller gave, read.
struct Read {
    manifest: Option<ManifestSubject>,
    files: Files,
    places: Places,
}

/// The files of the bundle.
enum Files {
    /// There is no bundle.
    Command,
    Surveyed(Box<Surveyed>),
    /// There is a manifest alone; of its program it is taken for granted that it is there.
    Nowhere {
        tree: Tree,
        /// How many sources `runner bundle` would gather.
        sources: usize,
    },
}

impl Files {
    fn as_bundle(&self) -> Option<&dyn BundleFiles> {
        match self {
            Self::Command => None,
            Self::Surveyed(surveyed) => Some(&**surveyed),
            Self::Nowhere { tree, .. } => Some(tree),
        }
    }
}

/// What was settled on the way.
struct Settling {
    chosen: Chosen,
    limits: Option<Limits>,
    settled: Option<IoContract>,
    input_bytes: Vec<u64>,
    secrets: Vec<Expected>,
    steps: Vec<ViewStep>,
    program: Option<Program>,
}

impl Planner<'_> {
    fn tell(
        &self,
        given: &dyn Fn(&mut Refusals) -> Result<Read, RunError>,
        facts: Result<HostFacts, RunError>,
    ) -> PlanReport {
        let mut plan = PlanReport::new();
        let mut refusals = Refusals::collecting();
        let planned = given(&mut refusals).and_then(|read| {
            let facts = facts?;
            self.plan(read, &facts, &mut plan, &mut refusals)
        });
        let mut refused = refusals.into_vec();
        refused.extend(planned.err());
        judge(&mut plan, &refused);
        plan
    }

    /// Opens and reads what was named; no file is written.
    fn read_what_was_given(&self, refusals: &mut Refusals) -> Result<Read, RunError> {
        if let Some(path) = manifest_alone(self.request) {
            return self.read_manifest_alone(path, refusals);
        }
        let Inputs {
            manifest,
            archive,
            places,
            ..
        } = open_inputs(self.request, self.policy, refusals)?;
        let limits = unpack_limits(self.policy);
        let named = subject::document_names();
        let files = match archive {
            None => Files::Command,
            Some(OpenedArchive::File(file)) => {
                Files::Surveyed(Box::new(survey(Patient(file), &limits, &named)?))
            }
            Some(OpenedArchive::Directory(source)) => {
                Files::Surveyed(Box::new(survey_directory(source.as_fd(), &limits, &named)?))
            }
        };
        Ok(Read {
            manifest,
            files,
            places,
        })
    }

    fn read_manifest_alone(&self, path: &Path, refusals: &mut Refusals) -> Result<Read, RunError> {
        refusals.check(chosen::refuse_unsupported(self.request))?;
        let workspace = self.request.bundle.workspace.as_deref();
        let of_caller = subject::of_caller(&self.request.bundle, workspace, &self.policy.refs)?;
        let (mut manifest, sources) = match of_caller {
            Some(manifest) => {
                let sources = manifest.manifest.code.len();
                (manifest, sources)
            }
            None => unbundled::read(path, self.request, self.policy)?,
        };
        // By then they have been fetched.
        let unresolved = |code: &str| code == "code_unresolved";
        let found = &mut manifest.manifest.refusals;
        found.retain(|refusal| !unresolved(refusal.code()));
        let run = subject::run_value(&self.request.bundle, &manifest.manifest)?;
        let program = match &run {
            Some(Run::Text(text) | Run::File(text)) => bundle_path(text).ok(),
            _ => None,
        };
        Ok(Read {
            manifest: Some(manifest),
            files: Files::Nowhere {
                tree: program.map(Tree::of_program).unwrap_or_default(),
                sources,
            },
            places: Places::open(self.request, workspace.map(Path::to_path_buf), refusals)?,
        })
    }

    fn plan(
        &self,
        read: Read,
        facts: &HostFacts,
        plan: &mut PlanReport,
        refusals: &mut Refusals,
    ) -> Result<(), RunError> {
        facts.backend.clone_into(&mut plan.cgroup_backend);
        self.tell_files(&read.files, plan);
        let mut rows = Rows::new(self.request, self.policy);
        let chosen = match (&self.request.subject, read.files.as_bundle()) {
            (Subject::Command(argv), _) => {
                command::of_command(self.request, self.policy, argv, Access::Look, refusals)?
            }
            (Subject::Bundle(_), Some(bundle)) => {
                let subject =
                    chosen::manifest_of(self.request, self.policy, read.manifest, bundle)?;
                rows.tell_manifest(plan, &subject);
                chosen::of_bundle(
                    self.request,
                    self.policy,
                    subject,
                    Access::Look,
                    bundle,
                    refusals,
                )?
            }
            (Subject::Bundle(_), None) => {
                return Err(RunError::host("find the bundle")(Errno::NOENT));
            }
        };
        plan.warnings.extend(chosen.warnings.iter().cloned());
        let (host, coverage) = (&facts.host, &facts.coverage);
        let settled = planning::settle_limits(self.request, self.policy, host, coverage, &chosen);
        let limits = match refusals.check(settled)? {
            None => None,
            Some(settled) => {
                plan.warnings.extend(settled.warnings);
                plan.enforcement = settled.enforcement;
                for error in settled.refusals {
                    refusals.refuse(error)?;
                }
                Some(settled.limits)
            }
        };
        let settling = self.settle_rest(
            chosen,
            limits,
            &read.files,
            &read.places,
            &facts.host,
            refusals,
        )?;
        rows.tell(plan, &settling, &read.places);
        plan.network = network::of(self.request, self.policy, &settling.chosen.egress);
        plan.unchecked
            .extend(network::unchecked(self.request, &plan.network));
        self.tell_unchecked(&settling, facts, plan);
        Ok(())
    }

    /// Files, view and program: all that comes after the limits.
    fn settle_rest(
        &self,
        mut chosen: Chosen,
        limits: Option<Limits>,
        files: &Files,
        places: &Places,
        host: &HostSupport,
        refusals: &mut Refusals,
    ) -> Result<Settling, RunError> {
        let tokens = TokenValues {
            run_id: RUN_ID,
            manifest_id: chosen.manifest.token_id().unwrap_or("tool"),
            start_unix_s: self.start_unix_s,
        };
        let granted = chosen.grants.outputs;
        let (io, time) = (&chosen.manifest.io, self.request.limits.wall_time());
        // Signals end a plan by themselves.
        let patience = contract::Patience {
            time,
            signals: None,
        };
        let settled = contract::settle(io, &self.request.bundle, tokens, granted, patience);
        let settled = refusals.check(settled)?;
        let mut input_bytes = Vec::new();
        if let Some(settled) = &settled {
            refusals.check(contract::check_destinations(&settled.output_files))?;
            let checked = match places.to_stage_from(settled) {
                Ok(None) => Ok(Vec::new()),
                Ok(Some(workspace)) => look_at_inputs(workspace, &settled.input_files),
                Err(error) => Err(error),
            };
            input_bytes = refusals.check(checked)?.unwrap_or_default();
        }
        let expected = secret_values::expect(self.request, self.policy, &chosen);
        let expected = refusals.check(expected)?.unwrap_or_default();
        // A run gets values here; a plan goes on with their names.
        chosen.name_secrets(self.request);
        let entries = planning::distinct(&chosen);
        let mut mounts = look_at_mounts(&entries, refusals)?;
        // What could not be looked at has been told of.
        if mounts.len() == entries.len() {
            let caller = &self.request.caller;
            let apart = view::keep_stores_apart(&mut chosen.view.clone(), caller, self.policy);
            refusals.check(apart)?;
        }
        let wanted = &chosen.manifest.workspace_sources;
        mounts.extend(wanted.iter().map(sources::placeholder));
        let named = sources::check(&chosen.manifest, self.request, self.policy);
        refusals.check(named)?;
        let asked = refusals.check(view_plan::asked(&mounts).map_err(RunError::from))?;
        let asked = asked.unwrap_or_default();
        let steps = planning::lay_out(host, chosen.image.is_some(), asked);
        let memory_bytes = limits.as_ref().map_or(0, Limits::memory_bytes);
        let parts = planning::parts(self.request, &chosen, memory_bytes, RUN_ID);
        let programs = planning::programs(&chosen, &parts);
        let inside = Inside {
            steps: &steps,
            bundle: match files {
                Files::Surveyed(surveyed) => Some(&**surveyed),
                Files::Command | Files::Nowhere { .. } => None,
            },
            foreign: host.privileged,
            image: chosen.image.as_ref(),
        };
        let attempt = Attempt {
            request: self.request,
            chosen: &chosen,
            programs: &programs,
        };
        let program = refusals.check(start_of(&inside, &attempt))?;
        Ok(Settling {
            chosen,
            limits,
            settled,
            input_bytes,
            secrets: expected,
            steps,
            program: program.flatten(),
        })
    }

    fn tell_files(&self, files: &Files, plan: &mut PlanReport) {
        match files {
            Files::Command => (),
            Files::Nowhere { sources, .. } => {
                plan.unchecked.push(
                    "the files: this is a manifest alone, and its `run` could not be checked \
                     against a bundle"
                        .to_owned(),
                );
                if 0 < *sources {
                    plan.unchecked.push(format!(
                        "{sources} sources of `code`: `runner bundle` gathers their files"
                    ));
                }
            }
            Files::Surveyed(surveyed) => {
                plan.warnings.extend(surveyed.warnings.iter().cloned());
                plan.bundle = Some(PlannedBundle {
                    content_digest: surveyed.content_digest,
                    archive_digest: surveyed.archive_digest,
                    bytes: surveyed.bytes,
                    entries: surveyed.entries,
                });
            }
        }
    }

    fn tell_unchecked(&self, settling: &Settling, facts: &HostFacts, plan: &mut PlanReport) {
        for expected in &settling.secrets {
            plan.unchecked.push(format!(
                "the value of {}: nobody was asked for it",
                expected.variable
            ));
        }
        for source in &plan.workspace_sources {
            if source.is_kept != Some(true) {
                let id = &source.id;
                plan.unchecked
                    .push(format!("workspace source {id}: nobody was asked for it"));
            }
        }
        let lent = settling.chosen.view.iter().filter_map(|entry| match entry {
            ViewEntry::Bind {
                source,
                writable: true,
                ..
            } => Some(inside::shown(source)),
            _ => None,
        });
        if facts.host.privileged {
            plan.unchecked.extend(lent.map(|source| {
                format!("{source}: whether its file system can show the body as its owner")
            }));
        }
    }
}

fn look_at_inputs(workspace: &Workspace, inputs: &[InputFile]) -> Result<Vec<u64>, RunError> {
    Ok(staging::check_inputs(
        workspace,
        inputs,
        &FileLimits::default(),
    )?)
}

fn look_at_mounts(
    entries: &[ViewEntry],
    refusals: &mut Refusals,
) -> Result<Vec<RequestedMount>, RunError> {
    entries
        .iter()
        .filter_map(|entry| {
            refusals
                .check(mounts::look(entry).map_err(RunError::from))
                .transpose()
        })
        .collect()
}

/// Whether the body's first step would succeed; the program, where one was chosen at all.
fn start_of(inside: &Inside<'_>, attempt: &Attempt<'_>) -> Result<Option<Program>, RunError> {
    let Some(name) = attempt.chosen.argv.first() else {
        return Ok(None);
    };
    let directory = &attempt.chosen.working_directory;
    inside.enter(directory).map_err(|errno| {
        let step = ChildStep::WorkingDirectory;
        let error = SandboxError::Child {
            step,
            act: step.act(),
            object: format!(" {}", escape(directory)),
            errno,
        };
        not_started::told(error, inside, attempt)
    })?;
    let found = inside.program(attempt.programs, directory);
    found.map(Some).map_err(|lack| {
        let program = escape(name);
        let error = match lack.errno() {
            Errno::NOENT => SandboxError::ProgramNotFound { program },
            errno => SandboxError::ProgramNotExecutable { program, errno },
        };
        not_started::told(error, inside, attempt)
    })
}

/// A BUNDLE that is a manifest and no archive.
fn manifest_alone(request: &Request) -> Option<&Path> {
    let Subject::Bundle(BundleArgument::Path(path)) = &request.subject else {
        return None;
    };
    let ending = path.extension()?.to_str()?;
    (MANIFEST_ENDINGS.contains(&ending) && path.is_file()).then_some(path)
}

/// Reads a descriptor that somebody may have made non-blocking.
struct Patient(File);

impl io::Read for Patient {
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

fn judge(plan: &mut PlanReport, refusals: &[RunError]) {
    let mut errors = refusals.iter().map(RunError::report);
    plan.error = errors.next();
    plan.further_errors = errors.collect();
    plan.verdict = match refusals.first().map(RunError::outcome) {
        None => PlanVerdict::WouldStart,
        Some(Outcome::Refused) => PlanVerdict::WouldBeRefused,
        Some(_) => PlanVerdict::WouldFail,
    };
    for error in refusals {
        if let RunError::Ungranted(missing) = error {
            plan.missing_grants
                .extend(missing.iter().map(|one| MissingGrant {
                    what: one.what.clone(),
                    flag: one.flag.clone(),
                }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::host::HostEntry;
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
        let planner = Planner {
            request,
            policy: &policy,
            start_unix_s,
        };
        let limits = unpack_limits(&policy);
        let given = |refusals: &mut Refusals| {
            let named = subject::manifest_names();
            let surveyed = survey_directory(source.as_fd(), &limits, &named)?;
            Ok(Read {
                manifest: None,
                files: Files::Surveyed(Box::new(surveyed)),
                places: Places::open(request, request.bundle.workspace.clone(), refusals)?,
            })
        };
        planner.tell(&given, Ok(facts()))
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
        let share = plan.limits.iter().find(|limit| limit.name == "cpu_millis");
        let share = share.expect("told");
        assert_eq!(share.state, Some(EnforcementState::Absent));
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
