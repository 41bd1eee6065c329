//! One run, from request to report: start reading here, at [`execute`].
//!
//! Each stage has one type, which can only be had from the stage before: [`Held`] is what the run
//! has on the host, `Prepared` a child that waits in its namespaces and has handed over its
//! writable space, `Launched` a running body, `Observed` what became of it.

pub mod chosen;
pub mod contract;
pub mod demonstration;
pub mod doctor;
pub mod error;
pub mod hold;
pub mod host;
mod meter;
mod planning;
pub mod program;
mod reporting;
pub mod subject;
mod view;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::bundle::{self, OpenedArchive, UnpackLimits, Unpacked};
use crate::kernel::credentials::AssumedFileIds;
use crate::kernel::terminal;
use crate::plan::limits::{self, Limits};
use crate::plan::view::BUNDLE;
use crate::run::chosen::Chosen;
use crate::run::contract::Settled;
use crate::run::error::RunError;
use crate::run::hold::{Held, RunJournal};
use crate::run::meter::RunMeter;
use crate::run::reporting::Stopwatch;
use crate::sandbox::cgroups::CgroupLimits;
use crate::sandbox::launch::{Launched, launch};
use crate::sandbox::prepare::{Prepared, prepare};
use crate::scratch::{self, FileLimits, OutputFile, Workspace};
use crate::spec::host_policy::HostPolicy;
use crate::spec::outcome::Outcome;
use crate::spec::report::{BundleReport, Report, SyncState, SyncedReport, WarningReport};
use crate::spec::request::{BundleArgument, Request, Subject};
use crate::spec::tokens::TokenValues;
use crate::spec::ulid::ulid;
use crate::supervise::streams::{InputPump, OutputPump, Pipes, Sink, Writer, make_pipes};
use crate::supervise::watch::{Observed, Streams, WatchLimits, listen_for_signals, watch};
use crate::supervise::without_cgroup::Sampler;

/// Does one run. Whatever happens, there is a report.
///
/// The calling process must have one thread only: see [`prepare`].
#[must_use]
pub fn execute(request: &Request, policy: &HostPolicy) -> Report {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or_default();
    let seed = host::random_bytes();
    let run_id = ulid(now_ms, *seed.as_ref().unwrap_or(&[0; 10]));
    let mut report = Report::new(run_id, Outcome::Refused);
    let start_unix_s = i64::try_from(now.as_secs()).unwrap_or_default();
    let told = seed.and_then(|seed| {
        Run {
            request,
            policy,
            start_unix_s,
            seed,
        }
        .tell(&mut report)
    });
    if let Err(error) = told {
        report.outcome = error.outcome();
        report.error = Some(error.report());
    }
    report
}

struct Run<'run> {
    request: &'run Request,
    policy: &'run HostPolicy,
    start_unix_s: i64,
    seed: [u8; 10],
}

/// What the caller gave, opened and read before anything is made on the host.
struct Given {
    manifest: Option<subject::Subject>,
    archive: Option<OpenedArchive>,
    workspace: Option<(PathBuf, Workspace)>,
}

/// What the stages between prepare and launch have settled.
struct Ready {
    limits: Limits,
    settled: Settled,
    filled_bytes: u64,
}

impl Run<'_> {
    fn tell(&self, report: &mut Report) -> Result<(), RunError> {
        let mut clock = Stopwatch::start();
        let given = self.open_what_was_given()?;
        let mut held = Held::take(self.request, self.policy, self.seed, report)?;
        let done = self.tell_held(&mut held, given, report, &mut clock);
        held.release(report);
        clock.lap(report, "clean");
        done
    }

    fn tell_held(
        &self,
        held: &mut Held,
        given: Given,
        report: &mut Report,
        clock: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let signals = listen_for_signals().map_err(RunError::host("listen for signals"))?;
        let (theirs, ours) = make_pipes(true).map_err(RunError::host("make the body's pipes"))?;
        let prepared = prepare(&held.base, theirs, held.group.clone_into())?;
        clock.lap(report, "prepare");
        let Given {
            manifest,
            archive,
            workspace,
        } = given;
        let bundle = self.unpack(archive, &prepared, held, report)?;
        clock.lap(report, "unpack");
        let (ready, mut launched) = self.plan_and_launch(
            held,
            prepared,
            bundle,
            manifest,
            workspace.as_ref(),
            report,
            clock,
        )?;
        let (observed, captured) =
            self.watch(held, &mut launched, ours, signals, &ready, report)?;
        clock.lap(report, "body");
        reporting::conclude(
            report,
            &observed,
            held,
            &ready.limits,
            ready.filled_bytes,
            &launched,
        );
        self.take_output(held, &launched, &ready.settled, captured.as_deref(), report);
        self.sync(held, &launched, workspace, &ready.settled, report);
        self.keep(&launched, report)?;
        clock.lap(report, "sync");
        Ok(())
    }

    fn open_what_was_given(&self) -> Result<Given, RunError> {
        chosen::refuse_unsupported(self.request)?;
        let manifest = subject::of_caller(&self.request.bundle)?;
        let archive = match &self.request.subject {
            Subject::Command(_) => None,
            Subject::Bundle(BundleArgument::Path(path)) => Some(bundle::open_archive(path)?),
            Subject::Bundle(BundleArgument::Stdin) => {
                let stdin = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
                    .map_err(RunError::host("read the bundle from standard input"))?;
                Some(OpenedArchive::File(File::from(stdin)))
            }
        };
        let stated = self.request.bundle.workspace.clone();
        // The caller's own manifest speaks of the directory that the caller stands in.
        let path = stated.or_else(|| match &manifest {
            Some(_) => self.request.caller.working_directory.clone(),
            None => None,
        });
        let workspace = match path {
            Some(path) => {
                let opened = Workspace::open(&path)?;
                Some((path, opened))
            }
            None => None,
        };
        Ok(Given {
            manifest,
            archive,
            workspace,
        })
    }

    fn unpack(
        &self,
        archive: Option<OpenedArchive>,
        prepared: &Prepared,
        held: &Held,
        report: &mut Report,
    ) -> Result<Option<(Unpacked, OwnedFd)>, RunError> {
        let Some(archive) = archive else {
            return Ok(None);
        };
        let caps = self.policy.unpack;
        let limits = UnpackLimits {
            compressed_bytes: caps.archive_bytes,
            unpacked_bytes: caps.unpacked_bytes,
            entries: caps.entries,
        };
        let root = {
            let _assumed = self.assume(held)?;
            contract::open_directory(prepared.space(), BUNDLE.trim_start_matches('/'))?
        };
        let unpacked = match archive {
            OpenedArchive::File(file) => {
                let _assumed = self.assume(held)?;
                bundle::unpack(file, root.as_fd(), &limits)?
            }
            // The source is read with the caller's rights, and only the target written with the
            // body's.
            OpenedArchive::Directory(source) => {
                bundle::unpack_directory_as(source.as_fd(), root.as_fd(), &limits, held.body_ids())?
            }
        };
        report.bundle = Some(BundleReport {
            content_digest: unpacked.content_digest,
            archive_digest: unpacked.archive_digest,
            bytes: unpacked.bytes,
            entries: unpacked.entries,
        });
        report.warnings.extend(unpacked.warnings.iter().cloned());
        Ok(Some((unpacked, root)))
    }

    fn assume(&self, held: &Held) -> Result<AssumedFileIds, RunError> {
        AssumedFileIds::assume(held.body_ids())
            .map_err(RunError::host("touch files with the body's ids"))
    }

    #[expect(clippy::too_many_arguments, reason = "each stage's product, used once")]
    fn plan_and_launch(
        &self,
        held: &mut Held,
        prepared: Prepared,
        bundle: Option<(Unpacked, OwnedFd)>,
        manifest: Option<subject::Subject>,
        workspace: Option<&(PathBuf, Workspace)>,
        report: &mut Report,
        clock: &mut Stopwatch,
    ) -> Result<(Ready, Launched), RunError> {
        let chosen = self.choose(bundle.as_ref(), manifest)?;
        drop(bundle);
        report.warnings.extend(chosen.warnings.iter().cloned());
        report.run_form = chosen.form;
        report.argv = reporting::shown(&chosen.argv);
        report.bound_programs.clone_from(&chosen.bound);
        report.downgraded = chosen.manifest.runner.downgraded;
        let limits = self.settle_limits(held, &chosen, prepared.time_namespace, report)?;
        let joins = held.group.apply(&CgroupLimits {
            memory_bytes: Some(limits.memory_bytes),
            processes: Some(limits.processes),
            cpu_millis: limits.cpu_millis,
        })?;
        let tokens = TokenValues {
            run_id: &report.run_id,
            manifest_id: chosen.manifest.token_id().unwrap_or("tool"),
            start_unix_s: self.start_unix_s,
        };
        let granted = chosen.grants.outputs;
        let settled = contract::settle(&chosen.manifest.io, &self.request.bundle, tokens, granted)?;
        check_destinations(&settled.output_files)?;
        clock.lap(report, "plan");
        self.stage(held, &prepared, &settled, workspace, report)?;
        clock.lap(report, "stage");
        let (mut plan, trees) = planning::launch_plan(
            self.request,
            held,
            &chosen,
            &limits,
            &prepared,
            &report.run_id,
        )?;
        plan.null_stdin = settled.input.is_none() && !self.request.streams.interactive;
        let (filled_bytes, _) = planning::space_in_use(&prepared)?;
        let launched = launch(prepared, &plan, &trees, &joins)?;
        clock.lap(report, "launch");
        Ok((
            Ready {
                limits,
                settled,
                filled_bytes,
            },
            launched,
        ))
    }

    fn choose(
        &self,
        bundle: Option<&(Unpacked, OwnedFd)>,
        manifest: Option<subject::Subject>,
    ) -> Result<Chosen, RunError> {
        match (&self.request.subject, bundle) {
            (Subject::Command(argv), _) => chosen::of_command(self.request, self.policy, argv),
            (Subject::Bundle(_), Some((unpacked, root))) => {
                chosen::of_bundle(self.request, self.policy, manifest, unpacked, root)
            }
            (Subject::Bundle(_), None) => {
                Err(RunError::host("find the bundle")(rustix::io::Errno::NOENT))
            }
        }
    }

    fn settle_limits(
        &self,
        held: &Held,
        chosen: &Chosen,
        time_namespace: bool,
        report: &mut Report,
    ) -> Result<Limits, RunError> {
        let mut merged = limits::merge(
            &self.request.limits,
            &chosen.manifest.limits,
            chosen.manifest.sandbox.is_some(),
            &self.policy.maxima,
            self.request.streams.capture,
        )?;
        let strict = self.request.strict;
        report.enforcement = planning::enforcement(&held.host, time_namespace, strict)?;
        let settled = limits::settle(&mut merged, &held.coverage(), self.request.limits.mode);
        report.limits.clone_from(&merged.reports);
        report.enforcement.extend(settled?);
        Ok(merged)
    }

    fn stage(
        &self,
        held: &Held,
        prepared: &Prepared,
        settled: &Settled,
        workspace: Option<&(PathBuf, Workspace)>,
        report: &mut Report,
    ) -> Result<(), RunError> {
        if let Some(text) = &settled.input {
            let _assumed = self.assume(held)?;
            contract::write_input(prepared.space(), text)?;
        }
        if settled.input_files.is_empty() && settled.output_files.is_empty() {
            return Ok(());
        }
        let Some((_, workspace)) = workspace else {
            return Err(RunError::Argument {
                code: "workspace_missing",
                what: "workspace",
                object: String::new(),
                problem: "is not known, and files are to be staged from or synced to it".to_owned(),
                hint: Some("add --workspace DIR".to_owned()),
            });
        };
        let scratch = {
            let _assumed = self.assume(held)?;
            contract::open_directory(prepared.space(), "scratch")?
        };
        report.inputs = scratch::stage(
            workspace,
            &settled.input_files,
            scratch.as_fd(),
            held.body_ids(),
            &FileLimits::default(),
        )?;
        Ok(())
    }

    fn watch(
        &self,
        held: &Held,
        launched: &mut Launched,
        pipes: Pipes,
        signals: OwnedFd,
        ready: &Ready,
        report: &mut Report,
    ) -> Result<(Observed, Option<Vec<u8>>), RunError> {
        let failed = || RunError::host("watch the body");
        let caller_terminal = self.caller_terminal(launched)?;
        let _raw = match &caller_terminal {
            Some(terminal) if self.request.streams.interactive => {
                Some(terminal::RawMode::enter(terminal.as_fd()).map_err(failed())?)
            }
            _ => None,
        };
        let mut streams = self.streams(launched, pipes, ready)?;
        let proc = launched.proc.take();
        let memory_bytes = proc.is_some().then_some(ready.limits.memory_bytes);
        let mut meter = RunMeter {
            group: &held.group,
            sampler: proc
                .as_ref()
                .map(|proc| Sampler::new(proc.as_fd(), memory_bytes)),
        };
        let limits = WatchLimits {
            wall_time: Some(ready.limits.wall_time),
            grace: ready.limits.grace,
            cpu_time: ready.limits.cpu_time,
            memory_bytes,
            on_output_limit: self.request.limits.on_output_limit,
            stop_signal: self.request.stop_signal,
            processors: host::processors(),
        };
        let observed = watch(
            launched,
            &mut streams,
            signals.as_fd(),
            caller_terminal.as_ref(),
            limits,
            &mut meter,
        )
        .map_err(failed())?;
        let Streams { stdout, stderr, .. } = streams;
        let (stdout, captured) = reporting::stream(stdout);
        let (stderr, _) = reporting::stream(stderr);
        report.stdout = stdout;
        report.stderr = stderr;
        Ok((observed, captured))
    }

    /// The caller's terminal, where the body has one of its own: its size is followed.
    fn caller_terminal(&self, launched: &Launched) -> Result<Option<OwnedFd>, RunError> {
        let Some(body) = &launched.terminal else {
            return Ok(None);
        };
        let stdin = rustix::stdio::stdin();
        if !rustix::termios::isatty(stdin) {
            return Ok(None);
        }
        let failed = || RunError::host("follow the caller's terminal");
        terminal::copy_size(stdin, body.as_fd()).map_err(failed())?;
        rustix::io::fcntl_dupfd_cloexec(stdin, 3)
            .map(Some)
            .map_err(failed())
    }

    fn streams(
        &self,
        launched: &Launched,
        pipes: Pipes,
        ready: &Ready,
    ) -> Result<Streams, RunError> {
        let failed = || RunError::host("connect the body's streams");
        let limit = ready.limits.output_bytes;
        let capture = self.request.streams.capture;
        let sink = |descriptor| {
            if capture {
                Ok(Sink::Captured(Vec::new()))
            } else {
                Writer::new(descriptor).map(Sink::Passed).map_err(failed())
            }
        };
        let to_stdout = sink(rustix::stdio::stdout())?;
        let to_stderr = sink(rustix::stdio::stderr())?;
        let Pipes {
            stdin,
            stdout,
            stderr,
        } = pipes;
        let (stdin, stdout) = match &launched.terminal {
            None => (stdin, stdout),
            Some(master) => {
                rustix::io::ioctl_fionbio(master, true).map_err(failed())?;
                let again = || rustix::io::fcntl_dupfd_cloexec(master, 3).map_err(failed());
                (Some(again()?), again()?)
            }
        };
        let stdin = match (stdin, &ready.settled.input) {
            (Some(sink), _) if self.request.streams.interactive => {
                let is_terminal = launched.terminal.is_some();
                let caller = rustix::stdio::stdin();
                Some(InputPump::of_caller(caller, sink, is_terminal).map_err(failed())?)
            }
            (Some(sink), Some(text)) => Some(InputPump::of_text(text.clone(), sink)),
            _ => None,
        };
        Ok(Streams {
            stdin,
            stdout: OutputPump::new(stdout, to_stdout, limit),
            stderr: OutputPump::new(stderr, to_stderr, limit),
        })
    }

    /// The structured output, judged only after exit 0: it is the return of a success.
    fn take_output(
        &self,
        held: &Held,
        launched: &Launched,
        settled: &Settled,
        stdout: Option<&[u8]>,
        report: &mut Report,
    ) {
        let exited_well =
            report.outcome == Outcome::Exited && report.exit.and_then(|exit| exit.code) == Some(0);
        let read = self
            .assume(held)
            .and_then(|_assumed| contract::read_output(launched.space.as_fd(), stdout));
        let judged = read.and_then(|output| {
            report.output = output;
            if exited_well {
                contract::check_output(settled.outputs.as_ref(), report.output.as_ref())
            } else {
                Ok(())
            }
        });
        if let Err(error) = judged {
            if exited_well {
                report.outcome = error.outcome();
                report.error = Some(error.report());
            } else {
                let error = error.report();
                report
                    .warnings
                    .push(WarningReport::new("output_unreadable", error.message));
            }
        }
    }

    fn sync(
        &self,
        held: &mut Held,
        launched: &Launched,
        workspace: Option<(PathBuf, Workspace)>,
        settled: &Settled,
        report: &mut Report,
    ) {
        let Some((path, workspace)) = workspace else {
            return;
        };
        if settled.output_files.is_empty() {
            return;
        }
        if report.outcome == Outcome::Cancelled {
            report.outputs = settled.output_files.iter().map(skipped).collect();
            return;
        }
        let body_ids = held.body_ids();
        let scratch = self
            .assume(held)
            .and_then(|_assumed| contract::open_directory(launched.space.as_fd(), "scratch"));
        match scratch {
            Err(error) => {
                let message = error.report().message;
                report
                    .warnings
                    .push(WarningReport::new("sync_failed", message));
            }
            Ok(scratch) => {
                let mut journal = RunJournal::new(&mut held.record, path);
                report.outputs = scratch::sync(
                    &workspace,
                    &settled.output_files,
                    scratch.as_fd(),
                    body_ids,
                    &report.run_id,
                    &FileLimits::default(),
                    &mut journal,
                );
            }
        }
        for output in &report.outputs {
            let (code, message) = match (output.state, &output.error) {
                (SyncState::Missing, _) => (
                    "output_missing",
                    format!("the body did not make /scratch/{}", output.key),
                ),
                (SyncState::Failed, Some(error)) => ("sync_failed", error.message.clone()),
                _ => continue,
            };
            report.warnings.push(WarningReport::new(code, message));
        }
    }

    /// `--keep`: the writable space stays, as a copy in a directory of the caller's.
    fn keep(&self, launched: &Launched, report: &mut Report) -> Result<(), RunError> {
        if !self.request.bundle.keep {
            return Ok(());
        }
        let into = std::env::temp_dir().join(format!("runner-{}", report.run_id));
        let kept = scratch::keep(launched.space.as_fd(), &into, u64::MAX)?;
        report.kept = Some(crate::spec::path::escape(into.as_os_str().as_bytes()));
        if 0 < kept.left_out {
            let message = format!(
                "{} entries of the scratch root were not kept",
                kept.left_out
            );
            report
                .warnings
                .push(WarningReport::new("keep_incomplete", message));
        }
        Ok(())
    }
}

/// Refused before the body runs, so that nothing is computed in vain.
fn check_destinations(outputs: &[OutputFile]) -> Result<(), RunError> {
    scratch::check_outputs(outputs)?;
    for output in outputs.iter().filter(|output| !output.granted) {
        scratch::check_destination(&output.path)?;
    }
    Ok(())
}

fn skipped(output: &OutputFile) -> SyncedReport {
    SyncedReport {
        key: output.key.clone(),
        path: output.path.to_string(),
        state: SyncState::Skipped,
        sha256: None,
        bytes: None,
        error: None,
    }
}
