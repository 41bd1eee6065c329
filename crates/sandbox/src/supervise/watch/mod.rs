//! Watches a run from the launch to the end of all its processes.

mod limits;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::audit_trail::AuditTrail;
use crate::control::{CLIENT_ID, Commands};
use crate::launch::{self, InitMessage, Launched};
use crate::supervise::following::Following;
use crate::supervise::judge::Reason;
use crate::supervise::meter::Meter;
use crate::supervise::relaying::Relaying;
pub use crate::supervise::signals::listen_for_signals;
use crate::supervise::stats::Stats;
use crate::supervise::streams::{InputPump, OutputPump};
pub use crate::supervise::watched::{Attached, Observed, Streams, WatchError, WatchLimits};
use spec::limits::milliseconds;
use spec::report::with_causes;
use sys::{process, signal, terminal};

/// Init exits once it has told of the end or was told to, and the kernel kills the rest, unless a body has
/// taken it over.
const INIT_EXITS_WITHIN: Duration = Duration::from_secs(1);
/// Time after SIGKILL until the processes count as unkillable.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(20);
/// Sampling period without a memory cgroup.
const MEMORY_PERIOD: Duration = Duration::from_millis(50);

struct Watch<'run, 'meter, 'follower> {
    launched: &'run mut Launched,
    relaying: Relaying<'run>,
    following: Following<'follower>,
    streams: &'run mut Streams,
    signals: BorrowedFd<'run>,
    caller_terminal: Option<&'run OwnedFd>,
    limits: WatchLimits,
    meter: &'run mut Meter<'meter>,
    audit: Option<&'run mut AuditTrail>,
    commands: Option<&'run mut Commands>,
    started: Instant,
    next_sample: Option<Instant>,
    stopping_since: Option<Instant>,
    killed_at: Option<Instant>,
    last_progress: Instant,
    ended_at: Option<Instant>,
    init_gone: bool,
    observed: Observed,
}

/// Watches until all processes have ended and the streams are drained.
///
/// `signals` is the signalfd of [`listen_for_signals`].
///
/// # Errors
/// [`WatchError`] of poll(2) or of the streams; the caller's guard then kills the tree.
pub fn watch(
    launched: &mut Launched,
    streams: &mut Streams,
    signals: BorrowedFd<'_>,
    limits: WatchLimits,
    meter: &mut Meter<'_>,
    attached: Attached<'_>,
) -> Result<Observed, WatchError> {
    let started = Instant::now();
    process::request_short_slice();
    let mut watch = Watch {
        launched,
        relaying: Relaying::new(attached.relay),
        following: Following::new(attached.follower, started),
        streams,
        signals,
        caller_terminal: attached.caller_terminal,
        limits,
        meter,
        audit: attached.audit,
        commands: attached.commands,
        started,
        next_sample: None,
        stopping_since: None,
        killed_at: None,
        last_progress: started,
        ended_at: None,
        init_gone: false,
        observed: Observed {
            raw_status: None,
            init_status: None,
            reason: None,
            wall_time: Duration::ZERO,
            waited_cpu_us: None,
            memory_seen_bytes: None,
            problems: Vec::new(),
            unkillable: false,
        },
    };
    watch.schedule_sample(started);
    while !watch.is_done() {
        watch.turn()?;
    }
    watch.take_signals(Instant::now())?;
    if let Some(audit) = &mut watch.audit {
        audit.drain(milliseconds(started.elapsed()));
    }
    if let Some(stats) = &mut watch.streams.stats {
        stats.hide();
    }
    Ok(watch.observed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Link,
    Init,
    Signal,
    Stdin,
    Stdout,
    Stderr,
    Relay,
    RefusedCalls,
    /// Of the same descriptor.
    NoCallerLeft,
    Audit,
    Control,
    Client(usize),
    /// Of a command that nobody waits for.
    Output(usize),
}

impl Watch<'_, '_, '_> {
    fn is_done(&self) -> bool {
        self.init_gone
            && self.streams.stdout.waiting().is_none()
            && self.streams.stderr.waiting().is_none()
            && self.relaying.is_over()
    }

    fn turn(&mut self) -> Result<(), WatchError> {
        let ready = self.wait()?;
        let is_ready = |source| ready.contains(&source);
        let failed = |act| move |errno| WatchError { act, errno };
        let now = Instant::now();
        if let Some(stats) = &mut self.streams.stats {
            stats.before_output([Source::Stdout, Source::Stderr].map(is_ready));
        }
        if is_ready(Source::Stdout) {
            let moved = self.streams.stdout.advance();
            if moved.map_err(failed("pass on the standard output"))? {
                self.last_progress = now;
            }
        }
        if is_ready(Source::Stderr) {
            let moved = self.streams.stderr.advance();
            if moved.map_err(failed("pass on the standard error"))? {
                self.last_progress = now;
            }
        }
        if is_ready(Source::Stdin)
            && let Some(pump) = &mut self.streams.stdin
        {
            pump.advance()
                .map_err(failed("pass on the standard input"))?;
        }
        // Before the deadlines, so that a body that ends at its deadline has exited.
        if is_ready(Source::Link) {
            self.receive(now)?;
        }
        if is_ready(Source::Init) {
            self.reap_init(now)?;
        }
        if is_ready(Source::Signal) {
            self.take_signals(now)?;
        }
        if is_ready(Source::NoCallerLeft) {
            self.launched.refused_calls.end();
        }
        self.launched
            .refused_calls
            .answer(is_ready(Source::RefusedCalls), self.started, now)
            .map_err(failed("answer a refused call of the body"))?;
        if is_ready(Source::Audit)
            && let Some(audit) = &mut self.audit
        {
            audit.read(milliseconds(now.duration_since(self.started)));
        }
        self.following.turn(&self.launched.refused_calls, now);
        self.relaying
            .turn(is_ready(Source::Relay), self.launched, now)?;
        self.serve_clients(&ready)
            .map_err(failed("serve the clients of the sandbox"))?;
        self.show_stats(now);
        if self.init_gone {
            self.bound_draining(now);
        } else {
            if self.next_of_curve().is_some_and(|at| at <= now) {
                self.meter.extend_curve(now);
            }
            if self.killed_at.or(self.exiting_since()).is_none() {
                self.check_commands(now);
            }
            self.check_limits(now);
        }
        Ok(())
    }

    fn serve_clients(&mut self, ready: &[Source]) -> Result<(), Errno> {
        let Some(commands) = &mut self.commands else {
            return Ok(());
        };
        if self.killed_at.is_some() || self.init_gone {
            commands.refuse_requests();
        }
        for source in ready {
            match source {
                Source::Client(number) => {
                    commands.serve(*number, self.launched, self.meter.group)?
                }
                Source::Control => commands.accept()?,
                Source::Output(number) => commands.read_output(*number)?,
                _ => (),
            }
        }
        commands.answer_logs();
        commands.tidy();
        Ok(())
    }

    fn show_stats(&mut self, now: Instant) {
        let Streams {
            stdout,
            stderr,
            stats: Some(stats),
            ..
        } = self.streams
        else {
            return;
        };
        stats.after_output([stdout, stderr].map(OutputPump::take_last_byte));
        if self.ended_at.is_none() {
            stats.draw(now, || self.meter.usage());
        }
    }

    fn wait(&self) -> Result<Vec<Source>, Errno> {
        let mut fds = Vec::with_capacity(8);
        let mut sources = Vec::with_capacity(8);
        let mut watch = |fd, source| {
            fds.push(fd);
            sources.push(source);
        };
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        if !self.init_gone {
            if self.ended_at.is_none() {
                watch(readable(self.launched.link.as_fd()), Source::Link);
            }
            watch(readable(self.launched.child.pidfd()), Source::Init);
            if let Some(listener) = self.launched.refused_calls.as_fd() {
                watch(readable(listener), Source::RefusedCalls);
            }
            if let Some(waiting) = self.streams.stdin.as_ref().and_then(InputPump::waiting) {
                watch(waiting.to_poll(), Source::Stdin);
            }
        }
        if let Some(records) = self.audit.as_ref().and_then(|audit| audit.as_fd()) {
            watch(readable(records), Source::Audit);
        }
        if let Some(commands) = self.commands.as_ref().filter(|_| !self.init_gone) {
            if let Some(socket) = commands.socket() {
                watch(readable(socket), Source::Control);
            }
            for (client, number) in commands.clients() {
                watch(readable(client), Source::Client(number));
            }
            for (output, number) in commands.outputs() {
                watch(readable(output), Source::Output(number));
            }
        }
        watch(readable(self.signals), Source::Signal);
        if let Some(waiting) = self.streams.stdout.waiting() {
            watch(waiting.to_poll(), Source::Stdout);
        }
        if let Some(waiting) = self.streams.stderr.waiting() {
            watch(waiting.to_poll(), Source::Stderr);
        }
        if let Some(relay) = self.relaying.as_fd() {
            watch(readable(relay), Source::Relay);
        }
        match rustix::event::poll(&mut fds, self.timeout().as_ref()) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
        let ready = fds.iter().zip(sources);
        let ready = ready.filter(|(fd, _)| !fd.revents().is_empty());
        let source = |(fd, source): (&PollFd<'_>, Source)| match source {
            Source::RefusedCalls if !fd.revents().contains(PollFlags::IN) => Source::NoCallerLeft,
            source => source,
        };
        Ok(ready.map(source).collect())
    }

    fn timeout(&self) -> Option<Timespec> {
        let now = Instant::now();
        let refused_calls = self.launched.refused_calls.deadline();
        let following = self.following.deadline(&self.launched.refused_calls);
        let mut next = self
            .relaying
            .deadline()
            .into_iter()
            .chain(refused_calls)
            .chain(following)
            .min();
        let mut sooner = |at: Option<Instant>| {
            next = next.into_iter().chain(at).min();
        };
        sooner(self.next_of_curve());
        if self.init_gone {
            sooner(Some(self.last_progress + self.drain_patience()));
        } else if let Some(since) = self.killed_at {
            sooner(Some(since + UNKILLABLE_AFTER));
        } else if let Some(since) = self.exiting_since() {
            sooner(Some(since + INIT_EXITS_WITHIN));
        } else if let Some(since) = self.stopping_since {
            sooner(Some(since + self.limits.grace));
            sooner(self.deadline_of_commands(now));
        } else {
            sooner(self.deadline_of_commands(now));
            sooner(self.next_sample);
            sooner(self.streams.stats.as_ref().map(Stats::deadline));
            sooner(self.end_of_wall_time(now));
        }
        let left = next?.saturating_duration_since(now);
        Timespec::try_from(left).ok()
    }

    /// Since when init is to exit.
    fn exiting_since(&self) -> Option<Instant> {
        let requested = self.commands.as_ref().and_then(|all| all.exit_requested());
        self.ended_at.or(requested)
    }

    /// When the use of the body is sampled next.
    fn next_of_curve(&self) -> Option<Instant> {
        match self.ended_at {
            None => self.meter.next_of_curve(),
            Some(_) => None,
        }
    }

    fn drain_patience(&self) -> Duration {
        self.limits.grace.max(Duration::from_secs(1))
    }

    fn receive(&mut self, now: Instant) -> Result<(), Errno> {
        match launch::receive(self.launched.link.as_fd())? {
            InitMessage::Ended(raw_status) => {
                self.observed.raw_status = Some(raw_status);
                self.ended_at = Some(now);
                self.meter.body_ended(now);
            }
            InitMessage::Connected(CLIENT_ID, socket) => {
                if let Some(commands) = &mut self.commands {
                    commands.connected(socket);
                }
            }
            InitMessage::Connected(id, socket) => self.relaying.answered(id, socket),
            InitMessage::Command(event) => {
                if let Some(commands) = &mut self.commands {
                    commands.heard(event, self.launched)?;
                }
            }
            // Init is ending; its pidfd becomes readable.
            InitMessage::Gone => self.ended_at = Some(now),
        }
        Ok(())
    }

    fn reap_init(&mut self, now: Instant) -> Result<(), Errno> {
        // Other messages may precede that about the end of the body.
        while self.ended_at.is_none() {
            self.receive(now)?;
        }
        // Who signals all processes of a job signals the body too, and maybe sooner.
        self.take_signals(now)?;
        let ended = self.launched.child.reap()?;
        self.observed.init_status = Some(ended.raw_status);
        self.observed.waited_cpu_us = Some((ended.user_time_us, ended.system_time_us));
        self.observed.wall_time = self.run_time(now);
        self.init_gone = true;
        self.last_progress = now;
        self.relaying.body_has_ended(now, self.drain_patience());
        if self.stopping_since.is_some() || self.killed_at.is_some() {
            // Do not wait for the relay of a stopped run.
            self.relaying.close();
        }
        Ok(())
    }

    fn take_signals(&mut self, now: Instant) -> Result<(), Errno> {
        while let Some(number) = signal::take(self.signals)? {
            if number == libc::SIGWINCH {
                if let (Some(from), Some(to)) = (self.caller_terminal, &self.launched.terminal) {
                    terminal::copy_size(from.as_fd(), to.as_fd())?;
                }
                continue;
            }
            if !signal::ends_a_run(number) {
                // Forward other signals to the body, as docker does.
                if self.stopping_since.is_none() && self.ended_at.is_none() {
                    self.forward_signal(number);
                }
                continue;
            }
            if self.init_gone {
                self.blame_end_on(number);
                // The body has ended; do not wait for the reader of its output.
                self.close_streams();
            } else if self.stopping_since.is_some() {
                self.kill(now);
            } else {
                self.stop(Reason::Cancelled(number), number, now);
            }
        }
        Ok(())
    }

    /// A body that the same signal has ended was cancelled with the run.
    fn blame_end_on(&mut self, number: i32) {
        let by_signal = self.observed.raw_status.map(|status| status & 0x7f);
        if self.observed.reason.is_none() && by_signal == Some(number) {
            self.observed.reason = Some(Reason::Cancelled(number));
        }
    }

    fn stop(&mut self, reason: Reason, signal: i32, now: Instant) {
        self.observed.reason = Some(reason);
        self.stopping_since = Some(now);
        if self.limits.grace.is_zero() {
            // Without the stop signal, which would race with SIGKILL.
            self.kill(now);
            return;
        }
        if let Some(commands) = &mut self.commands {
            let stopped = commands.stop(signal, self.launched, self.meter.group).err();
            let problem = stopped.map(|errno| format!("cannot stop the commands: {errno}"));
            self.observed.problems.extend(problem);
            return;
        }
        for number in [signal, libc::SIGCONT] {
            self.forward_signal(number);
        }
    }

    fn forward_signal(&mut self, number: i32) {
        if let Err(errno) = self.launched.signal(number) {
            let problem = format!("cannot send signal {number} to the body: {errno}");
            self.observed.problems.push(problem);
        }
    }

    /// Kills all processes. The cgroup first, because a fork bomb is faster than single signals.
    fn kill(&mut self, now: Instant) {
        if let Err(error) = self.meter.kill_all() {
            self.observed.problems.push(with_causes(&error));
        }
        if let Err(errno) = self.launched.child.kill() {
            let problem = format!("cannot send SIGKILL to init: {errno}");
            self.observed.problems.push(problem);
        }
        self.killed_at = Some(now);
    }

    fn close_streams(&mut self) {
        self.streams.stdout.discard_rest();
        self.streams.stderr.discard_rest();
        self.relaying.close();
    }

    /// After the end of the body, waits only while the reader of the streams makes progress.
    fn bound_draining(&mut self, now: Instant) {
        if now.duration_since(self.last_progress) >= self.drain_patience() {
            self.streams.stdout.discard_rest();
            self.streams.stderr.discard_rest();
        }
    }
}
