//! Watches a run from the launch to the end of all its processes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::launch::{self, InitMessage, Launched};
use crate::supervise::judge::Reason;
use crate::supervise::meter::Meter;
use crate::supervise::relaying::Relaying;
use crate::supervise::streams::{InputPump, OutputPump, Waiting};
use egress::dialler::Dialler;
use spec::report::with_causes;
use spec::request::OnOutputLimit;
use sys::{process, signal, terminal};

/// Time after SIGKILL until the processes count as unkillable.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(20);
const METER_PERIOD_MIN: Duration = Duration::from_millis(10);
/// Sampling period without a memory cgroup.
const MEMORY_PERIOD: Duration = Duration::from_millis(50);

/// Limits that the watch enforces.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    pub wall_time: Option<Duration>,
    /// Time between the stop signal and SIGKILL. Zero: only SIGKILL is sent.
    pub grace: Duration,
    pub cpu_time: Option<Duration>,
    /// Memory of the whole tree; only without a memory cgroup.
    pub memory_bytes: Option<u64>,
    pub on_output_limit: OnOutputLimit,
    pub stop_signal: i32,
    /// Number of CPUs, which limits how fast CPU time is used.
    pub processors: u32,
}

/// Pumps of the standard streams.
#[derive(Debug)]
pub struct Streams {
    pub stdin: Option<InputPump>,
    pub stdout: OutputPump,
    pub stderr: OutputPump,
}

/// Result of the watch.
#[derive(Debug)]
pub struct Observed {
    /// Wait status of the body's first process; `None` if init did not report it.
    pub raw_status: Option<i32>,
    pub init_status: Option<i32>,
    pub reason: Option<Reason>,
    pub wall_time: Duration,
    /// User and system CPU time of wait4(2), microseconds.
    pub waited_cpu_us: Option<(u64, u64)>,
    /// Peak of the samples.
    pub memory_seen_bytes: Option<u64>,
    pub problems: Vec<String>,
    pub unkillable: bool,
}

/// The watch failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act}: {errno}")]
pub struct WatchError {
    pub act: &'static str,
    #[source]
    pub errno: Errno,
}

impl From<Errno> for WatchError {
    fn from(errno: Errno) -> Self {
        let act = "watch the body";
        Self { act, errno }
    }
}

struct Watch<'run, 'meter> {
    launched: &'run mut Launched,
    relaying: Relaying<'run>,
    streams: &'run mut Streams,
    signals: BorrowedFd<'run>,
    caller_terminal: Option<&'run OwnedFd>,
    limits: WatchLimits,
    meter: &'run mut Meter<'meter>,
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
/// `signals` is the signalfd of [`listen_for_signals`]. The body's terminal follows the size of
/// `caller_terminal`. `relay` serves the other end of the body's network.
///
/// # Errors
/// [`WatchError`] of poll(2) or of the streams; the caller's guard then kills the tree.
pub fn watch(
    launched: &mut Launched,
    streams: &mut Streams,
    signals: BorrowedFd<'_>,
    caller_terminal: Option<&OwnedFd>,
    limits: WatchLimits,
    meter: &mut Meter<'_>,
    relay: Option<&mut Dialler>,
) -> Result<Observed, WatchError> {
    let started = Instant::now();
    process::request_short_slice();
    let mut watch = Watch {
        launched,
        relaying: Relaying::new(relay),
        streams,
        signals,
        caller_terminal,
        limits,
        meter,
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
}

impl Watch<'_, '_> {
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
        self.relaying
            .turn(is_ready(Source::Relay), self.launched, now)?;
        if self.init_gone {
            self.bound_draining(now);
        } else {
            self.check_limits(now);
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<Source>, Errno> {
        let mut fds = Vec::with_capacity(7);
        let mut sources = Vec::with_capacity(7);
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
            if let Some(waiting) = self.streams.stdin.as_ref().and_then(InputPump::waiting) {
                watch(poll_for(waiting), Source::Stdin);
            }
        }
        watch(readable(self.signals), Source::Signal);
        if let Some(waiting) = self.streams.stdout.waiting() {
            watch(poll_for(waiting), Source::Stdout);
        }
        if let Some(waiting) = self.streams.stderr.waiting() {
            watch(poll_for(waiting), Source::Stderr);
        }
        if let Some(relay) = self.relaying.as_fd() {
            watch(readable(relay), Source::Relay);
        }
        match rustix::event::poll(&mut fds, self.timeout().as_ref()) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
        let ready = fds
            .iter()
            .zip(sources)
            .filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }

    fn timeout(&self) -> Option<Timespec> {
        let now = Instant::now();
        let mut next = self.relaying.deadline();
        let mut sooner = |at: Option<Instant>| {
            next = next.into_iter().chain(at).min();
        };
        if self.init_gone {
            sooner(Some(self.last_progress + self.drain_patience()));
        } else if let Some(since) = self.dying_since() {
            sooner(Some(since + UNKILLABLE_AFTER));
        } else if let Some(since) = self.stopping_since {
            sooner(Some(since + self.limits.grace));
        } else {
            sooner(self.next_sample);
            sooner(self.limits.wall_time.map(|limit| self.started + limit));
        }
        let left = next?.saturating_duration_since(now);
        Timespec::try_from(left).ok()
    }

    /// When all processes got SIGKILL: from us, or from the kernel since init has ended.
    fn dying_since(&self) -> Option<Instant> {
        self.killed_at.or(self.ended_at)
    }

    fn drain_patience(&self) -> Duration {
        self.limits.grace.max(Duration::from_secs(1))
    }

    fn receive(&mut self, now: Instant) -> Result<(), Errno> {
        match launch::receive(self.launched.link.as_fd())? {
            InitMessage::Ended(raw_status) => {
                self.observed.raw_status = Some(raw_status);
                self.ended_at = Some(now);
                self.meter.body_ended();
            }
            InitMessage::Connected(id, socket) => self.relaying.answered(id, socket),
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
        let ended = self.launched.child.reap()?;
        self.observed.init_status = Some(ended.raw_status);
        self.observed.waited_cpu_us = Some((ended.user_time_us, ended.system_time_us));
        self.observed.wall_time = now.duration_since(self.started);
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

    fn check_limits(&mut self, now: Instant) {
        if let Some(since) = self.dying_since() {
            if now.duration_since(since) >= UNKILLABLE_AFTER {
                self.observed.unkillable = true;
                self.observed.wall_time = now.duration_since(self.started);
                self.init_gone = true;
                self.close_streams();
            }
            return;
        }
        if let Some(since) = self.stopping_since {
            if now.duration_since(since) >= self.limits.grace {
                self.kill(now);
            }
            return;
        }
        let stop_signal = self.limits.stop_signal;
        if self
            .limits
            .wall_time
            .is_some_and(|limit| now.duration_since(self.started) >= limit)
        {
            self.stop(Reason::WallTime, stop_signal, now);
        } else if self.limits.on_output_limit == OnOutputLimit::Kill
            && (self.streams.stdout.over_limit() || self.streams.stderr.over_limit())
        {
            self.stop(Reason::Output, stop_signal, now);
        } else if self.next_sample.is_some_and(|at| at <= now) {
            self.check_sampled_limits(now);
        }
    }

    fn check_sampled_limits(&mut self, now: Instant) {
        if let Some(limit) = self.limits.memory_bytes
            && let Some(bytes) = self.meter.memory_bytes()
        {
            let peak = &mut self.observed.memory_seen_bytes;
            *peak = (*peak).max(Some(bytes));
            if bytes > limit {
                // Without grace, in which the body would allocate more memory of the host.
                self.observed.reason = Some(Reason::Memory);
                self.kill(now);
                return;
            }
        }
        if let Some(limit) = self.limits.cpu_time
            && let Some(used_us) = self.meter.cpu_time_us()
            && Duration::from_micros(used_us) >= limit
        {
            self.stop(Reason::CpuTime, self.limits.stop_signal, now);
            return;
        }
        self.schedule_sample(now);
    }

    /// For CPU time, not before all CPUs together can have used the rest of the limit.
    fn schedule_sample(&mut self, now: Instant) {
        let cpu_time = self.limits.cpu_time.map(|limit| {
            let used = self.meter.cpu_time_us();
            let used = used.map_or(Duration::ZERO, Duration::from_micros);
            let left = limit.saturating_sub(used) / self.limits.processors.max(1);
            now + left.max(METER_PERIOD_MIN)
        });
        let memory = self.limits.memory_bytes.map(|_| now + MEMORY_PERIOD);
        self.next_sample = cpu_time.into_iter().chain(memory).min();
    }

    fn stop(&mut self, reason: Reason, signal: i32, now: Instant) {
        self.observed.reason = Some(reason);
        self.stopping_since = Some(now);
        if self.limits.grace.is_zero() {
            // Without the stop signal, which would race with SIGKILL.
            self.kill(now);
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

fn poll_for(waiting: Waiting<'_>) -> PollFd<'_> {
    match waiting {
        Waiting::Source(fd) => PollFd::from_borrowed_fd(fd, PollFlags::IN),
        Waiting::Sink(fd) => PollFd::from_borrowed_fd(fd, PollFlags::OUT),
    }
}

/// Blocks the signals of a run in this thread and returns a signalfd for them (rt_sigprocmask(2),
/// signalfd4(2)).
pub fn listen_for_signals() -> Result<OwnedFd, Errno> {
    let set = signal::of_a_run();
    signal::own_dispositions()?;
    signal::set_mask(set)?;
    process::close_on_exec_from(3)?;
    signal::descriptor(set)
}
