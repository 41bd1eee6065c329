//! Supervises the running body. Consumes the launched child and its pipes, returns what was observed
//! until its end: streams, limits, network.

pub(super) mod audit_denials;
pub(super) mod limit_warnings;
mod live_denials;
mod live_usage;
pub(super) mod network;
pub(super) mod network_report;
mod path_denials;
pub(super) mod published_ports;
pub(super) mod refused_calls;
pub(super) mod signal_denials;
mod stream_reports;
pub(super) mod usage_report;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::plan::limits::Limits;
use crate::run::Run;
use crate::run::contract::IoContract;
use crate::run::dry_run::view::ViewOfRun;
use crate::run::error::RunError;
use crate::run::image::SelectedImage;
use crate::run::reporting::ReportBuilder;
use crate::run::supervision::audit_denials::NoAudit;
use crate::run::supervision::live_denials::{LiveDenials, Seen};
use crate::run::supervision::network::NetworkSetup;
use crate::run::supervision::network_report::NetworkReport;
use crate::run::supervision::stream_reports::{finish_stream, recorded_stream};
use confinement::confine_supervisor;
use sandbox::audit_trail::AuditTrail;
use sandbox::cgroups::Counted;
use sandbox::host;
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use sandbox::supervise::meter::Meter;
use sandbox::supervise::streams::{CopyLimits, InputPump, OutputPump, Pipes, Sink, Writer};
use sandbox::supervise::watch::{Attached, Observed, Streams, WatchLimits, watch};
use spec::history::{RECORDED_BYTES_MAX, RecordedOutput};
use spec::io::contract::DOCUMENT_BYTES_MAX;
use spec::limits::Limit;
use spec::observation::KindObservation;
use spec::report::{Denial, StreamReport};
use spec::sandboxes::EndedCommands;
use spec::usage_sample::UsageSample;
use sys::terminal;

/// State that supervision and its report need beside the launched child.
pub(super) struct Supervised {
    pub(super) limits: Limits,
    /// The remaining wall time at the launch.
    pub(super) wall_time: Option<Duration>,
    pub(super) contract: IoContract,
    pub(super) filled_bytes: u64,
    pub(super) network_setup: NetworkSetup,
    /// Counters of the cgroups, if they were read while init was exiting.
    pub(super) counted: Option<Counted>,
    /// Keeps its layers from being removed while the body may read them.
    pub(super) image: Option<SelectedImage>,
    /// The view of the body, for a detailed report or a trace.
    pub(super) view: Option<ViewOfRun>,
    /// Whether Landlock refuses the body's signals to process 1.
    pub(super) refuses_signals: bool,
    pub(super) audit: Result<AuditTrail, NoAudit>,
}

/// Denials of one kind, and whether they are all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DenialsReport {
    pub(super) denials: Vec<Denial>,
    pub(super) observation: KindObservation,
}

impl DenialsReport {
    fn unobserved(reason: impl Into<String>) -> Self {
        Self {
            denials: Vec::new(),
            observation: KindObservation::none(reason),
        }
    }
}

pub(super) struct Watched {
    pub(super) observed: Observed,
    pub(super) samples: Option<Vec<UsageSample>>,
    pub(super) stdout: StreamReport,
    pub(super) stderr: StreamReport,
    /// Copy of standard output, if it may be the output document.
    pub(super) document: Option<Vec<u8>>,
    /// What `--record-output` keeps, not masked.
    pub(super) recorded: Option<RecordedOutput>,
    pub(super) network: Option<NetworkReport>,
    /// Of a sandbox that stays.
    pub(super) commands: Option<EndedCommands>,
}

impl Run<'_> {
    pub(super) fn watch(
        &self,
        resources: &mut Resources,
        launched: &mut Launched,
        pipes: Pipes,
        signals: BorrowedFd<'_>,
        supervised: &mut Supervised,
        report: &ReportBuilder,
    ) -> Result<Watched, RunError> {
        let caller_terminal = self.caller_terminal(launched)?;
        let _raw = match &caller_terminal {
            Some(terminal) if self.request.streams.interactive => {
                let raw = terminal::RawMode::enter(terminal.as_fd());
                Some(raw.map_err(RunError::host("put the terminal into raw mode"))?)
            }
            _ => None,
        };
        let mut streams = self.streams(launched, pipes, supervised)?;
        let has_own_uid = resources.host.privileged;
        let proc = launched.proc.take();
        let memory_bytes = proc.is_some().then_some(supervised.limits.memory_bytes());
        let sampled = proc.as_ref().map(AsFd::as_fd);
        let mut meter = Meter::new(&mut resources.group, sampled, memory_bytes);
        if self.request.is_detailed {
            meter.start_curve();
        }
        let limits = WatchLimits {
            wall_time: supervised.wall_time,
            grace: supervised.limits.grace,
            cpu_time: supervised.limits.time(Limit::CpuTime),
            memory_bytes,
            on_output_limit: self.request.limits.on_output_limit,
            stop_signal: self.request.stop_signal,
            processors: host::processors(),
        };
        let sockets = launched.network.take();
        let capture = sockets.as_ref().map(|sockets| sockets.capture);
        let mut relay = supervised.network_setup.start_relay(sockets)?;
        if let Some(staying) = self.staying() {
            staying.leave_directory()?;
        }
        if self.last.is_some() {
            confine_supervisor(self.request.is_traced)
                .map_err(RunError::host("give up the supervisor's rights"))?;
        }
        let mut commands = None;
        if let Some(staying) = self.staying() {
            staying.announce()?;
            commands = Some(staying.commands());
        }
        let view = supervised.view.as_ref();
        let inside = view.map(|view| view.predicted(supervised.image.as_ref(), has_own_uid));
        let rules = view.zip(inside.as_ref());
        let mut live_denials = LiveDenials {
            report,
            masks: self.masks,
            policy: report.syscall_policy(),
            policies: None,
            rules: rules.map(|(view, inside)| self.path_rules(view, inside)),
            refuses_signals: supervised.refuses_signals,
            seen: Seen::default(),
            emitted: 0,
        };
        let attached = Attached {
            caller_terminal: caller_terminal.as_ref(),
            relay: relay.as_mut(),
            audit: supervised.audit.as_mut().ok(),
            commands: commands.as_deref_mut().and_then(Option::as_mut),
            follower: match report.has_events() {
                true => Some(&mut live_denials),
                false => None,
            },
        };
        let observed = watch(
            launched,
            &mut streams,
            signals,
            limits,
            &mut meter,
            attached,
        )
        .map_err(|error| RunError::host(error.act)(error.errno))?;
        let commands = commands.as_deref_mut().and_then(Option::as_mut);
        let commands = commands.map(|commands| commands.finish(meter.group));
        supervised.counted = meter.counted;
        let samples = meter.take_samples();
        let network_setup = &supervised.network_setup;
        let network = relay.map(|relay| network_setup.finish_relay(relay, capture, self.policy));
        let Streams { stdout, stderr, .. } = streams;
        let (stdout, kept_stdout) = finish_stream(stdout);
        let (stderr, kept_stderr) = finish_stream(stderr);
        let record = self.request.streams.record;
        let recorded = record.then(|| RecordedOutput {
            run_id: String::new(),
            stdout: recorded_stream(&stdout, kept_stdout.as_ref()),
            stderr: recorded_stream(&stderr, kept_stderr.as_ref()),
        });
        let is_document = self.may_print_document(supervised);
        let document = kept_stdout.filter(|kept| is_document && kept.is_whole);
        Ok(Watched {
            observed,
            samples,
            stdout,
            stderr,
            document: document.map(|kept| kept.bytes),
            recorded,
            network,
            commands,
        })
    }

    /// The caller's terminal, whose size is followed, if the body has a terminal.
    fn caller_terminal(&self, launched: &Launched) -> Result<Option<OwnedFd>, RunError> {
        let Some(body) = &launched.terminal else {
            return Ok(None);
        };
        let stdin = rustix::stdio::stdin();
        if !rustix::termios::isatty(stdin) {
            return Ok(None);
        }
        let failed = || RunError::host("follow the caller's terminal");
        // Repeated: the size may have changed between the launch and the signal handler.
        terminal::copy_size(stdin, body.as_fd()).map_err(failed())?;
        rustix::io::fcntl_dupfd_cloexec(stdin, 3)
            .map(Some)
            .map_err(failed())
    }

    fn streams(
        &self,
        launched: &Launched,
        pipes: Pipes,
        supervised: &Supervised,
    ) -> Result<Streams, RunError> {
        let failed = || RunError::host("connect the body's streams");
        let limit = supervised.limits.values.get(Limit::Output);
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
        let stdin = match (stdin, &supervised.contract.input) {
            (Some(sink), _) if self.request.streams.interactive => {
                let is_terminal = launched.terminal.is_some();
                let caller = rustix::stdio::stdin();
                Some(InputPump::of_caller(caller, sink, is_terminal).map_err(failed())?)
            }
            (Some(sink), Some(text)) => Some(InputPump::of_text(text.clone(), sink)),
            _ => None,
        };
        let is_document = self.may_print_document(supervised);
        let is_recorded = self.request.streams.record && !capture;
        let kept = |is_document: bool| CopyLimits {
            whole_bytes: usize::from(is_document) * DOCUMENT_BYTES_MAX,
            head_bytes: usize::from(is_recorded) * RECORDED_BYTES_MAX,
        };
        let stdout = OutputPump::new(stdout, to_stdout, limit);
        let stderr = OutputPump::new(stderr, to_stderr, limit);
        // A terminal of the body, or typed input, would share the line with it.
        let streams = &self.request.streams;
        let has_line = streams.stats
            && !streams.terminal
            && !streams.interactive
            && tracing::event_enabled!(tracing::Level::TRACE);
        let limits = &supervised.limits;
        let stats = has_line.then(|| {
            let outputs = [rustix::stdio::stdout(), rustix::stdio::stderr()];
            let shares = outputs.map(|output| !capture && rustix::termios::isatty(output));
            live_usage::stats(shares, limits, host::processors())
        });
        Ok(Streams {
            stdin,
            stdout: stdout.with_copy(kept(is_document)),
            stderr: stderr.with_copy(kept(false)),
            stats,
        })
    }

    /// Whether output that is passed through may be the structured output.
    fn may_print_document(&self, supervised: &Supervised) -> bool {
        supervised.contract.outputs.is_some() && !self.request.streams.capture
    }
}
