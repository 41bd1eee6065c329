//! Supervises the running body. Consumes the launched child and its pipes, returns what was observed
//! until its end: streams, limits, network.

pub(super) mod network;
mod network_report;
pub(super) mod published_ports;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::run::error::RunError;
use crate::run::exec::Supervised;
use crate::run::supervision::network_report::NetworkReport;
use crate::run::{Run, reporting};
use confinement::confine_supervisor;
use sandbox::host;
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use sandbox::supervise::meter::Meter;
use sandbox::supervise::streams::{InputPump, OutputPump, Pipes, Sink, Writer};
use sandbox::supervise::watch::{Observed, Streams, WatchLimits, watch};
use spec::io::contract::DOCUMENT_BYTES_MAX;
use spec::limits::Limit;
use spec::report::StreamReport;
use sys::terminal;

pub(super) struct Watched {
    pub(super) observed: Observed,
    pub(super) stdout: StreamReport,
    pub(super) stderr: StreamReport,
    /// Copy of standard output, if it may be the output document.
    pub(super) document: Option<Vec<u8>>,
    pub(super) network: Option<NetworkReport>,
}

impl Run<'_> {
    pub(super) fn watch(
        &self,
        resources: &mut Resources,
        launched: &mut Launched,
        pipes: Pipes,
        signals: BorrowedFd<'_>,
        supervised: &mut Supervised,
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
        let proc = launched.proc.take();
        let memory_bytes = proc.is_some().then_some(supervised.limits.memory_bytes());
        let sampled = proc.as_ref().map(AsFd::as_fd);
        let mut meter = Meter::new(&mut resources.group, sampled, memory_bytes);
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
        if self.is_last {
            confine_supervisor().map_err(RunError::host("give up the supervisor's rights"))?;
        }
        let observed = watch(
            launched,
            &mut streams,
            signals,
            caller_terminal.as_ref(),
            limits,
            &mut meter,
            relay.as_mut(),
        )
        .map_err(|error| RunError::host(error.act)(error.errno))?;
        supervised.counted = meter.counted;
        let network_setup = &supervised.network_setup;
        let network = relay.map(|relay| network_setup.finish_relay(relay, capture, self.policy));
        let Streams { stdout, stderr, .. } = streams;
        let (stdout, document) = reporting::finish_stream(stdout);
        let (stderr, _) = reporting::finish_stream(stderr);
        Ok(Watched {
            observed,
            stdout,
            stderr,
            document,
            network,
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
        let mut stdout = OutputPump::new(stdout, to_stdout, limit);
        if supervised.contract.outputs.is_some() && !capture {
            // Output that is passed through may be the structured output.
            stdout = stdout.with_copy(DOCUMENT_BYTES_MAX);
        }
        Ok(Streams {
            stdin,
            stdout,
            stderr: OutputPump::new(stderr, to_stderr, limit),
        })
    }
}
